"""runs.csv: every run under every evaluation, one row each: what all tables are made of."""

from __future__ import annotations

from collections.abc import Sequence

from gradstarve.reporting.cells import Cell, Point, Setting
from gradstarve.reporting.tables.table import Column, Row, Table

_TEXTS = ("setting", "run", "advantage", "arm", "state", "why", "evaluation", "split", "commit", "dirty",
          "training_reward")  # fmt: skip
_COUNTS = ("group_size", "seed", "n", "right", "unverifiable", "tokens", "groups")
_SHARES = ("all_fail", "mixed", "all_pass", "dead", "truncated")
COLUMNS = [
    *(Column(key, key, "text", "csv") for key in _TEXTS),
    *(Column(key, key, "count", "csv") for key in _COUNTS),
    Column("accuracy", "accuracy", "percent", "csv"),
    Column("strict_accuracy", "strict_accuracy", "percent", "csv"),
    Column("flexible_accuracy", "flexible_accuracy", "percent", "csv"),
    Column("truncated_evaluation", "truncated_evaluation", "percent", "csv"),
    *(Column(key, key, "percent", "csv") for key in _SHARES),
    Column("reward_first", "reward_first", "percent", "csv"),
    Column("reward_last", "reward_last", "percent", "csv"),
    Column("seconds", "seconds", "number", "csv"),
]


def runs_table(settings: Sequence[Setting]) -> Table:
    rows = []
    for setting in settings:
        for cell in [*([setting.base] if setting.base else []), *setting.cells]:
            rows += [Row(point.run, _values(setting, cell, point), {}, {"": (point.run,)}) for point in cell.points]
            for absent in cell.absent:
                values = {"run": absent.run, "seed": absent.seed, "state": absent.state, "why": absent.why}
                rows.append(Row(absent.run, _place(setting, cell) | values))
    return Table("runs", "runs", "Runs", "", COLUMNS, rows)


def _place(setting: Setting, cell: Cell) -> dict[str, object]:
    return {
        "setting": setting.name,
        "advantage": cell.advantage,
        "arm": cell.label,
        "group_size": cell.group_size,
        "evaluation": setting.evaluation,
        "split": "train" if setting.on_training else "eval",
        "training_reward": None if cell is setting.base else setting.reward,
    }


def _values(setting: Setting, cell: Cell, point: Point) -> dict[str, object]:
    result, final = point.result, point.final
    code = result.get("code") or {}
    return {
        **_place(setting, cell),
        "run": point.run,
        "state": "done",
        "seed": point.seed,
        "n": final["n"],
        "right": final["right"],
        "accuracy": point.accuracy,
        "strict_accuracy": point.accuracy_under("strict"),
        "flexible_accuracy": point.accuracy_under("flexible"),
        "unverifiable": final.get("unverifiable"),
        "truncated_evaluation": final.get("truncated"),
        **{key: point.share(key) for key in _SHARES},
        **{key: result.get(key) for key in ("tokens", "groups", "reward_first", "reward_last")},
        "seconds": (result.get("seconds") or {}).get("total"),
        "commit": code.get("commit"),
        "dirty": None if code.get("dirty") is None else str(bool(code["dirty"])).lower(),
    }
