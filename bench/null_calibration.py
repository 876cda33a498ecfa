"""How often do the tests cry wolf, and how often do the intervals hold the truth, at the n of this field?

    python bench/null_calibration.py [--experiments 10000]

Simulates pairs of groups whose true means are equal, in counts of 1,319 questions, and prints two Markdown tables:
false-positive rates at 5 % of Welch and of the exact permutation test, and coverages of nominal 95 % intervals of the
mean. The result is written up in docs/statistics.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings

import numpy as np
from scipy import stats

from gradstarve.reporting.statistics import permutation_test, summarise

QUESTIONS = 1319
MEAN = 0.70
SHAPES = [(3, 3), (5, 5), (7, 5), (7, 7)]
BOOTSTRAPS = 2000
NORMAL, COLLAPSE = "normal", "one in ten collapses by 10 points"
UNEQUAL = "normal, those of b spread 4 times as wide"


def seeds(shape: str, size: tuple[int, ...], generator: np.random.Generator, spread: float = 0.01) -> np.ndarray:
    """Counts of right answers of `size` seeds: a seed's own accuracy, then the noise of its questions."""
    accuracies = generator.normal(MEAN, spread, size)
    if shape == COLLAPSE:
        accuracies -= 0.10 * (generator.random(size) < 0.1)
    return generator.binomial(QUESTIONS, accuracies)


def true_mean(shape: str) -> float:
    return QUESTIONS * (MEAN - (0.01 if shape == COLLAPSE else 0.0))


def rate(hits: np.ndarray) -> str:
    share = float(np.mean(hits))
    return f"{100 * share:.1f} ± {100 * 1.96 * math.sqrt(share * (1 - share) / len(hits)):.1f}"


def false_positives(shape: str, n_a: int, n_b: int, experiments: int, generator: np.random.Generator) -> list[str]:
    a_ES = seeds(shape, (experiments, n_a), generator)
    b_ES = seeds(shape, (experiments, n_b), generator, spread=0.04 if shape == UNEQUAL else 0.01)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        welch_E = stats.ttest_ind(a_ES, b_ES, axis=1, equal_var=False).pvalue
    tests = [permutation_test(a.tolist(), b.tolist()) for a, b in zip(a_ES, b_ES, strict=True)]
    two_sided = np.array([test.p_two_sided for test in tests])
    greater = np.array([test.p_greater for test in tests])
    # Shares that are equal as fractions can differ in the last place from 0.05.
    return [rate(welch_E <= 0.05), rate(two_sided <= 0.05 + 1e-12), rate(greater <= 0.05 + 1e-12)]


def coverage(shape: str, n: int, experiments: int, generator: np.random.Generator) -> list[str]:
    counts_ES = seeds(shape, (experiments, n), generator)
    truth = true_mean(shape)
    t_hits, bootstrap_hits = [], []
    for counts in counts_ES:
        low, high = summarise(counts.tolist()).ci95 or (math.nan, math.nan)
        t_hits.append(low <= truth <= high)
        means = counts[generator.integers(0, n, (BOOTSTRAPS, n))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        bootstrap_hits.append(low <= truth <= high)
    return [rate(np.array(t_hits)), rate(np.array(bootstrap_hits))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=10_000)
    experiments = parser.parse_args().experiments
    generator = np.random.default_rng(2605)
    print(f"False positives at 5 %, in % of {experiments:,} experiments (± is a 95 % interval):\n")
    print("| seeds are | n | Welch | permutation, two-sided | permutation, one-sided |\n|---|---|---|---|---|")
    for shape in (NORMAL, COLLAPSE, UNEQUAL):
        for n_a, n_b in SHAPES:
            print(f"{shape}, {n_a} v {n_b}", file=sys.stderr)
            print(
                "|",
                " | ".join([shape, f"{n_a} v {n_b}", *false_positives(shape, n_a, n_b, experiments, generator)]),
                "|",
            )
    print(f"\nCoverage of a nominal 95 % interval of the mean, in % of {experiments:,} experiments:\n")
    print("| seeds are | n | t-interval | percentile bootstrap |\n|---|---|---|---|")
    for shape in (NORMAL, COLLAPSE):
        for n in (3, 5, 7):
            print(f"{shape}, n = {n}", file=sys.stderr)
            print("|", " | ".join([shape, str(n), *coverage(shape, n, experiments, generator)]), "|")


if __name__ == "__main__":
    main()
