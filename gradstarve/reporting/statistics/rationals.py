"""Numbers as a user gives them, read as exact fractions, so that ties between relabellings are ties."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import SupportsFloat

import numpy as np

Number = int | float | Decimal | Fraction | np.integer | np.floating

_LARGEST_DENOMINATOR = 100_000  # no evaluation set of this field has more questions
_SLACK_ULPS = 4  # 100 * (c / 1319) is rounded twice; a mean of a few values somewhat more


def exact_fractions(values: Sequence[Number]) -> list[Fraction]:
    """Each value as the fraction that it stands for.

    Integers and fractions are themselves. A float or decimal within 4 units in the last place (of a double) of a
    fraction with a small denominator is that fraction: 0.6785443517816527 is 895/1319, 67.8 is 339/5. "Small" is at
    most 100,000, and so small that fewer than one in a thousand other doubles of that size lie so near to one.
    Any other float is its shortest decimal, any other decimal itself.

    Raises `ValueError` for a value that is not finite, with its index.
    """
    return [_exact_fraction(value, index) for index, value in enumerate(values)]


def common_integers(fractions: Sequence[Fraction]) -> tuple[list[int], Fraction]:
    """Integers from 0 up, and the unit, such that `fraction = smallest + integer * unit` exactly."""
    smallest = min(fractions)
    rises = [fraction - smallest for fraction in fractions]
    denominator = math.lcm(*(rise.denominator for rise in rises))
    integers = [rise.numerator * (denominator // rise.denominator) for rise in rises]
    divisor = math.gcd(*integers) or 1
    return [integer // divisor for integer in integers], Fraction(divisor, denominator)


def _exact_fraction(value: Number, index: int) -> Fraction:
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | np.integer):
        return Fraction(operator.index(value))
    nearest_double = float(_as_float(value))
    if not math.isfinite(nearest_double):
        raise ValueError(f"value {index} is {value}, not a finite number")
    as_given = Fraction(value) if isinstance(value, Decimal) else Fraction(repr(nearest_double))
    ulp = math.ulp(nearest_double)
    largest = math.isqrt(int(min(_LARGEST_DENOMINATOR**2, 1e-3 / (2 * _SLACK_ULPS * ulp))))
    if largest >= 1:
        simple = Fraction(nearest_double).limit_denominator(largest)
        if abs(simple - as_given) <= _SLACK_ULPS * Fraction(ulp) and (simple or not as_given):
            return simple
    return as_given


def _as_float(value: SupportsFloat) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
