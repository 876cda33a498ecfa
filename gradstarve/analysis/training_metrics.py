"""csv of training metrics: a row a step, with the mean reward of that step's group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gradstarve.analysis.rollouts import (
    PROMPT_COLUMNS,
    Group,
    Rollouts,
    StepMetrics,
    first_column,
    live_rows,
    parse_length,
    parse_number,
    parse_step,
)
from gradstarve.analysis.text import printable
from gradstarve.errors import UserError
from gradstarve.estimators.coefficients import LARGEST_GROUP

STEP_COLUMNS = ("step", "global_step", "train/global_step", "_step", "training/global_step")
REWARD_COLUMNS = (
    "reward_avg",
    "reward_mean",
    "mean_reward",
    "avg_reward",
    "reward",
    "train/reward",
    "critic/score/mean",
    "critic/rewards/mean",
)
SIZE_COLUMNS = ("group_size", "num_generations", "num_rollouts")
EVALUATION = re.compile(r"^(eval|val|test).*(acc|score|reward|pass)", re.IGNORECASE)
LENGTH = re.compile(r"(response|completion)s?[_/]?(mean[_/])?(len|length)(_avg|_mean|/mean)?$|mean_length$|_len$", re.I)
LARGEST_INFERRED = 64
# Means are often written with few digits: 0.333 of a group of 3 is one success.
ROUNDING = 0.02


def is_training_metrics(columns: Sequence[str], reward: str | None) -> bool:
    """A step and a mean reward, and no prompt."""
    has_reward = reward in columns if reward else first_column(columns, REWARD_COLUMNS) is not None
    return has_reward and first_column(columns, STEP_COLUMNS) is not None and not set(PROMPT_COLUMNS) & set(columns)


def read_training_metrics(
    path: Path,
    columns: Sequence[str],
    rows: list[tuple[str, dict[str, str]]],
    reward: str | None,
    group_size: int | None,
) -> Rollouts:
    """One group for each step: n_plus = mean reward x group size, which must come out whole (UserError with the line).

    The group size is `group_size`, or a column's, or the smallest that fits all rows; the last is noted.
    """
    step_column = first_column(columns, STEP_COLUMNS) or ""
    reward_column = reward or first_column(columns, REWARD_COLUMNS) or ""
    evaluation = next((name for name in columns if EVALUATION.search(name) and name != reward_column), None)
    entropy = next((name for name in columns if "entropy" in name.lower()), None)
    length = next((name for name in columns if LENGTH.search(name)), None)
    size_column = first_column(columns, SIZE_COLUMNS)
    if group_size is not None and group_size > LARGEST_GROUP:
        raise UserError(f"{path.name}: mean rewards are read for group sizes up to {LARGEST_GROUP}, not {group_size}")
    notes: list[tuple[str, str]] = []

    stepped = []
    for where, row in rows:
        step = parse_step(row, where, step_column)
        if step is None:
            raise UserError(f"{where}: no {step_column!r}")
        stepped.append((step, where, row))
    kept, dropped = live_rows(stepped, [step for step, _, _ in stepped], one_row_a_step=True)
    if dropped:
        notes.append(("restart", f"{dropped} rows repeat steps after a restart; the later rows count"))
    kept.sort(key=lambda item: item[0])

    metrics, means = [], []
    for step, where, row in kept:
        mean = parse_number(row[reward_column], where, reward_column)
        if mean is None and "inf" in row[reward_column].lower():
            raise UserError(f"{where}: mean reward {printable(row[reward_column], 30)} is not in [0, 1]")
        if mean is not None and not 0 <= mean <= 1:
            raise UserError(f"{where}: mean reward {mean:g} is not in [0, 1]; only binary rewards can be diagnosed")
        evaluated = parse_number(row[evaluation], where, evaluation) if evaluation else None
        spread = parse_number(row[entropy], where, entropy) if entropy else None
        mean_length = parse_length(row[length], where, length) if length else None
        metrics.append(StepMetrics(step, mean, evaluated, spread, mean_length))
        if mean is not None:
            size = _size(row[size_column], where, size_column) if size_column else None
            means.append((step, where, mean, size, mean_length))
    missing = len(kept) - len(means)
    if missing:
        notes.append(("rows-without-reward", f"{missing} of {len(kept)} rows have no {reward_column!r}"))

    inferred = None
    if group_size is None and any(size is None for _, _, _, size, _ in means):
        inferred = _smallest_fit([mean for _, _, mean, _, _ in means])
        if inferred is None:
            raise UserError(f"{path.name}: give the group size of these mean rewards with --group-size")
        notes.append(
            (
                "group-size-inferred",
                f"the group size is taken to be {inferred}, the smallest that fits all {len(means)} mean rewards; "
                "if a row is the mean of several groups this is wrong",
            )
        )
    groups = []
    for step, where, mean, size, mean_length in means:
        chosen = group_size or size or inferred or 0
        n_plus = round(mean * chosen)
        if abs(mean * chosen - n_plus) > ROUNDING:
            raise UserError(
                f"{where}: mean reward {mean:g} is no multiple of 1/{chosen}, so the row is not one group of {chosen}; "
                "a mean over several groups can't say which were dead"
            )
        rewards = (1,) * n_plus + (0,) * (chosen - n_plus)
        lengths = None if mean_length is None else (mean_length,) * chosen
        groups.append(Group(where, f"step {step}", step, rewards, lengths))
    unit = "tokens" if groups and all(group.lengths is not None for group in groups) else None
    return Rollouts("csv of training metrics", groups, unit, metrics, notes)


def _size(value: str, where: str, column: str) -> int | None:
    size = parse_number(value, where, column)
    if size is None:
        return None
    if not (2 <= size <= LARGEST_GROUP and size == int(size)):
        raise UserError(f"{where}: {column} {size:g}: a group size is whole, from 2 to {LARGEST_GROUP}")
    return int(size)


def _smallest_fit(means: Sequence[float]) -> int | None:
    for size in range(2, LARGEST_INFERRED + 1):
        if all(abs(mean * size - round(mean * size)) <= ROUNDING for mean in means):
            return size
    return None
