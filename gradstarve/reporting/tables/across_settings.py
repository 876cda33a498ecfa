"""Tables that set several settings beside each other: other models, and transfer to questions of another data set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gradstarve.reporting.arms import BASELINE, UNTRAINED
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.comparisons import compare_cells, summary_of
from gradstarve.reporting.paper import Paper
from gradstarve.reporting.setting_names import apart_by_model, differing_keys, slug
from gradstarve.reporting.tables.notes import absence_notes, caution_notes, cell_notes, describe
from gradstarve.reporting.tables.table import Column, Row, Table, shown_p, signed

GROUP_SIZE = 4
ARMS = (UNTRAINED, "sign", BASELINE)
TRUNCATED_COLUMNS = [Column(f"{arm}_truncated", f"trunc. {arm}", "percent") for arm in ARMS]
MODEL_COLUMNS = [
    Column("model", "model", "text", "terminal"),
    Column("base", "base", "percent", "terminal"),
    Column("sign_n", "n", "count", "terminal"),
    Column("sign", "sign", "percent", "terminal"),
    Column("sign_sd", "sd", "percent"),
    Column("sign_ci95", "95 % CI", "interval"),
    Column("sign_to_base", "sign vs base", "points", "terminal"),
    Column("drgrpo_n", "n", "count"),
    Column("drgrpo", "drgrpo", "percent", "terminal"),
    Column("sign_to_drgrpo", "sign vs drgrpo", "points", "terminal"),
    Column("permutation_p", "perm. p", "p", "terminal"),
    *TRUNCATED_COLUMNS,
    Column("paper_base", "paper base", "percent", "terminal"),
    Column("paper_sign", "paper sign", "percent", "terminal"),
]
TRANSFER_COLUMNS = [
    Column("group_size", "G", "count", "terminal"),
    Column("base", "base", "percent", "terminal"),
    Column("sign_n", "n", "count", "terminal"),
    Column("sign", "sign", "percent", "terminal"),
    Column("sign_ci95", "95 % CI", "interval", "terminal"),
    Column("drgrpo_n", "n", "count", "terminal"),
    Column("drgrpo", "drgrpo", "percent", "terminal"),
    Column("drgrpo_ci95", "95 % CI", "interval", "terminal"),
    Column("sign_to_drgrpo", "sign vs drgrpo", "points", "terminal"),
    Column("permutation_p", "perm. p", "p", "terminal"),
    Column("smallest_p", "smallest perm. p", "p"),
    *TRUNCATED_COLUMNS,
    Column("paper_sign", "paper sign", "percent", "terminal"),
    Column("paper_drgrpo", "paper drgrpo", "percent", "terminal"),
]


def model_tables(settings: Sequence[Setting], paper: Paper, more_notes: Sequence[str] = ()) -> list[Table]:
    """Table 3: one for each pair of training data and questions that at least two models were run on, and for each
    value of what else a model was run with."""
    by_data: dict[tuple[str, str, str], list[Setting]] = defaultdict(list)
    for setting in settings:
        if setting.samples == 1 and setting.points and not setting.on_training and setting.reward == "verified":
            by_data[setting.dataset, setting.asked, setting.evaluation.rsplit("-", 1)[0]].append(setting)
    tables: list[Table] = []
    parts = [(*key[:2], *part) for key, found in sorted(by_data.items()) for part in apart_by_model(found)]
    for dataset, asked, apart, members in parts:
        if len({setting.model for setting in members}) < 2:
            continue
        like = all(not paper.unlike(setting, any_model=True) for setting in members)
        rows, cautions = [], []
        for setting in members:
            cautions += [f"{setting.name}: {note}" for note in caution_notes(_wanted(setting, [GROUP_SIZE]))]
            values, used = _sign_and_drgrpo(setting, GROUP_SIZE)
            if not used:
                continue
            theirs = paper.model(str(setting.config["model"].get("id"))) if like else {}
            values |= {"model": setting.name, "paper_base": theirs.get("base"), "paper_sign": theirs.get("sign")}
            rows.append(Row(setting.name, values, {"model": _model_shown(setting, members)}, _sources(setting, used)))
        if len(rows) < 2:
            continue
        differs = [key for key in differing_keys(members) if not key.startswith("model.")]
        notes = [*more_notes]
        if differs:
            notes.append(
                f"The rows differ in more than the model: {', '.join(differs)}. A gain is not the model's alone."
            )
        notes += absence_notes(cell for setting in members for cell in _wanted(setting, [GROUP_SIZE]))
        notes += [*cautions, paper.explain(members[0], any_model=True)]
        name = f"table3-{dataset}" + (f"-on-{asked}" if asked != dataset else "")
        name += f"-{slug(apart)}" if apart else ""
        name += f"-{len(tables)}" if name in {table.name for table in tables} else ""
        title = f"Table 3. Models, G = {GROUP_SIZE} · {name.removeprefix('table3-')}"
        caption = f"Accuracy on {asked} before and after training on {dataset}, by model."
        tables.append(Table("table3", name, title, caption, MODEL_COLUMNS, rows, notes))
    return tables


def transfer_table(setting: Setting, paper: Paper, more_notes: Sequence[str] = ()) -> Table | None:
    """sign against drgrpo on questions of another data set than the training's, whatever the sign of the difference."""
    if not setting.transfer or setting.on_training:
        return None
    like = not paper.unlike(setting)
    rows, notes = [], list(more_notes)
    for group_size in setting.group_sizes:
        values, used = _sign_and_drgrpo(setting, group_size)
        if not used:
            continue
        values["group_size"] = group_size
        if like:
            values["paper_sign"] = paper.mean(setting.asked, "sign", group_size)
            values["paper_drgrpo"] = paper.mean(setting.asked, BASELINE, group_size)
        rows.append(Row(f"g{group_size}", values, {}, _sources(setting, used)))
        if values.get("sign_to_drgrpo") is not None:
            above, below = ("sign", BASELINE) if values["sign_to_drgrpo"] > 0 else (BASELINE, "sign")
            notes.append(
                f"G = {group_size}: {above} is above {below} by "
                f"{signed(100 * abs(values['sign_to_drgrpo'])).lstrip('+')} points "
                f"(permutation p {shown_p(values['permutation_p'])}; the smallest possible is "
                f"{shown_p(values['smallest_p'])})."
            )
    if not rows:
        return None
    notes += [*cell_notes(_wanted(setting, setting.group_sizes)), paper.explain(setting)]
    title = f"Transfer to {setting.asked} · {setting.name}"
    return Table("transfer", f"transfer-{setting.name}", title, describe(setting, None), TRANSFER_COLUMNS, rows, notes)


