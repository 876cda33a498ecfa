"""Models whose weights can be counted by building them, and the paper's, as the tests of the estimates use them."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3Config,
)

from gradstarve.launching.architecture import Shape, read_shape

SIZES = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
QWEN3_5: dict[str, Any] = {
    **SIZES,
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}

CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama, tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama, all heads": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}),
    "llama, biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, head_dim=20),
    "mistral": MistralConfig(**SIZES, head_dim=12),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2, tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
    "qwen3, tied": Qwen3Config(**SIZES, tie_word_embeddings=True),
    "qwen3, biases": Qwen3Config(**SIZES, attention_bias=True),
    "qwen3_5": Qwen3_5TextConfig(**QWEN3_5),
    "qwen3_5, tied": Qwen3_5TextConfig(**QWEN3_5, tie_word_embeddings=True),
    "qwen3_5, no attention": Qwen3_5TextConfig(**QWEN3_5, layer_types=["linear_attention"] * 4),
}

# The paper's model, with a step of 64 completions.
LARGE = ("model=qwen3_5_9b", "dataset=gsm8k", "prompts_per_step=8", "group_size=8")
NO_LORA = "model.lora=null"


def built(config: PreTrainedConfig) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def counted(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def shape_from(config: PreTrainedConfig) -> Shape:
    """By way of JSON, as config.json holds it."""
    return read_shape(json.loads(json.dumps(config.to_dict())), "a test")
