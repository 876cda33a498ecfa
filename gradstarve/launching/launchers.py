"""What is behind a choice of hydra/launcher: an object that takes the jobs of a command and returns its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradstarve.errors import UserError
from gradstarve.launching import local, slurm
from gradstarve.launching.jobs import Job
from gradstarve.launching.slurm_options import read_options


class Local:
    """conf/hydra/launcher/local.yaml. `jobs`: runs at a time; `threads` and `processes`: of each run."""

    runs_here = True

    def __init__(self, jobs: Any, threads: Any, processes: Any) -> None:
        self.how = local.How(
            at_once=None if jobs is None else positive(jobs, "hydra.launcher.jobs"),
            threads=positive(threads, "hydra.launcher.threads"),
            processes=positive(processes, "hydra.launcher.processes"),
        )

    def launch_jobs(self, jobs: Sequence[Job]) -> int:
        return local.launch(jobs, self.how)


class Slurm:
    """conf/hydra/launcher/slurm.yaml and its presets: see slurm_options.SlurmOptions."""

    runs_here = False

    def __init__(self, **options: Any) -> None:
        self.options = read_options(options)

    def launch_jobs(self, jobs: Sequence[Job]) -> int:
        return slurm.launch(jobs, self.options)


def positive(value: Any, key: str) -> int:
    """An option that Hydra has passed on unchecked. Raises UserError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{key}: should be a whole number of at least 1, got {value!r}")
    return value
