"""pass@k from evaluations with several samples a question: unbiased, exact, with intervals over questions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradstarve.estimators.pass_at_k import pass_at_k
from gradstarve.reporting.cells import Cell, Point, Setting
from gradstarve.reporting.tables.notes import cell_notes, describe
from gradstarve.reporting.tables.table import Column, Row, Table

KS = (1, 2, 4, 8, 16, 32, 64, 100, 128)


@dataclass(frozen=True)
class PassAtK:
    """One cell at every k: mean over questions (of the mean over seeds) and its 95 % interval over questions."""

    label: str
    group_size: int | None
    n_seeds: int
    questions: int
    by_k: dict[int, tuple[float, float, float]]


def pass_at_k_of(cell: Cell, evaluation: str) -> PassAtK | None:
    """None where the samples were not kept. A k beyond the samples of any question is left out."""
    counted = [counts for point in cell.points if (counts := right_and_samples(point, evaluation)) is not None]
    if not counted:
        return None
    most = min(int(counts["samples"].min()) for counts in counted)
    by_k = {}
    for k in KS:
        if k <= most:
            per_seed = pd.concat([_per_question(counts, k) for counts in counted], axis=1)
            values_Q = per_seed.mean(axis=1).to_numpy()
            by_k[k] = _mean_and_interval(values_Q)
    return PassAtK(cell.label, cell.group_size, len(counted), len(counted[0]), by_k)


def right_and_samples(point: Point, evaluation: str) -> pd.DataFrame | None:
    """How many of its samples each question got right: columns right and samples, by question_id."""
    return _counts(point.folder / "evaluations" / evaluation / f"step-{int(point.final['step']):06d}.parquet")


@functools.lru_cache(maxsize=64)
def _counts(file: Path) -> pd.DataFrame | None:
    if not file.is_file():
        return None
    rows = pd.read_parquet(file, columns=["question_id", "verdict"])
    rows["right"] = rows["verdict"] == "right"
    grouped = rows.groupby("question_id", sort=True)["right"]
    return pd.DataFrame({"right": grouped.sum(), "samples": grouped.size()})


def pass_at_k_table(setting: Setting, more_notes: Sequence[str] = ()) -> Table | None:
    """One row for each arm that has samples; None where the evaluation has one sample a question."""
    if setting.samples < 2:
        return None
    cells = [*([setting.base] if setting.base else []), *setting.cells]
    found = [(cell, result) for cell in cells if (result := pass_at_k_of(cell, setting.evaluation)) is not None]
    if not found:
        return None
    ks = sorted({k for _, result in found for k in result.by_k})
    columns = [
        Column("arm", "advantage", "text", "terminal"),
        Column("group_size", "G", "count", "terminal"),
        Column("n", "n", "count", "terminal"),
        Column("questions", "questions", "count"),
        Column("truncated_evaluation", "trunc. eval", "percent"),
    ]
    for k in ks:
        columns += [
            Column(f"pass{k}", f"@{k}", "percent", "terminal"),
            Column(f"pass{k}_ci95", f"@{k} 95 % CI", "interval", "csv"),
        ]
    rows = []
    for cell, result in found:
        values: dict[str, object] = {
            "arm": cell.label,
            "group_size": cell.group_size,
            "n": result.n_seeds,
            "questions": result.questions,
            "truncated_evaluation": cell.truncated,
        }
        for k, (mean, low, high) in result.by_k.items():
            values |= {f"pass{k}": mean, f"pass{k}_ci95": (low, high)}
        key = cell.label if cell.group_size is None else f"{cell.label}-g{cell.group_size}"
        rows.append(Row(key, values, {}, {"": cell.runs}))
    legend = (
        "pass@k in percent: the chance that at least one of k samples is right, unbiased (arXiv 2107.03374), mean over "
        "questions; a k beyond the samples is left out. Intervals, over questions, are in the csv."
    )
    name = f"pass-at-k-{setting.name}"
    title = f"pass@k{' on training questions' if setting.on_training else ''} · {setting.name}"
    gone = [
        point.run for cell in cells for point in cell.points if right_and_samples(point, setting.evaluation) is None
    ]
    notes = [
        *more_notes,
        *(f"{run}: its samples were not kept, so it is not counted." for run in gone),
        *cell_notes(cells),
    ]
    return Table("pass-at-k", name, title, describe(setting, None), columns, rows, notes, legend)


def _per_question(counts: pd.DataFrame, k: int) -> pd.Series:
    exact = {pair: pass_at_k(pair[0], pair[1], k) for pair in set(zip(counts["samples"], counts["right"], strict=True))}
    values = [exact[pair] for pair in zip(counts["samples"], counts["right"], strict=True)]
    return pd.Series(values, index=counts.index)


def _mean_and_interval(values_Q: NDArray[np.float64], bounded: bool = True) -> tuple[float, float, float]:
    """Mean and 95 % interval over questions, normal; `bounded` keeps it within [0, 1]."""
    mean = float(values_Q.mean())
    error = float(values_Q.std(ddof=1)) / math.sqrt(len(values_Q)) if len(values_Q) > 1 else 0.0
    low, high = mean - 1.96 * error, mean + 1.96 * error
    return (mean, max(0.0, low), min(1.0, high)) if bounded else (mean, low, high)


def gain_difference(
    setting: Setting, arm: str, group_size: int
) -> tuple[tuple[float, float, int], tuple[float, float], tuple[str, ...]] | None:
    """(gain over base at pass@1, at the largest k up to 100, that k), interval of their difference, runs behind it."""
    cell = setting.find(arm, group_size)
    if setting.samples < 8 or cell is None or setting.base is None:
        return None
    ours, theirs = (
        [c for point in some.points if (c := right_and_samples(point, setting.evaluation)) is not None]
        for some in (cell, setting.base)
    )
    if not ours or not theirs:
        return None
    most = min(int(counts["samples"].min()) for counts in (*ours, *theirs))
    k = max(k for k in KS if k <= min(most, 100))

    def gain(at: int) -> pd.Series:
        means = [pd.concat([_per_question(c, at) for c in some], axis=1).mean(axis=1) for some in (ours, theirs)]
        return means[0] - means[1]

    gain_1, gain_k = gain(1), gain(k)
    _, low, high = _mean_and_interval((gain_1 - gain_k).to_numpy(), bounded=False)
    return (float(gain_1.mean()), float(gain_k.mean()), k), (low, high), (*cell.runs, *setting.base.runs)
