"""Tests of values that come in pairs: two checkpoints on the same questions, seeds that share more than a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from gradstarve.reporting.statistics.permutation import SignFlip, sign_flip_test
from gradstarve.reporting.statistics.rationals import Number, exact_fractions
from gradstarve.reporting.statistics.summary import mean_of


@dataclass(frozen=True)
class McNemar:
    """Counts of questions that both checkpoints got right, only one did, neither did; the exact two-sided p."""

    both: int
    only_a: int
    only_b: int
    neither: int
    p: float

    @property
    def difference(self) -> float:
        """Accuracy of a less accuracy of b, a fraction."""
        return (self.only_a - self.only_b) / (self.both + self.only_a + self.only_b + self.neither)


def mcnemar_exact(a_right_Q: Sequence[bool], b_right_Q: Sequence[bool]) -> McNemar:
    """Exact McNemar test of two checkpoints; element q of both is the same question.

    It speaks of these two checkpoints only: two seeds of one estimator may differ significantly in it. The questions on
    which both agree carry no information; of the others, half should favour either (binomial).
    """
    if len(a_right_Q) != len(b_right_Q):
        raise ValueError(f"the same questions are needed, but there are {len(a_right_Q)} and {len(b_right_Q)}")
    if not len(a_right_Q):
        raise ValueError("McNemar's test needs a question")
    counts = {(x, y): 0 for x in (False, True) for y in (False, True)}
    for a_right, b_right in zip(a_right_Q, b_right_Q, strict=True):
        counts[bool(a_right), bool(b_right)] += 1
    both, only_a, only_b, neither = (counts[k] for k in ((True, True), (True, False), (False, True), (False, False)))
    result = mcnemar([[both, only_a], [only_b, neither]], exact=True)
    return McNemar(both, only_a, only_b, neither, float(result.pvalue))


@dataclass(frozen=True)
class PairedComparison:
    """difference: mean of a[i] - b[i]. t, df, p, ci95: the paired t-test; None where the differences have no spread or
    there is but one, with the reason in `reason`."""

    n: int
    difference: float
    t: float | None
    df: float | None
    p: float | None
    ci95: tuple[float, float] | None
    sign_flip: SignFlip
    reason: str | None


def compare_paired(a: Sequence[Number], b: Sequence[Number]) -> PairedComparison:
    """Compare values of which a[i] and b[i] are truly paired (see `sign_flip_test`)."""
    sign_flip = sign_flip_test(a, b)
    differences = [x - y for x, y in zip(exact_fractions(a), exact_fractions(b), strict=True)]
    n, difference = len(differences), float(mean_of(differences))
    if n < 2 or len(set(differences)) == 1:
        reason = "one pair has no spread" if n < 2 else "all differences are equal"
        return PairedComparison(n, difference, None, None, None, None, sign_flip, reason)
    test = stats.ttest_1samp([float(value) for value in differences], 0.0)
    low, high = test.confidence_interval(0.95)
    return PairedComparison(
        n,
        difference,
        float(test.statistic),
        float(test.df),
        float(test.pvalue),
        (float(low), float(high)),
        sign_flip,
        None,
    )
