"""What these seeds could have seen, and how many a given difference would take.

Both for a two-sided t-test of two groups with a common standard deviation (statsmodels' noncentral t).
"""

from __future__ import annotations

import functools
import math

from statsmodels.stats.power import TTestIndPower

LEVEL = 0.05
POWER = 0.8
_MOST_SEEDS = 1_000_000


def detectable_difference(sd: float, n_a: int, n_b: int, power: float = POWER, level: float = LEVEL) -> float | None:
    """The smallest true difference of means that n_a and n_b seeds would find significant with probability `power`.

    `sd` is the (pooled) standard deviation between seeds. None where a group has fewer than two seeds.
    """
    if min(n_a, n_b) < 2:
        return None
    return _detectable_in_sds(n_a, n_b, power, level) * sd


@functools.cache
def _detectable_in_sds(n_a: int, n_b: int, power: float, level: float) -> float:
    return float(TTestIndPower().solve_power(effect_size=None, nobs1=n_a, ratio=n_b / n_a, alpha=level, power=power))


def seeds_needed(difference: float, sd: float, power: float = POWER, level: float = LEVEL) -> int | None:
    """Seeds in each group so that a true `difference` of means is found significant with probability `power`.

    At least 2. None where more than a million would not do, as for a difference of 0 with any spread.
    """
    if sd == 0:
        return 2 if difference else None
    in_sds = abs(difference) / sd

    def enough(n: int) -> bool:
        # Beyond 50 standard deviations the noncentral t has no digits left, and two seeds do in any case.
        return in_sds > 50 or float(TTestIndPower().power(in_sds, n, level)) >= power

    high = 2
    while not enough(high):
        high *= 2
        if high > _MOST_SEEDS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def pooled_sd(sd_a: float, n_a: int, sd_b: float, n_b: int) -> float:
    return math.hypot(math.sqrt(n_a - 1) * sd_a, math.sqrt(n_b - 1) * sd_b) / math.sqrt(n_a + n_b - 2)
