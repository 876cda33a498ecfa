"""What a run would need of memory, tokens and operations: against a real step, what autograd keeps, and by hand."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig, Qwen3_5TextConfig, Qwen3Config
from trl.trainer.utils import add_fused_lm_head

from gradstarve.launching.architecture import PUBLISHED, lora_modules
from gradstarve.launching.estimate import Estimate, Sized, estimate
from gradstarve.launching.fitting import memory_warning, misfit, remedy
from gradstarve.launching.gpu_hours import FAST, GPUS, Batch, batch_seconds, token_operations
from gradstarve.launching.memory import activations, cache, state_bytes
from gradstarve.learning.policy import load_policy
from gradstarve.learning.tasks import load_task
from gradstarve.learning.tiny import build_tokenizer
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.runs.model_config import LoraConfig
from gradstarve.runs.signature import run_name
from tests.conftest import ComposeConfig

from .estimated_models import CONFIGS, LARGE, NO_LORA, QWEN3_5, SIZES, built, shape_from


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
    config = compose_config(*LARGE, "completion_limit=1024", "model.gradient_checkpointing=false")
    found = sized(estimate(config))
    remedied = 0
    for gpu in GPUS:
        assert not found.memory.fits(gpu.memory)
        changed = remedy(config, found.shape, estimate(config).prompts, gpu.memory)
        if changed is not None:
            remedied += 1
            assert sized(estimate(changed[1])).memory == changed[2]
            assert changed[2].fits(gpu.memory)
            assert run_name(changed[1]) == run_name(config)
    assert remedied == 5, "all but the 24 GB card, which the weights and AdamW's state alone fill"


def test_before_a_model_is_loaded_its_run_is_held_against_the_gpu(compose_config: ComposeConfig) -> None:
    config, gb = compose_config(*LARGE), 10**9
    found = estimate(config)
    needed = sized(found).memory.needed(80 * gb)
    assert 24 * gb < needed < 72 * gb
    assert memory_warning(config, 80 * gb, 79 * gb) is None

    shared = memory_warning(config, 80 * gb, needed - 1)
    assert shared is not None and f"needs {needed / 1e9:.1f} GB" in shared
    assert "72.0 usable of 80.0" in shared and f"but {needed / 1e9:.1f} free" in shared
    assert memory_warning(config, 80 * gb, needed) is None

    small = memory_warning(config, 24 * gb, 24 * gb)
    assert small is not None and small.startswith("warning: ") and "21.6 usable of 24.0: it will probably" in small
    why = misfit(config, sized(found), found.prompts, 24 * gb)
    assert why is not None and small.endswith(f"it will probably run out of memory{why}")

    unknown = compose_config("model=qwen3_8b", "model.id=of/unknown-shape", "dataset=gsm8k")
    assert memory_warning(unknown, 24 * gb, 24 * gb) is None


def test_a_colocated_engine_without_room_is_told_by_its_share(compose_config: ComposeConfig) -> None:
    typed = (*LARGE, "rollout=vllm_colocate", "rollout.vllm.memory_share=0.2")
    said = memory_warning(compose_config(*typed), 80 * 10**9, 80 * 10**9)
    assert said is not None and "16.0 are vLLM's, whose weights and one row need " in said
    assert said.endswith("(rollout.vllm.memory_share)")


def test_another_data_set_that_is_asked_counts_in_the_evaluation_alone(compose_config: ComposeConfig) -> None:
    own, other = compose_config(*LARGE), compose_config(*LARGE, "dataset@evaluation=math500")
    before, found = estimate(own), estimate(other)
    assert (before.prompts.evaluated, found.prompts.evaluated) == (1319, 500)
    assert (found.prompts.mean, found.prompts.longest) == (before.prompts.mean, before.prompts.longest)
    assert found.prompts.asked_longest > 913 > before.prompts.asked_longest == before.prompts.longest
    assert sized(found).memory.training == sized(before).memory.training
    rows, tokens = other.evaluation.batch_size, found.prompts.asked_longest + 1024
    assert sized(found).memory.evaluation_cache == cache(sized(found).shape, rows, tokens, 2)
    # Once after 120 steps and once in between, of 1,024 tokens each.
    assert found.tokens_evaluated == 2 * 500 * 1024
