"""What a budget of completions buys at each group size and advantage, for prompts of given difficulty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradstarve.analysis.prompt_difficulty import Difficulty
from gradstarve.analysis.text import shortened
from gradstarve.errors import UserError
from gradstarve.estimators.advantages import Advantage
from gradstarve.estimators.coefficients import LARGEST_GROUP, advantage_table

# Options within this of the best are not told apart: the model of the noise is not better than that.
WITHIN = 0.05
SURE = 0.95
LARGEST_BUDGET = 10**15


@dataclass(frozen=True)
class Option:
    """One (group size, advantage) at the budget. Shares are fractions of completions, means are over prompts.

    `snr` is that of the budget's mean gradient for a policy with one shared logit, whose scores are q and -p.
    `snr_diffuse` is for scores that mostly point elsewhere, as those of a large model do: signal kappa p q, noise
    variance E[A^2] / completions; its unit is the policy's, so only its ratios mean something.
    """

    group_size: int
    advantage: str
    groups: int
    dead_share: float
    dead_share_ci95: tuple[float, float]
    useful_share: float
    kappa: float
    snr: float | None
    snr_diffuse: float
    dynamic_sampling_cost: float | None


@dataclass(frozen=True)
class Recommendation:
    """`told` is False where the options within reach of the best have several advantages; `text` then says so.

    `margin` is the snr_diffuse of what is recommended over the best option of another advantage, less 1.
    """

    told: bool
    group_size: int | None
    advantage: str | None
    margin: float | None
    margin_ci95: tuple[float, float] | None
    text: str


@dataclass(frozen=True)
class OnGrid:
    """Expectations of one group at each of the points p; `square` is that of A^2 over its completions."""

    dead: NDArray[np.float64]
    useful: NDArray[np.float64]
    kappa: NDArray[np.float64]
    signal: NDArray[np.float64]
    variance: NDArray[np.float64]
    square: NDArray[np.float64]


def on_grid(advantage: Advantage, group_size: int, p_B: NDArray[np.float64]) -> OnGrid:
    """Per-prompt expectations of one group at each p, by enumeration over n_plus."""
    n_N = np.arange(group_size + 1)
    ways_N = np.array([float(math.comb(group_size, n)) for n in n_N])
    weights_NB = ways_N[:, None] * p_B[None, :] ** n_N[:, None] * (1 - p_B)[None, :] ** (group_size - n_N)[:, None]
    correct_N, wrong_N = advantage_table(advantage, group_size)
    right_N, failed_N = n_N / group_size, 1 - n_N / group_size
    estimates_NB = (right_N * correct_N)[:, None] * (1 - p_B) - (failed_N * wrong_N)[:, None] * p_B
    signal_B = (weights_NB * estimates_NB).sum(axis=0)
    others_N = np.arange(group_size)
    others_ways_N = np.array([float(math.comb(group_size - 1, m)) for m in others_N])
    others_NB = (
        others_ways_N[:, None]
        * p_B[None, :] ** others_N[:, None]
        * (1 - p_B)[None, :] ** (group_size - 1 - others_N)[:, None]
    )
    return OnGrid(
        dead=p_B**group_size + (1 - p_B) ** group_size,
        useful=(right_N * (correct_N != 0) + failed_N * (wrong_N != 0)) @ weights_NB,
        kappa=(correct_N[1:] - wrong_N[:-1]) @ others_NB,
        signal=signal_B,
        variance=(weights_NB * (estimates_NB - signal_B) ** 2).sum(axis=0),
        square=(right_N * correct_N**2 + failed_N * wrong_N**2) @ weights_NB,
    )


def plan(
    difficulty: Difficulty, advantages: Mapping[str, Advantage], group_sizes: Sequence[int], budget: int
) -> tuple[list[Option], Recommendation]:
    """Every option, and the recommendation. Raises UserError for a budget without a group or a size out of range."""
    for size in group_sizes:
        if not 2 <= size <= LARGEST_GROUP:
            raise UserError(f"a group size lies between 2 and {LARGEST_GROUP}, got {shortened(size)}")
    if budget < max(group_sizes):
        raise UserError(
            f"a budget of {shortened(budget)} completions does not fill one group of {max(group_sizes)}; "
            "give a larger --budget or smaller --group-sizes"
        )
    if budget > LARGEST_BUDGET:
        raise UserError(f"--budget {shortened(budget)}: give at most {LARGEST_BUDGET:,} completions")
    options, diffuse = [], []
    for size in group_sizes:
        groups = budget // size
        for label, advantage in advantages.items():
            grid = on_grid(advantage, size, difficulty.p)
            dead, noise = difficulty.mean(grid.dead), difficulty.mean(grid.variance)
            weights_RB = np.vstack([difficulty.weights, difficulty.replicates])
            square_R = weights_RB @ grid.square
            signal_R = weights_RB @ grid.signal
            diffuse_R = np.divide(
                signal_R, np.sqrt(square_R / (groups * size)), out=np.zeros_like(signal_R), where=square_R > 0
            )
            diffuse.append(diffuse_R)
            options.append(
                Option(
                    group_size=size,
                    advantage=label,
                    groups=groups,
                    dead_share=dead,
                    dead_share_ci95=difficulty.interval(grid.dead),
                    useful_share=difficulty.mean(grid.useful),
                    kappa=difficulty.mean(grid.kappa),
                    snr=difficulty.mean(grid.signal) / math.sqrt(noise / groups) if noise > 1e-18 else None,
                    snr_diffuse=float(diffuse_R[0]),
                    dynamic_sampling_cost=1 / (1 - dead) if dead < 1 - 1e-12 else None,
                )
            )
    return options, recommend(options, np.array(diffuse))


def recommend(options: Sequence[Option], diffuse_OR: NDArray[np.float64]) -> Recommendation:
    """The smallest group size within reach of the best, if its advantage is clearly better than every other one.

    Column 0 of `diffuse_OR` is the best estimate, the others its replicates.
    """
    best = int(np.argmax(diffuse_OR[:, 0]))
    if diffuse_OR[best, 0] <= 0:
        return Recommendation(
            False,
            None,
            None,
            None,
            None,
            "Can't be told from this: no option has a signal (every prompt has p = 0 or 1).",
        )
    advantage = options[best].advantage
    near = [i for i, option in enumerate(options) if option.advantage == advantage and _within(diffuse_OR, i, best)]
    chosen = min(near, key=lambda i: options[i].group_size)
    others = [i for i, option in enumerate(options) if option.advantage != advantage]
    if not others:
        sizes = ", ".join(str(options[i].group_size) for i in near)
        text = f"Of this one advantage the group sizes {sizes} are within {WITHIN:.0%} of the best."
        return Recommendation(True, options[chosen].group_size, advantage, None, None, text)
    rival_R = diffuse_OR[others].max(axis=0)
    margin_R = np.divide(diffuse_OR[best], rival_R, out=np.full_like(rival_R, np.inf), where=rival_R > 0) - 1
    low, high = (float(x) for x in np.quantile(margin_R, [1 - SURE, SURE]))
    margin = float(margin_R[0])
    if low < WITHIN:
        reached = [option for i, option in enumerate(options) if _within(diffuse_OR, i, best)]
        names = sorted({option.advantage for option in reached})
        widths = sorted({option.group_size for option in reached})
        text = (
            f"Can't be told from this: {', '.join(names)} at group size {', '.join(map(str, widths))} are within "
            f"{WITHIN:.0%} of each other or of what these counts can settle."
        )
        return Recommendation(False, None, None, margin, (low, high), text)
    text = (
        f"{advantage} at group size {options[chosen].group_size}: its signal to noise is {margin:.0%} above the best "
        f"of any other advantage ({low:.0%} to {high:.0%})."
    )
    return Recommendation(True, options[chosen].group_size, advantage, margin, (low, high), text)


def _within(diffuse_OR: NDArray[np.float64], option: int, best: int) -> bool:
    """Whether an option comes within reach of the best in at least one of twenty replicates."""
    reach = diffuse_OR[option] >= (1 - WITHIN) * diffuse_OR[best]
    return bool(reach[0] or reach.mean() > 1 - SURE)
