from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gradstarve.reporting.statistics import exact_fractions, summarise


def test_five_values_by_hand() -> None:
    summary = summarise([1, 2, 3, 4, 10])
    assert (summary.n, summary.mean, summary.median, summary.minimum, summary.maximum) == (5, 4, 3, 1, 10)
    assert summary.sd == pytest.approx(math.sqrt(50 / 4))
    assert summary.iqm == 3  # 1 and 10 are cut
    # The 97.5 % point of t with 4 degrees of freedom, from any table: 2.776.
    half = 2.7764451051977987 * math.sqrt(50 / 4 / 5)
    assert summary.ci95 == pytest.approx((4 - half, 4 + half))


def test_what_few_values_cannot_say_is_none() -> None:
    one = summarise([0.5])
    assert (one.mean, one.sd, one.ci95, one.iqm) == (0.5, None, None, None)
    three = summarise([1, 2, 4])
    assert three.sd is not None and three.ci95 is not None and three.iqm is None
    assert summarise([1, 2, 4, 8]).iqm == 3


def test_equal_values_have_no_spread_at_all() -> None:
    # In floats the mean of three 0.1 isn't 0.1, and numpy's standard deviation isn't 0.
    assert np.std([0.1] * 3, ddof=1) != 0
    summary = summarise([0.1] * 3)
    assert (summary.mean, summary.sd, summary.ci95) == (0.1, 0.0, (0.1, 0.1))


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf, 1.0], [Decimal("NaN")]])
def test_nothing_and_not_a_number_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no value|not a finite number"):
        summarise(values)


@given(st.lists(st.integers(0, 1319), min_size=2, max_size=12))
def test_agrees_with_numpy_and_scipy(counts: list[int]) -> None:
    values = [count / 1319 for count in counts]
    summary = summarise(values)
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.sd == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert summary.median == pytest.approx(np.median(values))
    if len(values) >= 4:
        assert summary.iqm == pytest.approx(stats.trim_mean(values, 0.25))
    assert summary.ci95 is not None and summary.ci95[0] <= summary.mean <= summary.ci95[1]


@pytest.mark.parametrize("questions", [30, 500, 1319, 7473])
def test_an_accuracy_is_read_as_its_count_of_questions(questions: int) -> None:
    for count in range(0, questions + 1, 7):
        share, percent = Fraction(count, questions), Fraction(100 * count, questions)
        as_written = Decimal(repr(count / questions))
        assert exact_fractions([count / questions, as_written, np.float64(count) / questions]) == [share] * 3
        assert exact_fractions([100 * count / questions, 100 * (count / questions)]) == [percent] * 2


@given(st.decimals(-1000, 1000, places=6))
def test_a_short_decimal_is_read_as_written(value: Decimal) -> None:
    assert exact_fractions([value, float(value)]) == [Fraction(value)] * 2


def test_a_long_decimal_keeps_all_its_digits() -> None:
    text = "0.123456789012345678901234567890"
    assert exact_fractions([Decimal(text)]) == [Fraction(text)]


def test_a_float_of_no_simple_fraction_is_its_shortest_decimal() -> None:
    generator = random.Random(0)
    values = [generator.random() for _ in range(2000)]
    kept = sum(
        fraction == Fraction(repr(value)) for value, fraction in zip(values, exact_fractions(values), strict=True)
    )
    assert kept >= 1999


def test_extremes_are_read_not_lost() -> None:
    assert exact_fractions([5e-324, 1e300, -0.0]) == [Fraction("5e-324"), Fraction(10) ** 300, Fraction(0)]
