"""kappa, its parts and the second moment: known values, and autograd over every group of a small softmax policy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradstarve.errors import UserError
from gradstarve.estimators.advantages import ADVANTAGES, Advantage, get_advantage
from gradstarve.estimators.coefficients import coefficients, one_parameter_estimates, second_moment

NAMES = list(ADVANTAGES)
LOGITS = [0.3, -0.8, 0.9, 0.1]
RIGHT = [True, False, False, True]


class Policy:
    """A softmax over four answers: p, its gradient, and every answer's probability and score."""

    def __init__(self, right: list[bool]) -> None:
        logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
        log_probabilities = torch.log_softmax(logits, dim=0)
        self.right = right
        self.probabilities = log_probabilities.exp().detach()
        self.scores = torch.stack([torch.autograd.grad(l, logits, retain_graph=True)[0] for l in log_probabilities])
        p = (log_probabilities.exp() * torch.tensor(right, dtype=torch.float64)).sum()
        self.p = float(p.detach())
        self.logits, self.p_node = logits, p
        self.grad_p = self.gradient_of(lambda p: p)

    def gradient_of(self, function) -> torch.Tensor:
        return torch.autograd.grad(function(self.p_node), self.logits, retain_graph=True)[0]

    def groups(self, advantage: Advantage, group_size: int):
        """(probability, n_plus, mean gradient estimate) of every possible group."""
        for group in itertools.product(range(len(LOGITS)), repeat=group_size):
            n_plus = sum(self.right[answer] for answer in group)
            correct, wrong = advantage(n_plus, group_size)
            weights = [correct if self.right[answer] else wrong for answer in group]
            estimate = sum(w * self.scores[a] for w, a in zip(weights, group, strict=True)) / group_size
            yield float(self.probabilities[list(group)].prod()), n_plus, estimate


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("group_size", [2, 4])
def test_expectation_and_second_moment_are_those_of_autograd(name: str, group_size: int) -> None:
    policy, advantage = Policy(RIGHT), get_advantage(name)
    found = coefficients(advantage, policy.p, group_size)
    moment = second_moment(advantage, policy.p, group_size)
    parts = {"all_fail": torch.zeros(4), "mixed": torch.zeros(4), "all_pass": torch.zeros(4)}
    squares = torch.zeros(4, 4, dtype=torch.float64)
    for probability, n_plus, estimate in policy.groups(advantage, group_size):
        kind = "all_fail" if n_plus == 0 else "all_pass" if n_plus == group_size else "mixed"
        parts[kind] = parts[kind] + probability * estimate
        squares += probability * torch.outer(estimate, estimate)
    for kind, value in parts.items():
        np.testing.assert_allclose(value, getattr(found, kind) * policy.grad_p, atol=1e-12, err_msg=kind)
    np.testing.assert_allclose(sum(parts.values()), found.kappa * policy.grad_p, atol=1e-12)

    right = torch.tensor(policy.right)
    outer = torch.einsum("ai,aj->aij", policy.scores, policy.scores)
    weighted = policy.probabilities[:, None, None] * outer
    m1, m0 = weighted[right].sum(0) / policy.p, weighted[~right].sum(0) / (1 - policy.p)
    expected = moment.a1 * m1 + moment.a0 * m0 + moment.b * torch.outer(policy.grad_p, policy.grad_p)
    np.testing.assert_allclose(squares, expected, atol=1e-12)


@pytest.mark.parametrize("c", [1.0, 0.25])
def test_theorem_3_all_fail_part_descends_pass_at_g_failure(c: float) -> None:
    policy, group_size = Policy(RIGHT), 4
    advantage = get_advantage("constant", {"b": c})
    all_fail = sum(w * g for w, n_plus, g in policy.groups(advantage, group_size) if n_plus == 0)
    failure = policy.gradient_of(lambda p: (1 - p) ** group_size)
    np.testing.assert_allclose(all_fail, -c / group_size * failure, atol=1e-12)
    for k in range(1, 9):
        pass_at_k = policy.gradient_of(lambda p, k=k: 1 - (1 - p) ** k)
        cosine = torch.nn.functional.cosine_similarity(all_fail, pass_at_k, dim=0)
        assert float(cosine) == pytest.approx(1)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pkpo_is_unbiased_for_pass_at_k_in_the_sum_convention(k: int) -> None:
    policy, group_size = Policy(RIGHT), 4
    advantage = get_advantage("pkpo", {"k": k})
    expected = policy.gradient_of(lambda p: 1 - (1 - p) ** k)
    found = coefficients(advantage, policy.p, group_size).sum_kappa(group_size) * policy.grad_p
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_where_nothing_is_right_sign_gives_noise_and_no_direction() -> None:
    policy, advantage = Policy([False] * 4), get_advantage("sign")
    groups = list(policy.groups(advantage, 3))
    mean = sum(w * g for w, _, g in groups)
    noise = sum(w * float(g @ g) for w, _, g in groups)
    np.testing.assert_allclose(mean, torch.zeros(4), atol=1e-12)
    assert noise > 0.1
    assert second_moment(advantage, 0.0, 3).a0 == pytest.approx(1 / 3)


