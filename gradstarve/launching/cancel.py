"""`gradstarve cancel`: stop runs that are queued or running, in SLURM or on this machine."""

from __future__ import annotations

import argparse
import sys

from gradstarve.launching.cancelling import cancel
from gradstarve.launching.selecting import add_arguments, select


def configure(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "cancel")


def run(arguments: argparse.Namespace) -> int:
    print(cancel(select(arguments)), file=sys.stderr)
    return 0
