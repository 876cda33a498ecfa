"""`gradstarve retry`: run again what failed, was lost or was interrupted, in the way that it was run before."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError
from gradstarve.launching import local, slurm
from gradstarve.launching.jobs import Job, jobs_of
from gradstarve.launching.selecting import add_arguments, select
from gradstarve.launching.slurm_options import read_options
from gradstarve.launching.standing import Wanted
from gradstarve.runs.config import read_config
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_name
from gradstarve.runs.status import read_status
from gradstarve.runs.sweeps import read_sweeps

AGAIN = ("failed", "lost", "interrupted")


def configure(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "run again")
    parser.add_argument("--local", action="store_true", help="on this machine, also what was submitted to SLURM")


def run(arguments: argparse.Namespace) -> int:
    """What was submitted to SLURM is submitted again with the same options; everything else runs here, in as many
    processes and threads as before, since other numbers sample or round otherwise."""
    here: dict[tuple[int, int], list[Job]] = {}
    others: list[Wanted] = []
    taken: set[str] = set()
    submitted: dict[str, list[Job]] = {}
    for standing in select(arguments):
        if standing.state not in AGAIN:
            continue
        folder = RunFolder(standing.wanted.folder)
        submission = folder.submission()
        if submission is None and (read_status(folder.path) or {}).get("batch") and not arguments.local:
            raise UserError(
                f"{folder.path}: its submission.json is gone, so how it was submitted is not known; --local"
            )
        plains: list[Mapping[str, Any]] = [folder.read_config()] if submission is None else submission["configs"]
        configs = [replace(read_config(plain), outputs=str(arguments.outputs)) for plain in plains]
        if standing.wanted.evaluation not in {None, *map(evaluation_name, configs)}:
            others.append(standing.wanted)
        if standing.wanted.run in taken:
            continue
        taken.add(standing.wanted.run)
        if submission is None or arguments.local:
            where = here.setdefault(_as_before(folder), [])
        else:
            where = submitted.setdefault(json.dumps(submission["options"], sort_keys=True), [])
        where.extend(jobs_of(configs))
    if not here and not submitted:
        print("nothing has failed, was lost or was interrupted", file=sys.stderr)
        return 0
    codes = [slurm.launch(jobs, read_options(json.loads(options))) for options, jobs in submitted.items()]
    for (processes, threads), jobs in here.items():
        codes.append(local.launch(jobs, local.How(processes=processes, threads=threads)))
    # How these are asked is not in the run's folder, which keeps the first way.
    for wanted in others:
        print(
            f"{wanted.run}: not evaluated as {wanted.evaluation}; for that {_asked_by(wanted, arguments.outputs)}",
            file=sys.stderr,
        )
    return max([*codes, int(bool(others))])


def _asked_by(wanted: Wanted, outputs: Path) -> str:
    for sweep in read_sweeps(outputs):
        if any((run["run"], run["evaluation"]) == (wanted.run, wanted.evaluation) for run in sweep["runs"]):
            return f"give its command again: {' '.join(sweep['command'])}"
    return "give its command again"


def _as_before(folder: RunFolder) -> tuple[int, int]:
    """Processes and threads of the last session; one of each where there was none."""
    sessions = folder.provenance().get("sessions", [])
    hardware = sessions[-1]["hardware"] if sessions else {}
    return hardware.get("processes", 1), hardware.get("torch_threads", 1)
