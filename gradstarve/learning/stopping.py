"""Being asked to stop, kindly: a run ends after its current step, with a whole checkpoint, and says so."""

from __future__ import annotations

from collections.abc import Callable

# Asked between steps and between batches: whether the run should stop.
Stopping = Callable[[], bool]


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """The run was asked to stop and has; the same command goes on where it stopped."""


def never() -> bool:
    return False
