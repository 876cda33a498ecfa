"""Hydra's door to gradstarve.launching.multirun: conf/hydra/sweeper/gradstarve.yaml names this class."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from gradstarve.errors import UserError


class GradstarveSweeper(Sweeper):
    """Takes the place of Hydra's own sweeper, which leaves a multirun.yaml and composes every config twice."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from gradstarve.launching.compose import Composer
        from gradstarve.launching.multirun import multirun

        assert self.hydra_context is not None and self.config is not None
        hydra = self.config.hydra
        launch = getattr(self.launcher, "launch_jobs", None)
        if launch is None:
            name = hydra.runtime.choices["hydra/launcher"]
            raise UserError(f"hydra/launcher={name} cannot launch these runs; choose one of conf/hydra/launcher/")
        composer = Composer(self.hydra_context.config_loader, hydra.job.config_name, list(hydra.overrides.hydra))
        conf = next(Path(source.path) for source in hydra.runtime.config_sources if source.provider == "main")
        here = bool(getattr(self.launcher, "runs_here", True))
        sys.exit(multirun(arguments, composer, conf.parent / "sweeps", launch, here))
