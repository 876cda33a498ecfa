"""The loss of a first step from its rows alone: its denominator is the one that is recorded, its ratios are 1."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from gradstarve.grading import Grade
from gradstarve.learning.policy import load_policy
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.tasks import load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder


def train(config: RunConfig, grade: Any) -> RunFolder:
    seed_everything(config.seed)
    task, folder = load_task(config.dataset), RunFolder.of(config)
    BinaryRewardTrainer(
        config, load_policy(config), task.train, grade, Recorder(folder, config), folder.checkpoints
    ).train()
    return folder


def mostly_wrong(texts: Any, golds: Any, truncated: Any) -> list[Grade]:
    """Of the four groups of four: none right, one right, none decided, all right."""
    verdicts = ["wrong"] * 4 + ["right", "wrong", "wrong", "wrong"] + ["unverifiable"] * 4 + ["right"] * 4
    return [Grade(verdict, None, "test") for verdict in verdicts]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("aggregation", "truncated"),
    [("grpo", "grade"), ("dapo", "grade"), ("bnpo", "grade"), ("dr_grpo", "grade"), ("grpo", "mask"), ("dapo", "mask")],
)
def test_the_loss_is_the_sum_over_tokens_over_the_recorded_denominator(
    quick: tuple[str, ...], compose_config: Any, aggregation: str, truncated: str
) -> None:
    """Dead groups, undecided completions and completions of unlike lengths among them; sampled at another temperature
    than 1. An advantage that is normalised twice, a wrong ratio or a diluted denominator shows here."""
    config = compose_config(
        *quick, f"loss.aggregation={aggregation}", f"loss.truncated={truncated}", "advantage=weighted",
        "rollout.temperature=0.7", "completion_limit=7", "steps=1", "checkpoint_every=0",
    )  # fmt: skip
    folder = train(config, mostly_wrong)
    rows, step = folder.read("completions"), folder.last_step()
    assert step is not None
    # Right 0.1, wrong -1, undecided 0.
    assert rows["advantage"].tolist() == [-1.0] * 4 + [0.1] + [-1.0] * 3 + [0.0] * 4 + [0.1] * 4
    assert rows["truncated"].any() and not rows["truncated"].all() and rows["length"].nunique() > 2
    kept = ~rows["truncated"] if truncated == "mask" else rows["truncated"] | True
    # Where the ratio is 1, the loss of a token is minus its completion's advantage.
    weights = pd.Series(1, rows.index) if aggregation == "grpo" else rows["length"]
    total = (rows["advantage"] * weights)[kept].sum()
    denominators = {
        "grpo": 16,
        "dapo": rows["length"][kept].sum(),
        "bnpo": rows["length"][kept].sum(),
        "dr_grpo": 16 * 7,
    }
    assert step["loss_denominator"] == denominators[aggregation]
    assert step["loss"] == pytest.approx(-total / step["loss_denominator"], abs=1e-4) != 0
    assert (step["clip_low"], step["clip_high"]) == (0, 0)
    assert step["zero_advantage"] == 4 / 16


def test_dead_groups_move_the_weights_through_a_kl_term_alone(quick: tuple[str, ...], compose_config: Any) -> None:
    def steps(kl: float) -> pd.DataFrame:
        asked = []

        def grade(texts: Any, golds: Any, truncated: Any) -> list[Grade]:
            asked.append(len(texts))
            # A step that moves the policy from its reference; then every group is dead.
            verdicts = ["right", "wrong"] * 8 if len(asked) == 1 else ["wrong"] * 16
            return [Grade(verdict, None, "test") for verdict in verdicts]  # type: ignore[arg-type]

        more = ("advantage=drgrpo", "steps=3", "checkpoint_every=0", "learning_rate=0.01")
        return train(compose_config(*quick, *more, f"loss.kl={kl}"), grade).read("steps")

    without, with_it = steps(0.0), steps(0.5)
    for rows in (without, with_it):
        # The shares speak of advantages, whatever else moves the weights: those have columns of their own.
        assert rows["dead"].tolist() == rows["zero_advantage"].tolist() == [0, 1, 1]
    assert without["grad_norm"].tolist()[1:] == [0, 0] and without["kl"].isna().all()
    assert (with_it["grad_norm"] > 0).all() and (with_it["kl"][1:] > 0).all()
