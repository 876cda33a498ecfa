"""What a language model is made of: its shape, read without loading it, and from that its weights, counted.

Needs neither torch nor transformers, so that a dry run stays fast. Counted are the architectures of `FAMILIES`, as
transformers builds them for causal language modelling; a test holds every count equal to the built model's.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gradstarve.runs.model_config import GgufModelConfig, HubModelConfig, LoraConfig, ModelConfig, TinyModelConfig

# The tiny model's 13 characters and its end token.
TINY_VOCABULARY = 14


Kind: TypeAlias = Literal["full", "linear"]


class UnknownShapeError(Exception):
    """The shape is not known here. The message says what is missing, and what to do."""


@dataclass(frozen=True)
class Family:
    """What the architectures that are counted here differ in."""

    query_key_norm: bool = False
    query_key_value_bias: bool = False
    gated_attention: bool = False
    head_dim: int | None = None


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(query_key_value_bias=True),
    "qwen3": Family(query_key_norm=True, head_dim=128),
    "qwen3_5_text": Family(query_key_norm=True, gated_attention=True, head_dim=256),
}


@dataclass(frozen=True)
class LinearAttention:
    """A gated-delta layer of Qwen3.5: in place of a cache, `value_heads` matrices of `key_dim` x `value_dim`."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        return 2 * self.keys + self.values


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. `layers` holds each layer's kind from the first on; `source`: where the numbers are from."""

    family: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: tuple[Kind, ...]
    heads: int
    key_value_heads: int
    head_dim: int
    tied: bool
    source: str
    attention_bias: bool = False
    mlp_bias: bool = False
    linear_attention: LinearAttention | None = None

    @property
    def full_layers(self) -> int:
        return self.layers.count("full")

    @property
    def linear_layers(self) -> int:
        return self.layers.count("linear")


@dataclass(frozen=True)
class Linear:
    """A linear module by its full name, as LoRA's targets meet it."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False

    @property
    def parameters(self) -> int:
        return self.outputs * (self.inputs + self.bias)


def shape_of(model: ModelConfig) -> Shape:
    """The shape of a config's model. Raises UnknownShapeError."""
    if isinstance(model, TinyModelConfig):
        return Shape(
            family="llama",
            vocabulary=TINY_VOCABULARY,
            hidden=model.hidden_size,
            intermediate=model.intermediate_size,
            layers=_all_full(model.layers),
            heads=model.heads,
            key_value_heads=model.heads,
            head_dim=model.hidden_size // model.heads,
            tied=False,
            source="the config",
        )
    if isinstance(model, GgufModelConfig):
        # Only here, as the other models need none of it.
        from gradstarve.launching.gguf_shape import read_gguf_shape

        return read_gguf_shape(model)
    return _hub_shape(model)


def modules(shape: Shape) -> Iterator[Linear]:
    """Every linear module, in the order of the layers; the head is the last."""
    family = FAMILIES[shape.family]
    queries, pairs = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    bias = family.query_key_value_bias or shape.attention_bias
    for number, kind in enumerate(shape.layers):
        layer = f"model.layers.{number}"
        if kind == "full":
            yield Linear(f"{layer}.self_attn.q_proj", shape.hidden, queries * (1 + family.gated_attention), bias)
            yield Linear(f"{layer}.self_attn.k_proj", shape.hidden, pairs, bias)
            yield Linear(f"{layer}.self_attn.v_proj", shape.hidden, pairs, bias)
            yield Linear(f"{layer}.self_attn.o_proj", queries, shape.hidden, shape.attention_bias)
        else:
            assert shape.linear_attention is not None
            linear = shape.linear_attention
            yield Linear(f"{layer}.linear_attn.out_proj", linear.values, shape.hidden)
            yield Linear(f"{layer}.linear_attn.in_proj_qkv", shape.hidden, linear.convolved)
            yield Linear(f"{layer}.linear_attn.in_proj_z", shape.hidden, linear.values)
            yield Linear(f"{layer}.linear_attn.in_proj_b", shape.hidden, linear.value_heads)
            yield Linear(f"{layer}.linear_attn.in_proj_a", shape.hidden, linear.value_heads)
        yield Linear(f"{layer}.mlp.gate_proj", shape.hidden, shape.intermediate, shape.mlp_bias)
        yield Linear(f"{layer}.mlp.up_proj", shape.hidden, shape.intermediate, shape.mlp_bias)
        yield Linear(f"{layer}.mlp.down_proj", shape.intermediate, shape.hidden, shape.mlp_bias)
    yield Linear("lm_head", shape.hidden, shape.vocabulary)


@functools.cache
def parameters(shape: Shape) -> int:
    """All weights; a head that is tied to the embedding counts once."""
    linears = sum(module.parameters for module in modules(shape) if not (shape.tied and module.name == "lm_head"))
    norms = shape.hidden * (2 * len(shape.layers) + 1)
    if FAMILIES[shape.family].query_key_norm:
        norms += 2 * shape.head_dim * shape.full_layers
    mixers = 0
    if shape.linear_attention is not None:
        linear = shape.linear_attention
        # The convolution, dt_bias and A_log, and the norm of a head's values.
        each = linear.convolved * linear.kernel + 2 * linear.value_heads + linear.value_dim
        mixers = each * shape.linear_layers
    return shape.vocabulary * shape.hidden + linears + norms + mixers


@functools.cache
def body_parameters(shape: Shape) -> int:
    """The weights that every token is multiplied with: all linear modules but the head."""
    return sum(module.inputs * module.outputs for module in modules(shape) if module.name != "lm_head")


def lora_modules(shape: Shape, lora: LoraConfig) -> tuple[Linear, ...]:
    """The linear modules that LoRA wraps, as peft matches names.

    Raises UnknownShapeError for a target that is no linear module: none at all, or a layer that is not counted here.
    """
    return _lora_modules(shape, lora.targets if isinstance(lora.targets, str) else tuple(lora.targets))


