"""The section "# estimates" of a dry run: of each distinct setting, and of all runs that are still to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gradstarve.launching.estimate import Estimate, Sized, estimate, setting_of
from gradstarve.launching.fitting import gb, misfit, remedy, small, usable
from gradstarve.launching.gpu_hours import FAST, GPUS, SLOW, Gpu
from gradstarve.launching.jobs import Job
from gradstarve.launching.memory import CONTEXT, samples_of
from gradstarve.runs.config import RunConfig

# The GPU whose hours stand in a line of their setting.
USUAL = GPUS[1]


@dataclass(frozen=True)
class Setting:
    """One estimate, the first config that asks for it, and how many of its runs are to do."""

    config: RunConfig
    trained: bool
    estimate: Estimate
    runs: int


def estimate_lines(jobs: Sequence[Job]) -> list[str]:
    """Lines that begin with "#": what comes before them stays readable as YAML."""
    settings = settings_of(jobs)
    lines = [
        "# estimates for one GPU a run: computed from shapes, not measured; formulas and assumptions in docs/sizing.md"
    ]
    todo = [setting for setting in settings if setting.runs]
    if not todo:
        return [*lines, "#   nothing to do"]
    labels = _labels([setting.config for setting in todo])
    if len(todo) > 1:
        for label, setting in zip(labels, todo, strict=True):
            lines.append(f"#   {setting.runs} x {label}: {_in_short(setting)}")
    hungriest = max(todo, key=lambda setting: _needed(setting.estimate))
    of = "" if len(todo) == 1 else f" ({labels[todo.index(hungriest)]}: it needs most memory)"
    lines.append(f"#   of one run{of}")
    lines.extend(f"#     {line}" for line in _in_full(hungriest))
    lines.append(f"#   {_total(todo)}")
    return lines


def settings_of(jobs: Sequence[Job]) -> list[Setting]:
    """The distinct settings behind jobs, in their order. Of a job with several evaluations the first trains."""
    counts: Counter[str] = Counter()
    firsts: dict[str, tuple[RunConfig, bool]] = {}
    for job in jobs:
        done = job.is_done()
        trained = not done and job.folder.result() is not None
        for config in job.configs:
            key = setting_of(config, trained)
            firsts.setdefault(key, (config, trained))
            missing = not done and not (trained and job.folder.is_done(config))
            counts[key] += missing
            trained = trained or missing
    return [
        Setting(config, trained, estimate(config, trained), counts[key]) for key, (config, trained) in firsts.items()
    ]


def _needed(found: Estimate) -> int:
    return found.sized.memory.needed(USUAL.memory) if found.sized is not None else 0


def _in_short(setting: Setting) -> str:
    found = setting.estimate
    tokens = f"at most {_millions(found.tokens_sampled)} tokens sampled, {_evaluated(setting)}"
    if found.sized is None:
        return f"{tokens}; {found.unknown}"
    fits = [gpu.name for gpu in GPUS if found.sized.memory.fits(gpu.memory)]
    on = f"fits {fits[-1]} and larger" if fits else "fits none of the GPUs below"
    return f"{gb(_needed(found))} GB, {on}; {tokens}; {_range(*found.sized.hours(USUAL))} h of {USUAL.name}"


def _in_full(setting: Setting) -> list[str]:
    config, found, sized = setting.config, setting.estimate, setting.estimate.sized
    prompts = found.prompts
    others = ""
    if config.evaluation.dataset is not None:
        asked = config.evaluation.dataset.name
        others = f", of {asked} about {prompts.asked_mean}, up to {prompts.asked_longest}"
    tokens = (
        f"tokens, at most: {found.tokens_sampled:,} sampled in training ({config.steps} steps x "
        f"{config.completions_per_step} completions x {config.completion_limit}), {_evaluated(setting)}; prompts of "
        f"about {prompts.mean}, up to {prompts.longest}{others} (assumed: {prompts.assumed})"
    )
    if sized is None:
        return [f"model {config.model.name}: {found.unknown}", tokens]
    return [
        f"model {config.model.name}: {sized.parameters:,} parameters (shape: {sized.shape.source}); {_trained(sized)}",
        tokens,
        *_memory_lines(config, sized),
        *(_gpu_line(setting, sized, gpu) for gpu in GPUS),
        f"hours assume {SLOW.multiplying:.0%} to {FAST.multiplying:.0%} of the peak in training, {SLOW.reading:.0%} to "
        f"{FAST.reading:.0%} of the bandwidth for each new token, and with transformers at least "
        f"{FAST.layer_seconds * 1e3:.1f} to {SLOW.layer_seconds * 1e3:.1f} ms x {len(sized.shape.layers)} layers",
    ]


def _trained(sized: Sized) -> str:
    memory = sized.memory
    if not memory.trained:
        return "none trained"
    return f"{memory.trained:,} trained" + (f", of LoRA on {memory.wrapped} modules" if memory.wrapped else "")


def _memory_lines(config: RunConfig, sized: Sized) -> list[str]:
    memory, element = sized.memory, 2 if sized.dtype == "bfloat16" else 4
    trained = memory.trained
    each = 4 if memory.wrapped else element
    row = f"{memory.rows} rows x {memory.row_tokens} tokens"
    recompute = ", layer inputs alone" if config.model.gradient_checkpointing else ""
    parts = [
        ("weights", memory.weights, f"{sized.parameters:,} x {element} bytes ({sized.dtype})"),
        ("reference", memory.reference, "the same, of the untrained model"),
        ("LoRA's weights", memory.lora, f"{trained:,} x {4 + (2 if element == 2 else 0)} bytes"),
        ("AdamW", memory.optimizer, f"{trained:,} x 2 x {each} bytes"),
        ("gradients", memory.gradients, f"{trained:,} x {each} bytes"),
        ("activations", memory.activations, row + recompute),
        ("recomputed", memory.recomputed, "one layer at a time"),
        ("backward pass", memory.head, "one tile of logits and its gradients, or one layer's"),
        ("context", CONTEXT, "CUDA and its libraries"),
    ]
    lines = ["memory on one GPU, in GB of 1e9 bytes:"]
    shown = [(name, gb(size), formula) for name, size, formula in parts if size]
    width = max([6, *(len(size) for _, size, _ in shown)])
    lines.extend(f"  {name:<15} {size:>{width}}  {formula}" for name, size, formula in shown)
    if trained:
        lines.append(f"  {'= training':<15} {gb(memory.training):>{width}}")
        step = f"key-value cache {gb(memory.cache)}, prompts and logits {gb(memory.sampling)}"
        if config.rollout.engine == "hf":
            lines.append(f"  {'= sampling':<15} {gb(memory.kept + memory.cache + memory.sampling):>{width}}  {step}")
        elif memory.share:
            sleeps = "given back in training" if memory.share_sleeps else "held in training too"
            lines.append(f"  vLLM takes {memory.share:.0%} of the GPU beside what is kept, {sleeps}")
        else:
            lines.append("  sampling is the server's: its GPUs are not counted here")
    batch = f"{config.evaluation.batch_size} at a time: cache {gb(memory.evaluation_cache)}"
    evaluating = memory.kept + memory.evaluation_cache + memory.evaluation
    if memory.evaluation:
        lines.append(f"  {'= evaluating':<15} {gb(evaluating):>{width}}  {batch}")
    else:
        lines.append("  evaluating is vLLM's: it takes what is free")
    return lines


def _gpu_line(setting: Setting, sized: Sized, gpu: Gpu) -> str:
    needs = f"{gpu.name:<14} needs {gb(sized.memory.needed(gpu.memory)):>5} of {gb(usable(gpu.memory))} usable"
    why = misfit(setting.config, sized, setting.estimate.prompts, gpu.memory)
    if why is not None:
        return f"{needs}: does not fit{why}"
    return f"{needs}: fits; {_range(*sized.hours(gpu))} GPU hours, estimated"


def _total(todo: Sequence[Setting]) -> str:
    runs = sum(setting.runs for setting in todo)
    sampled = sum(setting.runs * setting.estimate.tokens_sampled for setting in todo)
    evaluated = sum(setting.runs * setting.estimate.tokens_evaluated for setting in todo)
    said = f"in all, {runs} to do: at most {_millions(sampled)} tokens sampled and {_millions(evaluated)} evaluated"
    if any(setting.estimate.prompts.evaluated is None for setting in todo):
        said += " (some evaluations not counted: how many questions is not known here)"
    if any(setting.estimate.sized is None for setting in todo):
        return f"{said}; GPU hours not known, as some shapes are not"
    ranges = []
    for gpu in GPUS:
        each = [(setting.runs, _hours_made_to_fit(setting, gpu)) for setting in todo]
        known = [(count, pair) for count, pair in each if pair is not None]
        if len(known) == len(each):
            low, high = (sum(count * pair[side] for count, pair in known) for side in (0, 1))
            fits = all(s.estimate.sized is not None and s.estimate.sized.memory.fits(gpu.memory) for s in todo)
            ranges.append(f"{_range(low, high)} on {gpu.name}{'' if fits else ' (made to fit)'}")
    return f"{said}; GPU hours, estimated: " + (
        ", ".join(ranges) if ranges else "no GPU of this list holds all of them"
    )


def _hours_made_to_fit(setting: Setting, gpu: Gpu) -> tuple[float, float] | None:
    """GPU hours of one run, changed where it needs a change to fit; None where no change makes it fit."""
    found = setting.estimate
    assert found.sized is not None
    if found.sized.memory.fits(gpu.memory):
        return found.sized.hours(gpu)
    changed = remedy(setting.config, found.sized.shape, found.prompts, gpu.memory)
    if changed is None:
        return None
    sized = estimate(changed[1], setting.trained).sized
    assert sized is not None
    return sized.hours(gpu)


def _labels(configs: Sequence[RunConfig]) -> list[str]:
    """What tells settings apart, in the words of the config."""
    described = [_described(config) for config in configs]
    keys = [key for key in described[0] if len({row[key] for row in described if row[key]}) > 1]
    labels = [", ".join(row[key] for key in keys if row[key]) or "run" for row in described]
    again = Counter(labels)
    return [f"{label} [{1 + labels[:i].count(label)}]" if again[label] > 1 else label for i, label in enumerate(labels)]


def _described(config: RunConfig) -> dict[str, str]:
    trains, replay, evaluation = config.advantage.trains, config.advantage.replay, config.evaluation
    limit = evaluation.completion_limit or config.completion_limit
    other = "" if evaluation.dataset is None else f" to {evaluation.dataset.name}"
    return {
        "model": config.model.name,
        "dataset": config.dataset.name,
        "arm": (replay.loss if replay is not None else "no replay") if trains else "untrained",
        "group_size": f"G={config.group_size}" if trains else "",
        "prompts": f"{config.prompts_per_step} prompts a step" if trains else "",
        "steps": f"{config.steps} steps" if trains else "",
        "limit": f"{config.completion_limit} tokens" if trains else "",
        "kl": ("KL" if config.loss.kl > 0 else "no KL") if trains else "",
        "rollout": config.rollout.engine if trains else "",
        "evaluation": f"evaluated on {_answers(config)} of up to {limit} tokens{other}",
    }


def _answers(config: RunConfig) -> str:
    count = samples_of(config)
    return "one answer" if count == 1 else f"{count} answers a question"


def _evaluated(setting: Setting) -> str:
    if setting.estimate.prompts.evaluated is None:
        return "evaluation not counted (how many questions is not known here)"
    return f"{setting.estimate.tokens_evaluated:,} evaluated"


def _millions(tokens: int) -> str:
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e6 else f"{tokens:,}"


def _range(low: float, high: float) -> str:
    ends = _hours(low), _hours(high)
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else small(value)
