"""Our exact permutation test against scipy's, on the same counts of questions: the same p, and how many times faster.

    python bench/permutation.py [--repeats 3]

scipy enumerates all relabellings, so it is asked only up to 10 v 10; beyond, ours is timed alone.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from scipy import stats

from gradstarve.reporting.statistics import permutation_test

TOGETHER = [(3, 3), (5, 5), (7, 5), (7, 7), (9, 9), (10, 10)]
ALONE = [(20, 20), (50, 50)]
SPREADS = [60, 300, 1319]  # counts range over this many questions: 60 of 1319 is a range of 4.5 points


def absolute_difference(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    # n_a n_b (mean(a) - mean(b)), in integers.
    return abs(b.shape[axis] * a.sum(axis=axis) - a.shape[axis] * b.sum(axis=axis))


def best_of(repeats: int, call: Callable[[], float]) -> tuple[float, float]:
    """p and the fewest seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        p = call()
        seconds.append(time.perf_counter() - start)
    return p, min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    generator = np.random.default_rng(0)
    print(f"{'seeds':>8} {'range':>6} {'relabellings':>14} {'p':>8} {'ours s':>9} {'scipy s':>9} {'ratio':>7}")
    for n_a, n_b in TOGETHER + ALONE:
        for spread in SPREADS:
            a, b = (generator.integers(0, spread, n, endpoint=True).tolist() for n in (n_a, n_b))
            ours, our_seconds = best_of(repeats, lambda a=a, b=b: permutation_test(a, b).p_two_sided)
            line = (
                f"{n_a:>3} v {n_b:<2} {spread:>6} {math.comb(n_a + n_b, n_a):>14.4g} {ours:>8.5f} {our_seconds:>9.4f}"
            )
            if (n_a, n_b) in TOGETHER:
                theirs, their_seconds = best_of(
                    repeats,
                    lambda a=a, b=b: (
                        stats.permutation_test(
                            (a, b), absolute_difference, vectorized=True, n_resamples=np.inf, alternative="greater"
                        ).pvalue
                    ),
                )
                if not math.isclose(ours, theirs, rel_tol=1e-9):
                    raise SystemExit(f"{n_a} v {n_b}, range {spread}: ours {ours}, scipy {theirs}")
                line += f" {their_seconds:>9.4f} {their_seconds / our_seconds:>7.1f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
