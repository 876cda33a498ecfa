"""What one command asks for, as jobs: one for each run folder, each run once, however often it is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from gradstarve.errors import UserError
from gradstarve.launching.lora_targets import check_lora_targets
from gradstarve.learning.tracking import require_tracker
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_name


@dataclass(frozen=True)
class Job:
    """One run folder, with the configs that lead to it: they differ at most in how the run is evaluated.

    A launcher gives a job to one process, which executes the configs that are not done, one after the other.
    """

    folder: RunFolder
    configs: tuple[RunConfig, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    def is_done(self) -> bool:
        return all(self.folder.is_done(config) for config in self.configs)


def make_room(jobs: Sequence[Job]) -> None:
    """Make the folder that the run folders go into. Raises UserError where nothing can be written there."""
    for root in sorted({job.folder.path.parent for job in jobs}):
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"outputs={root.parent}: cannot be written to: {error.strerror}") from None
        if not os.access(root, os.W_OK):
            raise UserError(f"outputs={root.parent}: cannot be written to")


def jobs_of(configs: Sequence[RunConfig]) -> list[Job]:
    """The jobs behind `configs`, in their order. Configs that ask for the same run and evaluation count once.

    Raises UserError where a run could not be tracked as it is asked to, and where LoRA's targets name no layer.
    """
    for model in {repr(config.model): config.model for config in configs if config.advantage.trains}.values():
        check_lora_targets(model)
    by_folder: dict[str, dict[str, RunConfig]] = {}
    folders: dict[str, RunFolder] = {}
    for config in configs:
        require_tracker(config)
        folder = RunFolder.of(config)
        path = str(folder.path)
        folders.setdefault(path, folder)
        by_folder.setdefault(path, {}).setdefault(evaluation_name(config), config)
    return [Job(folders[path], tuple(by_evaluation.values())) for path, by_evaluation in by_folder.items()]
