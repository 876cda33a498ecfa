"""What a run's steps and groups tell, read only where a table or figure asks for more than its summary."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from gradstarve.reporting.cells import Point
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.rows import read_columns


@functools.lru_cache(maxsize=512)
def steps_of(folder: Path) -> pd.DataFrame:
    """The steps of a run, in order; empty where they were not kept. A step that was redone counts as it was last."""
    steps = RunFolder(folder).read("steps")
    return steps.drop_duplicates("step", keep="last").sort_values("step") if len(steps) else steps


@functools.lru_cache(maxsize=64)
def groups_of(folder: Path) -> pd.DataFrame:
    return RunFolder(folder).read("groups")


def mean_reward(point: Point) -> float | None:
    """Mean reward over the whole training: from result.json where it says so, else from the steps."""
    recorded = point.result.get("reward_mean")
    if recorded is not None:
        return float(recorded)
    rewards = read_columns(point.folder, "steps", ["reward"])
    return float(rewards["reward"].mean()) if len(rewards) else None


def accuracy_by_tokens(point: Point, base: float | None) -> list[tuple[float, float]]:
    """(tokens generated so far, accuracy) at each evaluated step, from the untrained model (0 tokens) on."""
    total = point.tokens
    if total is None:
        return []
    last = int(point.final["step"])
    found = [(0.0, base)] if base is not None else []
    for name, entry in sorted((point.final.get("by_step") or {}).items(), key=lambda item: int(item[0])):
        step = int(name)
        if 0 < step < last and entry.get("n"):
            tokens = entry.get("tokens")
            if tokens is None:
                tokens = _tokens_until(point.folder).get(step)
            if tokens is not None:
                found.append((float(tokens), entry["right"] / entry["n"]))
    return [*found, (float(total), point.accuracy)]


@functools.lru_cache(maxsize=20_000)
def _tokens_until(folder: Path) -> dict[int, int]:
    """Tokens generated up to and including each step."""
    steps = read_columns(folder, "steps", ["step", "tokens"])
    if not {"step", "tokens"} <= set(steps):
        return {}
    steps = steps.drop_duplicates("step", keep="last").sort_values("step")
    return dict(zip(steps["step"].tolist(), steps["tokens"].cumsum().tolist(), strict=True))


def accuracy_at_tokens(point: Point, budget: float, base: float | None) -> float | None:
    """Accuracy when `budget` tokens had been generated, linear between evaluated steps; None beyond the run's own."""
    if point.tokens is not None and budget >= point.tokens:
        return point.accuracy if budget == point.tokens else None
    path = accuracy_by_tokens(point, base)
    if len(path) < 2 or budget < path[0][0]:
        return None
    tokens, accuracies = zip(*path, strict=True)
    return float(np.interp(budget, tokens, accuracies))


def first_and_last(point: Point, share: str) -> tuple[float, float] | None:
    """Mean of a share over the first and the last tenth of the steps."""
    steps = steps_of(point.folder)
    if share not in steps or len(steps) < 10:
        return None
    tenth = len(steps) // 10
    return float(steps[share].iloc[:tenth].mean()), float(steps[share].iloc[-tenth:].mean())
