"""What a completion earns in training: its verdict, or a control that takes no notice of it.

The controls answer what a gain is made of. A coin (`loss.reward=random`) says nothing about the text: what training
gains with it, it gains without learning what is right. A length reward (`loss.reward=length`) is right where a
completion ends in time: what training gains with it, it gains by keeping within the limit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from gradstarve.grading import Grade
from gradstarve.runs.config import LossConfig


def training_rewards(
    loss: LossConfig,
    grades: Sequence[Grade],
    lengths: Sequence[int],
    truncated: Sequence[bool],
    seed: int,
    step: int,
    first: int = 0,
) -> list[float | None]:
    """1, 0, or None where the grader could not decide, for each completion; the controls always decide.

    `lengths` are tokens, end token included. `first` is the place of the first completion among all of its step's.
    """
    if loss.reward == "random":
        assert loss.random_rate is not None
        return [coin(loss.random_rate, seed, step, first + i) for i in range(len(grades))]
    if loss.reward == "length":
        most = loss.length_limit
        return [
            float(not cut and (most is None or length <= most)) for length, cut in zip(lengths, truncated, strict=True)
        ]
    if loss.truncated == "penalise":
        return [0.0 if cut else grade.reward for cut, grade in zip(truncated, grades, strict=True)]
    return [grade.reward for grade in grades]


def coin(rate: float, seed: int, step: int, place: int) -> float:
    """1 with probability `rate`: a function of the run's seed, the step and the completion's place in it alone, so that
    a resumed run sees the same."""
    return float(random.Random(f"reward-{seed}-{step}-{place}").random() < rate)


def told(loss: LossConfig) -> str:
    """The training reward in words."""
    if loss.reward == "random":
        return f"a coin that says right with probability {loss.random_rate:g}, whatever the text"
    if loss.reward == "length":
        most = "" if loss.length_limit is None else f" of at most {loss.length_limit} tokens"
        return f"right where a completion{most} ends within the completion limit, whatever it answers"
    return "the grader's verdict"
