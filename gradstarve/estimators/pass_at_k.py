"""pass@k from counts: unbiased, in exact integers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from gradstarve.errors import UserError


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Probability that at least one of k completions is right, from c right of n: 1 - C(n-c,k)/C(n,k).

    Unbiased for independent samples (arXiv 2107.03374, equation 1). Raises UserError for k < 1 and for n < k, which
    allows no unbiased estimate.
    """
    if k < 1:
        raise UserError(f"pass@k needs k of at least 1, got {k}")
    if samples < k:
        raise UserError(f"pass@{k} needs at least {k} samples of a prompt, got {samples}")
    if not 0 <= successes <= samples:
        raise UserError(f"{successes} successes of {samples} samples is impossible")
    return float(1 - Fraction(math.comb(samples - successes, k), math.comb(samples, k)))


def mean_pass_at_k(samples_P: Sequence[int], successes_P: Sequence[int], k: int) -> float:
    """The mean over prompts; refused where any prompt has fewer than k samples."""
    if len(samples_P) == 0 or len(samples_P) != len(successes_P):
        raise UserError("pass@k needs as many success counts as sample counts, at least one of each")
    kinds = Counter(zip(samples_P, successes_P, strict=True))
    return math.fsum(prompts * pass_at_k(n, c, k) for (n, c), prompts in kinds.items()) / len(samples_P)
