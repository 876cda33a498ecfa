"""Published advantages that are functions of counts alone, one function each.

Each names its formula and its source. What they give dead groups, their expected coefficients and their golden vectors
follow from the function; `gradstarve advantages` lists them.
"""

from __future__ import annotations

import math

from gradstarve.errors import UserError
from gradstarve.estimators.advantages import advantage


@advantage(
    formula="r - n_plus/G",
    baseline="group mean",
    scale="none",
    source='arXiv 2503.20783, the published Dr. GRPO (TRL: scale_rewards="none"); the paper\'s DrGRPO is `drgrpo`',
)
def dr_grpo(n_plus: int, group_size: int) -> tuple[float, float]:
    return (group_size - n_plus) / group_size, -n_plus / group_size


@advantage(
    formula="r - mean of the other G - 1 rewards",
    baseline="leave-one-out",
    scale="none",
    source="arXiv 2402.14740",
)
def rloo(n_plus: int, group_size: int) -> tuple[float, float]:
    return (group_size - n_plus) / (group_size - 1), -n_plus / (group_size - 1)


@advantage(
    formula="r - b", baseline="constant b", scale="none", source="REINFORCE with a constant baseline (Williams 1992)"
)
def constant(n_plus: int, group_size: int, b: float = 0.5) -> tuple[float, float]:
    if not 0 <= b <= 1:
        raise UserError(f"constant needs a baseline b in [0, 1], got {b:g}")
    return 1 - b, -b


@advantage(
    formula="(r - mean) / std (ddof = 1), both over the group and one virtual reward of 1",
    baseline="group mean with a virtual success",
    scale="group std with a virtual success (ddof = 1)",
    source="arXiv 2509.18851",
)
def ngrpo(n_plus: int, group_size: int) -> tuple[float, float]:
    if n_plus == group_size:
        return 0.0, 0.0
    successes, size = n_plus + 1, group_size + 1
    std = math.sqrt(successes * (size - successes) / (size * (size - 1)))
    return (size - successes) / size / std, -successes / size / std


@advantage(
    formula="1 if right, 0 if wrong", baseline="none", scale="none", source="arXiv 2506.01347, positive samples only"
)
def psr(n_plus: int, group_size: int) -> tuple[float, float]:
    return 1.0, 0.0


@advantage(
    formula="0 if right, -1 if wrong", baseline="none", scale="none", source="arXiv 2506.01347, negative samples only"
)
def nsr(n_plus: int, group_size: int) -> tuple[float, float]:
    return 0.0, -1.0


@advantage(
    formula="weight if right, -1 if wrong",
    baseline="none",
    scale="none",
    source="arXiv 2506.01347, Weighted-REINFORCE (lambda there); weight = 1 is sign",
)
def weighted(n_plus: int, group_size: int, weight: float = 0.1) -> tuple[float, float]:
    if weight < 0:
        raise UserError(f"weighted needs a weight of at least 0, got {weight:g}")
    return float(weight), -1.0


def _whole_k(name: str, k: float, group_size: int) -> int:
    if k != int(k) or k < 1:
        raise UserError(f"{name} needs a whole number k of at least 1, got {k:g}")
    if k > group_size:
        raise UserError(f"{name} needs k of at most the group size: k = {k:g}, group size {group_size}")
    return int(k)


@advantage(
    formula="(1-R)/s if right, (1-R - C(G-n_plus-1,k-1)/C(G-1,k-1))/s if wrong; R = 1 - C(G-n_plus,k)/C(G,k), "
    "s = sqrt(R(1-R)); 0 where s = 0",
    baseline="mean pass@k over the group's subsets",
    scale="std of pass@k over the group's subsets",
    source="arXiv 2508.10751, analytical derivation",
)
def passk(n_plus: int, group_size: int, k: int = 2) -> tuple[float, float]:
    """Zero wherever fewer than k completions are wrong, so also in mixed groups; with k = G it is zero everywhere."""
    k = _whole_k("passk", k, group_size)
    subsets, failing = math.comb(group_size, k), math.comb(group_size - n_plus, k)
    if failing in (0, subsets):
        return 0.0, 0.0
    fail = failing / subsets
    std = math.sqrt(fail * (1 - fail))
    failing_with_this_one = math.comb(group_size - n_plus - 1, k - 1) / math.comb(group_size - 1, k - 1)
    return fail / std, (fail - failing_with_this_one) / std


@advantage(
    formula="k/G if right, (k/G)(1 - C(G-1-n_plus,k-1)/C(G-1,k-1)) if wrong",
    baseline="none",
    scale="1/G: the sum over the group, not its mean, estimates grad pass@k",
    source="arXiv 2505.15201",
)
def pkpo(n_plus: int, group_size: int, k: int = 2) -> tuple[float, float]:
    k = _whole_k("pkpo", k, group_size)
    others_wrong = max(group_size - 1 - n_plus, 0)
    others_all_fail = math.comb(others_wrong, k - 1) / math.comb(group_size - 1, k - 1)
    return k / group_size, k / group_size * (1 - others_all_fail)
