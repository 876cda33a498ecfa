"""`dry_run=true`: the resolved config, what it would need, each run's name and what is done of it. Runs nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gradstarve.launching.estimate_text import estimate_lines
from gradstarve.launching.jobs import Job
from gradstarve.learning.rollout_engine import require_engine, require_installed
from gradstarve.runs.claim import holder_of
from gradstarve.runs.config import plain_config

_SCREEN = 20


def print_plan(jobs: Sequence[Job], asked: int, here: bool = True) -> None:
    """Prints to standard output. `asked` counts the configs before equal ones were taken together.

    Raises UserError at the end where a run could not sample or be evaluated `here`, on this machine, if that is where
    it is to run.
    """
    configs = [(job, config) for job in jobs for config in job.configs]
    plains = [{**plain_config(config), "dry_run": False} for _, config in configs]
    common = functools.reduce(_shared, plains)
    several = len(plains) > 1
    print(f"# config{', as far as all runs share it' if several else ''}")
    print(yaml.safe_dump(common, sort_keys=False, allow_unicode=True).rstrip())
    estimates = estimate_lines(jobs)
    print("\n".join(estimates))
    print("# runs")
    states = {job.name: _state(job) for job in jobs}
    width = max(len(job.name) for job in jobs)
    for (job, config), plain in zip(configs, plains, strict=True):
        differs = _differing(plain, common, "")
        if not config.advantage.trains:
            differs = [(key, value) for key, value in differs if key.startswith(("advantage.", "model."))]
        text = ", ".join(f"{key}={_short(value)}" for key, value in differs)
        print(f"{job.name:<{width}}  {states[job.name]:<8}  {text}".rstrip())
    if len(jobs) > _SCREEN:
        # The sum has scrolled away by now.
        print("\n".join(line for line in estimates if line.startswith("#   in all")))
    missing = sum(state != "done" for state in states.values())
    repeats = asked - len(plains)
    print(
        f"# {len(jobs)} run{'s' if len(jobs) > 1 else ''}: {len(jobs) - missing} done, {missing} would run"
        + (f"; {repeats} more asked for one of these again" if repeats else "")
    )
    for job, config in configs:
        if here and states[job.name] == "missing":
            require_engine(config, patience=0)
            # What learning.vllm_evaluation.require_vllm asks, without importing torch.
            if config.evaluation.engine == "vllm" and not job.folder.is_done(config):
                require_installed("evaluation.engine", "evaluation.engine=hf")


def _state(job: Job) -> str:
    if job.is_done():
        return "done"
    holder = holder_of(job.folder.path)
    return "running" if holder is not None and holder[1] == "alive" else "missing"


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    shared = {}
    for key, value in one.items():
        if key not in other:
            continue
        if isinstance(value, dict) and isinstance(other[key], dict):
            below = _shared(value, other[key])
            if below:
                shared[key] = below
        elif type(value) is type(other[key]) and value == other[key]:
            shared[key] = value
    return shared


def _differing(plain: Mapping[str, Any], common: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in plain.items():
        if key in common and common[key] == value:
            continue
        if isinstance(value, dict) and "name" in value and not isinstance(common.get(key), dict):
            # Nothing is shared: its name says enough.
            found.append((f"{prefix}{key}.name", value["name"]))
        elif isinstance(value, dict):
            found.extend(_differing(value, common.get(key, {}), f"{prefix}{key}."))
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _short(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
