"""`gradstarve cancel`: stop runs that are queued or running, in SLURM or on this machine.

Of a sweep the command that runs it here is stopped too; of a single run only the run.
"""

from __future__ import annotations

import argparse
import sys

from gradstarve.launching.cancelling import cancel
from gradstarve.launching.selecting import add_arguments, select
from gradstarve.runs.sweeps import read_sweeps


def configure(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "cancel")


def run(arguments: argparse.Namespace) -> int:
    sweeps = {sweep["name"] for sweep in read_sweeps(arguments.outputs)}
    whole = arguments.all or bool(sweeps & set(arguments.names))
    print(cancel(select(arguments), whole), file=sys.stderr)
    return 0
