from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gradstarve.reporting.statistics import (
    compare,
    compare_paired,
    detectable_difference,
    holm,
    mcnemar_exact,
    seeds_needed,
)

few = st.lists(st.integers(0, 40), min_size=2, max_size=8)


def same_digits(ours: float, published: Decimal, most: int = 13) -> bool:
    """Does `ours` round to the published number, at as many digits as were published, but no more than `most`?"""
    digits = min(most, len(published.normalize().as_tuple().digits))
    return f"{ours:.{digits - 1}e}" == f"{float(published):.{digits - 1}e}"


def test_published_values(shared_data: Path) -> None:
    rows = [
        json.loads(line, parse_float=Decimal)
        for line in (shared_data / "published_stat_checks.jsonl").read_text().splitlines()
    ]
    assert len(rows) >= 10
    for row in rows:
        published = row["published"]
        if row["test"] == "welch_two_sided":
            comparison = compare(row["a"], row["b"])
            assert comparison.welch is not None and comparison.ci95 is not None
            ours = {"t": comparison.welch.t, "df": comparison.welch.df, "p": comparison.welch.p}
            ci95 = comparison.ci95
        else:
            assert row["test"] == "paired_t_two_sided"
            paired = compare_paired(row["a"], row["b"])
            assert paired.t is not None and paired.df is not None and paired.p is not None and paired.ci95 is not None
            ours = {"t": paired.t, "df": paired.df, "p": paired.p}
            ci95 = paired.ci95
        for name in ours.keys() & published.keys():
            assert same_digits(ours[name], Decimal(published[name])), (row["source"], name, ours[name])
        for end, of_published in zip(ci95, published.get("ci95_diff", ci95), strict=True):
            # The published ends of the first row are right to 7 digits; its exact ones are in the next test.
            assert same_digits(end, Decimal(of_published), most=7), (row["source"], "ci95", end)


def test_right_beyond_the_published_digits(shared_data: Path) -> None:
    # Evaluated from the exact fractions with 40 digits (mpmath); R's own last digits differ from these.
    row = json.loads((shared_data / "published_stat_checks.jsonl").read_text().splitlines()[0], parse_float=Decimal)
    comparison = compare(row["a"], row["b"])
    assert comparison.welch is not None
    assert comparison.welch.t == pytest.approx(-2.45535639828600506, rel=1e-14)
    assert comparison.welch.df == pytest.approx(24.9885292902314144, rel=1e-14)
    assert comparison.welch.p == pytest.approx(0.0213780014628670325, rel=1e-14)
    assert comparison.ci95 == pytest.approx((-3.9840962671409281, -0.349237066192405229), rel=1e-14)


def test_a_comparison_by_hand() -> None:
    comparison = compare([3, 5, 7], [1, 2, 3])
    assert comparison.difference == 3
    assert comparison.welch is not None
    assert comparison.welch.t == pytest.approx(3 / math.sqrt(4 / 3 + 1 / 3))
    assert comparison.welch.df == pytest.approx((5 / 3) ** 2 / ((4 / 3) ** 2 / 2 + (1 / 3) ** 2 / 2))
    # Pooled variance (4 + 1) / 2, correction 1 - 3 / 15.
    assert comparison.hedges_g == pytest.approx(0.8 * 3 / math.sqrt(2.5))
    assert comparison.probability_of_improvement == pytest.approx(8.5 / 9)
    # Differences 2 1 0 4 3 2 6 5 4.
    assert comparison.hodges_lehmann == 3
    assert not comparison.every_a_above_every_b
    assert comparison.hodges_lehmann_ci95 is None and "too few" in comparison.reasons["hodges_lehmann_ci95"]


@given(few, few)
@settings(deadline=None)
def test_the_other_way_round(a: list[int], b: list[int]) -> None:
    one, other = compare(a, b), compare(b, a)
    assert one.difference == -other.difference
    assert one.mann_whitney_p == other.mann_whitney_p
    assert one.probability_of_improvement == pytest.approx(1 - other.probability_of_improvement)
    assert one.hodges_lehmann == -(other.hodges_lehmann or 0)
    if one.hodges_lehmann_ci95 is not None and other.hodges_lehmann_ci95 is not None:
        assert one.hodges_lehmann_ci95 == (-other.hodges_lehmann_ci95[1], -other.hodges_lehmann_ci95[0])
    if one.welch is not None and other.welch is not None:
        assert one.welch.t == pytest.approx(-other.welch.t) and one.welch.p == pytest.approx(other.welch.p)
        assert one.ci95 is not None and one.ci95[0] <= one.difference <= one.ci95[1]
        # The test at 5 % and the 95 % interval say the same.
        if abs(one.welch.p - 0.05) > 1e-9:
            assert (one.welch.p < 0.05) == (not one.ci95[0] <= 0 <= one.ci95[1])
    for field in one.reasons:
        assert getattr(one, field) is None


@given(few, few)
@settings(deadline=None, max_examples=60)
def test_mann_whitney_is_scipys_where_scipy_is_exact(a: list[int], b: list[int]) -> None:
    ours = compare(a, b)
    assert ours.mann_whitney_exact
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    assert ours.probability_of_improvement == pytest.approx(wins / (len(a) * len(b)))
    if len(set(a + b)) == len(a + b):
        assert ours.mann_whitney_p == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)
    elif len(a) == len(b) <= 4:
        exact = stats.mannwhitneyu(a, b, method=stats.PermutationMethod(n_resamples=np.inf))
        assert ours.mann_whitney_p == pytest.approx(exact.pvalue)


