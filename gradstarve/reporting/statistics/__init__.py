"""Statistics for few seeds: every number that a table shows beside a mean; docs/statistics.md says when to trust it."""

from __future__ import annotations

from gradstarve.reporting.statistics.comparison import Comparison, Welch, compare, holm
from gradstarve.reporting.statistics.paired import McNemar, PairedComparison, compare_paired, mcnemar_exact
from gradstarve.reporting.statistics.permutation import Permutation, SignFlip, permutation_test, sign_flip_test
from gradstarve.reporting.statistics.power import detectable_difference, seeds_needed
from gradstarve.reporting.statistics.rationals import Number, exact_fractions
from gradstarve.reporting.statistics.summary import Summary, summarise

__all__ = [
    "Comparison",
    "McNemar",
    "Number",
    "PairedComparison",
    "Permutation",
    "SignFlip",
    "Summary",
    "Welch",
    "compare",
    "compare_paired",
    "detectable_difference",
    "exact_fractions",
    "holm",
    "mcnemar_exact",
    "permutation_test",
    "seeds_needed",
    "sign_flip_test",
    "summarise",
]
