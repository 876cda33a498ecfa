"""How long a run takes on a GPU: operations and bytes of its work, over what a GPU can do. Nothing here was measured.

Formulas and assumptions: docs/sizing.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstarve.launching.architecture import Shape, body_parameters, lora_modules, lora_parameters, parameters
from gradstarve.launching.memory import ELEMENT, VLLM_SEQUENCES, replayed_rows, samples_of, state_bytes
from gradstarve.launching.question_sizes import Prompts
from gradstarve.runs.config import RunConfig


@dataclass(frozen=True)
class Gpu:
    """A GPU by its maker's data sheet: bytes, dense operations a second, bytes a second."""

    name: str
    memory: int
    bfloat16: float
    float32: float
    bandwidth: float

    def speed(self, dtype: str) -> float:
        return self.bfloat16 if dtype == "bfloat16" else self.float32


# NVIDIA's data sheets: SXM boards of H200, H100 and A100; bfloat16 without sparsity, float32 without TF32.
GPUS = (
    Gpu("H200 141 GB", 141_000_000_000, 989e12, 67e12, 4.8e12),
    Gpu("H100 80 GB", 80_000_000_000, 989e12, 67e12, 3.35e12),
    Gpu("A100 80 GB", 80_000_000_000, 312e12, 19.5e12, 2.04e12),
    Gpu("L40S 48 GB", 48_000_000_000, 362e12, 91.6e12, 0.864e12),
    Gpu("A100 40 GB", 40_000_000_000, 312e12, 19.5e12, 1.555e12),
    Gpu("RTX 4090 24 GB", 24_000_000_000, 165e12, 82.6e12, 1.008e12),
)


@dataclass(frozen=True)
class Assumption:
    """Shares of a GPU's peak that work reaches, and seconds that eager code spends on a layer for each new token."""

    multiplying: float
    reading: float
    layer_seconds: float


FAST = Assumption(multiplying=0.40, reading=0.70, layer_seconds=0.4e-3)
SLOW = Assumption(multiplying=0.15, reading=0.35, layer_seconds=1.5e-3)


@dataclass(frozen=True)
class Batch:
    """Rows that are answered together: `prompt` tokens read, then up to `limit` written, `times` over."""

    rows: int
    prompt: int
    limit: int
    times: int
    by_vllm: bool


@dataclass(frozen=True)
class Work:
    """A run's work. Tokens are upper bounds: each completion as long as its limit."""

    sampled: tuple[Batch, ...]
    evaluated: tuple[Batch, ...]
    training_operations: float

    @property
    def tokens_sampled(self) -> int:
        return sum(batch.rows * batch.limit * batch.times for batch in self.sampled)

    @property
    def tokens_evaluated(self) -> int:
        return sum(batch.rows * batch.limit * batch.times for batch in self.evaluated)


def batches_of(config: RunConfig, prompts: Prompts, trained: bool) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
    """What is sampled in training, and in evaluation. `trained`: only the final evaluation is left to do."""
    trains = config.advantage.trains and not trained
    by_vllm = config.rollout.engine != "hf"
    sampled = (
        (Batch(config.completions_per_step, prompts.mean, config.completion_limit, config.steps, by_vllm),)
        if trains
        else ()
    )
    between = (config.steps - 1) // config.eval_every if trains and config.eval_every else 0
    evaluated: list[Batch] = []
    if prompts.evaluated is not None:
        asked = prompts.evaluated * samples_of(config)
        limit = config.evaluation.completion_limit or config.completion_limit
        for times, vllm in ((between, False), (1, config.evaluation.engine == "vllm")):
            size = VLLM_SEQUENCES if vllm else config.evaluation.batch_size
            whole, rest = divmod(asked, size)
            for rows, count in ((size, whole), (rest, 1)):
                if rows and count and times:
                    evaluated.append(Batch(rows, prompts.asked_mean, limit, times * count, vllm))
    return sampled, tuple(evaluated)


