"""The model part of a run's config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator, Field

from gradstarve.runs.config_types import Fraction, NonNegative, Positive, strict

# What transformers calls them. It takes names of kernels on the hub too, whose code it would fetch and run.
Attention = Literal["eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4"]


@strict
@dataclass(frozen=True)
class LoraConfig:
    """LoRA (arXiv 2106.09685). `targets` are module names; "all-linear" reaches every linear layer but the head."""

    rank: Positive
    alpha: Positive
    dropout: Fraction
    targets: str | list[str]


@strict
@dataclass(frozen=True)
class WarmStartConfig:
    """Supervised training that gives the tiny model its habits; cached by its own signature, shared by all seeds."""

    steps: Positive
    practice_steps: NonNegative
    batch_size: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    seed: int
    practice_share: Fraction
    concise_shares: list[Fraction]


@strict
@dataclass(frozen=True)
class TinyModelConfig:
    """A Llama-style decoder over characters, made here. Reads the `sums` dataset only."""

    source: Literal["tiny"]
    name: str
    hidden_size: Positive
    layers: Positive
    heads: Positive
    intermediate_size: Positive
    warm_start: WarmStartConfig
    dtype: Literal["float32"] = "float32"
    lora: LoraConfig | None = None
    gradient_checkpointing: bool = False


@strict
@dataclass(frozen=True)
class HubModelConfig:
    """A causal language model from the Hugging Face hub, or from a local folder named by `id`."""

    source: Literal["hub"]
    name: str
    id: str
    revision: str | None
    dtype: Literal["float32", "bfloat16"]
    lora: LoraConfig | None
    gradient_checkpointing: bool
    attention: Attention | None = None


@strict
@dataclass(frozen=True)
class GgufModelConfig:
    """A causal language model inside a GGUF file that an installed Python package carries.

    `package` names the distribution that holds `file`; with `package: null`, `file` is a path. `sha256` pins what the
    file holds.
    """

    source: Literal["gguf"]
    name: str
    package: str | None
    file: str
    sha256: str | None
    dtype: Literal["float32", "bfloat16"]
    lora: LoraConfig | None
    gradient_checkpointing: bool


ModelConfig = Annotated[TinyModelConfig | HubModelConfig | GgufModelConfig, Discriminator("source")]
