"""What the order of the values says, whatever their distribution: Mann-Whitney, Hodges-Lehmann, P(a > b)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from gradstarve.reporting.statistics.permutation import Permutation, permutation_test
from gradstarve.reporting.statistics.rationals import common_integers
from gradstarve.reporting.statistics.subset_sums import subset_sums

_MOST_PAIRS = 4_000_000


def mann_whitney(a: Sequence[Fraction], b: Sequence[Fraction]) -> tuple[float, Permutation | None]:
    """Two-sided p of the rank-sum test, and the exact test that gave it.

    Exact, ties included: the label-permutation test of the midranks. Without ties it is scipy's method='exact'. Where
    there are too many values for that, scipy's normal approximation with corrections for ties and continuity, and None.
    """
    doubled = _doubled_midranks([*a, *b])
    exact = permutation_test(doubled[: len(a)], doubled[len(a) :], resamples=1)
    if exact.exact:
        return exact.p_two_sided, exact
    approximate = stats.mannwhitneyu(doubled[: len(a)], doubled[len(a) :], method="asymptotic")
    return float(approximate.pvalue), None


def probability_of_improvement(a: Sequence[Fraction], b: Sequence[Fraction]) -> float:
    """Share of pairs in which a's value is the larger, an equal pair counted as half."""
    n_a, n_b = len(a), len(b)
    doubled_rank_sum = sum(_doubled_midranks([*a, *b])[:n_a])
    return float(Fraction(doubled_rank_sum - n_a * (n_a + 1), 2 * n_a * n_b))


def hodges_lehmann(a: Sequence[Fraction], b: Sequence[Fraction]) -> float | None:
    """The median of all differences a[i] - b[j]: by how much a is shifted. None beyond 4 million pairs."""
    differences = _pairwise_differences(a, b)
    return None if differences is None else float(np.median(differences))


def hodges_lehmann_interval(a: Sequence[Fraction], b: Sequence[Fraction]) -> tuple[float, float, float] | None:
    """(low, high, confidence) of the shift: the shifts that an exact two-sided Mann-Whitney test at 5 % keeps.

    The confidence is at least 0.95 (it moves in steps, as the test's p does) and, with ties, larger still. None where
    no interval reaches 0.95 (3 v 3: at most 0.90), or where there are too many values. Hollander and Wolfe, chapter 4.
    """
    n_a, n_b = len(a), len(b)
    differences = _pairwise_differences(a, b)
    small, large = sorted((n_a, n_b))
    # The null distribution without ties: U is the sum of the smaller group's ranks less its smallest.
    rank_sums = subset_sums(range(n_a + n_b), small)
    if differences is None or rank_sums is None:
        return None
    smallest_sum = small * (small - 1) // 2

    def tail(u: int) -> Fraction:
        return 1 - Fraction(rank_sums.at_least(smallest_sum + u + 1), rank_sums.subsets)

    # The largest c with P(U <= c - 1) <= 0.025: the interval is from the c-th smallest difference to the c-th largest.
    low, high = 0, small * large // 2 + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(middle - 1) <= Fraction(1, 40) else (low, middle)
    if low == 0:
        return None
    ordered = np.sort(differences)
    return float(ordered[low - 1]), float(ordered[len(ordered) - low]), float(1 - 2 * tail(low - 1))


def _doubled_midranks(values: Sequence[Fraction]) -> list[int]:
    integers, _ = common_integers(values)
    order = {integer: place for place, integer in enumerate(sorted(set(integers)))}
    midranks = stats.rankdata([order[integer] for integer in integers])
    return [int(doubled) for doubled in 2 * midranks]


def _pairwise_differences(a: Sequence[Fraction], b: Sequence[Fraction]) -> np.ndarray[Any, Any] | None:
    if len(a) * len(b) > _MOST_PAIRS:
        return None
    if len(a) * len(b) <= 10_000:
        return np.array([float(x - y) for x in a for y in b])
    origin = min(*a, *b)
    a_from_origin, b_from_origin = (np.array([float(value - origin) for value in group]) for group in (a, b))
    return (a_from_origin[:, None] - b_from_origin[None, :]).ravel()
