"""LoRA's targets against the names of a model's layers, known from its shape: nothing is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradstarve.errors import UserError, nearest
from gradstarve.launching.architecture import Shape, UnknownShapeError, modules, shape_of
from gradstarve.runs.model_config import ModelConfig


def check_lora_targets(model: ModelConfig) -> None:
    """Raises UserError for a target that is no layer which LoRA can wrap. Says nothing where the shape is not known."""
    if model.lora is None or model.lora.targets == "all-linear":
        return
    try:
        names = list(_layers(shape_of(model)))
    except UnknownShapeError:
        return
    targets = model.lora.targets
    if isinstance(targets, list):
        for target in targets:
            if not any(name == target or name.endswith(f".{target}") for name in names):
                ends = {name.rpartition(".")[2] for name in names}
                raise UserError(
                    f"model.lora.targets: {model.name} has no layer called {target!r}. {nearest(target, ends)}"
                )
        return
    try:
        found = any(re.fullmatch(targets, name) for name in names)
    except re.error as error:
        raise UserError(f"model.lora.targets: {targets!r} is no regular expression: {error}") from None
    if not found:
        raise UserError(
            f"model.lora.targets: no layer of {model.name} has a name that matches {targets!r}, such as {names[0]}"
        )


def _layers(shape: Shape) -> Iterator[str]:
    """What peft can wrap: linear layers, the embedding, and the convolutions of gated-delta layers."""
    yield from (module.name for module in modules(shape))
    yield "model.embed_tokens"
    yield from (
        f"model.layers.{number}.linear_attn.conv1d" for number, kind in enumerate(shape.layers) if kind == "linear"
    )
