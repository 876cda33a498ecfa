"""Runs sorted into settings and cells: what may stand in one table, and what is missing from it.

A setting is one setting key (all that a run trains on, but for seed, advantage and group size) under one evaluation. A
cell is all seeds of one arm in it. Nothing that differs in model, data, evaluation or any other key meets in a cell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gradstarve.reporting.arms import UNTRAINED, arm_order, distinct_labels
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.rows import RunRow, identify


@dataclass(frozen=True)
class Point:
    """One run under one evaluation."""

    run: str
    folder: Path
    seed: int | None
    result: dict[str, Any]
    final: dict[str, Any]

    @property
    def accuracy(self) -> float:
        return self.final["right"] / self.final["n"]

    @property
    def tokens(self) -> int | None:
        """Tokens generated in training."""
        return self.result.get("tokens")

    def share(self, name: str) -> float | None:
        """A share over the whole training, such as "dead"; None for `base`."""
        return (self.result.get("shares") or {}).get(name)


@dataclass(frozen=True)
class Absent:
    """A run that was wanted, or begun, and has no value in the cell."""

    run: str
    seed: int | None
    state: str
    why: str


@dataclass
class Cell:
    """All seeds of one arm at one group size."""

    key: str
    advantage: str
    group_size: int | None
    label: str = ""
    points: list[Point] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)

    @property
    def accuracies(self) -> list[float]:
        return [point.accuracy for point in self.points]

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(point.run for point in self.points)

    @cached_property
    def config(self) -> dict[str, Any]:
        return (
            RunFolder(self.points[0].folder).read_config() if self.points else {"advantage": {"name": self.advantage}}
        )


@dataclass
class Setting:
    """What one set of tables is about. `base` is the untrained model under the same evaluation."""

    key: str
    evaluation: str
    model_key: str
    model: str
    dataset: str
    cells: list[Cell] = field(default_factory=list)
    base: Cell | None = None
    name: str = ""
    apart: dict[str, Any] = field(default_factory=dict)

    @property
    def points(self) -> list[Point]:
        return [point for cell in self.cells for point in cell.points]

    def at(self, group_size: int) -> list[Cell]:
        """The trained arms at a group size, in table order."""
        return [cell for cell in self.cells if cell.group_size == group_size]

    def find(self, label: str, group_size: int | None) -> Cell | None:
        if label == UNTRAINED:
            return self.base
        found = [cell for cell in self.cells if cell.label == label and cell.group_size == group_size]
        return found[0] if found else None

    @property
    def group_sizes(self) -> list[int]:
        return sorted({cell.group_size for cell in self.cells if cell.group_size is not None})

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config of one of its runs."""
        point = (self.points or (self.base.points if self.base else []))[0]
        return RunFolder(point.folder).read_config()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What was asked and how it was decoded: {"evaluation": ..., "dataset": ...}."""
        for point in [*self.points, *(self.base.points if self.base else [])]:
            if point.final.get("identity"):
                return point.final["identity"]
        return {}

    @property
    def decoding(self) -> dict[str, Any]:
        return self.identity.get("evaluation") or self.config.get("evaluation") or {}

    @property
    def samples(self) -> int:
        return int(self.decoding.get("samples", 1))

    @property
    def transfer(self) -> bool:
        """Whether the questions are of another data set than the training's."""
        return bool(self.points) and self.asked != self.dataset

    @cached_property
    def asked(self) -> str:
        """The data set that is asked: as the evaluation says, else as its identity shows it."""
        for point in [*self.points, *(self.base.points if self.base else [])]:
            if point.final.get("dataset"):
                return str(point.final["dataset"])
        asked, trained = self.identity.get("dataset") or {}, self.config["dataset"]
        data = asked.get("data") or {}
        theirs = {"grader": asked.get("grader"), "hub_id": data.get("hub_id")}
        if any(value is not None and value != trained.get(key) for key, value in theirs.items()):
            return str(theirs["hub_id"] or f"{theirs['grader']} questions").rsplit("/", 1)[-1].lower()
        return self.dataset


