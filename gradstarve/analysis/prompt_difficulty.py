"""What is known of the prompts' success probabilities: a distribution over p, and how sure we are of it.

0 of 8 is not p = 0. From counts, each prompt's p has a Beta posterior under a Beta prior fitted to all prompts; the
population is the mixture of these posteriors. Its uncertainty is a bootstrap over prompts with the prior fitted again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln

from gradstarve.analysis.advantages import check_p
from gradstarve.errors import UserError

REPLICATES = 100
BINS = 200
# A weak prior on (log a, log b): without it, prompts that are all solved or all unsolved send a or b to 0.
PRIOR_SPREAD = 2.0
# Of given weights: a sum that a float can hold and divide by.
LARGEST_WEIGHT, SMALLEST_WEIGHT = 1e100, 1e-100


@dataclass(frozen=True)
class Difficulty:
    """A distribution over success probabilities.

    `p` (points), `weights` (points) the best estimate, `replicates` (replicates x points) its bootstrap: none where the
    probabilities were given.
    """

    p: NDArray[np.float64]
    weights: NDArray[np.float64]
    replicates: NDArray[np.float64]
    prompts: int | None
    samples: int | None

    def mean(self, values_B: NDArray[np.float64]) -> float:
        return float(self.weights @ values_B)

    def interval(self, values_B: NDArray[np.float64]) -> tuple[float, float]:
        """95 % over the replicates; a point where the probabilities were given."""
        if len(self.replicates) == 0:
            return self.mean(values_B), self.mean(values_B)
        low, high = np.quantile(self.replicates @ values_B, [0.025, 0.975])
        return float(low), float(high)


def from_histogram(texts: Sequence[str]) -> Difficulty:
    """Given probabilities: `p:weight ...`; weights need not sum to 1. Raises UserError for anything else."""
    points, weights = [], []
    for text in texts:
        head, colon, tail = text.partition(":")
        try:
            p, weight = float(head), float(tail) if colon else 1.0
        except ValueError:
            raise UserError(f"--p-histogram {text!r} is not p:weight, as in 0:0.575 0.5:0.2 1:0.225") from None
        check_p(p, "--p-histogram")
        if not 0 <= weight <= LARGEST_WEIGHT:
            raise UserError(f"--p-histogram {text!r}: a weight lies between 0 and {LARGEST_WEIGHT:g}")
        points.append(p)
        weights.append(weight)
    total = math.fsum(weights)
    if not total >= SMALLEST_WEIGHT:
        raise UserError("--p-histogram: the weights sum to 0; give one that is above it")
    return Difficulty(np.array(points), np.array(weights) / total, np.zeros((0, len(points))), None, None)


def from_counts(counts: Sequence[tuple[int, int]], seed: int = 0) -> Difficulty:
    """From (samples, successes) of each prompt."""
    kinds = Counter(counts)
    n_K, c_K = np.array(list(kinds), dtype=np.float64).T
    prompts_K = np.array(list(kinds.values()), dtype=np.float64)
    edges_B = np.sin(np.pi * np.arange(BINS + 1) / (2 * BINS)) ** 2
    p_B = (edges_B[1:] + edges_B[:-1]) / 2

    def weights(
        multiplicity_K: NDArray[np.float64], start: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        fitted = _fit(n_K, c_K, multiplicity_K, start)
        a, b = np.exp(fitted)
        cumulative_KB = betainc(a + c_K[:, None], b + (n_K - c_K)[:, None], edges_B[None, :])
        return multiplicity_K @ np.diff(cumulative_KB, axis=1) / multiplicity_K.sum(), fitted

    best_B, fitted = weights(prompts_K, np.zeros(2))
    rng = np.random.default_rng(seed)
    resampled_RK = rng.multinomial(int(prompts_K.sum()), prompts_K / prompts_K.sum(), size=REPLICATES)
    replicates = [weights(multiplicity_K.astype(np.float64), fitted)[0] for multiplicity_K in resampled_RK]
    return Difficulty(p_B, best_B, np.array(replicates), int(prompts_K.sum()), int(n_K @ prompts_K))


def _fit(
    n_K: NDArray[np.float64], c_K: NDArray[np.float64], multiplicity_K: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(log a, log b) of the Beta prior, by penalised marginal likelihood."""
    from scipy.optimize import minimize

    def loss(log_ab: NDArray[np.float64]) -> float:
        a, b = np.exp(np.clip(log_ab, -12, 12))
        likelihood = multiplicity_K @ (betaln(a + c_K, b + n_K - c_K) - betaln(a, b))
        return float((log_ab @ log_ab) / (2 * PRIOR_SPREAD**2) - likelihood)

    return minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4}).x
