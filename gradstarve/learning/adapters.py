"""What LoRA wraps, and whether a kept adapter is the one that a model has."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peft import PeftModel
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel

from gradstarve.errors import UserError, nearest
from gradstarve.runs.model_config import LoraConfig

# Below this share of the linear weights, whoever chose the targets may not have meant so few.
FEW = 0.5


@dataclass(frozen=True)
class Reach:
    """The linear layers but the head: how many LoRA wraps, and the share of their weights that these hold."""

    wrapped: int
    layers: int
    share: float

    def __str__(self) -> str:
        said = f"LoRA wraps {self.wrapped} of {self.layers} linear layers, {self.share:.1%} of their weights"
        if self.share >= FEW:
            return said
        return f"warning: {said}: the rest stays as it is; model.lora.targets=all-linear wraps all"


def reach(model: PreTrainedModel | PeftModel, lora: LoraConfig) -> Reach:
    """What `lora` wraps in `model`. Raises UserError where a target is the name of no module."""
    wraps = _matcher(model, lora.targets)
    head = model.get_output_embeddings()
    weights = {
        name: module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    wrapped = [name for name in weights if wraps(name)]
    return Reach(len(wrapped), len(weights), sum(weights[name] for name in wrapped) / sum(weights.values()))


def _matcher(model: nn.Module, targets: str | list[str]) -> Callable[[str], bool]:
    """peft's rule: a list holds ends of module names, a text is a regular expression, but for all-linear."""
    if targets == "all-linear":
        return lambda name: True
    names = [name for name, _ in model.named_modules()]
    if isinstance(targets, str):
        try:
            pattern = re.compile(targets)
        except re.error as error:
            raise UserError(f"model.lora.targets: {targets!r} is no regular expression: {error}") from None
        if not any(pattern.fullmatch(name) for name in names):
            raise UserError(f"model.lora.targets: no module's name matches {targets!r}")
        return lambda name: pattern.fullmatch(name) is not None
    ends = {name.rsplit(".", 1)[-1] for name in names}
    for target in targets:
        if not any(_ends_in(name, target) for name in names):
            raise UserError(f"model.lora.targets: no module is called {target!r}. {nearest(target, ends)}")
    return lambda name: any(_ends_in(name, target) for target in targets)


def _ends_in(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def check_adapter(model: PeftModel, weights: Path) -> None:
    """Raises ValueError unless the adapter's file and the model's adapter have the same weights.

    peft only warns, and goes on with what it has: an adapter from another class of the same model does nothing.
    """
    with safe_open(weights / "adapter_model.safetensors", "pt") as stored:
        kept = set(stored.keys())
    named = {name: name.replace(".default.", ".").replace(".default", "") for name, _ in model.named_parameters()}
    lost = sorted(kept - set(named.values()))
    if lost:
        raise ValueError(f"{weights}: {len(lost)} of {len(kept)} adapter weights fit no module, such as {lost[0]}")
    empty = sorted(short for name, short in named.items() if name != short and short not in kept)
    if empty:
        raise ValueError(f"{weights}: the adapter lacks {len(empty)} of the model's weights, such as {empty[0]}")