@functools.cache
def _lora_modules(shape: Shape, targets: str | tuple[str, ...]) -> tuple[Linear, ...]:
    every = list(modules(shape))
    if isinstance(targets, str):
        if targets.lower() == "all-linear":
            return tuple(module for module in every if module.name != "lm_head")
        return tuple(module for module in every if re.fullmatch(targets, module.name))
    found = {target: [m for m in every if _ends_in(m.name, target)] for target in targets}
    for target, wrapped in found.items():
        if not wrapped:
            raise UnknownShapeError(f"model.lora.targets: {target} is not one of this model's linear modules")
    wanted = {module.name for wrapped in found.values() for module in wrapped}
    return tuple(module for module in every if module.name in wanted)


def lora_parameters(wrapped: Sequence[Linear], rank: int) -> int:
    """Two matrices a module: inputs x rank and rank x outputs."""
    return sum(rank * (module.inputs + module.outputs) for module in wrapped)


def _ends_in(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def read_shape(config: Mapping[str, Any], source: str) -> Shape:
    """The shape in the contents of a config.json. What it leaves out is as in transformers. Raises UnknownShapeError.

    Of a vision-language checkpoint the text model counts, as that alone is loaded.
    """
    text = {**config, **config.get("text_config", {})}
    family = "qwen3_5_text" if text.get("model_type") == "qwen3_5" else str(text.get("model_type"))
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UnknownShapeError(
            f"the architecture {family} is not counted here (known: {known}); memory and time are left out"
        )
    try:
        heads, count = int(text["num_attention_heads"]), int(text["num_hidden_layers"])
        kinds: tuple[Kind, ...] = _all_full(count)
        linear = None
        if family == "qwen3_5_text":
            every = int(text.get("full_attention_interval", 4))
            names = text.get("layer_types") or [
                "full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(count)
            ]
            every_kind: list[Kind] = ["full" if name == "full_attention" else "linear" for name in names]
            kinds = tuple(every_kind)
            linear = LinearAttention(
                key_heads=int(text.get("linear_num_key_heads", 16)),
                value_heads=int(text.get("linear_num_value_heads", 32)),
                key_dim=int(text.get("linear_key_head_dim", 128)),
                value_dim=int(text.get("linear_value_head_dim", 128)),
                kernel=int(text.get("linear_conv_kernel_dim", 4)),
            )
        return Shape(
            family=family,
            vocabulary=int(text["vocab_size"]),
            hidden=int(text["hidden_size"]),
            intermediate=int(text["intermediate_size"]),
            layers=kinds,
            heads=heads,
            key_value_heads=int(text.get("num_key_value_heads") or heads),
            head_dim=int(text.get("head_dim") or FAMILIES[family].head_dim or int(text["hidden_size"]) // heads),
            tied=bool(text.get("tie_word_embeddings", False)),
            source=source,
            attention_bias=bool(text.get("attention_bias", False)) and family != "qwen2",
            mlp_bias=bool(text.get("mlp_bias", False)) and family == "llama",
            linear_attention=linear if "linear" in kinds else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownShapeError(
            f"{source}: not readable as a model's shape ({type(error).__name__}: {error})"
        ) from None


def _hub_shape(model: HubModelConfig) -> Shape:
    folder = Path(model.id)
    if folder.is_dir():
        return _read_file(folder / "config.json")
    # Half a second, and only models of the hub need it.
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(model.id, "config.json", revision=model.revision)
    except HFValidationError as error:
        raise UnknownShapeError(f"{model.id}: neither a folder nor a name on the hub ({error})") from None
    if isinstance(cached, str):
        return _read_file(Path(cached))
    if model.id in PUBLISHED:
        return PUBLISHED[model.id]
    raise UnknownShapeError(
        f"shape not known here: fetch the model first, or name a local folder in model.id ({model.id} is not in the "
        "hub's cache)"
    )


def _read_file(file: Path) -> Shape:
    try:
        contents = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnknownShapeError(f"{file}: not readable ({type(error).__name__})") from None
    if not isinstance(contents, dict):
        raise UnknownShapeError(f"{file}: not readable as a model's shape")
    return read_shape(contents, str(file))


def _all_full(count: int) -> tuple[Kind, ...]:
    kind: Kind = "full"
    return (kind,) * count


def _qwen3_5(source: str, hidden: int, intermediate: int, layers: int, heads: int, linear: int, tied: bool) -> Shape:
    return read_shape(
        {
            "model_type": "qwen3_5_text",
            "vocab_size": 248320,
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // 4,
            "linear_num_value_heads": linear,
            "tie_word_embeddings": tied,
        },
        source,
    )


# What the hub's config.json says where it is not here yet: facts of the model cards, and of transformers' defaults
# (Qwen3_5TextConfig is in the style of the 9B).
PUBLISHED: Mapping[str, Shape] = {
    "Qwen/Qwen3.5-9B": _qwen3_5("the model card of Qwen3.5-9B", 4096, 12288, 32, 16, 32, tied=False),
    "Qwen/Qwen3.5-2B": _qwen3_5("the model card of Qwen3.5-2B", 2048, 6144, 24, 8, 16, tied=True),
    "Qwen/Qwen3-8B": Shape(
        "qwen3", 151936, 4096, 12288, _all_full(36), 32, 8, 128, tied=False, source="the model card of Qwen3-8B"
    ),
    "meta-llama/Llama-3.1-8B-Instruct": Shape(
        "llama", 128256, 4096, 14336, _all_full(32), 32, 8, 128, tied=False, source="arXiv 2407.21783, table 3"
    ),
}
