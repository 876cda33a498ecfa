"""Advantages of a group of binary rewards.

An advantage that depends on counts alone is a function `(n_plus, group_size) -> (A_correct, A_wrong)`: what each right
and each wrong completion of a group gets when `n_plus` of its `group_size` completions are right. Everything else (the
array that the trainer uses, the golden vectors, the expected coefficients, the table in the docs) follows from it.

To add one, write the function and decorate it; see docs/add-an-advantage.md.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gradstarve.errors import UserError, nearest

CountFunction = Callable[..., tuple[float, float]]


@dataclass(frozen=True)
class Advantage:
    """An advantage with its parameters bound.

    `function` may return anything for the side of a group that has no member (A_correct at n_plus = 0, A_wrong at
    n_plus = group_size); nobody reads it.
    """

    name: str
    function: CountFunction
    parameters: Mapping[str, float]
    formula: str
    baseline: str
    scale: str
    source: str

    def __call__(self, n_plus: int, group_size: int) -> tuple[float, float]:
        if group_size < 2:
            raise UserError(f"a group has at least 2 completions, got a group size of {group_size}")
        if not 0 <= n_plus <= group_size:
            raise ValueError(f"n_plus = {n_plus} is not in [0, {group_size}]")
        return self.function(n_plus, group_size, **self.parameters)

    @property
    def least_verdicts(self) -> int:
        """How many verdicts a group needs; with fewer, all of its completions get 0."""
        return max(2, int(self.parameters.get("k", 2)))

    def all_fail(self, group_size: int) -> float:
        """What every completion of an all-fail group gets."""
        return self(0, group_size)[1]

    def all_pass(self, group_size: int) -> float:
        """What every completion of an all-pass group gets."""
        return self(group_size, group_size)[0]

    def resolved_formula(self) -> str:
        """The formula with its parameters' values, for a run's header and for tables."""
        values = ", ".join(f"{key} = {value:g}" for key, value in self.parameters.items())
        return f"{self.formula}  ({values})" if values else self.formula


ADVANTAGES: dict[str, Advantage] = {}


def advantage(*, formula: str, baseline: str, scale: str, source: str) -> Callable[[CountFunction], CountFunction]:
    """Register a function of counts under its own name. Parameters after the two counts become its options."""

    def register(function: CountFunction) -> CountFunction:
        name = function.__name__
        options = list(inspect.signature(function).parameters.values())[2:]
        defaults = {option.name: option.default for option in options}
        ADVANTAGES[name] = Advantage(name, function, defaults, formula, baseline, scale, source)
        return function

    return register


def get_advantage(name: str, parameters: Mapping[str, float] | None = None) -> Advantage:
    """The advantage called `name`, with `parameters` in place of its defaults.

    Raises UserError for an unknown name or parameter, naming the nearest, and for a value that no group could use.
    Only a k that is larger than the group shows later, when the group size is known.
    """
    if name not in ADVANTAGES:
        raise UserError(f"unknown advantage {name!r}. {nearest(name, ADVANTAGES)}")
    known = ADVANTAGES[name]
    for key, value in (parameters or {}).items():
        if key not in known.parameters:
            raise UserError(f"advantage {name!r} has no parameter {key!r}. {nearest(key, known.parameters)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"advantage {name!r} needs a number for {key!r}, got {value!r}")
    chosen = replace(known, parameters={**known.parameters, **(parameters or {})})
    chosen(0, chosen.least_verdicts)
    return chosen


def group_advantages(rewards_PG: NDArray[np.floating], advantage: Advantage) -> NDArray[np.float64]:
    """The advantage of every completion.

    `rewards_PG` (prompts x group) holds 1 (right), 0 (wrong) or NaN (unverifiable). Unverifiable completions get 0 and
    are left out of n_plus and of the group size; a group with fewer verdicts than the advantage needs (two, or its k)
    gets 0 throughout. Rewards are counted as integers, so that no rounding decides which group is dead.

    Raises UserError where the group size itself is too small, ValueError where a reward is not binary.
    """
    decided_PG = ~np.isnan(rewards_PG)
    right_PG = decided_PG & (rewards_PG == 1)
    if not np.array_equal(decided_PG & (rewards_PG != 0), right_PG):
        raise ValueError("rewards are not binary: each is 1, 0 or NaN (unverifiable)")
    advantage(0, rewards_PG.shape[1])
    advantages_PG = np.zeros(rewards_PG.shape, dtype=np.float64)
    counts_P2 = np.stack([right_PG.sum(axis=1), decided_PG.sum(axis=1)], axis=1)
    for n_plus, group_size in np.unique(counts_P2, axis=0).tolist():
        if group_size < advantage.least_verdicts:
            continue
        correct, wrong = advantage(n_plus, group_size)
        alike_P1 = (counts_P2 == (n_plus, group_size)).all(axis=1)[:, None]
        advantages_PG[alike_P1 & right_PG] = correct
        advantages_PG[alike_P1 & decided_PG & ~right_PG] = wrong
    return advantages_PG


@advantage(formula="2r - 1", baseline="constant 1/2", scale="2", source="arXiv 2605.07689, Section 3.2")
def sign(n_plus: int, group_size: int) -> tuple[float, float]:
    return 1.0, -1.0


@advantage(
    formula="1/n_plus if right, -1/(G - n_plus) if wrong: excess over c, as a share of its side; 0 < c < 1 cancels",
    baseline="threshold c",
    scale="class counts",
    source="arXiv 2605.07689, Section 3.3 (c = 1/2); other c as in the authors' repository nips-grpo-dynamics",
)
def tasa(n_plus: int, group_size: int, c: float = 0.5) -> tuple[float, float]:
    """(r-c)+ / sum (r-c)+  -  (c-r)+ / sum (c-r)+: under binary rewards every c in (0, 1) gives the same.

    At c = 1 a right completion has no excess and gets 0, at c = 0 a wrong one.
    """
    if not 0 <= c <= 1:
        raise UserError(f"tasa needs a threshold c in [0, 1], got {c:g}")
    return (c < 1) / max(n_plus, 1), -(c > 0) / max(group_size - n_plus, 1)


def _centred(n_plus: int, group_size: int) -> tuple[float, float]:
    return (group_size - n_plus) / group_size, -n_plus / group_size


def _sample_std(n_plus: int, group_size: int) -> float:
    return math.sqrt(n_plus * (group_size - n_plus) / (group_size * (group_size - 1)))


@advantage(
    formula="(r - n_plus/G) / sample std of the group (ddof = 1); 0 in dead groups",
    baseline="group mean",
    scale="group std (ddof = 1)",
    source="arXiv 2605.07689, Section 3.1: what the paper calls DrGRPO. The published Dr. GRPO does not divide",
)
def drgrpo(n_plus: int, group_size: int) -> tuple[float, float]:
    if n_plus in (0, group_size):
        return 0.0, 0.0
    correct, wrong = _centred(n_plus, group_size)
    std = _sample_std(n_plus, group_size)
    return correct / std, wrong / std


@advantage(
    formula="(r - n_plus/G) / (sample std of the group + epsilon)",
    baseline="group mean",
    scale="group std (ddof = 1) + epsilon",
    source='arXiv 2402.03300; epsilon as in TRL, scale_rewards="group"',
)
def grpo(n_plus: int, group_size: int, epsilon: float = 1e-4) -> tuple[float, float]:
    if epsilon <= 0:
        raise UserError(f"grpo needs an epsilon above 0, got {epsilon:g}; `drgrpo` is the same without it")
    correct, wrong = _centred(n_plus, group_size)
    std = _sample_std(n_plus, group_size)
    return correct / (std + epsilon), wrong / (std + epsilon)
