"""Golden vectors, worked out by hand, and what an advantage does with rewards that are not all there."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gradstarve.errors import UserError
from gradstarve.estimators.advantages import ADVANTAGES, get_advantage, group_advantages

NAN = math.nan
# (name, G) -> [(A_correct, A_wrong) for n_plus = 0..G]; NaN on the side that has no member.
GOLDEN: dict[tuple[str, int], list[tuple[float, float]]] = {
    ("sign", 2): [(NAN, -1), (1, -1), (1, NAN)],
    ("sign", 4): [(NAN, -1), (1, -1), (1, -1), (1, -1), (1, NAN)],
    ("sign", 8): [(NAN, -1), *[(1, -1)] * 7, (1, NAN)],
    ("tasa", 2): [(NAN, -0.5), (1, -1), (0.5, NAN)],
    ("tasa", 4): [(NAN, -0.25), (1, -1 / 3), (0.5, -0.5), (1 / 3, -1), (0.25, NAN)],
    ("tasa", 8): [
        (NAN, -0.125),
        (1, -1 / 7),
        (0.5, -1 / 6),
        (1 / 3, -0.2),
        (0.25, -0.25),
        (0.2, -1 / 3),
        (1 / 6, -0.5),
        (1 / 7, -1),
        (0.125, NAN),
    ],
    ("drgrpo", 2): [(NAN, 0), (0.70710678, -0.70710678), (0, NAN)],
    ("drgrpo", 4): [(NAN, 0), (1.5, -0.5), (0.86602540, -0.86602540), (0.5, -1.5), (0, NAN)],
    ("drgrpo", 8): [
        (NAN, 0),
        (2.47487373, -0.35355339),
        (1.62018517, -0.54006172),
        (1.20761473, -0.72456884),
        (0.93541435, -0.93541435),
        (0.72456884, -1.20761473),
        (0.54006172, -1.62018517),
        (0.35355339, -2.47487373),
        (0, NAN),
    ],
    ("grpo", 2): [(NAN, 0), (0.70700680, -0.70700680), (0, NAN)],
    ("grpo", 4): [(NAN, 0), (1.49970006, -0.49990002), (0.86587543, -0.86587543), (0.49990002, -1.49970006), (0, NAN)],
    ("grpo", 8): [
        (NAN, 0),
        (2.47417393, -0.35345342),
        (1.61983525, -0.53994508),
        (1.20738144, -0.72442886),
        (0.93523938, -0.93523938),
        (0.72442886, -1.20738144),
        (0.53994508, -1.61983525),
        (0.35345342, -2.47417393),
        (0, NAN),
    ],
    ("dr_grpo", 4): [(NAN, 0), (0.75, -0.25), (0.5, -0.5), (0.25, -0.75), (0, NAN)],
    ("rloo", 4): [(NAN, 0), (1, -1 / 3), (2 / 3, -2 / 3), (1 / 3, -1), (0, NAN)],
    ("constant", 4): [(NAN, -0.5), (0.5, -0.5), (0.5, -0.5), (0.5, -0.5), (0.5, NAN)],
    # G = 4 and a fifth, virtual, success: mean (n+1)/5, sample std sqrt((n+1)(4-n)/20); at n = 0: -.2/sqrt(.2).
    ("ngrpo", 4): [
        (NAN, -0.4472135955),
        (0.6 / math.sqrt(0.3), -0.4 / math.sqrt(0.3)),
        (0.4 / math.sqrt(0.3), -0.6 / math.sqrt(0.3)),
        (0.2 / math.sqrt(0.2), -0.8 / math.sqrt(0.2)),
        (0, NAN),
    ],
    ("psr", 4): [(NAN, 0), (1, 0), (1, 0), (1, 0), (1, NAN)],
    ("nsr", 4): [(NAN, -1), (0, -1), (0, -1), (0, -1), (0, NAN)],
    ("weighted", 4): [(NAN, -1), (0.1, -1), (0.1, -1), (0.1, -1), (0.1, NAN)],
    # k = 2: R = 0, 1/2, 5/6, 1, 1.
    ("passk", 4): [(NAN, 0), (1, -1 / 3), (1 / math.sqrt(5), -1 / math.sqrt(5)), (0, 0), (0, NAN)],
    # k = 2: (1/2)(1 - (3 - n)/3).
    ("pkpo", 4): [(NAN, 0), (0.5, 1 / 6), (0.5, 1 / 3), (0.5, 0.5), (0.5, NAN)],
}


@pytest.mark.parametrize(("name", "group_size"), GOLDEN)
def test_golden_vectors(name: str, group_size: int) -> None:
    advantage = get_advantage(name)
    for n_plus, (correct, wrong) in enumerate(GOLDEN[name, group_size]):
        rewards_PG = np.array([[1.0] * n_plus + [0.0] * (group_size - n_plus)])
        expected = [correct] * n_plus + [wrong] * (group_size - n_plus)
        np.testing.assert_allclose(group_advantages(rewards_PG, advantage)[0], expected, rtol=0, atol=1e-8)


def test_every_preset_has_a_golden_vector_and_a_config() -> None:
    assert {name for name, _ in GOLDEN} == set(ADVANTAGES)
    folder = Path(__file__).resolve().parents[2] / "conf" / "advantage"
    for name, advantage in ADVANTAGES.items():
        parameters = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        assert parameters.pop("name") == name
        assert get_advantage(name, parameters) == advantage


def test_published_ngrpo_example() -> None:
    # arXiv 2509.18851 gives 1.76 and -0.50 for one success of eight, where GRPO has 2.47 and -0.35.
    assert get_advantage("ngrpo")(1, 8) == pytest.approx((1.76, -0.50), abs=0.005)
    assert get_advantage("drgrpo")(1, 8) == pytest.approx((2.47, -0.35), abs=0.005)


@given(st.integers(2, 32).flatmap(lambda group_size: st.tuples(st.integers(0, group_size), st.just(group_size))))
def test_identities_between_presets(counts: tuple[int, int]) -> None:
    n_plus, group_size = counts
    named = {name: advantage(n_plus, group_size) for name, advantage in ADVANTAGES.items()}
    mixed = 0 < n_plus < group_size
    assert get_advantage("weighted", {"weight": 1})(n_plus, group_size) == named["sign"]
    assert tuple(2 * side for side in named["constant"]) == named["sign"]
    assert tuple(p + n for p, n in zip(named["psr"], named["nsr"], strict=True)) == named["sign"]
    assert tuple(s * group_size / (group_size - 1) for s in named["dr_grpo"]) == pytest.approx(named["rloo"])
    if mixed:
        scale = group_size / (n_plus * (group_size - n_plus))
        assert named["tasa"] == pytest.approx(tuple(scale * side for side in named["dr_grpo"]))
        assert get_advantage("passk", {"k": 1})(n_plus, group_size) == pytest.approx(
            tuple(side * math.sqrt(group_size / (group_size - 1)) for side in named["drgrpo"])
        )
        for name in ("tasa", "drgrpo", "grpo", "dr_grpo", "rloo", "passk"):
            correct, wrong = named[name]
            assert n_plus * correct + (group_size - n_plus) * wrong == pytest.approx(0, abs=1e-9)
    if n_plus:
        assert get_advantage("pkpo", {"k": 1})(n_plus, group_size)[0] == pytest.approx(1 / group_size)


def test_tasa_threshold_cancels_inside_the_unit_interval() -> None:
    for c in (0.1, 0.5, 0.9):
        assert get_advantage("tasa", {"c": c})(1, 4) == get_advantage("tasa")(1, 4)
    assert get_advantage("tasa", {"c": 1})(2, 4) == (0, -0.5)
    assert get_advantage("tasa", {"c": 0})(2, 4) == (0.5, 0)


def test_unverifiable_completions_leave_the_group() -> None:
    rewards_PG = np.array([[1, 0, 0, NAN], [1, NAN, NAN, NAN], [NAN, 1, 1, 0]])
    advantages_PG = group_advantages(rewards_PG, get_advantage("rloo"))
    np.testing.assert_allclose(advantages_PG, [[1, -0.5, -0.5, 0], [0, 0, 0, 0], [0, 0.5, 0.5, -1]])
    # Three verdicts can't fill k = 4, so the group gives nothing instead of ending the run.
    assert not group_advantages(rewards_PG[:1], get_advantage("pkpo", {"k": 4})).any()


def test_rewards_that_are_not_binary_are_a_bug() -> None:
    with pytest.raises(ValueError, match="not binary"):
        group_advantages(np.array([[0.5, 1.0]]), get_advantage("sign"))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("drgpo", {}, "'drgrpo'"),
        ("constant", {"beta": 1}, "has no parameter 'beta'. Known: b"),
        ("constant", {"b": 1.5}, r"b in \[0, 1\], got 1.5"),
        ("constant", {"b": "a half"}, "needs a number for 'b'"),
        ("constant", {"b": math.nan}, "needs a number for 'b'"),
        ("tasa", {"c": -0.1}, r"c in \[0, 1\], got -0.1"),
        ("passk", {"k": 1.5}, "whole number k"),
        ("pkpo", {"k": 0}, "whole number k"),
        ("weighted", {"weight": -1}, "at least 0"),
        ("grpo", {"epsilon": 0}, "above 0"),
    ],
)
def test_mistakes_are_one_line(name: str, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        get_advantage(name, parameters)
    assert "\n" not in str(error.value)


def test_k_larger_than_the_group_is_one_line() -> None:
    for name in ("passk", "pkpo"):
        with pytest.raises(UserError, match="k = 5, group size 4"):
            group_advantages(np.zeros((1, 4)), get_advantage(name, {"k": 5}))