def work_of(config: RunConfig, shape: Shape, prompts: Prompts, trained: bool = False) -> Work:
    """Raises UnknownShapeError where LoRA's targets reach what is not counted."""
    sampled, evaluated = batches_of(config, prompts, trained)
    operations = training_operations(config, shape, prompts) if sampled else 0.0
    return Work(sampled, evaluated, operations)


def training_operations(config: RunConfig, shape: Shape, prompts: Prompts) -> float:
    """Operations of all steps' forward and backward passes.

    A token costs 2 per weight forward, 2 backward to its inputs, and 2 to the weights that are trained: 6 N, or 4 N
    with LoRA, whose own weights cost 6. Checkpointing adds the forward pass again. The head counts for completions
    alone, and is multiplied again in the backward pass.
    """
    lora, row = config.model.lora, prompts.mean + config.completion_limit
    adapter = lora_parameters(lora_modules(shape, lora), lora.rank) if lora is not None else 0
    forward = token_operations(shape, row / 2)
    again = 1 if config.model.gradient_checkpointing else 0
    token = forward * (2 + again + (1 if lora is None else 0)) + 2 * adapter * (3 + again)
    head = 2 * shape.vocabulary * shape.hidden
    word = head * (3 + (1 if lora is None else 0))
    rows = config.steps * config.completions_per_step
    if config.advantage.replay is not None:
        replayed = max(0, config.steps - config.advantage.replay.warm_up_steps) * replayed_rows(config)
    else:
        replayed = 0
    plain_forward = row * forward + config.completion_limit * head
    vllm = config.rollout.vllm if config.rollout.engine != "hf" else None
    passes = (config.loss.kl > 0) + (vllm is not None and vllm.correction != "none")
    contrasted = config.advantage.replay is not None and config.advantage.replay.loss == "contrastive_pair"
    return (
        (rows + replayed) * (row * token + config.completion_limit * word)
        + rows * passes * plain_forward
        + (replayed * plain_forward if contrasted else 0)
    )


def token_operations(shape: Shape, context: float) -> float:
    """Forward operations of one token before the head, with `context` tokens before it."""
    attention = 4 * shape.heads * shape.head_dim * context * shape.full_layers
    linear = shape.linear_attention
    if linear is not None:
        # Decay, read, correct and write a state, and read it for the output.
        attention += 8 * linear.value_heads * linear.key_dim * linear.value_dim * shape.linear_layers
    return 2 * body_parameters(shape) + attention


def batch_seconds(batch: Batch, shape: Shape, dtype: str, gpu: Gpu, assumed: Assumption) -> float:
    """Prompts are read; then a token takes the longest of multiplying, reading weights and caches, and launching."""
    element = ELEMENT[dtype]
    multiply = gpu.speed(dtype) * assumed.multiplying
    head = 2 * shape.vocabulary * shape.hidden
    reading = batch.rows * batch.prompt * token_operations(shape, batch.prompt / 2) / multiply
    context = batch.prompt + batch.limit / 2
    pair = 2 * shape.key_value_heads * shape.head_dim * element * shape.full_layers
    table = 0 if shape.tied else shape.vocabulary * shape.hidden
    moved = (parameters(shape) - table) * element + batch.rows * (context * pair + 2 * state_bytes(shape, element))
    token = max(
        batch.rows * (token_operations(shape, context) + head) / multiply,
        moved / (gpu.bandwidth * assumed.reading),
        0.0 if batch.by_vllm else len(shape.layers) * assumed.layer_seconds,
    )
    return batch.times * (reading + batch.limit * token)


def hours(work: Work, shape: Shape, dtype: str, gpu: Gpu) -> tuple[float, float]:
    """GPU hours under the fast and the slow assumption."""

    def total(assumed: Assumption) -> float:
        training = work.training_operations / (gpu.speed(dtype) * assumed.multiplying)
        batches = (*work.sampled, *work.evaluated)
        return (training + math.fsum(batch_seconds(b, shape, dtype, gpu, assumed) for b in batches)) / 3600

    return total(FAST), total(SLOW)
