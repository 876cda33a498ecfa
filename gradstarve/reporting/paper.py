"""The paper's numbers, and whether a setting is the paper's, so that the two may stand side by side."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gradstarve.reporting.cells import Cell, Setting


@dataclass(frozen=True)
class Paper:
    """`content` is paper.yaml."""

    content: Mapping[str, Any]

    @property
    def source(self) -> str:
        return str(self.content["source"])

    @property
    def not_given(self) -> list[str]:
        return list(self.content["not_given"])

    def mean(self, asked: str, arm: str, group_size: int | None) -> float | None:
        """The paper's mean accuracy, as a fraction."""
        of_data = self.content["accuracy"].get(asked, {})
        entry = of_data.get("base") if arm == "base" else of_data.get(f"g{group_size}", {}).get(arm)
        return entry["mean"] / 100 if entry else None

    def mean_of(self, setting: Setting, cell: Cell) -> float | None:
        """The paper's mean accuracy of an arm; none where ours replays with another weight than the paper's."""
        mean = self.mean(setting.asked, cell.label, cell.group_size)
        return None if mean is not None and self._other_weight(cell) is not None else mean

    def _other_weight(self, cell: Cell) -> float | None:
        replay = cell.config["advantage"].get("replay")
        return replay["weight"] if replay and replay["weight"] != self.content["replay_weight"] else None

    def model(self, model_id: str) -> dict[str, float]:
        """{base, sign, n} of the paper's Table 3, as fractions."""
        entry = self.content["models"].get(model_id, {})
        return {key: value / 100 if key in {"base", "sign"} else value for key, value in entry.items()}

    def unlike(self, setting: Setting, any_model: bool = False) -> list[str]:
        """What in a setting's config differs from what the paper says of its own; empty where nothing does."""
        config = {**setting.config, "evaluation": setting.decoding}
        problems = ["training questions asked"] if setting.on_training else []
        if setting.reward != "verified":
            problems.append(f"rewarded with {setting.reward}, not with the verdict")
        # A path goes before the hub. GSM8K from a local file is GSM8K, if it is all of it.
        local = _get(config, "dataset.train_path") is not None
        for key, theirs in self.content["setting"].items():
            if any_model and key == "model.id":
                continue
            ours = _get(config, key)
            if key == "dataset.hub_id" and (setting.dataset == "gsm8k" if local else ours == theirs):
                problems += self._training_questions(setting, local)
                continue
            # A local model or data set has no hub id, but a name.
            if key.endswith("id") and (ours is None or (local and key == "dataset.hub_id")):
                ours = _get(config, f"{key.split('.')[0]}.name")
            if ours != theirs:
                problems.append(f"{key.removesuffix('.id').removesuffix('.hub_id')} {_told(ours)}, not {_told(theirs)}")
        questions = self.content["evaluation_questions"].get(setting.asked)
        asked = {p.final["n"] for p in [*setting.points, *(setting.base.points if setting.base else [])]}
        if questions is not None and asked - {questions}:
            problems.append(f"{'/'.join(map(str, sorted(asked)))} questions, not {questions}")
        return problems

    def _training_questions(self, setting: Setting, local: bool) -> list[str]:
        wanted = self.content["training_questions"]
        known = [asked for point in setting.points if (asked := point.result.get("train_questions")) is not None]
        if local and len(known) < len(setting.points):
            return [f"an unknown number of training questions, not {wanted}"]
        other = sorted(set(known) - {wanted})
        return [f"{'/'.join(map(str, other))} training questions, not {wanted}"] if other else []

    def explain(self, setting: Setting, any_model: bool = False) -> str:
        """The note on the paper's numbers: whose they are, or why they are left out."""
        unlike = self.unlike(setting, any_model)
        if unlike:
            return f"The paper's numbers ({self.source}) are left out, as this is not its setting: {'; '.join(unlike)}."
        theirs = _told(self.content["replay_weight"])
        weights = [
            f"{cell.label} has none, as its replay weight is {_told(weight)}, not {theirs}"
            for cell in setting.cells
            if self.mean(setting.asked, cell.label, cell.group_size) is not None
            and (weight := self._other_weight(cell)) is not None
        ]
        whose = f"The paper's means are those of {'; '.join([self.source, *dict.fromkeys(weights)])}."
        if self.not_given:
            return (
                f"{whose} No difference to them is given, because its text does not state: {', '.join(self.not_given)}."
            )
        return whose


@functools.cache
def the_paper() -> Paper:
    return Paper(yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text(encoding="utf-8")))


def _get(config: Mapping[str, Any], dotted: str) -> Any:
    node: Any = config
    for part in dotted.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _told(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
