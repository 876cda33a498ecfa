"""`gradstarve` = `python -m gradstarve`: the questions that can be asked of runs, rollouts and numbers."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from gradstarve.errors import UserError

# name -> (module, help). A module is imported only when its command is asked for, so that help comes at once. It has
# `configure(parser)` and `run(arguments) -> exit code`.
COMMANDS: dict[str, tuple[str, str]] = {
    "status": ("gradstarve.launching.status", "show where the runs stand, also while they run"),
    "retry": ("gradstarve.launching.retry", "run again what failed, was lost or was interrupted"),
    "cancel": ("gradstarve.launching.cancel", "stop runs that are queued or running"),
    "clean": ("gradstarve.launching.clean", "delete what is no longer needed, after asking"),
    "show": ("gradstarve.reporting.show", "explain one run: config, formula, provenance, state, results"),
    "export": ("gradstarve.learning.export", "write a run's final policy as a plain model folder, its adapter merged"),
    "tables": ("gradstarve.reporting.tables_command", "build the tables and figures of what lies in outputs/"),
    "mirror": ("gradstarve.reporting.mirror", "copy finished runs and tables to Weights & Biases"),
    "report": ("gradstarve.reporting.report_command", "write the report, one HTML file that opens offline"),
    "grade": ("gradstarve.analysis.grade", "grade completions against golds"),
    "regrade": ("gradstarve.analysis.regrade", "grade a run's stored text again and show what moved"),
    "advantages": ("gradstarve.analysis.advantages", "list the advantages and what they give dead groups"),
    "coefficients": ("gradstarve.analysis.coefficients", "expected gradient coefficients at a success probability"),
    "diagnose": ("gradstarve.analysis.diagnose", "say how much of a rollout log is starved, and why"),
    "plan": ("gradstarve.analysis.plan", "choose group size and advantage for a budget of completions"),
    "simulate": ("gradstarve.analysis.simulate", "simulate an advantage on prompts of given difficulty"),
    "compare": ("gradstarve.reporting.compare", "compare groups of numbers from a csv, with tests"),
}


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
INTERRUPTED = 130
LONGEST_MESSAGE = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. A `UserError` is one line on standard error and exit code 2.

    So is a full device, with exit code 1. A reader of our output that has gone (`| head`) is told nothing.
    """
    try:
        try:
            return _run(argv)
        finally:
            # Here and not at the interpreter's end, where nothing can be said about it.
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()
        return 1
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        leave_stdout()
        what = "the output" if error.filename is None else error.filename
        print(f"gradstarve: {what} could not be written: {error.strerror}; make room and try again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def leave_stdout() -> None:
    """Point standard output elsewhere, so that the interpreter's last flush is quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="gradstarve", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    arguments_given = list(sys.argv[1:] if argv is None else argv)
    wanted = next((word for word in arguments_given if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == wanted:
            implementation = importlib.import_module(module)
            implementation.configure(command)
            command.set_defaults(execute=implementation.run)
    arguments = parser.parse_args(arguments_given)
    try:
        return int(arguments.execute(arguments))
    except UserError as error:
        print(f"gradstarve {arguments.command}: {one_line(str(error))}", file=sys.stderr)
        return 2


def one_line(text: str) -> str:
    """A message may quote files and models: nothing that steers a terminal, and no line that fills the screen."""
    shown = "".join(" " if c.isspace() else c if c.isprintable() else "?" for c in text[:LONGEST_MESSAGE])
    return shown if len(text) <= LONGEST_MESSAGE else f"{shown}..."


def script() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Text of models and names of files may hold what no encoding has.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