KAPPA = {
    "sign": 2.0,
    "tasa": 1.015625,
    "drgrpo": 1.4246392896,
    "dr_grpo": 0.75,
    "rloo": 1.0,
    "constant": 1.0,
    "ngrpo": 1.5118842516,
    "psr": 1.0,
    "nsr": 1.0,
    "weighted": 1.1,
    "passk": 0.8140576475,
    # grad pass@2 = 2 q grad p = 1.5 grad p in the sum convention, a quarter of it in the mean convention.
    "pkpo": 0.375,
    "grpo": 1.4243674667,
}


def test_kappa_at_a_quarter_and_group_size_four() -> None:
    assert set(KAPPA) == set(ADVANTAGES)
    for name, kappa in KAPPA.items():
        assert coefficients(get_advantage(name), 0.25, 4).kappa == pytest.approx(kappa, abs=1e-9), name


@given(st.floats(0.01, 0.99), st.integers(2, 24), st.sampled_from(NAMES))
def test_invariants(p: float, group_size: int, name: str) -> None:
    advantage = get_advantage(name)
    found = coefficients(advantage, p, group_size)
    assert found.kappa == pytest.approx(found.all_fail + found.mixed + found.all_pass)
    assert found.all_fail == pytest.approx(-((1 - p) ** (group_size - 1)) * advantage.all_fail(group_size))
    assert found.all_pass == pytest.approx(p ** (group_size - 1) * advantage.all_pass(group_size))
    # Kappa is also the plain mean of the one-parameter policy's estimates, and its variance follows from a1, a0 and b.
    weights_N = np.array([math.comb(group_size, n) * p**n * (1 - p) ** (group_size - n) for n in range(group_size + 1)])
    estimates_N = one_parameter_estimates(advantage, p, group_size)
    assert float(weights_N @ estimates_N) == pytest.approx(found.kappa, abs=1e-9)
    moment = second_moment(advantage, p, group_size)
    square = moment.a1 / p**2 + moment.a0 / (1 - p) ** 2 + moment.b
    assert float(weights_N @ estimates_N**2) == pytest.approx(square, rel=1e-9, abs=1e-12)
    if found.snr is not None and found.snr < 100:
        assert found.snr == pytest.approx(found.kappa / math.sqrt(square - found.kappa**2), rel=1e-5)


@given(st.floats(0.01, 0.99), st.integers(2, 24))
def test_closed_forms(p: float, group_size: int) -> None:
    q = 1 - p

    def kappa(name: str) -> float:
        return coefficients(get_advantage(name), p, group_size).kappa

    assert kappa("sign") == pytest.approx(2 * kappa("rloo"))
    assert kappa("dr_grpo") == pytest.approx(1 - 1 / group_size)
    tasa = (1 - q**group_size) / (group_size * p) + (1 - p**group_size) / (group_size * q)
    assert kappa("tasa") == pytest.approx(tasa)


def test_an_estimate_without_variance_has_no_snr() -> None:
    assert coefficients(get_advantage("sign"), 0.5, 4).snr is None
    assert coefficients(get_advantage("passk", {"k": 4}), 0.3, 4).snr is None
    assert coefficients(get_advantage("rloo"), 0.0, 4).snr is None


@pytest.mark.parametrize(
    ("p", "group_size", "message"), [(1.1, 4, r"\[0, 1\]"), (0.5, 1, "between 2"), (0.5, 2000, "1000")]
)
def test_refused_settings(p: float, group_size: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        coefficients(get_advantage("sign"), p, group_size)
