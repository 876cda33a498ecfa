"""`gradstarve retry`: run again what failed, was lost or was interrupted, in the way that it was run before."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradstarve.launching import local, slurm
from gradstarve.launching.jobs import Job, jobs_of
from gradstarve.launching.selecting import add_arguments, select
from gradstarve.launching.slurm_options import read_options
from gradstarve.runs.config import read_config
from gradstarve.runs.folder import RunFolder

AGAIN = ("failed", "lost", "interrupted")


def configure(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "run again")
    parser.add_argument("--local", action="store_true", help="on this machine, also what was submitted to SLURM")


def run(arguments: argparse.Namespace) -> int:
    """What was submitted to SLURM is submitted again with the same options; everything else runs here."""
    here: list[Job] = []
    submitted: dict[str, list[Job]] = {}
    for standing in select(arguments):
        if standing.state not in AGAIN:
            continue
        folder = RunFolder(standing.wanted.folder)
        submission = folder.submission()
        plains: list[Mapping[str, Any]] = [folder.read_config()] if submission is None else submission["configs"]
        configs = [replace(read_config(plain), outputs=str(arguments.outputs)) for plain in plains]
        where = here
        if submission is not None and not arguments.local:
            where = submitted.setdefault(json.dumps(submission["options"], sort_keys=True), [])
        where.extend(jobs_of(configs))
    if not here and not submitted:
        print("nothing has failed, was lost or was interrupted", file=sys.stderr)
        return 0
    codes = [slurm.launch(jobs, read_options(json.loads(options))) for options, jobs in submitted.items()]
    if here:
        codes.append(local.launch(here, local.How()))
    return max(codes)
