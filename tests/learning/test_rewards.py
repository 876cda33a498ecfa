"""The training reward: the verdict, or a control that takes no notice of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gradstarve.errors import UserError
from gradstarve.grading import Grade
from gradstarve.learning.rewards import coin, training_rewards
from gradstarve.learning.run import execute
from gradstarve.runs.config import LossConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import AS_BEFORE, run_name, setting_key, with_later_keys

RIGHT, WRONG, UNDECIDED = Grade("right", "1", "x"), Grade("wrong", "2", "x"), Grade("unverifiable", None, "time")
GRADES = [RIGHT, RIGHT, WRONG, UNDECIDED, WRONG]
CUT = [False, True, True, False, False]
LENGTHS = [3, 12, 12, 8, 9]
VERIFIED = LossConfig("grpo", 0.2, 0.2, 0.0, "grade")


def rewards(seed: int = 42, step: int = 1, first: int = 0, grades: Any = GRADES, **loss: Any) -> list[float | None]:
    return training_rewards(dataclasses.replace(VERIFIED, **loss), grades, LENGTHS, CUT, seed, step, first)


def test_the_verdict_is_the_reward_and_a_cut_off_answer_may_be_penalised() -> None:
    assert rewards() == [1, 1, 0, None, 0]
    assert rewards(truncated="penalise") == [1, 0, 0, None, 0]


def test_length_asks_for_an_end_within_the_limit_and_for_nothing_else() -> None:
    assert rewards(reward="length") == [1, 0, 0, 1, 1]
    assert rewards(reward="length", length_limit=8) == [1, 0, 0, 1, 0]
    assert rewards(reward="length", grades=[WRONG] * 5) == rewards(reward="length", grades=[RIGHT] * 5)


def test_a_coin_knows_seed_step_and_place_and_no_text() -> None:
    def tossed(**more: Any) -> list[float | None]:
        return rewards(reward="random", random_rate=0.5, **more)

    assert tossed() == tossed(grades=[WRONG] * 5)
    # Two processes of a run toss what one would.
    assert tossed(first=2)[:3] == tossed()[2:]
    many = {tuple(tossed(seed=seed, step=step)) for seed in range(8) for step in range(8)}
    assert len(many) > 20
    assert rewards(reward="random", random_rate=0.0) == [0.0] * 5
    assert rewards(reward="random", random_rate=1.0) == [1.0] * 5


def test_a_coin_is_right_as_often_as_it_says() -> None:
    tosses = [coin(0.25, seed, step, place) for seed in range(10) for step in range(50) for place in range(16)]
    # 8,000 tosses: 0.02 is four standard errors. Neighbours in place and in step have nothing in common.
    assert np.mean(tosses) == pytest.approx(0.25, abs=0.02)
    table = np.array(tosses).reshape(10, 50, 16)
    for lagged in (table[:, :, 1:] * table[:, :, :-1], table[:, 1:] * table[:, :-1], table[1:] * table[:-1]):
        assert lagged.mean() == pytest.approx(0.0625, abs=0.015)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["loss.reward=random"], "loss.random_rate: loss.reward=random needs"),
        (["loss.random_rate=0.5"], "loss.random_rate: read only with loss.reward=random"),
        (["loss.reward=random", "loss.random_rate=1.5"], "loss.random_rate: should be less than or equal to 1"),
        (["loss.length_limit=5"], "loss.length_limit: read only with loss.reward=length"),
        (["loss.reward=random", "loss.random_rate=0.5", "loss.truncated=penalise"], "loss.truncated: penalise would"),
        (["loss.reward=coin"], "loss.reward: should be 'verified', 'random' or 'length', got 'coin'"),
    ],
)
def test_mistakes_are_told(compose_config: Any, overrides: list[str], says: str) -> None:
    with pytest.raises(UserError) as error:
        compose_config(*overrides)
    assert str(error.value).startswith(says)


def test_a_control_is_a_setting_of_its_own_and_the_verdict_is_the_old_name(compose_config: Any) -> None:
    old, new = compose_config(), compose_config("loss.reward=verified")
    assert run_name(old) == run_name(new)
    settings = {
        setting_key(compose_config(*more))
        for more in (
            [],
            ["loss.reward=length"],
            ["loss.reward=length", "loss.length_limit=5"],
            ["loss.reward=random", "loss.random_rate=0.5"],
            ["loss.reward=random", "loss.random_rate=0.25"],
        )
    }
    assert len(settings) == 5
    assert compose_config("advantage=base", "loss.reward=length").advantage.name == "base"
    assert run_name(compose_config("advantage=base", "loss.reward=length")) == run_name(
        compose_config("advantage=base")
    )


def test_an_old_run_has_the_later_keys_as_before() -> None:
    old = {"loss": {"kl": 0.1}, "seed": 3}
    assert with_later_keys(old)["loss"] == {"kl": 0.1, "reward": "verified", "random_rate": None, "length_limit": None}
    assert old == {"loss": {"kl": 0.1}, "seed": 3}
    newer = {"loss": {"kl": 0.1, "reward": "length"}}
    assert with_later_keys(newer)["loss"]["reward"] == "length"
    assert AS_BEFORE["loss.reward"] == "verified"


def test_a_random_reward_takes_no_notice_of_the_verdict(quick: tuple[str, ...], compose_config: Any) -> None:
    config = compose_config(*quick, "loss.reward=random", "loss.random_rate=0.5", "eval_every=0")
    said: list[str] = []
    execute(config, said.append)
    assert any("reward: a coin that says right with probability 0.5, whatever the text" in line for line in said)
    folder = RunFolder.of(config)
    result = folder.result()
    assert result is not None and result["training_reward"] == "random"
    completions = folder.read("completions")
    places = completions.groupby("step").cumcount()
    expected = [coin(0.5, 42, step, place) for step, place in zip(completions["step"], places, strict=True)]
    assert completions["reward"].tolist() == expected
    # Every completion is graded all the same, and both are kept.
    by_step = completions.groupby("step")
    steps = folder.read("steps").set_index("step")
    pd.testing.assert_series_equal(steps["reward"], by_step["reward"].mean(), check_names=False)
    right = by_step["verdict"].agg(lambda verdicts: (verdicts == "right").mean())
    pd.testing.assert_series_equal(steps["right"], right, check_names=False)
    assert (steps["right"] != steps["reward"]).any()
    groups = folder.read("groups")
    assert groups["n_plus"].sum() == completions["reward"].sum()


def test_a_length_reward_is_what_was_not_cut_off(quick: tuple[str, ...], compose_config: Any) -> None:
    config = compose_config(*quick, "loss.reward=length", "completion_limit=6", "advantage=drgrpo", "eval_every=0")
    execute(config)
    completions = RunFolder.of(config).read("completions")
    assert (completions["reward"] == 1 - completions["truncated"].astype(float)).all()
    assert 0 < completions["reward"].mean() < 1
    assert completions["reward"].tolist() != (completions["verdict"] == "right").astype(float).tolist()
