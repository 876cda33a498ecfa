"""`gradstarve clean`: take out what is no longer needed; lists it and asks before anything is deleted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gradstarve.launching.selecting import add_arguments, confirm, select
from gradstarve.launching.standing import Standing
from gradstarve.runs import cleaning
from gradstarve.runs.files import read_json

_NOT_WELL = ("failed", "lost", "interrupted", "unreadable")


def configure(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "clean up after")
    parser.add_argument("--failed", action="store_true", help="also runs that failed, were lost or interrupted, whole")
    parser.add_argument("--weights", action="store_true", help="also the kept weights of runs that are done")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Leftovers of runs that are done, and SLURM's files of submissions that are over; the options add to it."""
    standings = select(arguments)
    runs: list[Path] = []
    parts: list[Path] = []
    for standing in standings:
        folder = standing.wanted.folder
        if standing.state == "done":
            parts.extend(cleaning.leftovers_of_done(folder))
            if arguments.weights and (folder / "weights").is_dir():
                parts.append(folder / "weights")
        elif standing.state in _NOT_WELL and arguments.failed and folder.is_dir():
            runs.append(folder)
    if arguments.all:
        parts.extend(cleaning.temporary_models(arguments.outputs))
    parts.extend(_batches_over(arguments.outputs, standings, arguments.failed))
    everything = [*dict.fromkeys([*runs, *parts])]
    if not everything:
        print("nothing to clean", file=sys.stderr)
        return 0
    total = 0
    for path in everything:
        bytes_here = cleaning.size(path)
        total += bytes_here
        print(f"{_megabytes(bytes_here)}  {path}", file=sys.stderr)
    what = f"delete these {len(everything)} ({_megabytes(total).strip()})?"
    if not confirm(what + (" The runs have to be trained again from the start." if runs else ""), arguments.yes):
        print("nothing was deleted", file=sys.stderr)
        return 1
    for folder in dict.fromkeys(runs):
        cleaning.remove_run(folder)
    cleaning.remove(dict.fromkeys(parts))
    return 0


def _batches_over(outputs: Path, standings: list[Standing], failed_too: bool) -> list[Path]:
    """Folders of submissions all of whose runs are done, or, where those go too, not well."""
    over = {"done", *(_NOT_WELL if failed_too else ())}
    states = {standing.wanted.run: standing.state for standing in standings}
    found = []
    for file in sorted((outputs / "slurm").glob("*/batch.json")):
        batch = read_json(file)
        runs = [name for task in batch["tasks"] for name in task] if isinstance(batch, dict) else []
        if runs and all(states.get(name) in over for name in runs):
            found.append(file.parent)
    return found


def _megabytes(count: int) -> str:
    return f"{count / 1e6:8.1f} MB"
