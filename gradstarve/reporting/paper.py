"""The paper's numbers, and whether a setting is the paper's, so that the two may stand side by side."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gradstarve.reporting.cells import Setting


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

    def model(self, model_id: str) -> dict[str, float]:
        """{base, sign, n} of the paper's Table 3, as fractions."""
        entry = self.content["models"].get(model_id, {})
        return {key: value / 100 if key in {"base", "sign"} else value for key, value in entry.items()}

    def unlike(self, setting: Setting, any_model: bool = False) -> list[str]:
        """What in a setting's config differs from what the paper says of its own; empty where nothing does."""
        config = {**setting.config, "evaluation": setting.decoding}
        problems = []
        for key, theirs in self.content["setting"].items():
            if any_model and key == "model.id":
                continue
            ours = _get(config, key)
            # A local model or data set has no hub id, but a name. GSM8K from a local file is GSM8K.
            if key == "dataset.hub_id" and setting.dataset == "gsm8k":
                continue
            if key.endswith("id") and ours is None:
                ours = _get(config, f"{key.split('.')[0]}.name")
            if ours != theirs:
                problems.append(f"{key.removesuffix('.id').removesuffix('.hub_id')} {_told(ours)}, not {_told(theirs)}")
        questions = self.content["evaluation_questions"].get(setting.asked)
        asked = {point.final["n"] for point in setting.points}
        if questions is not None and asked - {questions}:
            problems.append(f"{'/'.join(map(str, sorted(asked)))} questions, not {questions}")
        return problems

    def explain(self, setting: Setting, any_model: bool = False) -> str:
        """The note on the paper's numbers: whose they are, or why they are left out."""
        unlike = self.unlike(setting, any_model)
        if unlike:
            return f"The paper's numbers ({self.source}) are left out, as this is not its setting: {'; '.join(unlike)}."
        if self.not_given:
            return (
                f"The paper's means are those of {self.source}. No difference to them is given, because its text does "
                f"not state: {', '.join(self.not_given)}."
            )
        return f"The paper's means are those of {self.source}."


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