def read_settings(rows: Sequence[RunRow], sweeps: Iterable[dict[str, Any]]) -> list[Setting]:
    """All settings with at least one finished run, those with most runs first; each knows what it is missing."""
    wanted = {run["run"]: run for sweep in sweeps for run in sweep["runs"]}
    by_name = {row.run: row for row in rows}
    settings: dict[tuple[str, str], Setting] = {}
    cells: dict[tuple[str, str, str], Cell] = {}
    bases: dict[tuple[str, str], Cell] = {}

    def cell_of(identity: dict[str, Any], evaluation: str) -> Cell:
        if identity["setting"] is None:
            place = (identity["model_key"], evaluation)
            return bases.setdefault(place, Cell(identity["cell"], identity["advantage"], None, UNTRAINED))
        key = (identity["setting"], evaluation)
        if key not in settings:
            settings[key] = Setting(*key, identity["model_key"], identity["model"], identity["dataset"])
        place3 = (*key, identity["cell"])
        if place3 not in cells:
            cells[place3] = Cell(identity["cell"], identity["advantage"], identity["group_size"])
            settings[key].cells.append(cells[place3])
        return cells[place3]

    for row in rows:
        if row.result is not None:
            for evaluation, final in finals_of(row).items():
                point = Point(row.run, row.folder, row.result["seed"], row.result, final)
                cell_of(row.result, evaluation).points.append(point)
    for name, identity in wanted.items():
        found = by_name.get(name)
        if found is None or found.result is None:
            state, why = (found.state, found.why or found.state) if found else ("missing", "never started")
            cell_of(identity, identity["evaluation"]).absent.append(Absent(name, identity["seed"], state, why))
        elif identity["evaluation"] not in finals_of(found):
            others = ", ".join(finals_of(found)) or "nothing"
            why = f"finished, but evaluated as {others} only"
            cell_of(identity, identity["evaluation"]).absent.append(
                Absent(name, identity["seed"], "not evaluated", why)
            )
    for row in rows:
        if row.result is None and row.run not in wanted:
            undeclared = identify(row)
            if undeclared is not None:
                absent = Absent(row.run, undeclared["seed"], row.state, row.why or row.state)
                cell_of(undeclared, undeclared["evaluation"]).absent.append(absent)
    return _finish(settings, bases)


def unplaced(rows: Sequence[RunRow], sweeps: Iterable[dict[str, Any]]) -> list[RunRow]:
    """Unfinished folders that no declaration names and whose config cannot be read: they belong to no table."""
    wanted = {run["run"] for sweep in sweeps for run in sweep["runs"]}
    return [row for row in rows if row.result is None and row.run not in wanted and identify(row) is None]


def finals_of(row: RunRow) -> dict[str, dict[str, Any]]:
    """The final result of each whole evaluation of a finished run, by the evaluation's folder name."""
    assert row.result is not None
    found = {}
    for name, summary in row.evaluations.items():
        final = summary.get("final")
        if isinstance(final, dict) and final.get("n"):
            found[name] = {
                **final,
                **{key: summary[key] for key in ("identity", "dataset", "key", "by_step") if key in summary},
            }
    recorded = row.result.get("evaluation")
    if isinstance(recorded, dict) and recorded.get("n") and recorded["name"] not in found:
        found[recorded["name"]] = recorded
    return found


