from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gradstarve.reporting.statistics import permutation_test, sign_flip_test
from gradstarve.reporting.statistics.subset_sums import HalvedSums, PackedSums, subset_sums

counts = st.lists(st.integers(-3, 6), min_size=1, max_size=5)


def by_scipy(a: Sequence[int], b: Sequence[int], two_sided: bool) -> float:
    # In integers: (n_a + n_b) sum(a) - n_a total is the difference of means, times n_a n_b.
    def statistic(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        difference = len(b) * x.sum(axis=axis) - len(a) * y.sum(axis=axis)
        return abs(difference) if two_sided else difference

    return float(
        stats.permutation_test((a, b), statistic, alternative="greater", n_resamples=np.inf, vectorized=True).pvalue
    )


@given(*[st.lists(st.integers(-3, 6), min_size=2, max_size=6)] * 2)
@settings(max_examples=150, deadline=None)
def test_agrees_with_scipy_with_ties(a: list[int], b: list[int]) -> None:
    test = permutation_test(a, b)
    assert test.exact and test.relabellings == math.comb(len(a) + len(b), len(a))
    assert test.p_two_sided == pytest.approx(by_scipy(a, b, two_sided=True), abs=1e-12)
    assert test.p_greater == pytest.approx(by_scipy(a, b, two_sided=False), abs=1e-12)


@given(counts, counts)
def test_invariants(a: list[int], b: list[int]) -> None:
    test, swapped = permutation_test(a, b), permutation_test(b, a)
    assert test.p_two_sided == swapped.p_two_sided and test.p_greater == swapped.p_less
    assert test.p_two_sided >= test.smallest_p and test.p_greater >= test.smallest_p_greater
    assert test == permutation_test([7 * x - 5 for x in a], [7 * x - 5 for x in b])
    # As accuracies in floats, and as percentages, the ties are the same ties.
    assert test == permutation_test([x / 1319 for x in a], [x / 1319 for x in b])
    assert test == permutation_test([100 * (x / 1319) for x in a], [100 * (x / 1319) for x in b])
    if len(a) == len(b):
        assert test.p_doubled == test.p_two_sided


@given(counts, counts)
def test_smallest_p_is_that_of_the_best_labelling(a: list[int], b: list[int]) -> None:
    pooled = [*a, *b]
    labellings = [set(chosen) for chosen in itertools.combinations(range(len(pooled)), len(a))]
    every = [
        permutation_test([pooled[i] for i in chosen], [x for i, x in enumerate(pooled) if i not in chosen])
        for chosen in labellings
    ]
    test = permutation_test(a, b)
    assert test.smallest_p == min(other.p_two_sided for other in every)
    assert test.smallest_p_greater == min(other.p_greater for other in every)


def test_the_papers_full_separation_of_7_and_5() -> None:
    sign, drgrpo = [70.1, 71.0, 71.3, 71.5, 71.9, 72.2, 73.0], [66.0, 67.1, 67.5, 68.0, 69.9]
    test = permutation_test(sign, drgrpo)
    assert test.p_greater == 1 / 792 and test.relabellings == 792
    assert test.p_doubled == 2 / 792
    assert round(test.p_greater, 4) == 0.0013


def test_three_against_three_cannot_be_significant() -> None:
    test = permutation_test([4, 5, 6], [1, 2, 3])
    assert (test.p_two_sided, test.smallest_p) == (0.1, 0.1)
    assert (test.p_greater, test.smallest_p_greater) == (0.05, 0.05)


def test_unequal_groups_two_sided_is_not_the_doubled_tail() -> None:
    # Of the 10 ways to choose 2 of 0, 0, 0, 0, 1 none but those with the 1 (4 of them) are as far, on either side.
    test = permutation_test([1, 0], [0, 0, 0])
    assert (test.p_two_sided, test.p_greater, test.p_doubled) == (0.4, 0.4, 0.8)


def test_equal_values_and_single_values() -> None:
    assert permutation_test([3, 3], [3, 3, 3]).p_two_sided == 1
    assert permutation_test([3, 3], [3, 3, 3]).smallest_p == 1
    assert permutation_test([1], [2]).p_two_sided == 1
    assert permutation_test([9], [1, 2, 3]).p_greater == 0.25
    with pytest.raises(ValueError, match="a value in each group"):
        permutation_test([], [1])


def test_a_float_tie_is_a_tie() -> None:
    # 0.1 + 0.2 is not 0.3 in floats, but the mean of 0.1, 0.2 is that of 0.3, 0 here: all 6 relabellings by hand
    # differ by 0, 0.1, 0.1, 0.1, 0.1 or 0 (differences of sums 0, .2, .4 in pairs).
    test = permutation_test([0.1, 0.2], [0.3, 0.0])
    assert test.p_two_sided == 1
    assert test.p_greater == permutation_test([1, 2], [3, 0]).p_greater == 4 / 6


@pytest.mark.parametrize("n", [20, 50])
@pytest.mark.parametrize("spread", [1, 12, 400])
def test_exact_beyond_enumeration(n: int, spread: int) -> None:
    generator = random.Random(n + spread)
    a = [generator.randint(0, spread) for _ in range(n)]
    b = [generator.randint(0, spread) for _ in range(n)]
    test = permutation_test(a, b)
    assert test.exact and test.relabellings == math.comb(2 * n, n)
    # The normal approximation of the permutation distribution, with a correction for the steps, is good at these n.
    pooled = np.array([*a, *b])
    sd = math.sqrt(n * n / (2 * n) * pooled.var(ddof=1))
    step = math.gcd(*(pooled - pooled.min()).tolist()) or 1
    z = (sum(a) - n * pooled.mean() - step / 2) / sd
    assert test.p_greater == pytest.approx(stats.norm.sf(z), abs=0.01)


def test_two_valued_data_is_fishers_exact_test() -> None:
    for a, b in ((3, 9), (20, 31), (0, 5), (26, 25)):
        groups = [1] * a + [0] * (50 - a), [1] * b + [0] * (50 - b)
        fisher = stats.fisher_exact([[a, 50 - a], [b, 50 - b]])
        greater = stats.fisher_exact([[a, 50 - a], [b, 50 - b]], alternative="greater")
        assert permutation_test(*groups).p_two_sided == pytest.approx(fisher.pvalue, rel=1e-9)
        assert permutation_test(*groups).p_greater == pytest.approx(greater.pvalue, rel=1e-9)


def test_full_separation_of_50_and_50_is_one_in_all() -> None:
    test = permutation_test(range(100, 150), range(50))
    assert test.p_greater == float(Fraction(1, math.comb(100, 50)))
    assert test.p_two_sided == test.smallest_p == float(Fraction(2, math.comb(100, 50)))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=11), st.data())