def test_hodges_lehmann_interval_inverts_the_exact_test() -> None:
    generator = random.Random(2)
    for n_a, n_b in ((4, 4), (5, 7), (9, 3), (12, 10)):
        a, b = [generator.random() + 0.3 for _ in range(n_a)], [generator.random() for _ in range(n_b)]
        comparison = compare(a, b)
        assert comparison.hodges_lehmann_ci95 is not None and comparison.hodges_lehmann_confidence is not None
        assert 0.95 <= comparison.hodges_lehmann_confidence < 1
        low, high = comparison.hodges_lehmann_ci95
        assert comparison.hodges_lehmann is not None and low <= comparison.hodges_lehmann <= high
        for shift, kept in ((low + 1e-9, True), (high - 1e-9, True), (low - 1e-9, False), (high + 1e-9, False)):
            p = stats.mannwhitneyu([x - shift for x in a], b, method="exact").pvalue
            assert (p > 0.05) == kept


def test_hodges_lehmann_interval_as_published() -> None:
    # Hollander and Wolfe's water transfer data, as in R's help of wilcox.test, whose exact interval is 95.2 % and
    # ends at -0.15 and 0.76 (b against a; the estimate is 0.305).
    at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    weeks_12_to_26 = [1.15, 0.88, 0.90, 0.74, 1.21]
    comparison = compare(at_term, weeks_12_to_26)
    assert comparison.hodges_lehmann == pytest.approx(0.305)
    assert comparison.hodges_lehmann_ci95 == pytest.approx((-0.15, 0.76))
    assert comparison.permutation.exact
    assert comparison.mann_whitney_p == pytest.approx(2 * 0.1272, abs=1e-4)


def test_undefined_is_none_with_its_reason() -> None:
    flat = compare([0.1] * 3, [0.2] * 3)
    assert (flat.welch, flat.ci95, flat.hedges_g, flat.detectable_difference) == (None,) * 4
    assert flat.reasons["welch"] == "neither group has any spread"
    assert flat.permutation.p_two_sided == 0.1 and flat.every_a_above_every_b is False
    single = compare([1], [2, 3])
    assert single.welch is None and single.difference == -1.5 and "one value" in single.reasons["welch"]
    one_flat = compare([0.1] * 3, [0.2, 0.3, 0.4])
    assert one_flat.welch is not None and one_flat.welch.df == pytest.approx(2)
    with pytest.raises(ValueError, match="a value in each group"):
        compare([], [1])


def test_a_large_mean_costs_no_digits() -> None:
    small, large = (
        compare([1, 2, 4], [5, 7, 6]),
        compare([10**15 + x for x in (1, 2, 4)], [10**15 + x for x in (5, 7, 6)]),
    )
    assert small == large


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, None, 0.9]) == [1.0, None, 1.0]
    assert holm([]) == [] and holm([None]) == [None]


def test_power_both_ways() -> None:
    # Cohen's tables: 64 in each group for half a standard deviation, 17 for one.
    assert seeds_needed(0.5, 1.0) == 64
    assert seeds_needed(-2.0, 2.0) == 17
    assert seeds_needed(100.0, 1.0) == 2 and seeds_needed(1.0, 0.0) == 2
    assert seeds_needed(0.0, 1.0) is None and seeds_needed(0.0, 0.0) is None
    for n in (3, 5, 7, 20):
        difference = detectable_difference(0.7, n, n)
        assert difference is not None
        assert seeds_needed(difference * 1.0001, 0.7) == n
        assert seeds_needed(difference * 0.9999, 0.7) == n + 1
    assert detectable_difference(0.7, 1, 9) is None


def test_detectable_difference_is_seen_eight_times_in_ten() -> None:
    difference = detectable_difference(2.0, 7, 5)
    assert difference is not None
    generator = np.random.default_rng(3)
    a_RS, b_RS = generator.normal(difference, 2.0, (20_000, 7)), generator.normal(0.0, 2.0, (20_000, 5))
    seen = float(np.mean(stats.ttest_ind(a_RS, b_RS, axis=1).pvalue < 0.05))
    assert seen == pytest.approx(0.8, abs=0.012)  # four standard errors


def test_mcnemar_by_hand() -> None:
    a = [True] * 10 + [True] * 6 + [False] * 1 + [False] * 3
    b = [True] * 10 + [False] * 6 + [True] * 1 + [False] * 3
    result = mcnemar_exact(a, b)
    assert (result.both, result.only_a, result.only_b, result.neither) == (10, 6, 1, 3)
    assert result.p == pytest.approx(2 * (1 + 7) / 2**7)
    assert result.difference == 0.25
    assert mcnemar_exact(a, a).p == 1
    assert mcnemar_exact([True, False], [False, True]).p == 1
    with pytest.raises(ValueError, match="same questions"):
        mcnemar_exact([True], [True, False])
    with pytest.raises(ValueError, match="needs a question"):
        mcnemar_exact([], [])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_is_the_binomial_test_of_the_disagreements(pairs: list[tuple[bool, bool]]) -> None:
    a, b = zip(*pairs, strict=True)
    result = mcnemar_exact(a, b)
    disagreements = result.only_a + result.only_b
    expected = stats.binomtest(result.only_a, disagreements).pvalue if disagreements else 1.0
    assert result.p == pytest.approx(expected)
    assert result.difference == pytest.approx(np.mean(a) - np.mean(b))


def test_paired_without_spread_says_why() -> None:
    paired = compare_paired([0.3, 0.4, 0.5], [0.1, 0.2, 0.3])
    assert (paired.t, paired.p, paired.reason) == (None, None, "all differences are equal")
    assert paired.difference == 0.2 and paired.sign_flip.p_two_sided == 0.25
