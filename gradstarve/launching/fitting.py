"""Whether a run fits a GPU, why it does not, and what would make it: from the estimate, before a model is loaded."""

from __future__ import annotations

import dataclasses

from gradstarve.launching.architecture import Shape
from gradstarve.launching.estimate import Sized, estimate
from gradstarve.launching.memory import USABLE, Memory, memory_of
from gradstarve.launching.question_sizes import Prompts
from gradstarve.runs.config import RunConfig


def memory_warning(config: RunConfig, gpu_bytes: int, free_bytes: int) -> str | None:
    """What is to be said before a run's model is loaded on a GPU of `gpu_bytes`, of which `free_bytes` are free.

    None where the run fits, or where the model's shape is not known. A warning and no refusal: no estimate has been
    measured on a GPU.
    """
    found = estimate(config)
    if found.sized is None:
        return None
    needed = found.sized.memory.needed(gpu_bytes)
    says = (
        f"warning: by the estimate (docs/sizing.md) this run needs {gb(needed)} GB, and this GPU has "
        f"{gb(usable(gpu_bytes))} usable of {gb(gpu_bytes)}"
    )
    why = misfit(config, found.sized, found.prompts, gpu_bytes)
    if why is not None:
        return f"{says}: it will probably run out of memory{why}"
    if needed > free_bytes:
        return f"{says}, but {gb(free_bytes)} free: something else holds the rest, and it may run out of memory"
    return None


def misfit(config: RunConfig, sized: Sized, prompts: Prompts, gpu_bytes: int) -> str | None:
    """Why a run does not fit, with what would make it fit: the rest of a sentence. None where it fits."""
    memory = sized.memory
    if memory.fits(gpu_bytes):
        return None
    found = remedy(config, sized.shape, prompts, gpu_bytes)
    if found is not None:
        change, _, then = found
        return f"; with {change} it needs {gb(then.needed(gpu_bytes))}"
    if not memory.engine_fits(gpu_bytes):
        share = f"{gb(round(memory.share * gpu_bytes))} are vLLM's, whose weights and one row need {gb(memory.engine)}"
        return f": {share} (rollout.vllm.memory_share)"
    return f", {_what_else(config, memory, gpu_bytes)}"


def remedy(config: RunConfig, shape: Shape, prompts: Prompts, gpu_bytes: int) -> tuple[str, RunConfig, Memory] | None:
    """The smallest change that makes a run fit a GPU and leaves what it trains as it is: in words, as the changed
    config, and what that needs. None where there is no such change."""
    halves = [config.evaluation.batch_size >> n for n in range(config.evaluation.batch_size.bit_length())]
    per_pass = config.completions_per_pass or config.completions_per_step
    step = config.completions_per_step
    fixed = config.loss.aggregation == "bnpo" or not config.advantage.trains
    passes = [per_pass, *(n for n in range(per_pass - 1, 0, -1) if step % n == 0 and not fixed)]
    checkpointing = sorted({config.model.gradient_checkpointing, config.advantage.trains})
    changes = [
        (config.model.gradient_checkpointing != recompute, passes.index(n), halves.index(batch), recompute, n, batch)
        for recompute in checkpointing
        for n in passes
        for batch in halves
    ]
    for _, _, _, recompute, n, batch in sorted(changes, key=lambda change: (sum(map(bool, change[:3])), change[:3])):
        changed = dataclasses.replace(
            config,
            completions_per_pass=None if n == step else n,
            model=dataclasses.replace(config.model, gradient_checkpointing=recompute),
            evaluation=dataclasses.replace(config.evaluation, batch_size=batch),
        )
        memory = memory_of(changed, shape, prompts)
        if memory.fits(gpu_bytes):
            said = [
                *(["model.gradient_checkpointing=true"] if recompute != config.model.gradient_checkpointing else []),
                *([f"completions_per_pass={n}"] if n != per_pass else []),
                *([f"evaluation.batch_size={batch}"] if batch != config.evaluation.batch_size else []),
            ]
            return " ".join(said), changed, memory
    return None


def _what_else(config: RunConfig, memory: Memory, gpu_bytes: int) -> str:
    room = usable(gpu_bytes)
    no = (
        "and neither checkpointing nor smaller passes make it"
        if memory.trained
        else "and no smaller evaluation.batch_size makes it"
    )
    if memory.kept + memory.gradients > room:
        if memory.trained and config.model.lora is None:
            return f"{no}: all weights trained need {gb(memory.kept + memory.gradients)}; model.lora trains fewer"
        return f"{no}: {gb(memory.kept + memory.gradients)} is there throughout"
    if memory.share and memory.kept + memory.share * gpu_bytes > room:
        return f"{no}: {gb(memory.kept)} is kept beside vLLM's share (rollout.vllm.memory_share)"
    if config.rollout.engine == "hf" and memory.kept + memory.cache + memory.sampling > room:
        return f"{no}: transformers samples all {config.completions_per_step} completions of a step at once"
    return f"{no}: one completion of the longest prompt is too much" + (" beside vLLM's share" if memory.share else "")


def usable(gpu_bytes: int) -> int:
    return round(USABLE * gpu_bytes)


def gb(size: int) -> str:
    """GB of 1e9 bytes, the unit left to the sentence."""
    return f"{size / 1e9:,.1f}" if size >= 5e7 else small(size / 1e9)


def small(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else "under 0.01" if value else "0"