@settings(deadline=None)
def test_both_ways_of_counting_agree_with_enumeration(values: list[int], data: st.DataObject) -> None:
    size = data.draw(st.none() | st.integers(0, len(values)))
    threshold = data.draw(st.integers(-1, sum(values) + 1))
    sizes = range(len(values) + 1) if size is None else [size]
    count = sum(sum(chosen) >= threshold for k in sizes for chosen in itertools.combinations(values, k))
    packed, halved = subset_sums(values, size), subset_sums([value * 10**12 for value in values], size)
    assert packed is not None and halved is not None
    if max(values) > 0 and size != 0:
        assert isinstance(packed, PackedSums) and isinstance(halved, HalvedSums)
    assert packed.at_least(threshold) == halved.at_least(threshold * 10**12) == count


def test_fine_values_are_exact_by_halves_and_drawn_beyond() -> None:
    generator = random.Random(5)
    a, b = ([generator.random() for _ in range(15)] for _ in range(2))
    fine = permutation_test(a, b)
    assert fine.exact and fine.relabellings == math.comb(30, 15)
    # Rounded to 1/1000 the distribution is nearly the same, and counted in the other way.
    rounded = permutation_test([round(x, 3) for x in a], [round(x, 3) for x in b])
    assert fine.p_two_sided == pytest.approx(rounded.p_two_sided, abs=2e-3)
    a, b = ([generator.random() for _ in range(30)] for _ in range(2))
    drawn = permutation_test(a, b, resamples=4999, seed=1)
    assert not drawn.exact and drawn.relabellings == 5000 and drawn.smallest_p == 1 / 5000
    assert drawn == permutation_test(a, b, resamples=4999, seed=1)
    rounded = permutation_test([round(x, 3) for x in a], [round(x, 3) for x in b])
    assert rounded.exact and drawn.p_two_sided == pytest.approx(rounded.p_two_sided, abs=0.03)


def test_drawn_p_is_never_zero() -> None:
    generator = random.Random(6)
    a = [10 + generator.random() for _ in range(30)]
    b = [generator.random() for _ in range(30)]
    assert permutation_test(a, b, resamples=999).p_two_sided == 1 / 1000


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8))
@settings(deadline=None)
def test_sign_flip_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    a, b = zip(*pairs, strict=True)
    test = sign_flip_test(a, b)
    differences = np.array(a) - np.array(b)
    for p, statistic in (
        (test.p_two_sided, lambda x, axis: abs(x.sum(axis=axis))),
        (test.p_greater, lambda x, axis: x.sum(axis=axis)),
    ):
        reference = stats.permutation_test(
            (differences,), statistic, permutation_type="samples", alternative="greater", n_resamples=np.inf
        )
        assert p == pytest.approx(reference.pvalue)


def test_sign_flip_by_hand() -> None:
    test = sign_flip_test([1.1, 2.2, 3.3], [0, 0, 0])
    assert (test.p_two_sided, test.p_greater, test.smallest_p, test.flips) == (0.25, 0.125, 0.25, 8)
    assert sign_flip_test([5, 5], [5, 5]).p_two_sided == 1
    with pytest.raises(ValueError, match="come in pairs"):
        sign_flip_test([1, 2], [1])
