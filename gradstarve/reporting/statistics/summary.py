"""What a handful of seeds says about one cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from scipy import stats

from gradstarve.reporting.statistics.rationals import Number, common_integers, exact_fractions

SMALLEST_N_OF_IQM = 4  # with fewer, a quarter of the values is none, and the IQM is the mean


@dataclass(frozen=True)
class Summary:
    """n values, in their own unit.

    sd: the sample standard deviation (ddof=1); None for n < 2.
    iqm: the mean of the values left when a quarter of them, rounded down, is cut off at each end; None for n < 4.
    ci95: 95 % t-interval of the mean, which assumes roughly normal seeds; None for n < 2.
    """

    n: int
    mean: float
    sd: float | None
    median: float
    minimum: float
    maximum: float
    iqm: float | None
    ci95: tuple[float, float] | None


def summarise(values: Sequence[Number]) -> Summary:
    """Describe one cell. Raises `ValueError` where there is no value, or one that is not finite."""
    if not len(values):
        raise ValueError("no value to summarise")
    ordered = sorted(exact_fractions(values))
    n, mean = len(ordered), mean_of(ordered)
    sd = standard_deviation(ordered)
    cut = n // 4
    ci95 = None
    if sd is not None:
        half = float(stats.t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
        ci95 = (float(mean) - half, float(mean) + half)
    return Summary(
        n=n,
        mean=float(mean),
        sd=sd,
        median=float(median(ordered)),
        minimum=float(ordered[0]),
        maximum=float(ordered[-1]),
        iqm=float(mean_of(ordered[cut : n - cut])) if n >= SMALLEST_N_OF_IQM else None,
        ci95=ci95,
    )


def mean_of(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def standard_deviation(values: Sequence[Fraction]) -> float | None:
    """With ddof=1: exactly 0 only where all values are equal. None for fewer than two."""
    if len(values) < 2:
        return None
    integers, unit = common_integers(values)
    n = len(integers)
    squares = n * sum(integer**2 for integer in integers) - sum(integers) ** 2
    return _root(Fraction(squares, n * (n - 1)) * unit**2)


def _root(square: Fraction) -> float:
    """Square root, also where the square itself is too small or too large for a float."""
    if square == 0:
        return 0.0
    # An even shift brings the square near 1.
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(square / Fraction(4) ** shift), shift)
