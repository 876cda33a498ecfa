"""Which study a command is about: the arguments that `tables` and `report` share."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from gradstarve.reporting.progress import to_stderr
from gradstarve.reporting.study import Study, read_study


def configure_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="where the runs lie (default: outputs)")
    parser.add_argument(
        "--sweep",
        metavar="NAME",
        help="only this declared sweep: its runs and its evaluations, which should be complete",
    )
    parser.add_argument("--allow-partial", action="store_true", help="with --sweep: go on although runs are missing")


def study_of(arguments: argparse.Namespace) -> Study:
    """Raises UserError as `read_study` does."""
    study = read_study(arguments.outputs, arguments.sweep, arguments.allow_partial, to_stderr)
    # What was read stays to the end: no use in looking through it again for garbage.
    gc.freeze()
    return study
