"""`gradstarve status`: where every run stands, from the run folders alone, also while they run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from gradstarve.errors import UserError
from gradstarve.launching.standing import standings, wanted_in
from gradstarve.launching.table import table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", nargs="?", metavar="SWEEP", help="a sweep's name; without one, every sweep and run")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="default: outputs")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON array, a run an object; shares are fractions")
    how.add_argument("--watch", action="store_true", help="keep showing it, until Ctrl-C or until nothing runs")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between looks of --watch")


def run(arguments: argparse.Namespace) -> int:
    if arguments.interval <= 0:
        raise UserError(f"--interval: should be above 0, got {arguments.interval:g}")
    wanted = wanted_in(arguments.outputs, arguments.sweep)
    if arguments.json:
        print(json.dumps([standing.plain() for standing in standings(wanted)], indent=2, ensure_ascii=False))
        return 0
    if not wanted:
        print(f"no runs in {arguments.outputs}", file=sys.stderr)
        return 0
    console = Console()
    if not arguments.watch:
        console.print(table(standings(wanted), console.width))
        return 0
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                # Read anew: another command may have asked for more runs meanwhile.
                now = standings(wanted_in(arguments.outputs, arguments.sweep))
                live.update(table(now, console.width), refresh=True)
                if not any(standing.state in {"running", "queued"} for standing in now):
                    return 0
                time.sleep(arguments.interval)
        except KeyboardInterrupt:
            return 0
