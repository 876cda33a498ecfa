"""What training looked like and what it cost: dead groups against the homogeneous prediction, tokens, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gradstarve.estimators.degeneracy import degeneracy
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.paper import Paper
from gradstarve.reporting.statistics import summarise
from gradstarve.reporting.tables.notes import cell_notes, describe, seeds_told
from gradstarve.reporting.tables.table import Column, Row, Table
from gradstarve.reporting.trajectories import mean_reward
from gradstarve.runs.folder import RunFolder

DEGENERACY_COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("group_size", "G", "count", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("groups", "groups a run", "count", "terminal"),
    Column("all_fail", "all-fail", "percent", "terminal"),
    Column("mixed", "mixed", "percent", "terminal"),
    Column("all_pass", "all-pass", "percent", "terminal"),
    Column("dead", "D_real", "percent", "terminal"),
    Column("dead_ci95", "95 % CI", "interval", "terminal"),
    Column("truncated", "truncated", "percent", "terminal"),
    Column("mean_reward", "mean reward", "percent", "terminal"),
    Column("d_iid", "D_iid", "percent", "terminal"),
    Column("ratio", "D_real / D_iid", "number", "terminal"),
    Column("d_iid_base", "D_iid at base", "percent"),
    Column("paper_dead", "paper D_real", "percent"),
]
DEGENERACY_LEGEND = (
    "Shares of groups over the whole training, means over seeds. D_real: dead groups (all-fail or all-pass) as "
    "they were "
    "observed; D_iid = p^G + (1-p)^G if all prompts had the same success probability p, at p = the mean reward of the "
    "training, and at p = the accuracy of the untrained model, as the paper has it. D_real includes the policy's "
    "change over "
    "the training. Truncated: share of completions."
)
COST_COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("group_size", "G", "count", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("tokens", "tokens a run", "count", "terminal"),
    Column("tokens_all", "tokens, all runs", "count", "terminal"),
    Column("seconds", "seconds a run", "number", "terminal"),
    Column("rollout", "rollout %", "percent", "terminal"),
    Column("loss", "loss %", "percent", "terminal"),
    Column("rest", "rest %", "percent", "terminal"),
    Column("hours_all", "hours, all runs", "number", "terminal"),
    Column("gpu_hours", "GPU hours, all runs", "number", "terminal"),
    Column("hardware", "hardware", "text"),
]


def degeneracy_table(setting: Setting, paper: Paper, more_notes: Sequence[str] = ()) -> Table | None:
    cells = [cell for cell in setting.cells if any(point.share("dead") is not None for point in cell.points)]
    if not cells:
        return None
    base = fmean(setting.base.accuracies) if setting.base and setting.base.points else None
    like = not paper.unlike(setting)
    rows = []
    for cell in cells:
        group_size = cell.group_size or 0
        dead = summarise([share for point in cell.points if (share := point.share("dead")) is not None])
        rewards = [reward for point in cell.points if (reward := mean_reward(point)) is not None]
        mean = fmean(rewards) if rewards else None
        groups = _mean(point.result.get("groups") for point in cell.points)
        d_iid = float(degeneracy(mean, group_size)) if mean is not None else None
        values: dict[str, Any] = {
            "arm": cell.label,
            "group_size": group_size,
            "n": dead.n,
            "groups": round(groups) if groups is not None else None,
            **{
                key: _mean(point.share(key) for point in cell.points)
                for key in ("all_fail", "mixed", "all_pass", "truncated")
            },
            "dead": dead.mean,
            "dead_ci95": dead.ci95,
            "mean_reward": mean,
            "d_iid": d_iid,
            "ratio": dead.mean / d_iid if d_iid else None,
            # A control's reward is right as often as the control says, not as the model.
            "d_iid_base": float(degeneracy(base, group_size))
            if base is not None and setting.reward == "verified"
            else None,
        }
        if like and cell.label == "drgrpo" and group_size == 4:
            values["paper_dead"] = paper.content["degeneracy"]["g4_drgrpo_seed42"]["dead"]
        rows.append(Row(f"{cell.label}-g{group_size}", values, {}, {"": cell.runs}))
    return _table(
        "degeneracy", "Dead groups in training", setting, cells, DEGENERACY_COLUMNS, rows, more_notes, DEGENERACY_LEGEND
    )


def cost_table(setting: Setting, more_notes: Sequence[str] = ()) -> Table | None:
    cells = [cell for cell in setting.cells if any(_seconds(point.result) is not None for point in cell.points)]
    if not cells:
        return None
    rows = []
    for cell in cells:
        points = [point for point in cell.points if _seconds(point.result) is not None]
        seconds = [_seconds(point.result) or 0.0 for point in points]
        tokens = [point.tokens for point in points if point.tokens is not None]
        kinds = {
            kind: sum((point.result.get("seconds") or {}).get(kind) or 0.0 for point in points)
            for kind in ("rollout", "loss", "rest")
        }
        known = sum(kinds.values())
        hardware, gpus = _hardware(cell)
        values = {
            "arm": cell.label,
            "group_size": cell.group_size,
            "n": len(points),
            "tokens": round(fmean(tokens)) if tokens else None,
            "tokens_all": sum(tokens) if tokens else None,
            "seconds": fmean(seconds),
            **{kind: value / known if known else None for kind, value in kinds.items()},
            "hours_all": sum(seconds) / 3600,
            "gpu_hours": gpus * sum(seconds) / 3600 if gpus else None,
            "hardware": hardware,
        }
        rows.append(Row(f"{cell.label}-g{cell.group_size}", values, {}, {"": cell.runs}))
    legend = (
        "Generated tokens are those of the training rollouts. Seconds are wall-clock, evaluation included where a "
        "run did it; "
        "times compare only between runs on the same hardware with the same load."
    )
    return _table("cost", "Cost", setting, cells, COST_COLUMNS, rows, more_notes, legend)


def _table(
    kind: str, title: str, setting: Setting, cells: Sequence[Cell], columns: Sequence[Column], rows: Sequence[Row],
    more_notes: Sequence[str], legend: str,
) -> Table:  # fmt: skip
    notes = [*more_notes, *cell_notes(cells)]
    caption = f"{describe(setting, None)} {seeds_told(cells)}"
    return Table(kind, f"{kind}-{setting.name}", f"{title} · {setting.name}", caption, columns, rows, notes, legend)


def _hardware(cell: Cell) -> tuple[str | None, int]:
    """What the cell's first run says it ran on, and how many GPUs that were."""
    hardware: Any = RunFolder(cell.points[0].folder).provenance().get("hardware")
    if not isinstance(hardware, dict):
        return (str(hardware) if hardware else None), 0
    gpus = hardware.get("gpus") or []
    names = [str(gpus)] if isinstance(gpus, str) else [str(name) for name in gpus]
    told = f"{len(names)} x {names[0]}" if names else f"CPU, {hardware.get('cores')} cores"
    return told, len(names)


def _seconds(result: dict[str, Any]) -> float | None:
    return (result.get("seconds") or {}).get("total")


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
