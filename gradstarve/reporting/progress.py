"""The progress that the commands of reporting show."""

from __future__ import annotations

import sys


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
