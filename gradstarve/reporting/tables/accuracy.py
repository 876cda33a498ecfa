"""Table 1 (G = 4), Table 2 (the G = 8 control) and the same for any other group size: accuracy by advantage."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gradstarve.reporting.arms import BASELINE, UNTRAINED
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.comparisons import compare_cells, holm_family, summary_of
from gradstarve.reporting.paper import Paper
from gradstarve.reporting.statistics import Comparison
from gradstarve.reporting.tables.contrasts import separation_note
from gradstarve.reporting.tables.notes import (
    absence_notes,
    caution_notes,
    code_note,
    describe,
    mark,
    missing_arm_note,
    neighbour_notes,
    odd_notes,
    odd_runs,
    rule_notes,
    seeds_told,
)
from gradstarve.reporting.tables.table import Column, Row, Table

TITLES = {4: "Table 1. Accuracy by advantage, G = 4", 8: "Table 2. The larger-group control, G = 8"}
KINDS = {4: "table1", 8: "table2"}
# What the paper reports at each group size; an arm of it that was not run is named.
EXPECTED = {
    4: ("base", "sign", "sign_ce", "tasa", "tasa_ce", "contrastive_pair", "drgrpo"),
    8: ("base", "sign", "drgrpo"),
}

COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("n_absent", "missing", "count", "csv"),
    Column("mean", "mean", "percent", "terminal"),
    Column("sd", "sd", "percent", "terminal"),
    Column("median", "median", "percent", "terminal"),
    Column("min", "min", "percent", "terminal"),
    Column("max", "max", "percent", "terminal"),
    Column("ci95", "95 % CI", "interval", "terminal"),
    Column("to_base", "vs base", "points", "terminal"),
    Column("to_drgrpo", "vs drgrpo", "points", "terminal"),
    Column("to_drgrpo_ci95", "95 % interval of vs drgrpo", "points_interval", "csv"),
    Column("welch_p", "Welch p", "p"),
    Column("permutation_p", "perm. p", "p", "terminal"),
    Column("smallest_p", "smallest perm. p", "p"),
    Column("holm_p", "Holm p", "p"),
    Column("mean_strict", "mean, strict rule", "percent", "csv"),
    Column("mean_flexible", "mean, flexible rule", "percent", "csv"),
    Column("truncated_training", "trunc. train", "percent", "csv"),
    Column("truncated_evaluation", "trunc. eval", "percent", "csv"),
    Column("truncated", "trunc.", "text", "terminal", machine=False),
    Column("dead", "dead", "percent", "terminal"),
    Column("paper_mean", "paper", "percent", "terminal"),
    Column("to_paper", "vs paper", "points", "terminal"),
]

LEGEND = (
    "Accuracy in percent over all questions; n: seeds (of those wanted, where some are missing); sd and "
    "differences in points; 95 % t-interval of the mean; Welch and exact "
    "two-sided permutation p against drgrpo (smallest: what this many seeds could reach at best; Holm over the "
    "arms of the "
    "table); trunc.: no end within the limit, share of training / of evaluated completions; dead: all-fail and "
    "all-pass "
    "groups over the training."
)


def kind_of(setting: Setting, group_size: int) -> str:
    """The table's short name; the paper's table numbers are for held-out questions of the training's own data set."""
    elsewhere = setting.transfer or setting.on_training
    return f"accuracy-g{group_size}" if elsewhere else KINDS.get(group_size, f"accuracy-g{group_size}")


def title_of(setting: Setting, group_size: int) -> str:
    if setting.on_training:
        return f"Accuracy on training questions of {setting.asked}, which are not held out, G = {group_size}"
    if setting.transfer:
        return f"Accuracy on {setting.asked} after training on {setting.dataset}, G = {group_size}"
    return TITLES.get(group_size, f"Accuracy by advantage, G = {group_size}")