def _sign_and_drgrpo(setting: Setting, group_size: int) -> tuple[dict[str, Any], list[Cell]]:
    values: dict[str, Any] = {}
    base = fmean(setting.base.accuracies) if setting.base and setting.base.points else None
    values["base"] = base
    values["base_truncated"] = setting.base.truncated if setting.base else None
    used = []
    for arm in ("sign", BASELINE):
        cell = setting.find(arm, group_size)
        if cell is None or not cell.points:
            continue
        used.append(cell)
        summary = summary_of(cell)
        values |= {arm: summary.mean, f"{arm}_n": summary.n, f"{arm}_sd": summary.sd, f"{arm}_ci95": summary.ci95}
        values[f"{arm}_truncated"] = cell.truncated
        if base is not None:
            values[f"{arm}_to_base"] = summary.mean - base
    if len(used) == 2:
        comparison = compare_cells(used[0], used[1])
        values |= {
            "sign_to_drgrpo": comparison.difference,
            "permutation_p": comparison.permutation.p_two_sided,
            "smallest_p": comparison.permutation.smallest_p,
        }
    values["by_run"] = {point.run: point.accuracy for cell in used for point in cell.points}
    return values, used


def _wanted(setting: Setting, sizes: Sequence[int]) -> list[Cell]:
    """The cells that these tables are about, those without any result among them."""
    everyone = [*([setting.base] if setting.base else []), *setting.cells]
    return [cell for cell in everyone if cell.label in ARMS and cell.group_size in (None, *sizes)]


def _sources(setting: Setting, used: Sequence[Cell]) -> dict[str, tuple[str, ...]]:
    runs = {cell.label: cell.runs for cell in used}
    base = setting.base.runs if setting.base else ()
    sources = {"": tuple(run for cell in used for run in cell.runs), "base": base, "base_truncated": base}
    for arm, of_arm in runs.items():
        sources |= dict.fromkeys((arm, f"{arm}_n", f"{arm}_sd", f"{arm}_ci95", f"{arm}_truncated"), of_arm)
        sources[f"{arm}_to_base"] = (*of_arm, *base)
    return sources


def _model_shown(setting: Setting, members: Sequence[Setting]) -> str:
    """The model's name, or the setting's where a model has several."""
    twins = [other for other in members if other.model == setting.model]
    return str(setting.config["model"].get("id") or setting.model) if len(twins) == 1 else setting.name
