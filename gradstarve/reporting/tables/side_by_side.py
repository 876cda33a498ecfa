"""Settings of one model and data set beside each other: what a limit, a rate, a reward or a KL coefficient changed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gradstarve.reporting.arms import BASELINE, arm_order, distinct_labels
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.comparisons import compare_cells
from gradstarve.reporting.setting_names import brief, differing_keys, flat_config, slug
from gradstarve.reporting.tables.accuracy import cell_values, comparison_values
from gradstarve.reporting.tables.notes import absence_notes
from gradstarve.reporting.tables.table import Column, Row, Table

COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("group_size", "G", "count", "terminal"),
    Column("setting", "setting", "text", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("base", "base", "percent", "terminal"),
    Column("mean", "mean", "percent", "terminal"),
    Column("sd", "sd", "percent"),
    Column("ci95", "95 % CI", "interval"),
    Column("to_base", "vs base", "points", "terminal"),
    Column("to_drgrpo", "vs drgrpo", "points", "terminal"),
    Column("to_drgrpo_ci95", "95 % interval of vs drgrpo", "points_interval"),
    Column("permutation_p", "perm. p", "p", "terminal"),
    Column("smallest_p", "smallest perm. p", "p"),
    Column("dead", "dead", "percent", "terminal"),
    Column("truncated_training", "trunc. train", "percent", "terminal"),
    Column("truncated_evaluation", "trunc. eval", "percent", "terminal"),
    Column("tokens", "tokens", "count"),
]
LEGEND = (
    "Each row is one arm at one group size in one setting; base and drgrpo are those of the same setting. Accuracy, "
    "dead and truncated in percent, differences in points; exact two-sided permutation p against drgrpo, not corrected "
    "for the number of rows; tokens: generated in training, mean of the seeds."
)


def side_by_side_tables(settings: Sequence[Setting], more_notes: Sequence[str] = ()) -> list[Table]:
    """One for each model, data set and kind of question that at least two settings share, those whose reward takes no
    notice of the verdict among them. Within an arm the rows follow the values in which the settings differ."""
    tables = [_table(key, members, more_notes) for key, members in alike(settings).items() if len(members) > 1]
    return [table for table in tables if len(table.rows) > 1]


def alike(settings: Sequence[Setting]) -> dict[tuple[str, ...], list[Setting]]:
    """Settings that were trained, by (model, training data, data asked, kind of evaluation), one answer a question."""
    groups: dict[tuple[str, ...], list[Setting]] = defaultdict(list)
    for setting in settings:
        if setting.points and setting.samples == 1 and not setting.on_training:
            kind = setting.evaluation.rsplit("-", 1)[0]
            groups[setting.model, setting.dataset, setting.asked, kind].append(setting)
    return dict(sorted(groups.items()))


def stem(key: tuple[str, ...]) -> str:
    """What a group of `alike` is called in a file's name."""
    model, dataset, asked, kind = key
    parts = [model, dataset, *([f"on-{asked}"] if asked != dataset else [])]
    return slug("-".join([*parts, *([kind] if kind not in {"greedy", asked} else [])]))


def _table(key: tuple[str, ...], members: Sequence[Setting], more_notes: Sequence[str]) -> Table:
    keys = differing_keys(members)
    labels = distinct_labels({_arm(cell): cell.config["advantage"] for s in members for cell in s.cells if cell.points})
    found = [(setting, cell) for setting in members for cell in setting.cells if cell.points]
    found.sort(key=lambda at: (arm_order(labels[_arm(at[1])]), at[1].group_size or 0, _place(at[0], keys)))
    rows = [_row(setting, cell, labels[_arm(cell)], keys) for setting, cell in found]
    model, dataset, asked, _ = key
    differ = ", ".join(keys) or "the version of what is asked"
    caption = (
        f"{model} on {dataset}, asked {asked}: {len(members)} settings that differ in {differ}. Each has tables of its "
        "own, whose captions give it in full."
    )
    notes = [*more_notes, *absence_notes(cell for setting in members for cell in setting.cells)]
    title = f"Settings side by side · {stem(key)}"
    return Table("settings", f"settings-{stem(key)}", title, caption, COLUMNS, rows, notes, LEGEND)


def _row(setting: Setting, cell: Cell, label: str, keys: Sequence[str]) -> Row:
    values = cell_values(cell) | {"arm": label, "group_size": cell.group_size, "setting": _told(setting, keys)}
    sources = {"": cell.runs}
    tokens = [point.tokens for point in cell.points if point.tokens is not None]
    values["tokens"] = round(fmean(tokens)) if tokens else None
    values["by_run"] = {point.run: point.accuracy for point in cell.points}
    base = setting.base
    if base is not None and base.points:
        values["base"] = fmean(base.accuracies)
        values["to_base"] = values["mean"] - values["base"]
        sources |= {"base": base.runs, "to_base": (*cell.runs, *base.runs)}
    baseline = setting.find(BASELINE, cell.group_size)
    if baseline is not None and baseline.points and baseline is not cell:
        comparison = compare_cells(cell, baseline)
        compared = comparison_values(comparison)
        values |= compared
        sources |= dict.fromkeys(compared, (*cell.runs, *baseline.runs))
    return Row(f"{label}-g{cell.group_size}-{setting.name}", values, {}, sources)


def _arm(cell: Cell) -> str:
    return json.dumps(cell.config["advantage"], sort_keys=True)


def _told(setting: Setting, keys: Sequence[str]) -> str:
    values = flat_config(setting)
    return ", ".join(f"{key} {brief(values.get(key))}" for key in keys) or setting.name


def _place(setting: Setting, keys: Sequence[str]) -> tuple[Any, ...]:
    """Numbers in their order, before texts."""
    values = [flat_config(setting).get(key) for key in keys]
    return tuple((0, float(v), "") if isinstance(v, int | float) else (1, 0.0, str(v)) for v in values)
