"""The expected gradient of an advantage that is a function of (n_plus, G), by enumeration.

One prompt with success probability p, one group of G independent completions, q = 1 - p. Mean convention, ascent
direction: g = (1/G) sum_i A_i grad log pi(y_i). The sum convention is G times that. On-policy, unclipped, no KL.

    E[g]   = kappa grad p                          kappa = E[A_correct(m + 1) - A_wrong(m)],  m ~ Bin(G - 1, p)
    E[gg'] = a1 M1 + a0 M0 + b grad p grad p'      M1, M0: second moments of the score given right, given wrong

Proofs are in docs/theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradstarve.errors import UserError
from gradstarve.estimators.advantages import Advantage

LARGEST_GROUP = 1000  # C(1000, 500) is still a float


@dataclass(frozen=True)
class Coefficients:
    """What one group gives in expectation, per unit of grad p, in the mean convention.

    `kappa` is the sum of what all-fail, mixed and all-pass groups contribute. `snr` is kappa |grad p| over the
    standard deviation of one group's estimate for the one-parameter policy (scores grad p / p and -grad p / q); None
    where p is 0 or 1, which leaves that policy without a score, and where the estimate never varies.
    """

    kappa: float
    all_fail: float
    mixed: float
    all_pass: float
    snr: float | None

    def sum_kappa(self, group_size: int) -> float:
        """kappa in the sum convention, g = sum_i A_i grad log pi(y_i)."""
        return self.kappa * group_size


@dataclass(frozen=True)
class SecondMoment:
    """E[gg'] = a1 M1 + a0 M0 + b grad p grad p', with M1 = E[ss' | right] and M0 = E[ss' | wrong], s the score."""

    a1: float
    a0: float
    b: float


def binomial(n: int, p: float) -> Iterator[tuple[int, float]]:
    """(m, probability) for m ~ Bin(n, p)."""
    return ((m, math.comb(n, m) * p**m * (1 - p) ** (n - m)) for m in range(n + 1))


def check_setting(p: float, group_size: int) -> None:
    """Raise UserError unless p is a probability and the group size can be enumerated."""
    if not 0 <= p <= 1:
        raise UserError(f"a success probability lies in [0, 1], got {p:g}")
    if not 2 <= group_size <= LARGEST_GROUP:
        raise UserError(f"a group size lies between 2 and {LARGEST_GROUP}, got {group_size}")


def coefficients(advantage: Advantage, p: float, group_size: int) -> Coefficients:
    """kappa, its parts and the snr at success probability p. Raises UserError for a setting that has none."""
    check_setting(p, group_size)
    parts = {"all_fail": 0.0, "mixed": 0.0, "all_pass": 0.0}
    for m, probability in binomial(group_size - 1, p):
        parts["all_pass" if m == group_size - 1 else "mixed"] += probability * advantage(m + 1, group_size)[0]
        parts["all_fail" if m == 0 else "mixed"] -= probability * advantage(m, group_size)[1]
    kappa = sum(parts.values())
    return Coefficients(
        kappa, parts["all_fail"], parts["mixed"], parts["all_pass"], _snr(advantage, p, group_size, kappa)
    )


def _snr(advantage: Advantage, p: float, group_size: int, kappa: float) -> float | None:
    if p in (0.0, 1.0):
        return None
    estimates_N = one_parameter_estimates(advantage, p, group_size)
    probabilities_N = np.array([probability for _, probability in binomial(group_size, p)])
    variance = float(probabilities_N @ (estimates_N - kappa) ** 2)
    scale = float(probabilities_N @ estimates_N**2)
    return None if variance <= 1e-24 * scale or variance == 0 else kappa / math.sqrt(variance)


def one_parameter_estimates(advantage: Advantage, p: float, group_size: int) -> NDArray[np.float64]:
    """One group's estimate in units of grad p for n_plus = 0..G, where the scores are 1/p (right) and -1/q (wrong)."""
    estimates_N = np.zeros(group_size + 1)
    for n_plus in range(group_size + 1):
        correct, wrong = advantage(n_plus, group_size)
        right_sum = n_plus * correct / p if n_plus else 0.0
        wrong_sum = (group_size - n_plus) * wrong / (1 - p) if n_plus < group_size else 0.0
        estimates_N[n_plus] = (right_sum - wrong_sum) / group_size
    return estimates_N


def second_moment(advantage: Advantage, p: float, group_size: int) -> SecondMoment:
    """a1, a0 and b of E[gg'] in the mean convention."""
    check_setting(p, group_size)
    own_right = sum(w * advantage(m + 1, group_size)[0] ** 2 for m, w in binomial(group_size - 1, p))
    own_wrong = sum(w * advantage(m, group_size)[1] ** 2 for m, w in binomial(group_size - 1, p))
    pairs = 0.0
    for m, weight in binomial(group_size - 2, p):
        both_right, both_wrong = advantage(m + 2, group_size)[0], advantage(m, group_size)[1]
        correct, wrong = advantage(m + 1, group_size)
        pairs += weight * (both_right**2 - 2 * correct * wrong + both_wrong**2)
    return SecondMoment(
        p * own_right / group_size, (1 - p) * own_wrong / group_size, (group_size - 1) / group_size * pairs
    )


def advantage_table(advantage: Advantage, group_size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(A_correct, A_wrong) for n_plus = 0..G, with 0 on the side that has no member."""
    pairs = [advantage(n_plus, group_size) for n_plus in range(group_size + 1)]
    correct_N = np.array([pair[0] for pair in pairs])
    wrong_N = np.array([pair[1] for pair in pairs])
    correct_N[0] = 0.0
    wrong_N[group_size] = 0.0
    return correct_N, wrong_N
