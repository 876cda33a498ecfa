"""How much hangs on single seeds, and how much a greedy evaluation moves when it is repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np
from scipy import stats

from gradstarve.reporting.arms import BASELINE
from gradstarve.reporting.cells import Setting
from gradstarve.reporting.tables.notes import cell_notes, describe, seeds_told
from gradstarve.reporting.tables.table import Column, Row, Table
from gradstarve.runs.rows import RunRow

LEAVE_COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("mean", "mean", "percent", "terminal"),
    Column("lowest", "lowest mean", "percent", "terminal"),
    Column("lowest_without", "without seed", "text", "terminal"),
    Column("highest", "highest mean", "percent", "terminal"),
    Column("highest_without", "without seed", "text", "terminal"),
    Column("difference_low", "vs drgrpo, lowest", "points", "terminal"),
    Column("difference_high", "vs drgrpo, highest", "points", "terminal"),
    Column("largest_p", "largest Welch p", "p", "terminal"),
]
NOISE_COLUMNS = [
    Column("run", "run", "text", "terminal"),
    Column("repeats", "evaluations", "count", "terminal"),
    Column("lowest", "lowest", "percent", "terminal"),
    Column("highest", "highest", "percent", "terminal"),
    Column("spread", "spread", "percent", "terminal"),
]


def leave_one_out_table(setting: Setting, group_size: int, more_notes: Sequence[str] = ()) -> Table | None:
    """Each arm's mean, and its difference to drgrpo, when any one of its seeds is left out."""
    cells = [cell for cell in setting.at(group_size) if len(cell.points) > 2]
    if not cells:
        return None
    baseline = setting.find(BASELINE, group_size)
    rows = []
    for cell in cells:
        values = cell.accuracies
        without = [values[:i] + values[i + 1 :] for i in range(len(values))]
        means = [fmean(kept) for kept in without]
        low, high = means.index(min(means)), means.index(max(means))
        row: dict[str, object] = {
            "arm": cell.label,
            "n": len(values),
            "mean": fmean(values),
            "lowest": means[low],
            "lowest_without": str(cell.points[low].seed),
            "highest": means[high],
            "highest_without": str(cell.points[high].seed),
        }
        if baseline is not None and baseline.points and cell is not baseline:
            # One seed of either arm is left out.
            theirs = baseline.accuracies
            left_out = [(kept, theirs) for kept in without]
            if len(theirs) > 2:
                left_out += [(values, theirs[:i] + theirs[i + 1 :]) for i in range(len(theirs))]
            differences = [fmean(a) - fmean(b) for a, b in left_out]
            row |= {
                "difference_low": min(differences),
                "difference_high": max(differences),
                "largest_p": _largest_welch_p(left_out) if len(theirs) > 1 else None,
            }
        rows.append(
            Row(cell.label, row, {}, {"": (*cell.runs, *(baseline.runs if baseline and cell is not baseline else ()))})
        )
    legend = (
        "The mean of an arm when one of its seeds is left out; its difference to drgrpo, and the largest "
        "Welch p, when one seed of either is left out. A conclusion that changes here hangs on one seed."
    )
    kind = f"leave-one-out-g{group_size}"
    caption = f"{describe(setting, group_size)} {seeds_told(cells)}"
    title = f"Leave one seed out, G = {group_size} · {setting.name}"
    notes = [*more_notes, *cell_notes(cells)]
    return Table(kind, f"{kind}-{setting.name}", title, caption, LEAVE_COLUMNS, rows, notes, legend)


def _largest_welch_p(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """The largest p of Welch's test over many pairs at once; None where a pair has no spread at all."""
    means, sds, ns = (np.array([[of(group) for group in pair] for pair in pairs]).T for of in (fmean, stdev, len))
    if not np.all(sds.sum(axis=0) > 0):
        return None
    test = stats.ttest_ind_from_stats(means[0], sds[0], ns[0], means[1], sds[1], ns[1], equal_var=False)
    return float(test.pvalue.max())


def noise_table(rows: Sequence[RunRow]) -> Table | None:
    """Runs whose weights were evaluated more than once on the same questions in the same way; None where none was.

    Evaluations are the same where their keys are; the names of their folders differ.
    """
    found = []
    for row in rows:
        by_key: dict[str, list[str]] = defaultdict(list)
        for name, summary in row.evaluations.items():
            if summary.get("key") and isinstance(summary.get("final"), dict) and summary["final"].get("n"):
                by_key[summary["key"]].append(name)
        for names in by_key.values():
            finals = [row.evaluations[name]["final"] for name in names]
            if len(finals) > 1 and len({final["step"] for final in finals}) == 1:
                accuracies = [final["right"] / final["n"] for final in finals]
                low, high = min(accuracies), max(accuracies)
                values = {"run": row.run, "repeats": len(finals), "lowest": low, "highest": high, "spread": high - low}
                found.append(Row(f"{row.run}/{names[0]}", values, {}, {"": (row.run,)}))
    if not found:
        return None
    caption = (
        "The same weights, evaluated again on the same questions in the same way: what moves here is the "
        "evaluation itself, and "
        "no difference below it means anything."
    )
    return Table("repeats", "repeats", "Repeated evaluations", caption, NOISE_COLUMNS, found)


def noise_note(noise: Table) -> list[str]:
    """The noise floor, as a line under the accuracy tables."""
    widest = max(noise.rows, key=lambda row: row.values["spread"])
    return [
        "Noise floor: the same weights, evaluated again in the same way, moved by up to "
        f"{100 * widest.values['spread']:.1f} "
        f"points ({widest.values['run']}; table {noise.name})."
    ]
