"""Settings side by side, and each arm at the learning rate that suits it."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest


def rows_of(outputs: Any, name: str) -> list[dict[str, str]]:
    with (outputs.path / "tables" / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_two_limits_stand_side_by_side(outputs: Any) -> None:
    """A limit is asked in evaluation as well, so each setting has an untrained model of its own."""
    for limit, base, sign, drgrpo in ((24, 20, [60, 64], [30, 34]), (6, 5, [10, 12], [11, 13])):
        outputs.base(base, completion_limit=limit)
        outputs.cell("sign", sign, completion_limit=limit)
        outputs.cell("drgrpo", drgrpo, completion_limit=limit)
    shown = outputs.tables()
    rows = rows_of(outputs, "settings-tiny-sums")
    told = [(row["arm"], row["setting"], float(row["mean"]), float(row["base"])) for row in rows]
    # Within an arm 6 stands before 24: numbers are sorted as numbers.
    assert told == [
        ("sign", "completion_limit 6", 0.11, 0.05),
        ("sign", "completion_limit 24", 0.62, 0.20),
        ("drgrpo", "completion_limit 6", 0.12, 0.05),
        ("drgrpo", "completion_limit 24", 0.32, 0.20),
    ]
    # Each arm is compared with drgrpo of its own setting.
    assert [float(row["to_drgrpo"]) for row in rows[:2]] == pytest.approx([-0.01, 0.30])
    assert float(rows[1]["to_base"]) == pytest.approx(0.42)
    assert rows[2]["to_drgrpo"] == ""
    assert "Settings side by side" in shown


def test_a_reward_that_ignores_the_verdict_is_beside_the_verified_one(outputs: Any) -> None:
    outputs.base(25)
    outputs.cell("sign", [60, 64])
    outputs.cell("sign", [24, 26], loss__reward="random", loss__random_rate=0.25)
    outputs.tables()
    rows = rows_of(outputs, "settings-tiny-sums")
    assert {row["setting"]: float(row["mean"]) for row in rows} == {
        "loss.random_rate 0.25, loss.reward random": 0.25,
        "loss.random_rate None, loss.reward verified": 0.62,
    }


def test_one_setting_has_nothing_beside_it(outputs: Any) -> None:
    outputs.cell("sign", [60, 64])
    outputs.cell("sign", [70, 74], group_size=8)
    outputs.tables()
    assert not list((outputs.path / "tables").glob("settings-*"))
    assert not list((outputs.path / "tables").glob("matched-*"))


def test_each_arm_is_compared_at_the_rate_that_other_seeds_chose(outputs: Any) -> None:
    outputs.base(25)
    # Seeds 42 and 43 choose (5 seeds, the lower half rounded down); 44 to 46 compare.
    outputs.cell("sign", [50, 52, 90, 90, 90], learning_rate=1e-3)
    outputs.cell("sign", [60, 62, 70, 72, 74], learning_rate=2e-3)
    outputs.cell("sign", [40, 42, 95, 95, 95], learning_rate=4e-3)
    outputs.cell("drgrpo", [30, 30, 50, 52, 54], learning_rate=1e-3)
    outputs.cell("drgrpo", [30, 30, 99, 99, 99], learning_rate=2e-3)
    outputs.cell("drgrpo", [10, 10, 99, 99, 99], learning_rate=4e-3)
    outputs.tables()
    rows = outputs.csv("matched-g4-tiny-sums")
    sign, drgrpo = rows["sign"], rows["drgrpo"]
    # The later seeds of the other rates, better as they are, have no say.
    assert (float(sign["rate"]), float(sign["mean"]), sign["n"]) == (2e-3, pytest.approx(0.72), "3")
    # Two rates choose alike: the smaller one.
    assert (float(drgrpo["rate"]), float(drgrpo["mean"])) == (1e-3, pytest.approx(0.52))
    assert float(sign["to_drgrpo"]) == pytest.approx(0.20)
    # 3 against 3, fully apart: two of C(6, 3) = 20 labellings.
    assert float(sign["permutation_p"]) == pytest.approx(0.1)
    text = outputs.text("matched-g4-tiny-sums")
    assert "Choosing: seeds 42, 43; compared: seeds 44–46" in text
    assert "drgrpo: the smallest rate tried is its best" in text
    assert "sign: the" not in text
    behind = json.loads((outputs.path / "tables" / "provenance.json").read_text())["tables"]["matched-g4-tiny-sums"]
    assert (len(behind["rows"]["sign"]["columns"]["rate"]), len(behind["rows"]["sign"]["runs"])) == (6, 3)


def test_an_arm_without_a_choosing_seed_is_named_and_left_out(outputs: Any) -> None:
    outputs.cell("sign", [50, 52, 54, 56], learning_rate=1e-3)
    outputs.cell("sign", [60, 62, 64, 66], learning_rate=2e-3)
    outputs.cell("drgrpo", [60, 62, 64, 66], learning_rate=1e-3)
    outputs.cell("drgrpo", [60], learning_rate=2e-3)
    outputs.cell("tasa", [60, 62], learning_rate=2e-3)
    outputs.tables()
    assert list(outputs.csv("matched-g4-tiny-sums")) == ["sign"]
    text = outputs.text("matched-g4-tiny-sums")
    assert "drgrpo lacks a choosing seed at one of its learning rates" in text
    assert "tasa was run at one learning rate only" in text
    # What differs in more than the rate is not matched.
    assert outputs.csv("settings-tiny-sums")


def test_settings_that_differ_in_more_than_the_rate_are_not_matched(outputs: Any) -> None:
    outputs.cell("sign", [50, 52, 54, 56], learning_rate=1e-3, loss__kl=0.0)
    outputs.cell("sign", [60, 62, 64, 66], learning_rate=2e-3, loss__kl=0.1)
    outputs.tables()
    assert not list((outputs.path / "tables").glob("matched-*"))
    assert len(rows_of(outputs, "settings-tiny-sums")) == 2
