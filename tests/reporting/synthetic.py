"""Run folders with made-up numbers, written by runs' own writers: for tests of reporting and for bench/tables.py."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from gradstarve.estimators import get_advantage
from gradstarve.runs.config import RunConfig, read_config
from gradstarve.runs.files import write_json, write_parquet
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import (
    cell_key,
    evaluation_identity,
    evaluation_name,
    model_key,
    run_name,
    setting_key,
    signature,
)
from gradstarve.runs.status import write_status

CONF = Path(__file__).resolve().parents[2] / "conf"


def plain(
    outputs: Path,
    model: str = "tiny",
    dataset: str = "sums",
    model_config: Mapping[str, Any] | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """The plain config that Hydra composes from conf/, with `keys` (dots as __) in place of its values."""
    composed = copy.deepcopy(_composed(model, dataset))
    composed |= {"outputs": str(outputs), "advantage": {"name": "sign"}}
    if model_config is not None:
        composed["model"] = copy.deepcopy(dict(model_config))
    for key, value in keys.items():
        *parents, last = key.split("__")
        node = composed
        for parent in parents:
            node = node[parent]
        node[last] = value
    return composed


@functools.cache
def _composed(model: str, dataset: str) -> dict[str, Any]:
    composed = yaml.safe_load((CONF / "config.yaml").read_text())
    for key in ("defaults", "hydra"):
        composed.pop(key)
    for group, option in (("model", model), ("dataset", dataset), ("rollout", "hf"), ("tracker", "none")):
        text = (CONF / group / f"{option}.yaml").read_text()
        part = yaml.safe_load(text)
        composed |= part if text.startswith("# @package _global_") else {group: part}
    return composed


def config(outputs: Path, advantage: str = "sign", group_size: int = 4, seed: int = 42, **keys: Any) -> RunConfig:
    name: dict[str, Any] = {"name": advantage}
    if advantage.endswith("_ce"):
        name = {"name": advantage, "formula": advantage.removesuffix("_ce"), "replay": replay("cross_entropy")}
    if advantage == "contrastive_pair":
        name = {"name": advantage, "formula": "tasa", "replay": replay("contrastive_pair")}
    name |= keys.pop("parameters", {})
    return read_config(copy.deepcopy(plain(outputs, advantage=name, group_size=group_size, seed=seed, **keys)))


def replay(loss: str) -> dict[str, Any]:
    return {"loss": loss, "weight": 0.05, "warm_up_steps": 0, "completions_per_prompt": 2, "rows_per_step": 4}


def shares_of(n_plus: Sequence[int], group_size: int, truncated: float = 0.1) -> dict[str, float]:
    groups = len(n_plus)
    fail, passed = sum(n == 0 for n in n_plus) / groups, sum(n == group_size for n in n_plus) / groups
    return {
        "all_fail": fail,
        "mixed": 1 - fail - passed,
        "all_pass": passed,
        "dead": fail + passed,
        "truncated": truncated,
    }


def write_run(
    config: RunConfig,
    right: int,
    n: int = 400,
    *,
    commit: str = "a" * 40,
    dirty: bool = False,
    versions: Mapping[str, str] | None = None,
    tables: bool = False,
    truncated: float = 0.1,
    unverifiable: int = 0,
    start: float = 0.25,
    by_step: Mapping[int, int] | None = None,
    strict_right: int | None = None,
    flexible_right: int | None = None,
    train_questions: int | None = 1000,
) -> RunFolder:
    """One finished run that got `right` of `n` questions; with `tables`, its steps and groups too.

    `by_step` maps earlier evaluated steps to how many questions were right then.
    """
    folder = RunFolder.of(config)
    trains = config.advantage.trains
    generator = random.Random(f"{run_name(config)}")
    steps, prompts, group = config.steps, config.prompts_per_step, config.group_size
    groups: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        level = start + (right / n - start) * step / steps
        for number in range(prompts):
            p = min(max(generator.choice((0.02, 0.02, 0.5, 0.97)) + level - 0.35, 0.0), 1.0)
            n_plus = sum(generator.random() < p for _ in range(group))
            prompt_id = f"p{generator.randrange(50)}"
            groups.append(
                {"step": step, "group": number, "prompt_id": prompt_id, "group_size": group, "n_plus": n_plus,
                 "unverifiable": 0, "truncated": round(truncated * group), "tokens": 12 * group}
            )  # fmt: skip
    final = {
        "step": steps if trains else 0, "n": n, "right": right, "wrong": n - right - unverifiable,
        "unverifiable": unverifiable, "accuracy": right / n, "truncated": 0.03, "mean_length": 9.5, "seconds": 1.5,
        "strict_right": strict_right, "flexible_right": flexible_right,
        "rule": "flexible",
    }  # fmt: skip
    folder.write_config(config)
    earlier = {
        str(s): final | {"step": s, "right": r, "accuracy": r / n, "tokens": 12 * group * prompts * s}
        for s, r in (by_step or {}).items()
    }
    write_evaluation(folder, config, final, earlier=earlier)
    write_status(folder.path, "running")
    if trains and tables:
        write_tables(folder, config, groups)
    rewards = [g["n_plus"] / group for g in groups]
    per_step = [sum(rewards[s * prompts : (s + 1) * prompts]) / prompts for s in range(steps)]
    formula = config.advantage.formula
    resolved = get_advantage(formula, config.advantage.parameters).resolved_formula() if trains else "untrained"
    folder.write_result(
        {
            "run": run_name(config), "advantage": config.advantage.name, "formula": formula,
            "resolved_formula": resolved,
            "group_size": group if trains else None, "seed": config.seed if trains else None,
            "steps": steps, "prompts_per_step": prompts, "learning_rate": config.learning_rate,
            "completion_limit": config.completion_limit, "model": config.model.name,
            "model_id": getattr(config.model, "id", config.model.name), "dataset": config.dataset.name,
            "cell": cell_key(config), "setting": setting_key(config) if trains else None,
            "model_key": model_key(config),
            "signature": signature(config),
            "evaluation": {"name": evaluation_name(config), "dataset": config.asked_dataset.name, **final},
            "shares": shares_of([g["n_plus"] for g in groups], group, truncated) if trains else None,
            "reward_first": sum(per_step[:10]) / 10 if trains else None,
            "reward_last": sum(per_step[-10:]) / 10 if trains else None,
            "reward_mean": sum(per_step) / steps if trains else None,
            "tokens": sum(g["tokens"] for g in groups) if trains else None, "groups": len(groups) if trains else None,
            "seconds": {"total": 9.0, "rollout": 5.0, "loss": 3.0, "rest": 1.0} if trains else {"total": 1.5},
            "unverifiable": unverifiable, "code": {"commit": commit, "dirty": dirty},
            "versions": dict(versions or {"torch": "2.13.0", "transformers": "5.17.0", "trl": "1.16.0"}),
            "train_questions": train_questions, "finished": 1.8e9,
        }
    )  # fmt: skip
    write_status(folder.path, "done")
    return folder


def write_tables(folder: RunFolder, config: RunConfig, groups: Sequence[Mapping[str, Any]]) -> None:
    prompts, size = config.prompts_per_step, config.group_size
    for step in range(1, config.steps + 1):
        mine = groups[(step - 1) * prompts : step * prompts]
        counts = [g["n_plus"] for g in mine]
        shares = shares_of(counts, size)
        folder.append("groups", mine)
        folder.append(
            "steps",
            [{"step": step, "reward": sum(counts) / prompts / size, **shares, "unverifiable": 0, "length": 12.0,
              "entropy": 0.4, "grad_norm": 0.9, "loss": 0.01, "learning_rate": config.learning_rate,
              "loss_denominator": prompts * size, "clip_low": 0.0, "clip_high": 0.0, "tokens": 12 * prompts * size,
              "seconds_rollout": 0.02, "seconds_loss": 0.02, "seconds_rest": 0.0}],
        )  # fmt: skip
    folder.close_tables()


def write_evaluation(
    folder: RunFolder,
    config: RunConfig,
    final: Mapping[str, Any],
    *,
    dataset: str | None = None,
    name: str | None = None,
    rows: pd.DataFrame | None = None,
    identity: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> Path:
    """One more evaluation of a run: its summary, and the rows of its questions where given."""
    place = folder.path / "evaluations" / (name or evaluation_name(config))
    if rows is not None:
        write_parquet(place / f"step-{final['step']:06d}.parquet", rows)
    write_json(
        place / "summary.json",
        {
            "evaluation": config.evaluation.name, "key": place.name.rsplit("-", 1)[-1],
            "identity": dict(identity or evaluation_identity(config)), "run": folder.name,
            "dataset": dataset or config.asked_dataset.name, "final": dict(final),
            "by_step": {**(earlier or {}), str(final["step"]): dict(final)},
        },
    )  # fmt: skip
    return place