def _finish(settings: dict[tuple[str, str], Setting], bases: dict[tuple[str, str], Cell]) -> list[Setting]:
    for setting in settings.values():
        setting.base = bases.get((setting.model_key, setting.evaluation))
        by_size: dict[int | None, dict[str, Cell]] = defaultdict(dict)
        for cell in setting.cells:
            cell.points.sort(key=lambda point: (point.seed is None, point.seed))
            cell.absent.sort(key=lambda absent: (absent.seed is None, absent.seed, absent.run))
            by_size[cell.group_size][cell.key] = cell
        for of_size in by_size.values():
            twice = Counter(cell.advantage for cell in of_size.values())
            for cell in of_size.values():
                cell.label = cell.advantage
            clash = {k: c.config["advantage"] for k, c in of_size.items() if twice[c.advantage] > 1}
            for key, label in distinct_labels(clash).items():
                of_size[key].label = label
        setting.cells.sort(key=lambda cell: (cell.group_size or 0, arm_order(cell.label)))
    trained = {setting.model_key for setting in settings.values()}
    for (model, evaluation), cell in bases.items():
        # The untrained model has tables of its own only where nothing was trained from it.
        if model not in trained and cell.points:
            first = cell.points[0].result
            alone = Setting("", evaluation, model, first["model"], first["dataset"], base=cell)
            settings[model, evaluation] = alone
    kept = [s for s in settings.values() if s.points or (s.base is not None and s.base.points)]
    kept.sort(key=lambda s: (-len(s.points), s.model, s.dataset, s.evaluation, s.key))
    kept = [setting for number, setting in enumerate(kept) if not any(_repeats(setting, s) for s in kept[:number])]
    _name(kept)
    return kept


def _repeats(setting: Setting, other: Setting) -> bool:
    """Whether all runs of a setting were only evaluated again, in the way of the other: same key, another name."""
    same = setting.key == other.key and setting.evaluation.rsplit("-", 1)[-1] == other.evaluation.rsplit("-", 1)[-1]
    return same and {point.run for point in setting.points} <= {point.run for point in other.points}


def _name(settings: Sequence[Setting]) -> None:
    """A readable, unique name for each: model and data set, then what sets it apart where these are shared."""

    def stem(setting: Setting) -> str:
        kind = setting.evaluation.rsplit("-", 1)[0]
        parts = [setting.model, setting.dataset]
        if setting.asked != setting.dataset:
            parts.append(f"on-{setting.asked}")
        if kind not in {"greedy", setting.asked}:
            parts.append(kind)
        return "-".join(parts)

    groups: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        groups[stem(setting)].append(setting)
    for name, members in groups.items():
        if len(members) == 1:
            members[0].name = _slug(name)
            continue
        apart = differing_keys(members)
        for setting in members:
            values = flat_config(setting)
            setting.apart = {key: values.get(key) for key in apart}
            told = [f"{key.rsplit('.', 1)[-1]}-{values.get(key)}" for key in apart][:3]
            setting.name = _slug("-".join([name, *told]))
        shared = Counter(setting.name for setting in members)
        for setting in members:
            if shared[setting.name] > 1:
                setting.name = _slug(f"{name}-{(setting.key or setting.model_key)[:4]}{setting.evaluation[-4:]}")


# Keys in which runs of one setting differ.
_NOT_THE_SETTING = {
    "seed",
    "group_size",
    "outputs",
    "dry_run",
    "eval_every",
    "checkpoint_every",
    "completions_per_pass",
}


def flat_config(setting: Setting) -> dict[str, Any]:
    """What a setting trains and asks, by dotted key."""
    flat = _flat({**setting.config, "evaluation": setting.decoding})
    if flat.get("evaluation.completion_limit") == flat.get("completion_limit"):
        flat.pop("evaluation.completion_limit", None)
    return flat


def differing_keys(settings: Sequence[Setting]) -> list[str]:
    """The dotted keys in which settings differ, seed, advantage, group size and bookkeeping aside."""
    flat = [flat_config(setting) for setting in settings]
    return sorted({key for f in flat for key in f if any(f.get(key) != g.get(key) for g in flat)} - _NOT_THE_SETTING)


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {prefix: node}
    found: dict[str, Any] = {}
    for key, value in node.items():
        if prefix or key not in {"advantage", "tracker"}:
            found.update(_flat(value, f"{prefix}.{key}" if prefix else str(key)))
    return found


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in text.lower()).strip("-._")
