"""The label-permutation test of a difference of means, and the sign-flip test of paired differences: exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from gradstarve.reporting.statistics.rationals import Number, common_integers, exact_fractions
from gradstarve.reporting.statistics.subset_sums import SubsetSums, subset_sums

_MOST_LABELS_DEALT = 60_000_000  # some seconds


@dataclass(frozen=True)
class Permutation:
    """p values of a permutation test, each a count of relabellings over all of them.

    p_two_sided: share of relabellings whose absolute difference of means is at least the observed.
    p_greater, p_less: share whose difference is at least, at most, the observed.
    p_doubled: twice the smaller tail, at most 1: what `scipy.stats.permutation_test` calls two-sided.
    smallest_p: the smallest p_two_sided that any labelling of these values could give (3 v 3 without ties: 0.10);
    smallest_p_greater: the same of p_greater. Above 0.05, no data of this shape could have been significant.
    relabellings: how many there are; where `exact` is False, the random ones drawn and the observed one, so that
    every p, and smallest_p, is a multiple of 1 / relabellings.
    """

    p_two_sided: float
    p_greater: float
    p_less: float
    p_doubled: float
    smallest_p: float
    smallest_p_greater: float
    relabellings: int
    exact: bool


def permutation_test(a: Sequence[Number], b: Sequence[Number], resamples: int = 99_999, seed: int = 0) -> Permutation:
    """Exact test of whether the labels `a` and `b` were dealt at random; the statistic is mean(a) - mean(b).

    Values become integer multiples of a common unit (see `exact_fractions`); differences are compared as integers, so
    ties are ties. Exact for counts of questions (50 v 50 and more) and for any values up to 44 in all. Beyond both,
    `resamples` random relabellings from `seed` (fewer where there are more than 600 values), the observed one counted
    with them (Phipson and Smyth 2010), and `exact` is False.
    """
    if not len(a) or not len(b):
        raise ValueError("a permutation test needs a value in each group")
    integers, _ = common_integers(exact_fractions([*a, *b]))
    return permutation_of_integers(integers, len(a), resamples, seed)


def permutation_of_integers(integers: Sequence[int], n_a: int, resamples: int, seed: int) -> Permutation:
    """`permutation_test` of integers of at least 0, of which the first `n_a` are group a."""
    total, observed, ordered = sum(integers), sum(integers[:n_a]), sorted(integers)
    n = len(integers)
    exact_sums = _sums_of_group(integers, n_a)
    exact = exact_sums is not None
    sums = exact_sums or _drawn_sums(integers, n_a, observed, min(resamples, _MOST_LABELS_DEALT // n), seed)

    def share_as_far(sum_a: int) -> Fraction:
        # mean(a) - mean(b) = (n * sum_a - n_a * total) / (n_a * n_b): the numerator decides.
        distance = abs(n * sum_a - n_a * total)
        if distance == 0:
            return Fraction(1)
        above = sums.at_least(-((-n_a * total - distance) // n))
        below = sums.subsets - sums.at_least((n_a * total - distance) // n + 1)
        return Fraction(above + below, sums.subsets)

    greater = Fraction(sums.at_least(observed), sums.subsets)
    less = 1 - Fraction(sums.at_least(observed + 1), sums.subsets)
    lowest, highest = sum(ordered[:n_a]), sum(ordered[n - n_a :])
    farthest = max(lowest, highest, key=lambda sum_a: abs(n * sum_a - n_a * total))
    floor = Fraction(1, sums.subsets)
    return Permutation(
        p_two_sided=float(share_as_far(observed)),
        p_greater=float(greater),
        p_less=float(less),
        p_doubled=float(min(Fraction(1), 2 * min(greater, less))),
        smallest_p=float(share_as_far(farthest) if exact else floor),
        smallest_p_greater=float(Fraction(sums.at_least(highest), sums.subsets) if exact else floor),
        relabellings=sums.subsets,
        exact=exact,
    )


@dataclass(frozen=True)
class _Complement:
    """Sums of group a, from the sums of group b, where b is the smaller."""

    of_others: SubsetSums
    total: int

    @property
    def subsets(self) -> int:
        return self.of_others.subsets

    def at_least(self, threshold: int) -> int:
        return self.subsets - self.of_others.at_least(self.total - threshold + 1)


@dataclass(frozen=True)
class _DrawnSums:
    """Sums of random relabellings, sorted."""

    drawn: np.ndarray[Any, Any]

    @property
    def subsets(self) -> int:
        return len(self.drawn)

    def at_least(self, threshold: int) -> int:
        return len(self.drawn) - int(np.searchsorted(self.drawn, threshold))


def _sums_of_group(integers: Sequence[int], n_a: int) -> SubsetSums | None:
    n_b = len(integers) - n_a
    if n_a <= n_b:
        return subset_sums(integers, n_a)
    of_others = subset_sums(integers, n_b)
    return None if of_others is None else _Complement(of_others, sum(integers))


def _drawn_sums(integers: Sequence[int], n_a: int, observed: int, resamples: int, seed: int) -> _DrawnSums:
    generator = np.random.default_rng(seed)
    values = np.array(integers, dtype=np.int64 if sum(integers) < 2**62 else object)
    at_once = max(1, 1_000_000 // len(integers))
    drawn = [np.array([observed], dtype=values.dtype)]
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        shuffled = generator.permuted(np.tile(values, (rows, 1)), axis=1)
        drawn.append(shuffled[:, :n_a].sum(axis=1))
    return _DrawnSums(np.sort(np.concatenate(drawn)))


@dataclass(frozen=True)
class SignFlip:
    """p values of a sign-flip test; the fields mean what they mean in `Permutation`."""

    p_two_sided: float
    p_greater: float
    smallest_p: float
    flips: int


def sign_flip_test(a: Sequence[Number], b: Sequence[Number]) -> SignFlip:
    """Exact test of paired values: were the signs of `a[i] - b[i]` dealt at random? All 2**n sign patterns count.

    Only for values that are truly paired: the same seed with the same data order and the same initial weights, say, or
    the same question. Two runs are not paired because both have seed 42.
    """
    if len(a) != len(b):
        raise ValueError(f"paired values come in pairs, but there are {len(a)} and {len(b)}")
    if not len(a):
        raise ValueError("a sign-flip test needs a pair")
    differences = [x - y for x, y in zip(exact_fractions(a), exact_fractions(b), strict=True)]
    scale = math.lcm(*(difference.denominator for difference in differences))
    integers = [int(difference * scale) for difference in differences]
    divisor = math.gcd(*integers) or 1
    sizes = [abs(integer) // divisor for integer in integers]
    sums = subset_sums(sizes, None)
    if sums is None:
        raise ValueError(f"{len(a)} pairs of such fine values are too many for the exact sign-flip test")
    # The signed sum is 2 * (sum of those with a plus) - total, and a plus is dealt to a random subset.
    positive, total = sum(integer // divisor for integer in integers if integer > 0), sum(sizes)
    distance = abs(2 * positive - total)
    above = sums.at_least((total + distance + 1) // 2)
    # The distribution is symmetric about 0.
    two_sided = Fraction(1) if distance == 0 else Fraction(2 * above, sums.subsets)
    smallest = Fraction(1) if total == 0 else Fraction(2 * sums.at_least(total), sums.subsets)
    return SignFlip(
        p_two_sided=float(two_sided),
        p_greater=float(Fraction(sums.at_least(positive), sums.subsets)),
        smallest_p=float(smallest),
        flips=sums.subsets,
    )
