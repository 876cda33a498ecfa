"""The door of run.py: what was typed is checked before Hydra sees it, and mistakes are told in one line."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Override

from gradstarve.errors import UserError, nearest
from gradstarve.launching.combinations import choices, chooses_nothing, key_of, parse_overrides
from gradstarve.launching.hydra_errors import one_line

MISTAKE, INTERRUPTED = 2, 130

_OPEN = ("hydra.launcher.sbatch", "hydra.launcher.environment")

GROUPS = ("model", "advantage", "dataset", "rollout", "tracker")


def main(run: Callable[[], Any]) -> int:
    """Run Hydra's application `run` on sys.argv; returns the exit code, which is 2 for a user's mistake."""
    # Hydra prints its errors over several lines unless it is told to let them through to us.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with mistakes_in_one_line():
        sys.argv[1:] = check(sys.argv[1:])
        run()
    return 0


@contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """Ends the program with one line and exit code 2 on a user's mistake. A bug keeps its traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except Exception as error:
        line = one_line(error)
        if isinstance(error, BrokenPipeError):
            # The reader of our output has gone (`| head`); nothing more can be told to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(1)
        if line is None and isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            what = "the output" if error.filename is None else error.filename
            line = f"{what} could not be written: {error.strerror}; make room and try again"
        if line is None:
            raise
        print(f"run.py: {line}", file=sys.stderr)
        sys.exit(MISTAKE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def check(typed: Sequence[str]) -> list[str]:
    """What was typed, as Hydra reads it best: options first, `+sweep` with its plus.

    Raises UserError for what Hydra would misread, ignore, or explain over many lines.
    """
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    arguments, unknown = parser.parse_known_intermixed_args(list(typed))
    if unknown:
        options = [option for action in parser._actions for option in action.option_strings]
        raise UserError(f"unknown option {unknown[0]}. {nearest(unknown[0].split('=')[0], options)}")
    if arguments.help or arguments.hydra_help or arguments.info or arguments.shell_completion:
        return list(typed)
    _check_options(arguments)
    overrides = parse_overrides(arguments.overrides)
    for override in overrides:
        _check_groups(override)
    multirun = arguments.multirun or "hydra.mode=MULTIRUN" in arguments.overrides
    if not multirun:
        for override in overrides:
            _check_single(override)
    left = list(typed)
    for text in arguments.overrides:
        left.remove(text)
    # `dataset@evaluation=null` is how it is anyway; Hydra knows null in a list of defaults alone.
    kept = [override for override in overrides if multirun or not chooses_nothing(override)]
    return [*left, *(_with_plus(override) for override in kept)]


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.experimental_rerun is not None:
        raise UserError("--experimental-rerun reads a pickle, which is never done here")
    chosen = [name for name in ("run", "multirun", "cfg") if getattr(arguments, name)]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(f'--{name}' for name in chosen)} do not go together")
    if arguments.resolve and not arguments.cfg:
        raise UserError("--resolve goes with --cfg: python run.py --cfg job --resolve")


def _check_groups(override: Override) -> None:
    key, value = key_of(override), override.value()
    if key == "hydra/sweeper" and value != "gradstarve":
        raise UserError(f"{override.input_line}: runs are taken from hydra/sweeper=gradstarve only")
    group = key.partition("@")[0]
    no_name = isinstance(value, bool | int | float) or (value is None and key == group and not override.is_delete())
    if group in GROUPS and no_name:
        raise UserError(f"{override.input_line}: {group} is chosen by a name, one of conf/{group}/")


def _check_single(override: Override) -> None:
    """What means something only with -m."""
    key, text = key_of(override), override.input_line
    if key == "sweep":
        raise UserError(f"{text} asks for the runs of a sweep file: add -m")
    if key == "hydra/launcher":
        raise UserError(f"{text} says how a multirun is launched, and would be ignored: add -m")
    if override.is_delete() or override.is_hydra_override():
        return
    count = len(choices(override))
    if count > 1 or override.is_sweep_override():
        raise UserError(f"{text} asks for {count} run{'s' if count > 1 else ''}: add -m")


def _with_plus(override: Override) -> str:
    """Keys that no config has yet are added to it, also without the plus that Hydra wants: `sweep`, and what a launcher
    passes on to SLURM."""
    text = str(override.input_line)
    open_key = key_of(override) == "sweep" or key_of(override).startswith(_OPEN)
    return f"+{text}" if open_key and "=" in text and not text.startswith(("+", "~")) else text


def _refuse(message: str) -> NoReturn:
    raise UserError(message)
