"""What is behind a choice of hydra/launcher: an object that takes the jobs of a command and returns its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradstarve.errors import UserError
from gradstarve.launching import local
from gradstarve.launching.jobs import Job


class Local:
    """conf/hydra/launcher/local.yaml. `jobs`: runs at a time, None for one a core; `threads`: of each run."""

    def __init__(self, jobs: Any, threads: Any) -> None:
        self.jobs = None if jobs is None else positive(jobs, "hydra.launcher.jobs")
        self.threads = positive(threads, "hydra.launcher.threads")

    def launch_jobs(self, jobs: Sequence[Job]) -> int:
        return local.launch(jobs, self.jobs, self.threads)


def positive(value: Any, key: str) -> int:
    """An option that Hydra has passed on unchecked. Raises UserError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{key}: should be a whole number of at least 1, got {value!r}")
    return value
