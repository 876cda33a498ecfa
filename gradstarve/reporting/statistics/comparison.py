"""Two groups of seeds side by side: how far apart, how sure, and what this many seeds could have shown."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from scipy import stats
from statsmodels.stats.meta_analysis import effectsize_smd

from gradstarve.reporting.statistics.permutation import Permutation, permutation_test
from gradstarve.reporting.statistics.power import detectable_difference, pooled_sd
from gradstarve.reporting.statistics.ranks import (
    hodges_lehmann,
    hodges_lehmann_interval,
    mann_whitney,
    probability_of_improvement,
)
from gradstarve.reporting.statistics.rationals import Number, exact_fractions
from gradstarve.reporting.statistics.summary import mean_of, standard_deviation


@dataclass(frozen=True)
class Welch:
    """Welch's t-test: unequal variances, degrees of freedom by Satterthwaite, two-sided p."""

    t: float
    df: float
    p: float


@dataclass(frozen=True)
class Comparison:
    """Group a against group b, in the unit of the values. What is undefined is None, and `reasons[field]` says why.

    difference: mean(a) - mean(b). ci95: Welch's interval of it.
    mann_whitney_exact: False where `mann_whitney_p` is the normal approximation (too many values).
    hodges_lehmann: median of all a[i] - b[j], with an exact interval whose confidence is hodges_lehmann_confidence.
    hedges_g: difference in pooled standard deviations, times 1 - 3 / (4 (n_a + n_b) - 9) against its small-sample bias.
    probability_of_improvement: share of pairs with a[i] > b[j], equal ones as half.
    every_a_above_every_b: the smallest of a exceeds the largest of b.
    detectable_difference: the true difference that a t-test at 5 % would find with probability 0.8 at these n, if the
    pooled standard deviation is the true one.
    """

    n_a: int
    n_b: int
    difference: float
    ci95: tuple[float, float] | None
    welch: Welch | None
    permutation: Permutation
    mann_whitney_p: float
    mann_whitney_exact: bool
    hodges_lehmann: float | None
    hodges_lehmann_ci95: tuple[float, float] | None
    hodges_lehmann_confidence: float | None
    hedges_g: float | None
    probability_of_improvement: float
    every_a_above_every_b: bool
    detectable_difference: float | None
    reasons: dict[str, str]


def compare(a: Sequence[Number], b: Sequence[Number]) -> Comparison:
    """Compare two groups. Raises `ValueError` for an empty group or a value that is not finite."""
    if not len(a) or not len(b):
        raise ValueError("a comparison needs a value in each group")
    a_exact, b_exact = exact_fractions(a), exact_fractions(b)
    n_a, n_b = len(a_exact), len(b_exact)
    sd_a, sd_b = standard_deviation(a_exact), standard_deviation(b_exact)
    reasons: dict[str, str] = {}
    welch, ci95 = None, None
    if sd_a is None or sd_b is None:
        reasons |= dict.fromkeys(("welch", "ci95"), "a group of one value has no variance")
    elif sd_a == 0 and sd_b == 0:
        reasons |= dict.fromkeys(("welch", "ci95"), "neither group has any spread")
    else:
        welch, ci95 = _welch(a_exact, b_exact)
    hedges_g, detectable = None, None
    if sd_a is None or sd_b is None:
        reasons |= dict.fromkeys(("hedges_g", "detectable_difference"), "a group of one value has no variance")
    elif (spread := pooled_sd(sd_a, n_a, sd_b, n_b)) == 0:
        reasons |= dict.fromkeys(("hedges_g", "detectable_difference"), "neither group has any spread")
    else:
        difference = float(mean_of(a_exact) - mean_of(b_exact))
        hedges_g = float(effectsize_smd(difference, sd_a, n_a, 0.0, sd_b, n_b)[0])
        detectable = detectable_difference(spread, n_a, n_b)
    shift, interval = hodges_lehmann(a_exact, b_exact), hodges_lehmann_interval(a_exact, b_exact)
    if shift is None:
        reasons["hodges_lehmann"] = "more pairs than can be held"
    if interval is None:
        no_interval = f"{n_a} v {n_b} values are too {'few' if n_a * n_b < 100 else 'many'} for an exact 95 % interval"
        reasons |= dict.fromkeys(("hodges_lehmann_ci95", "hodges_lehmann_confidence"), no_interval)
    rank_p, rank_test = mann_whitney(a_exact, b_exact)
    return Comparison(
        n_a=n_a,
        n_b=n_b,
        difference=float(mean_of(a_exact) - mean_of(b_exact)),
        ci95=ci95,
        welch=welch,
        permutation=permutation_test(a_exact, b_exact),
        mann_whitney_p=rank_p,
        mann_whitney_exact=rank_test is not None,
        hodges_lehmann=shift,
        hodges_lehmann_ci95=interval and interval[:2],
        hodges_lehmann_confidence=interval and interval[2],
        hedges_g=hedges_g,
        probability_of_improvement=probability_of_improvement(a_exact, b_exact),
        every_a_above_every_b=min(a_exact) > max(b_exact),
        detectable_difference=detectable,
        reasons=reasons,
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values within the family of all those given; None (no test) is not in it and stays None."""
    # Not statsmodels' multipletests: it collects garbage at every call, which takes longer than a table.
    family = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for smaller, (p, place) in enumerate(family):
        largest = max(largest, min(1.0, (len(family) - smaller) * p))
        adjusted[place] = largest
    return adjusted


def _welch(a: Sequence[Fraction], b: Sequence[Fraction]) -> tuple[Welch, tuple[float, float]]:
    # The test does not see a common shift and scale, but floats do: brought near 0, no digit is lost to a large mean,
    # and no square overflows.
    origin = min(*a, *b)
    scale = max(*a, *b) - origin
    a_near, b_near = ([float((value - origin) / scale) for value in group] for group in (a, b))
    with warnings.catch_warnings():
        # scipy warns of lost precision where one group has no spread at all; its values are then exactly equal.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        test = stats.ttest_ind(a_near, b_near, equal_var=False)
        low, high = (float(end) * float(scale) for end in test.confidence_interval(0.95))
    return Welch(float(test.statistic), float(test.df), float(test.pvalue)), (low, high)