def accuracy_table(
    setting: Setting, group_size: int, paper: Paper, settings: Sequence[Setting] = (), more_notes: Sequence[str] = ()
) -> Table:
    """One row for each arm at `group_size`, `base` first; what is missing stands under it by name."""
    cells = setting.at(group_size)
    everyone = [*([setting.base] if setting.base is not None else []), *cells]
    points = [point for cell in everyone for point in cell.points]
    odd = odd_runs(points)
    baseline = next((cell for cell in cells if cell.label == BASELINE and cell.points), None)
    base = fmean(setting.base.accuracies) if setting.base and setting.base.points else None
    like = not paper.unlike(setting)
    comparisons = {
        cell.key: compare_cells(cell, baseline)
        for cell in cells
        if baseline is not None and cell is not baseline and cell.points
    }
    adjusted = _holm(comparisons)
    rows = []
    for cell in everyone:
        values, comparison = cell_values(cell), comparisons.get(cell.key)
        if base is not None and cell is not setting.base and cell.points:
            values["to_base"] = values["mean"] - base
        if comparison is not None:
            values |= comparison_values(comparison)
            values["holm_p"] = adjusted.get(cell.key)
        if like:
            values["paper_mean"] = paper.mean_of(setting, cell)
            if not paper.not_given and values["paper_mean"] is not None and cell.points:
                values["to_paper"] = values["mean"] - values["paper_mean"]
        values["by_run"] = {
            point.run: point.accuracy for c in (cell, setting.base, baseline) if c is not None for point in c.points
        }
        shown = {"arm": cell.label, "n": _n_shown(cell, mark(cell, odd))}
        rows.append(Row(cell.label, values, shown, _sources(cell, setting.base, baseline)))
    sign = next((cell for cell in cells if cell.label == "sign" and cell.points), None)
    notes = [
        *more_notes,
        *([separation_note(sign, baseline)] if sign is not None and baseline is not None else []),
        *([f"No run of {BASELINE} here, so no arm is compared with it."] if baseline is None and cells else []),
        *([] if base is not None else ["The untrained model (base) was not evaluated here."]),
        *missing_arm_note(cells, setting, EXPECTED.get(group_size, (UNTRAINED,))),
        *absence_notes(everyone),
        *odd_notes(odd),
        *code_note(points),
        *caution_notes(everyone),
        *rule_notes(everyone),
        *neighbour_notes(setting, settings),
    ]
    seeds = sorted({point.seed for cell in cells for point in cell.points if point.seed is not None})
    columns = [*COLUMNS, *(Column(f"seed_{seed}", f"seed {seed}", "percent", "csv") for seed in seeds)]
    title = f"{title_of(setting, group_size)} · {setting.name}"
    kind = kind_of(setting, group_size)
    caption = f"{describe(setting, group_size)} {seeds_told(cells)}"
    return Table(
        kind, f"{kind}-{setting.name}", title, caption, columns, rows, [*notes, paper.explain(setting)], LEGEND
    )


def cell_values(cell: Cell) -> dict[str, Any]:
    """What a cell alone says, by column key."""
    values: dict[str, Any] = {"arm": cell.label, "n": len(cell.points), "n_absent": len(cell.absent)}
    if not cell.points:
        return values
    summary = summary_of(cell)
    values |= {
        "mean": summary.mean,
        "sd": summary.sd,
        "median": summary.median,
        "min": summary.minimum,
        "max": summary.maximum,
        "ci95": summary.ci95,
        "dead": _mean(point.share("dead") for point in cell.points),
        "mean_strict": _mean(point.accuracy_under("strict") for point in cell.points),
        "mean_flexible": _mean(point.accuracy_under("flexible") for point in cell.points),
        "truncated_training": _mean(point.share("truncated") for point in cell.points),
        "truncated_evaluation": cell.truncated,
    }
    training, asked = values["truncated_training"], values["truncated_evaluation"]
    values["truncated"] = "/".join("–" if share is None else f"{100 * share:.1f}" for share in (training, asked))
    if cell.group_size is None:
        values |= dict.fromkeys(("sd", "median", "min", "max", "ci95")) if len(cell.points) == 1 else {}
    else:
        values |= {f"seed_{point.seed}": point.accuracy for point in cell.points}
    return values


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """What a comparison with drgrpo says, by column key."""
    return {
        "to_drgrpo": comparison.difference,
        "to_drgrpo_ci95": comparison.ci95,
        "welch_p": comparison.welch.p if comparison.welch is not None else None,
        "permutation_p": comparison.permutation.p_two_sided,
        "smallest_p": comparison.permutation.smallest_p,
    }


def _holm(comparisons: dict[str, Comparison]) -> dict[str, float | None]:
    """Adjusted permutation p values; the family is all arms of the table against drgrpo."""
    adjusted = holm_family(tuple(comparison.permutation.p_two_sided for comparison in comparisons.values()))
    return dict(zip(comparisons, adjusted, strict=True))


def _n_shown(cell: Cell, marks: str) -> str:
    n = len(cell.points)
    return (f"{n}/{n + len(cell.absent)}" if cell.absent else str(n)) + marks


def _sources(cell: Cell, base: Cell | None, baseline: Cell | None) -> dict[str, tuple[str, ...]]:
    sources = {"": cell.runs}
    if base is not None:
        sources["to_base"] = (*cell.runs, *base.runs)
    if baseline is not None:
        for key in ("to_drgrpo", "to_drgrpo_ci95", "welch_p", "permutation_p", "smallest_p", "holm_p"):
            sources[key] = (*cell.runs, *baseline.runs)
    return sources | {f"seed_{point.seed}": (point.run,) for point in cell.points}


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
