"""Pairs of arms, compared in full: the companion of every accuracy table, and the replay ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradstarve.reporting.arms import BASELINE
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.comparisons import compare_cells, holm_family
from gradstarve.reporting.statistics import Comparison
from gradstarve.reporting.tables.notes import cell_notes, describe, seeds_told
from gradstarve.reporting.tables.table import Column, Row, Table, shown_p

COLUMNS = [
    Column("pair", "a − b", "text", "terminal"),
    Column("n_a", "n a", "count", "terminal"),
    Column("n_b", "n b", "count", "terminal"),
    Column("difference", "difference", "points", "terminal"),
    Column("ci95", "95 % CI", "points_interval", "terminal"),
    Column("welch_t", "Welch t", "number", "csv"),
    Column("welch_df", "df", "number", "csv"),
    Column("welch_p", "Welch p", "p", "terminal"),
    Column("permutation_p", "perm. p", "p", "terminal"),
    Column("permutation_p_doubled", "doubled tail", "p", "csv"),
    Column("permutation_p_greater", "one-sided", "p"),
    Column("smallest_p", "smallest perm. p", "p"),
    Column("permutation_exact", "exact", "yes_no", "csv"),
    Column("holm_p", "Holm p", "p", "terminal"),
    Column("mann_whitney_p", "Mann-Whitney p", "p", "csv"),
    Column("hodges_lehmann", "shift", "points"),
    Column("hodges_lehmann_ci95", "its 95 % CI", "points_interval"),
    Column("hedges_g", "Hedges g", "number"),
    Column("probability_of_improvement", "P(a > b) %", "percent"),
    Column("every_a_above_every_b", "every a above every b", "yes_no", "terminal"),
    Column("every_b_above_every_a", "every b above every a", "yes_no", "csv"),
    Column("detectable_difference", "could be seen", "percent", "terminal"),
]
LEGEND = (
    "Differences of mean accuracy in points. Welch's t-test and its interval; perm.: exact label-permutation p of the "
    "difference of means, two-sided; smallest: what these data could reach at best; Holm over the rows of this "
    "table; shift: "
    "Hodges-Lehmann with its exact interval; could be seen: the true difference that this many seeds would find with "
    "probability 0.8 at the 5 % level."
)
REPLAY_PAIRS = (("sign_ce", "sign"), ("tasa_ce", "tasa"), ("contrastive_pair", "tasa"))


def contrast_table(setting: Setting, group_size: int, more_notes: Sequence[str] = ()) -> Table | None:
    """Every arm against drgrpo; None where there is nothing to compare."""
    cells = {cell.label: cell for cell in setting.at(group_size) if cell.points}
    pairs = [(label, BASELINE) for label in cells if label != BASELINE and BASELINE in cells]
    name, title = f"contrasts-g{group_size}", f"Comparisons with {BASELINE}, G = {group_size}"
    return _table(setting, cells, pairs, group_size, name, title, more_notes)


def replay_table(setting: Setting, group_size: int, more_notes: Sequence[str] = ()) -> Table | None:
    """Each arm with replay against the same without; None where no pair was run."""
    cells = {cell.label: cell for cell in setting.at(group_size) if cell.points}
    pairs = [(a, b) for a, b in REPLAY_PAIRS if a in cells and b in cells]
    return _table(setting, cells, pairs, group_size, f"replay-g{group_size}", f"Replay, G = {group_size}", more_notes)


def _table(
    setting: Setting,
    cells: dict[str, Cell],
    pairs: Sequence[tuple[str, str]],
    group_size: int,
    kind: str,
    title: str,
    more_notes: Sequence[str],
) -> Table | None:
    if not pairs:
        return None
    comparisons = [compare_cells(cells[a], cells[b]) for a, b in pairs]
    adjusted = holm_family(tuple(comparison.permutation.p_two_sided for comparison in comparisons))
    rows, notes = [], list(more_notes)
    for (a, b), comparison, holm_p in zip(pairs, comparisons, adjusted, strict=True):
        values = contrast_values(comparison) | {"pair": f"{a} − {b}", "holm_p": holm_p}
        values["every_b_above_every_a"] = min(cells[b].accuracies) > max(cells[a].accuracies)
        values["by_run"] = {point.run: point.accuracy for cell in (cells[a], cells[b]) for point in cell.points}
        rows.append(Row(f"{a}-{b}", values, {}, {"": (*cells[a].runs, *cells[b].runs)}))
        doubled = comparison.permutation.p_doubled
        if doubled > 1.2 * comparison.permutation.p_two_sided:
            notes.append(f"{a} − {b}: the doubled tail of the permutation test is {shown_p(doubled)}.")
        notes += [f"{a} − {b}: no {field.replace('_', ' ')}: {why}." for field, why in comparison.reasons.items()][:1]
    notes += cell_notes([cells[label] for label in dict.fromkeys(label for pair in pairs for label in pair)])
    caption = f"{describe(setting, group_size)} {seeds_told(list(cells.values()))}"
    return Table(kind, f"{kind}-{setting.name}", f"{title} · {setting.name}", caption, COLUMNS, rows, notes, LEGEND)


def contrast_values(comparison: Comparison) -> dict[str, Any]:
    welch, permutation = comparison.welch, comparison.permutation
    return {
        "n_a": comparison.n_a,
        "n_b": comparison.n_b,
        "difference": comparison.difference,
        "ci95": comparison.ci95,
        "welch_t": welch.t if welch else None,
        "welch_df": welch.df if welch else None,
        "welch_p": welch.p if welch else None,
        "permutation_p": permutation.p_two_sided,
        "permutation_p_doubled": permutation.p_doubled,
        "permutation_p_greater": permutation.p_greater,
        "smallest_p": permutation.smallest_p,
        "permutation_exact": permutation.exact,
        "mann_whitney_p": comparison.mann_whitney_p,
        "hodges_lehmann": comparison.hodges_lehmann,
        "hodges_lehmann_ci95": comparison.hodges_lehmann_ci95,
        "hedges_g": comparison.hedges_g,
        "probability_of_improvement": comparison.probability_of_improvement,
        "every_a_above_every_b": comparison.every_a_above_every_b,
        "detectable_difference": comparison.detectable_difference,
    }


def separation_note(a: Cell, b: Cell) -> str:
    """Whether the seeds of a and b overlap, with the permutation test: one line under an accuracy table."""
    low_a, high_a, low_b, high_b = min(a.accuracies), max(a.accuracies), min(b.accuracies), max(b.accuracies)
    permutation = compare_cells(a, b).permutation
    if low_a > high_b:
        told = (
            f"Every seed of {a.label} is above every seed of {b.label} "
            f"(lowest {100 * low_a:.1f}, highest {100 * high_b:.1f})"
        )
    elif low_b > high_a:
        told = (
            f"Every seed of {b.label} is above every seed of {a.label} "
            f"(lowest {100 * low_b:.1f}, highest {100 * high_a:.1f})"
        )
    else:
        told = (
            f"The seeds of {a.label} ({100 * low_a:.1f} to {100 * high_a:.1f}) and {b.label} ({100 * low_b:.1f} to "
            f"{100 * high_b:.1f}) overlap"
        )
    kind = "exact " if permutation.exact else ""
    return (
        f"{told}; {kind}permutation p {shown_p(permutation.p_two_sided)} two-sided, "
        f"{shown_p(permutation.p_greater)} one-sided "
        f"({a.label} above), {shown_p(permutation.smallest_p)} the smallest that {len(a.points)} v {len(b.points)} "
        "such seeds allow."
    )
