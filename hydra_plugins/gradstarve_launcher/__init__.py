"""Hydra's door to gradstarve.launching.launchers: each file of conf/hydra/launcher/ names one of these classes."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from gradstarve.errors import UserError
from gradstarve.launching.launchers import Local, Slurm


class _Launcher(Launcher):
    """The sweeper composes and checks the runs, then calls `launch_jobs`."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        raise UserError("hydra/sweeper: gradstarve's launchers take their runs from hydra/sweeper=gradstarve only")


class LocalLauncher(Local, _Launcher):
    """This machine."""


class SlurmLauncher(Slurm, _Launcher):
    """A SLURM cluster."""
