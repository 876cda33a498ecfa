"""Models and data are fetched before jobs are submitted: nodes may be offline, and a wrong name costs no queue time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gradstarve.launching.jobs import Job
from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import DatasetConfig, QuestionsConfig
from gradstarve.runs.model_config import GgufModelConfig, HubModelConfig


def fetch(configs: Sequence[RunConfig], say: Callable[[str], None]) -> None:
    """Bring every model and data set of `configs` into the local cache, each once. Raises UserError."""
    models = {(m.id, m.revision): m for c in configs if isinstance(m := c.model, HubModelConfig)}
    for model in models.values():
        if not Path(model.id).is_dir():
            say(f"fetching {model.id}")
            _fetch_model(model)
    files = {(m.package, m.file): m for c in configs if isinstance(m := c.model, GgufModelConfig)}
    for gguf in files.values():
        _check_gguf(gguf)
    _fetch_questions([config for config in configs if isinstance(config.dataset, QuestionsConfig)])


def _fetch_model(model: HubModelConfig) -> None:
    from gradstarve.learning.hub import fetch_model  # imports torch, which a sweep of tiny models does not need here

    fetch_model(model)


def _check_gguf(model: GgufModelConfig) -> None:
    from gradstarve.learning.policy import gguf_file

    gguf_file(model)


def check_asked(jobs: Sequence[Job]) -> None:
    """Load what runs are asked but not trained on, before any of them trains for hours. Raises UserError.

    What a run is trained on it loads itself, first of all.
    """
    left = [config for job in jobs for config in job.configs if not job.folder.is_done(config)]
    _fetch_questions([config for config in left if config.evaluation.dataset is not None])


def _fetch_questions(configs: Sequence[RunConfig]) -> None:
    if not configs:
        return
    from gradstarve.learning.tasks import Task, load_task, task_asked

    loaded: list[tuple[DatasetConfig, Task]] = []
    checked: list[object] = []
    for config in configs:
        task = next((task for dataset, task in loaded if dataset == config.dataset), None)
        if task is None:
            task = load_task(config.dataset)
            loaded.append((config.dataset, task))
        asked = (config.dataset, config.evaluation.dataset, config.evaluation.split, config.advantage.trains)
        if config.evaluation.dataset is not None and asked not in checked:
            checked.append(asked)
            task_asked(config, task)
