"""Which runs a command such as `gradstarve retry` is about: those of sweeps, or single ones, by name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gradstarve.errors import UserError, nearest
from gradstarve.launching.standing import Standing, standings, wanted_in
from gradstarve.runs.sweeps import read_sweeps


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"sweeps or runs to {verb}")
    parser.add_argument("--all", action="store_true", help="every sweep and run of the outputs folder")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="default: outputs")


def select(arguments: argparse.Namespace) -> list[Standing]:
    """Where the runs that were named stand, each once. Raises UserError for an unknown name, and for none."""
    names: Sequence[str] = arguments.names
    outputs: Path = arguments.outputs
    if arguments.all == bool(names):
        raise UserError("name sweeps or runs (gradstarve status lists them), or give --all")
    everything = wanted_in(outputs, None)
    if arguments.all:
        return standings(everything)
    sweeps = {str(sweep["name"]) for sweep in read_sweeps(outputs)}
    by_run: dict[str, list[int]] = {}
    for number, wanted in enumerate(everything):
        by_run.setdefault(wanted.run, []).append(number)
    chosen = {}
    for name in names:
        if name not in sweeps and name not in by_run:
            raise UserError(f"{name}: no sweep and no run of {outputs}. {nearest(name, [*sweeps, *by_run])}")
        found = wanted_in(outputs, name) if name in sweeps else [everything[number] for number in by_run[name]]
        chosen.update({(wanted.run, wanted.evaluation): wanted for wanted in found})
    return standings(list(chosen.values()))


def confirm(question: str, yes: bool) -> bool:
    """Ask a person. Raises UserError where nobody can be asked and `--yes` was not given."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UserError("nobody can be asked here; add --yes")
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        return False
