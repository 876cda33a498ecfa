"""How often a group is dead: all-fail or all-pass, so that a centred advantage gives it no gradient.

D(p, G) = p^G + (1-p)^G for one prompt; D_real is its mean over prompts; D_iid is D at the mean success probability. By
Jensen's inequality D_real >= D_iid (arXiv 2605.07689, Proposition 2); the difference is exactly 2 Var p at G = 2 and
3 Var p at G = 3.

From counts (c right of n samples) the unbiased estimate of D(p, G) is [C(c,G) + C(n-c,G)] / C(n,G), n >= G. The plug-in
D(c/n, G) is biased upwards: with two samples a prompt it gives 0.90 where the same data give 0.80 without bias.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from gradstarve.errors import UserError

Interval = tuple[float, float]


def degeneracy(p_P: NDArray[np.float64] | float, group_size: int) -> NDArray[np.float64]:
    """D(p, G) for each success probability."""
    p_P = np.asarray(p_P, dtype=np.float64)
    return p_P**group_size + (1 - p_P) ** group_size


def jensen_gap(p_P: NDArray[np.float64], group_size: int) -> float:
    """Mean of D(p, G) less D(mean p, G), for known success probabilities."""
    return float(degeneracy(p_P, group_size).mean() - degeneracy(float(np.mean(p_P)), group_size))


def dead_shares(samples: int, successes: int, group_size: int) -> tuple[float, float]:
    """Unbiased (all-fail, all-pass) probabilities of a group of G, from one prompt's counts; UserError where n < G."""
    if group_size < 2:
        raise UserError(f"a group has at least 2 completions, got a group size of {group_size}")
    if samples < group_size:
        raise UserError(f"degeneracy at group size {group_size} needs {group_size} samples of a prompt, got {samples}")
    if not 0 <= successes <= samples:
        raise UserError(f"{successes} successes of {samples} samples is impossible")
    groups = math.comb(samples, group_size)
    all_fail = Fraction(math.comb(samples - successes, group_size), groups)
    return float(all_fail), float(Fraction(math.comb(successes, group_size), groups))


@dataclass(frozen=True)
class Degeneracy:
    """Dead groups at one group size, estimated from counts; each interval is 95 % over prompts.

    `d_iid` is D at the mean of the prompts' success rates. `all_fail`, `mixed` and `all_pass` sum to 1.
    """

    group_size: int
    d_real: float
    d_real_ci95: Interval
    plug_in: float
    d_iid: float
    all_fail: float
    all_fail_ci95: Interval
    mixed: float
    mixed_ci95: Interval
    all_pass: float
    all_pass_ci95: Interval

    @property
    def jensen_gap(self) -> float:
        """D_real (unbiased) less D_iid."""
        return self.d_real - self.d_iid

    def amplification(self, p: float | None = None) -> float:
        """D_real over D at `p`: the base model's success rate, or by default the data's own mean (D_iid)."""
        return self.d_real / (self.d_iid if p is None else float(degeneracy(p, self.group_size)))


def estimate_degeneracy(samples_P: Sequence[int], successes_P: Sequence[int], group_size: int) -> Degeneracy:
    """Shares of dead groups from each prompt's counts. Every prompt needs at least `group_size` samples (UserError)."""
    if len(samples_P) == 0 or len(samples_P) != len(successes_P):
        raise UserError("degeneracy needs as many success counts as sample counts, at least one of each")
    kinds = Counter(zip(map(int, samples_P), map(int, successes_P), strict=True))
    prompts_K = np.array(list(kinds.values()))
    fail_K, passed_K = np.array([dead_shares(n, c, group_size) for n, c in kinds]).T
    rates_K = np.array([c / n for n, c in kinds])
    samples = int(sum(n * count for (n, _), count in kinds.items()))

    def estimate(values_K: NDArray[np.float64]) -> tuple[float, Interval]:
        mean = float(np.average(values_K, weights=prompts_K))
        return mean, mean_interval(values_K, prompts_K, samples)

    d_real, d_real_ci95 = estimate(fail_K + passed_K)
    all_fail, all_fail_ci95 = estimate(fail_K)
    mixed, mixed_ci95 = estimate(1 - fail_K - passed_K)
    all_pass, all_pass_ci95 = estimate(passed_K)
    return Degeneracy(
        group_size=group_size,
        d_real=d_real,
        d_real_ci95=d_real_ci95,
        plug_in=float(np.average(degeneracy(rates_K, group_size), weights=prompts_K)),
        d_iid=float(degeneracy(float(np.average(rates_K, weights=prompts_K)), group_size)),
        all_fail=all_fail,
        all_fail_ci95=all_fail_ci95,
        mixed=mixed,
        mixed_ci95=mixed_ci95,
        all_pass=all_pass,
        all_pass_ci95=all_pass_ci95,
    )


def binomial_interval(successes: float, n: float, level: float = 0.95) -> Interval:
    """Clopper-Pearson; `successes` and `n` need not be whole."""
    tail = (1 - level) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return low, high


def mean_interval(values_K: NDArray[np.float64], counts_K: NDArray[np.int64], most: int) -> Interval:
    """95 % interval of the mean of values in [0, 1], value k seen counts_K[k] times.

    Clopper-Pearson at the effective sample size mean(1-mean)/(standard error)^2, at most `most` (Korn and Graubard
    1998). For values that are 0 or 1 it is Clopper-Pearson itself, and it keeps a width where all values agree.
    """
    n = int(counts_K.sum())
    mean = float(np.average(values_K, weights=counts_K))
    mean = min(max(mean, 0.0), 1.0)
    variance = float(np.average((values_K - mean) ** 2, weights=counts_K))
    spread = mean * (1 - mean)
    if min(mean, 1 - mean) < 1e-12:
        return binomial_interval(round(mean) * n, n)
    effective = float(n if n < 2 else min(max(n * spread / variance, n), most) if variance > 0 else most)
    return binomial_interval(mean * effective, effective)
