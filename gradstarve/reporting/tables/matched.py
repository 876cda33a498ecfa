"""Arms at the learning rate that suits each: chosen on some seeds, compared on the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gradstarve.reporting.arms import BASELINE, arm_order
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.setting_names import alike_but_for, brief
from gradstarve.reporting.statistics import Summary, compare, summarise
from gradstarve.reporting.tables.accuracy import comparison_values
from gradstarve.reporting.tables.notes import absence_notes, caution_notes, seeds_named
from gradstarve.reporting.tables.side_by_side import alike, stem
from gradstarve.reporting.tables.table import Column, Row, Table

RATE = "learning_rate"
LEAST_SEEDS = 4
COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("rates", "rates tried", "count", "terminal"),
    Column("rate", "chosen", "number", "terminal"),
    Column("n_choosing", "n choosing", "count", "terminal"),
    Column("choosing_mean", "mean, choosing", "percent", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("mean", "mean", "percent", "terminal"),
    Column("sd", "sd", "percent", "terminal"),
    Column("ci95", "95 % CI", "interval", "terminal"),
    Column("to_base", "vs base", "points", "terminal"),
    Column("to_drgrpo", "vs drgrpo", "points", "terminal"),
    Column("to_drgrpo_ci95", "95 % interval of vs drgrpo", "points_interval"),
    Column("permutation_p", "perm. p", "p", "terminal"),
    Column("smallest_p", "smallest perm. p", "p", "terminal"),
]
LEGEND = (
    "Chosen: the learning rate with the arm's best mean over the choosing seeds, the smaller one where two are equal. "
    "That mean is therefore too high, and is compared with nothing. All else is over the other seeds, at the chosen "
    "rate; exact two-sided permutation p against drgrpo at its own chosen rate."
)


def matched_tables(settings: Sequence[Setting], more_notes: Sequence[str] = ()) -> list[Table]:
    """One for each group size at which settings differ in nothing but the learning rate, and for each value of what
    else such settings were run with. The lower half of the seeds (rounded down) chooses, the others compare."""
    tables: list[Table] = []
    for key, members in alike(settings).items():
        for same in alike_but_for(RATE, members):
            if len({_rate(setting) for setting in same}) < 2:
                continue
            for group_size in sorted({size for setting in same for size in setting.group_sizes}):
                name = f"matched-g{group_size}-{stem(key)}"
                name += f"-{len(tables)}" if name in {table.name for table in tables} else ""
                table = _table(name, same, group_size, more_notes)
                tables += [table] if table is not None else []
    return tables


def _table(name: str, settings: Sequence[Setting], group_size: int, more_notes: Sequence[str]) -> Table | None:
    by_arm: dict[str, dict[float, Cell]] = defaultdict(dict)
    for setting in settings:
        for cell in setting.at(group_size):
            by_arm[cell.label][_rate(setting)] = cell
    cells = [cell for of_arm in by_arm.values() for cell in of_arm.values()]
    found = [point.seed for cell in cells for point in cell.points]
    wanted = [absent.seed for cell in cells for absent in cell.absent]
    seeds = sorted({seed for seed in (*found, *wanted) if seed is not None})
    if len(seeds) < LEAST_SEEDS:
        return None
    choosing, comparing = seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :]
    notes, chosen = [], {}
    for arm in sorted(by_arm, key=arm_order):
        rates = {rate: _at(cell, choosing) for rate, cell in sorted(by_arm[arm].items())}
        if len(rates) < 2:
            notes.append(f"{arm} was run at one learning rate only, so it has no row.")
        elif any(len(values) < len(choosing) for values in rates.values()):
            notes.append(f"{arm} lacks a choosing seed at one of its learning rates, so it has no row.")
        else:
            best = max(rates, key=lambda rate: (fmean(rates[rate].values()), -rate))
            chosen[arm] = (best, rates)
            if best in {min(rates), max(rates)}:
                end = "smallest" if best == min(rates) else "largest"
                notes.append(f"{arm}: the {end} rate tried is its best, so a better one may lie beyond.")
    rows = [row for arm in chosen if (row := _row(arm, chosen, by_arm, comparing, settings)) is not None]
    if not rows:
        return None
    one, rates_told = settings[0], ", ".join(brief(rate) for rate in sorted(_rate(setting) for setting in settings))
    caption = (
        f"{one.model} on {one.dataset}, asked {one.asked}, G = {group_size}: settings that differ in the learning rate "
        f"alone ({rates_told}). Choosing: seeds {seeds_named(choosing)}; compared: seeds {seeds_named(comparing)}."
    )
    notes += absence_notes(cells)
    notes += caution_notes([by_arm[arm][rate] for arm, (rate, _) in chosen.items()])
    title = f"Each arm at its own learning rate, G = {group_size} · {name.removeprefix(f'matched-g{group_size}-')}"
    return Table("matched", name, title, caption, COLUMNS, rows, [*more_notes, *notes], LEGEND)


def _row(
    arm: str,
    chosen: dict[str, tuple[float, dict[float, dict[str, float]]]],
    by_arm: dict[str, dict[float, Cell]],
    comparing: Sequence[int],
    settings: Sequence[Setting],
) -> Row | None:
    rate, rates = chosen[arm]
    compared = _at(by_arm[arm][rate], comparing)
    if not compared:
        return None
    summary: Summary = summarise(list(compared.values()))
    tried = tuple(run for values in rates.values() for run in values)
    values: dict[str, Any] = {
        "arm": arm,
        "rates": len(rates),
        "rate": rate,
        "n_choosing": len(rates[rate]),
        "choosing_mean": fmean(rates[rate].values()),
        "n": summary.n,
        "mean": summary.mean,
        "sd": summary.sd,
        "ci95": summary.ci95,
        "by_run": {**compared, **{run: value for of_rate in rates.values() for run, value in of_rate.items()}},
    }
    sources: dict[str, tuple[str, ...]] = {"": tuple(compared)}
    sources |= dict.fromkeys(("rates", "rate", "n_choosing", "choosing_mean"), tried)
    base = next((s.base for s in settings if s.base is not None and s.base.points), None)
    if base is not None:
        values["to_base"] = summary.mean - fmean(base.accuracies)
        sources["to_base"] = (*compared, *base.runs)
    if arm != BASELINE and BASELINE in chosen:
        baseline = _at(by_arm[BASELINE][chosen[BASELINE][0]], comparing)
        if baseline:
            comparison = compare(list(compared.values()), list(baseline.values()))
            against = comparison_values(comparison)
            values |= against
            sources |= dict.fromkeys(against, (*compared, *baseline))
    return Row(arm, values, {}, sources)


def _at(cell: Cell, seeds: Sequence[int]) -> dict[str, float]:
    """Accuracy by run, of the runs of these seeds."""
    return {point.run: point.accuracy for point in cell.points if point.seed in seeds}


def _rate(setting: Setting) -> float:
    return float(setting.config[RATE])
