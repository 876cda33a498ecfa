"""A readable, unique name for every setting: model and data set, then what sets it apart where these are shared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gradstarve.reporting.cells import Setting


def name_settings(settings: Sequence[Setting]) -> None:
    """Set `name` of each, and `apart`: the keys in which those that share model and data set differ."""

    def stem(setting: Setting) -> str:
        kind = setting.evaluation.rsplit("-", 1)[0]
        parts = [setting.model, setting.dataset]
        if setting.asked != setting.dataset:
            parts.append(f"on-{setting.asked}")
        if setting.reward != "verified":
            parts.append(f"reward-{setting.reward}")
        if setting.on_training:
            parts.append("training-questions")
        if kind not in {"greedy", setting.asked}:
            parts.append(kind)
        return "-".join(parts)

    groups: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        groups[stem(setting)].append(setting)
    for name, members in groups.items():
        if len(members) == 1:
            members[0].name = slug(name)
            continue
        apart = differing_keys(members)
        for setting in members:
            values = flat_config(setting)
            setting.apart = {key: values.get(key) for key in apart}
            told = [f"{key.rsplit('.', 1)[-1]}-{brief(values.get(key))}" for key in apart][:3]
            setting.name = slug("-".join([name, *told]))
        shared = Counter(setting.name for setting in members)
        for setting in members:
            if shared[setting.name] > 1:
                setting.name = slug(f"{name}-{(setting.key or setting.model_key)[:4]}{setting.evaluation[-4:]}")


# Keys in which runs of one setting differ.
_NOT_THE_SETTING = {
    "seed",
    "group_size",
    "outputs",
    "dry_run",
    "eval_every",
    "checkpoint_every",
    "completions_per_pass",
}


def flat_config(setting: Setting) -> dict[str, Any]:
    """What a setting trains and asks, by dotted key."""
    flat = _flat({**setting.config, "evaluation": setting.decoding})
    if flat.get("evaluation.completion_limit") == flat.get("completion_limit"):
        flat.pop("evaluation.completion_limit", None)
    return flat


def differing_keys(settings: Sequence[Setting]) -> list[str]:
    """The dotted keys in which settings differ, seed, advantage, group size and bookkeeping aside."""
    flat = [flat_config(setting) for setting in settings]
    return sorted({key for f in flat for key in f if any(f.get(key) != g.get(key) for g in flat)} - _NOT_THE_SETTING)


def alike_but_for(key: str, settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings in parts that differ in nothing but one dotted key."""
    parts: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        values = flat_config(setting)
        parts[repr([(k, values[k]) for k in sorted(values) if k != key and k not in _NOT_THE_SETTING])].append(setting)
    return list(parts.values())


def apart_by_model(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Settings in parts in which each model has one, where the keys in which a model's own settings differ allow it:
    models at the same KL coefficient beside each other, never one at two. Each part with those keys, in words."""
    by_model: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        by_model[setting.model].append(setting)
    keys = sorted({key for twins in by_model.values() for key in differing_keys(twins)})
    parts: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        values = flat_config(setting)
        parts["-".join(f"{key.rsplit('.', 1)[-1]}-{brief(values.get(key))}" for key in keys)].append(setting)
    return sorted(parts.items())


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {prefix: node}
    found: dict[str, Any] = {}
    for key, value in node.items():
        if prefix or key not in {"advantage", "tracker"}:
            found.update(_flat(value, f"{prefix}.{key}" if prefix else str(key)))
    return found


def slug(text: str) -> str:
    """A text as a part of a file's name."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in text.lower()).strip("-._")


def brief(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
