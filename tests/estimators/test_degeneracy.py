"""Degeneracy and pass@k from counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradstarve.errors import UserError
from gradstarve.estimators.degeneracy import (
    binomial_interval,
    dead_shares,
    degeneracy,
    estimate_degeneracy,
    jensen_gap,
)
from gradstarve.estimators.pass_at_k import mean_pass_at_k, pass_at_k

# Figure 2 of the paper: two samples a prompt, 57.5 % of prompts with none right and 22.5 % with both.
PAPER_G2 = [0] * 23 + [2] * 9 + [1] * 8


def test_the_papers_090_is_the_plug_in_of_two_samples() -> None:
    found = estimate_degeneracy([2] * 40, PAPER_G2, 2)
    assert found.plug_in == pytest.approx(0.90)
    assert found.d_real == pytest.approx(0.80)
    assert found.d_iid == pytest.approx(0.56125)
    assert (found.all_fail, found.mixed, found.all_pass) == pytest.approx((0.575, 0.2, 0.225))
    assert found.plug_in / found.d_iid - 1 == pytest.approx(0.60, abs=0.005)
    assert found.amplification() - 1 == pytest.approx(0.43, abs=0.005)
    assert found.jensen_gap == pytest.approx(0.80 - 0.56125)


def test_the_papers_trajectory_at_group_size_four() -> None:
    successes = [0] * 438 + [4] * 116 + [2] * 246
    found = estimate_degeneracy([4] * 800, successes, 4)
    assert (found.d_real, found.all_fail, found.all_pass) == pytest.approx((0.6925, 0.5475, 0.145))
    assert found.d_real_ci95 == pytest.approx((0.659, 0.724), abs=0.0006)  # Clopper-Pearson, exact where groups are 0/1
    assert found.amplification(0.25) == pytest.approx(2.16, abs=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_jensen_gap_is_a_multiple_of_the_variance(p: list[float]) -> None:
    p_P = np.array(p)
    assert jensen_gap(p_P, 2) == pytest.approx(2 * p_P.var(), abs=1e-12)
    assert jensen_gap(p_P, 3) == pytest.approx(3 * p_P.var(), abs=1e-12)
    assert jensen_gap(p_P, 7) >= -1e-12


@given(st.floats(0, 1), st.integers(2, 6), st.integers(0, 6))
def test_the_estimate_is_unbiased_and_the_plug_in_is_not_below_it(p: float, group_size: int, extra: int) -> None:
    n = group_size + extra
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    unbiased = sum(w * sum(dead_shares(n, c, group_size)) for c, w in enumerate(weights))
    plug_in = sum(w * float(degeneracy(c / n, group_size)) for c, w in enumerate(weights))
    assert unbiased == pytest.approx(float(degeneracy(p, group_size)), abs=1e-12)
    assert plug_in >= unbiased - 1e-12


def test_the_interval_over_prompts_covers() -> None:
    rng = np.random.default_rng(0)
    covered, trials, group_size, n = 0, 400, 4, 8
    truth = float(np.mean([degeneracy(p, group_size) for p in rng.beta(0.4, 0.8, 200_000)]))
    for _ in range(trials):
        successes = rng.binomial(n, rng.beta(0.4, 0.8, 60))
        low, high = estimate_degeneracy([n] * 60, successes.tolist(), group_size).d_real_ci95
        covered += low <= truth <= high
    assert covered / trials >= 0.93


def test_an_interval_keeps_its_width_where_all_prompts_agree() -> None:
    found = estimate_degeneracy([4] * 10, [0] * 10, 4)
    assert found.d_real == 1
    assert found.d_real_ci95 == (pytest.approx(0.025 ** (1 / 10)), 1.0)
    assert found.all_pass_ci95 == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))


def test_clopper_pearson() -> None:
    assert binomial_interval(554, 800) == pytest.approx((0.65923, 0.72435), abs=5e-5)
    assert binomial_interval(0, 8) == pytest.approx((0, 1 - 0.025 ** (1 / 8)))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(UserError, match="group size 4 needs 4 samples of a prompt, got 3"):
        estimate_degeneracy([8, 3], [0, 0], 4)
    with pytest.raises(UserError, match="at least 2 completions"):
        estimate_degeneracy([8], [0], 1)
    with pytest.raises(UserError, match="at least one"):
        estimate_degeneracy([], [], 4)


def test_pass_at_k_exact() -> None:
    assert pass_at_k(8, 0, 8) == 0
    assert pass_at_k(8, 1, 8) == 1
    assert pass_at_k(4, 1, 2) == 0.5
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    # C(900, 100) / C(1000, 100) needs integers of more than 300 digits.
    expected = 1 - math.exp(math.lgamma(901) - math.lgamma(801) - math.lgamma(1001) + math.lgamma(901))
    assert pass_at_k(1000, 100, 100) == pytest.approx(expected)
    assert mean_pass_at_k([4, 4], [0, 4], 3) == 0.5


@given(st.floats(0, 1), st.integers(1, 8), st.integers(0, 8))
def test_pass_at_k_is_unbiased(p: float, k: int, extra: int) -> None:
    n = k + extra
    mean = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1)])
def test_pass_at_k_refuses(n: int, c: int, k: int) -> None:
    with pytest.raises(UserError):
        pass_at_k(n, c, k)


def test_game24_has_51_prompts_that_are_never_solved(shared_data) -> None:
    import json

    lines = (shared_data / "rollouts_game24_cot_100x100.jsonl").read_text(encoding="utf-8").splitlines()
    successes = [sum(json.loads(line)["rewards"]) for line in lines]
    assert successes.count(0) == 51
    found = estimate_degeneracy([100] * 100, successes, 4)
    assert found.d_real > found.d_iid
    assert mean_pass_at_k([100] * 100, successes, 100) == pytest.approx(0.49)
