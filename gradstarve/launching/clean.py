"""`gradstarve clean`: take out what is no longer needed; lists it and asks before anything is deleted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from gradstarve.launching.selecting import add_arguments, confirm, select
from gradstarve.launching.slurm import alone
from gradstarve.launching.standing import standings, wanted_in
from gradstarve.runs import cleaning
from gradstarve.runs.files import read_json
from gradstarve.runs.scheduler import NoAnswer, tasks_of

_NOT_WELL = ("failed", "lost", "interrupted", "unreadable")


def configure(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "clean up after")
    parser.add_argument("--failed", action="store_true", help="also runs that failed, were lost or interrupted, whole")
    parser.add_argument("--weights", action="store_true", help="also the kept weights of runs that are done")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Leftovers of runs that are done, and SLURM's files of submissions that are over; the options add to it."""
    runs, parts = _found(arguments)
    everything = [*runs, *parts]
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
    with alone(arguments.outputs):
        # Nothing is submitted now; what was submitted while the question stood there stays.
        runs_now, parts_now = _found(arguments)
        for folder in runs:
            if folder in runs_now:
                cleaning.remove_run(folder)
        cleaning.remove(path for path in parts if path in parts_now)
    return 0


def _found(arguments: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """Whole run folders, and other paths, that can go."""
    runs: dict[Path, None] = {}
    parts: dict[Path, None] = {}
    states: dict[str, set[str]] = {}
    # A run can be done for one evaluation and queued for another.
    for standing in standings(wanted_in(arguments.outputs, None)):
        states.setdefault(standing.wanted.run, set()).add(standing.state)
    for standing in select(arguments):
        folder, now = standing.wanted.folder, states.get(standing.wanted.run, set()) | {standing.state}
        if now == {"done"}:
            parts.update(dict.fromkeys(cleaning.leftovers_of_done(folder)))
            if arguments.weights and (folder / "weights").is_dir():
                parts[folder / "weights"] = None
        elif arguments.failed and now <= set(_NOT_WELL) and folder.is_dir():
            runs[folder] = None
    if arguments.all:
        parts.update(dict.fromkeys(cleaning.temporary_models(arguments.outputs)))
    over = {"done", *(_NOT_WELL if arguments.failed else ())}
    parts.update(dict.fromkeys(_batches_over(arguments.outputs, states, over)))
    return list(runs), list(parts)


def _batches_over(outputs: Path, states: Mapping[str, set[str]], over: set[str]) -> list[Path]:
    """Folders of submissions all of whose runs are over, and of whose jobs SLURM says the same."""
    found = {}
    for file in sorted((outputs / "slurm").glob("*/batch.json")):
        batch = read_json(file)
        if not isinstance(batch, dict):
            continue
        tasks = batch["tasks"]
        if tasks and all(states.get(name, {"?"}) <= over for task in tasks for name in task):
            found[file.parent] = (len(tasks), batch["submitted"])
    if not found:
        return []
    try:
        jobs = tasks_of(
            {(folder.name, number) for folder, (count, _) in found.items() for number in range(count)},
            min(submitted for _, submitted in found.values()),
        )
    except NoAnswer:
        return []
    there = {name for (name, _), job in jobs.items() if not job.ended}
    return [folder for folder in found if folder.name not in there]


def _megabytes(count: int) -> str:
    return f"{count / 1e6:8.1f} MB"
