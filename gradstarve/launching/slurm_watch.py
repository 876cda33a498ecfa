"""hydra.launcher.wait=true: the command stays until its runs have ended, with the live table."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from gradstarve.launching.cancelling import cancel
from gradstarve.launching.jobs import Job
from gradstarve.launching.standing import Standing, Wanted, standings, wanted_by
from gradstarve.launching.table import progress_of, summary, table

INTERRUPTED = 130
_LIVE_SECONDS, _PLAIN_SECONDS = 5.0, 30.0


def watch(jobs: Sequence[Job], on_interrupt: str) -> int:
    """Returns the exit code: 0 where all runs are done, 1 where some are not, 130 where Ctrl-C ended the watching."""
    wanted = wanted_by(jobs)
    console = Console(stderr=True)
    while True:
        try:
            now = _watch_live(wanted, console) if console.is_terminal else _watch_plain(wanted)
        except KeyboardInterrupt:
            what = on_interrupt if on_interrupt != "ask" else _ask()
            if what == "wait":
                continue
            if what == "cancel":
                said = cancel(standings(wanted))
                print(said, file=sys.stderr)
            else:
                print("the jobs go on; gradstarve status shows them", file=sys.stderr)
            return INTERRUPTED
        print(summary(now), file=sys.stderr)
        for standing in now:
            if standing.state != "done":
                print(f"  {standing.state}: {standing.wanted.run}: {standing.why}", file=sys.stderr)
        return 0 if all(standing.state == "done" for standing in now) else 1


def _watch_live(wanted: Sequence[Wanted], console: Console) -> list[Standing]:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            now = standings(wanted)
            live.update(table(now, console.width), refresh=True)
            if not _underway(now):
                return now
            time.sleep(_LIVE_SECONDS)


def _watch_plain(wanted: Sequence[Wanted]) -> list[Standing]:
    shown = -_PLAIN_SECONDS
    while True:
        now = standings(wanted)
        if not _underway(now):
            return now
        if time.monotonic() - shown > _PLAIN_SECONDS:
            shown = time.monotonic()
            print(summary(now), file=sys.stderr, flush=True)
            for standing in now:
                if standing.state == "running":
                    print(f"  {standing.wanted.run}: {progress_of(standing)}", file=sys.stderr, flush=True)
        time.sleep(_LIVE_SECONDS)


def _underway(now: Sequence[Standing]) -> bool:
    return any(standing.state in {"running", "queued"} for standing in now)


def _ask() -> str:
    """What Ctrl-C is to mean. Where nobody can be asked, the jobs go on."""
    if not sys.stdin.isatty():
        return "leave"
    answers = {"l": "leave", "c": "cancel", "w": "wait"}
    while True:
        try:
            typed = input("[l]eave the jobs in SLURM, [c]ancel them, or go on [w]aiting? ").strip().lower()[:1]
        except (EOFError, KeyboardInterrupt):
            return "leave"
        if typed in answers:
            return answers[typed]
