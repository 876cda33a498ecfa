"""The replay bank, its two losses worked out by hand, and what they do to a run."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gradstarve.learning.replay import (
    Kept,
    PromptHistory,
    ReplayBank,
    contrastive,
    cross_entropy,
    pair_weight,
    sample,
)
from gradstarve.learning.run import execute
from gradstarve.runs.config import ReplayConfig
from gradstarve.runs.folder import RunFolder

REPLAY = ReplayConfig("contrastive_pair", 0.05, 50, 2, 4)


def test_the_bank_keeps_the_newest_that_differ() -> None:
    bank = ReplayBank(per_prompt=2)
    for step, tokens in enumerate([(1,), (2,), (3,), (2,)], start=1):
        bank.add("a", tokens, right=True, truncated=False, step=step)
    assert bank.prompts["a"].right == [Kept((3,), 3), Kept((2,), 4)]
    bank.add("a", (9,), right=False, truncated=False, step=5)
    bank.add("a", (8,), right=True, truncated=True, step=6)
    bank.add("a", (7,), right=None, truncated=False, step=7)
    assert [kept.tokens for kept in bank.prompts["a"].right] == [(3,), (2,)]
    assert (bank.prompts["a"].answered, bank.prompts["a"].solved) == (6, 5)
    assert bank.pairs() == [("a", Kept((2,), 4), Kept((9,), 5))]

    copy = ReplayBank(per_prompt=2)
    copy.load(bank.state())
    assert copy.prompts == bank.prompts


def test_sampling_is_a_function_of_seed_and_step() -> None:
    rows = list(range(50))
    assert sample(rows, 4, 42, 7) == sample(rows, 4, 42, 7)
    assert len({tuple(sample(rows, 4, seed, step)) for seed in (1, 2) for step in (1, 2)}) == 4
    assert sample(rows[:3], 4, 42, 7) == rows[:3]


def test_cross_entropy_by_hand() -> None:
    log_probs_BT = torch.tensor([[-1.0, -2.0, -99.0], [-3.0, -4.0, -5.0]])
    mask_BT = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert cross_entropy(log_probs_BT, mask_BT).item() == pytest.approx(15 / 5)


def test_contrastive_loss_and_gradient_by_hand() -> None:
    right = torch.tensor([-1.0, -2.0], requires_grad=True)
    wrong = torch.tensor([-3.0, -1.0], requires_grad=True)
    weights = torch.tensor([1.0, 0.5])
    loss = contrastive(right, wrong, torch.tensor([-2.0, -2.0]), torch.tensor([-3.0, -2.0]), weights)
    # Margins: (2) - (1) = 1 and (-1) - (0) = -1.
    expected = (math.log(1 + math.exp(-1)) + 0.5 * math.log(1 + math.exp(1))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    # d/dm of -log sigmoid(m) is -sigmoid(-m).
    slopes = [-1 / (1 + math.e) / 2, -0.5 * math.e / (1 + math.e) / 2]
    assert right.grad is not None and wrong.grad is not None
    assert right.grad.tolist() == pytest.approx(slopes)
    assert wrong.grad.tolist() == pytest.approx([-s for s in slopes])
    inputs = [t.detach().double().requires_grad_() for t in (right, wrong)]
    fixed = [torch.tensor([-2.0, -2.0]).double(), torch.tensor([-3.0, -2.0]).double(), weights.double()]
    assert torch.autograd.gradcheck(lambda a, b: contrastive(a, b, *fixed), inputs)


def test_pair_weight_by_hand() -> None:
    def weight(solved: int, answered: int, ages: tuple[int, int] = (0, 0)) -> float:
        history = PromptHistory(answered=answered, solved=solved)
        return pair_weight(history, Kept((1,), 100 - ages[0]), Kept((2,), 100 - ages[1]), 100, 200, REPLAY)

    # Mean of Beta(1 + 2, 1 + 2) is 1/2, but four answers count 4/5.
    assert weight(2, 4) == pytest.approx(0.8)
    assert weight(5, 10) == 1.0
    assert weight(5, 10, (40, 40)) == pytest.approx(math.exp(-0.2))
    # p = 1/22: 4 p (1 - p) = 84/484.
    assert weight(0, 20) == pytest.approx(84 / 484)
    assert weight(0, 2000) == REPLAY.weight_floor


@pytest.mark.parametrize("arm", ["sign_ce", "contrastive_pair"])
def test_replay_acts_after_its_warm_up_and_not_before(quick: tuple[str, ...], compose_config: Any, arm: str) -> None:
    plain = "sign" if arm == "sign_ce" else "tasa"

    def train(*overrides: str) -> RunFolder:
        config = compose_config(*quick, "checkpoint_every=0", "eval_every=0", "learning_rate=0.003", *overrides)
        execute(config)
        return RunFolder.of(config)

    without = train(f"advantage={plain}").read("steps")
    with_it = train(f"advantage={arm}", "advantage.replay.warm_up_steps=3").read("steps")
    weightless = train(f"advantage={arm}", "advantage.replay.warm_up_steps=3", "advantage.replay.weight=0.0")
    assert with_it["replay_rows"].iloc[:3].tolist() == [0, 0, 0]
    assert (with_it["replay_rows"].iloc[3:] > 0).all()
    assert with_it["grad_norm"].iloc[:3].tolist() == without["grad_norm"].iloc[:3].tolist()
    assert with_it["grad_norm"].iloc[3] != without["grad_norm"].iloc[3]
    assert weightless.read("steps")["grad_norm"].tolist() == pytest.approx(without["grad_norm"].tolist())
    if arm == "contrastive_pair":
        # The untrained policy is its own reference: every margin is 0, and a pair's loss is its weight times log 2.
        at_once = train(f"advantage={arm}", "advantage.replay.warm_up_steps=0").read("steps").iloc[0]
        assert at_once["replay_rows"] > 0
        assert 0.05 * math.log(2) - 1e-6 <= at_once["replay_loss"] <= math.log(2) + 1e-6
