"""The trainer against stock TRL, against itself split differently, and against what it should refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer

from gradstarve.grading import Grade
from gradstarve.learning.policy import load_policy
from gradstarve.learning.prompt_order import PromptOrder
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.tasks import load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.learning.trl_arguments import trl_config
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder


def train(config: RunConfig, grade: Any = None) -> tuple[BinaryRewardTrainer, RunFolder]:
    seed_everything(config.seed)
    task = load_task(config.dataset)
    folder = RunFolder.of(config)
    trainer = BinaryRewardTrainer(
        config, load_policy(config), task.train, grade or task.grade, Recorder(folder, config), folder.checkpoints
    )
    trainer.train()
    return trainer, folder


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def history(trainer: Any, *keys: str) -> list[tuple[float, ...]]:
    return [tuple(row[k] for k in keys) for row in trainer.state.log_history if "grad_norm" in row]


def test_grpo_equals_stock_trl(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    config = compose_config(*quick, "advantage=grpo", "checkpoint_every=0", "steps=5")
    ours, _ = train(config)

    seed_everything(config.seed)
    task = load_task(config.dataset)
    policy = load_policy(config)
    golds = [q.gold for q in task.train]

    def reward(completions: list[str], completion_ids: list[list[int]], index: list[int], **_: Any) -> list[Any]:
        cut = [ids[-1] != policy.tokenizer.eos_token_id for ids in completion_ids]
        return [g.reward for g in task.grade(completions, [golds[i] for i in index], cut)]

    stock = GRPOTrainer(
        model=policy.model,
        reward_funcs=reward,
        args=trl_config(config, tmp_path / "stock"),
        train_dataset=Dataset.from_dict({"prompt": [q.prompt for q in task.train], "index": list(range(len(golds)))}),
        processing_class=policy.tokenizer,
    )
    stock.train()

    keys = ("loss", "grad_norm", "reward", "entropy", "learning_rate")
    assert history(ours, *keys) == history(stock, *keys)
    assert any(norm > 0 for _, norm, *_ in history(ours, *keys))
    for (name, a), b in zip(weights(ours).items(), weights(stock).values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("aggregation", ["grpo", "dapo", "dr_grpo"])
def test_splitting_a_step_into_passes_changes_nothing(
    quick: tuple[str, ...], compose_config: Any, aggregation: str
) -> None:
    base = (*quick, f"loss.aggregation={aggregation}", "steps=1", "checkpoint_every=0")
    whole, _ = train(compose_config(*base))
    split, _ = train(compose_config(*base, "completions_per_pass=4"))
    assert history(whole, "reward") == history(split, "reward")
    assert np.allclose(history(whole, "grad_norm"), history(split, "grad_norm"), rtol=1e-4)
    for (name, a), b in zip(weights(whole).items(), weights(split).values(), strict=True):
        # Adam divides by the gradient's own size, so a rounding error in a tiny gradient shows at the learning rate.
        assert torch.allclose(a, b, atol=2e-5), name


def test_two_seeds_differ_and_one_repeats_from_the_first_rollout(quick: tuple[str, ...], compose_config: Any) -> None:
    def first_rollout(*overrides: str) -> list[str]:
        _, folder = train(compose_config(*quick, "steps=1", "checkpoint_every=0", *overrides))
        completions = folder.read("completions")["completion"].tolist()
        folder.cut({})
        return completions

    assert first_rollout("seed=42") == first_rollout("seed=42") != first_rollout("seed=43")


def test_an_undecided_completion_gets_no_advantage_and_is_counted(quick: tuple[str, ...], compose_config: Any) -> None:
    def grade(texts: Any, golds: Any, truncated: Any) -> list[Grade]:
        # Of each group of four: undecided, right, right, wrong. Of the last group nothing is decided.
        verdicts = ["unverifiable", "right", "right", "wrong"] * (len(texts) // 4 - 1) + ["unverifiable"] * 4
        return [Grade(v, None, "test") for v in verdicts]  # type: ignore[arg-type]

    _, folder = train(compose_config(*quick, "advantage=drgrpo", "steps=1", "checkpoint_every=0"), grade)
    rows = folder.read("completions")
    groups = folder.read("groups")
    # Two right of three decided: centred 1/3 and -2/3 over the sample std 1/sqrt(3).
    expected = [0.0, 1 / 3 * 3**0.5, 1 / 3 * 3**0.5, -2 / 3 * 3**0.5] * 3 + [0.0] * 4
    assert np.allclose(rows["advantage"], expected)
    assert groups["unverifiable"].tolist() == [1, 1, 1, 4]
    assert groups["group_size"].tolist() == [3, 3, 3, 0]
    step = folder.last_step()
    assert step is not None
    assert step["unverifiable"] == 7
    assert (step["all_fail"], step["mixed"], step["all_pass"]) == (0.0, 1.0, 0.0)
    assert step["reward"] == pytest.approx(6 / 9)


def test_a_step_s_row_agrees_with_its_groups_and_completions(quick: tuple[str, ...], compose_config: Any) -> None:
    config = compose_config(*quick, "checkpoint_every=0", "loss.aggregation=dapo")
    _, folder = train(config)
    steps, groups, rows = folder.read("steps"), folder.read("groups"), folder.read("completions")
    assert steps["step"].tolist() == list(range(1, 7))
    assert len(groups) == 6 * 4 and len(rows) == 6 * 16
    by_step = rows.groupby("step")
    assert np.allclose(steps["reward"], by_step["reward"].mean())
    assert np.allclose(steps["truncated"], by_step["truncated"].mean())
    assert steps["loss_denominator"].tolist() == by_step["length"].sum().tolist()
    n_plus = rows.groupby(["step", "group"])["reward"].sum().astype(int)
    assert groups["n_plus"].tolist() == n_plus.tolist()
    assert np.allclose(steps["all_fail"], (n_plus == 0).groupby("step").mean())
    assert np.allclose(steps[["all_fail", "mixed", "all_pass"]].sum(axis=1), 1)
    assert (rows["advantage"] == rows["reward"] * 2 - 1).all()
    assert (rows["truncated"] == ((rows["length"] == config.completion_limit) & ~_ended(rows))).all()
    assert steps[["seconds_rollout", "seconds_loss", "seconds_rest"]].notna().all().all()


def _ended(rows: pd.DataFrame) -> pd.Series:
    # The tokenizer has one token a character, so a completion that ended is one shorter than its tokens.
    return rows["completion"].str.len() < rows["length"]


def test_truncation_can_be_penalised(quick: tuple[str, ...], compose_config: Any) -> None:
    _, folder = train(compose_config(*quick, "loss.truncated=penalise", "completion_limit=3", "checkpoint_every=0"))
    rows = folder.read("completions")
    assert rows["truncated"].any()
    assert (rows.loc[rows["truncated"], "reward"] == 0).all()


def test_prompt_order_is_trl_s_and_a_function_of_seed_and_step() -> None:
    def order(first: int, seed: int = 42) -> list[list[int]]:
        return list(PromptOrder(10, 3, 2, 1, steps=8, seed=seed, first_step=lambda: first).step_prompts())

    generator = torch.Generator().manual_seed(42)
    epochs = [torch.randperm(10, generator=generator).tolist() for _ in range(3)]
    expected = [epoch[i : i + 3] for epoch in epochs for i in (0, 3, 6)][:8]
    assert order(0) == expected
    for first in range(8):
        assert order(first) == expected[first:]
    assert order(0, seed=43) != expected


def test_zero_variance_groups_move_nothing_without_kl(quick: tuple[str, ...], compose_config: Any) -> None:
    def all_wrong(texts: Any, golds: Any, truncated: Any) -> list[Grade]:
        return [Grade("wrong", None, "test")] * len(texts)

    config = compose_config(*quick, "advantage=drgrpo", "steps=2", "checkpoint_every=0")
    before = weights_of(config)
    trainer, folder = train(config, all_wrong)
    assert folder.read("steps")["grad_norm"].tolist() == [0.0, 0.0]
    assert folder.read("steps")["dead"].tolist() == [1.0, 1.0]
    assert all(torch.equal(before[name], w) for name, w in weights(trainer).items())


def test_with_kl_the_row_says_so(quick: tuple[str, ...], compose_config: Any) -> None:
    _, folder = train(compose_config(*quick, "loss.kl=0.1", "steps=3", "checkpoint_every=0", "learning_rate=0.01"))
    assert folder.read("steps")["kl"].iloc[-1] > 0


def weights_of(config: RunConfig) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in load_policy(config).model.named_parameters()}
