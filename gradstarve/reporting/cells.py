"""A setting, its cells and their runs: what may stand in one table.

A setting is one setting key (all that a run trains on, but for seed, advantage and group size) under one evaluation. A
cell is all seeds of one arm in it. Nothing that differs in model, data, evaluation or any other key meets in a cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from gradstarve.reporting.arms import UNTRAINED
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import with_later_keys


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

    def accuracy_under(self, rule: Literal["strict", "flexible"]) -> float | None:
        """The accuracy under one rule of finding an answer; None where the grader has no two."""
        right = self.final.get(f"{rule}_right")
        return None if right is None else right / self.final["n"]

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
    def truncated(self) -> float | None:
        """The share of evaluated completions without an end within the limit, mean over the seeds."""
        shares = [point.final["truncated"] for point in self.points if point.final.get("truncated") is not None]
        return fmean(shares) if shares else None

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
        return with_later_keys(RunFolder(point.folder).read_config())

    @property
    def reward(self) -> str:
        """What training was rewarded with: "verified", or a control that takes no notice of the verdict."""
        return str((self.config.get("loss") or {}).get("reward", "verified"))

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
    def on_training(self) -> bool:
        """Whether training questions are asked: a measure of how hard they are, and no held-out accuracy."""
        return self.decoding.get("split") == "train"

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
