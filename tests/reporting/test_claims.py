"""The reading of the paper's claims follows the numbers, whichever way they fall."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gradstarve.reporting.claims import read_claims
from gradstarve.reporting.study import read_study

HIGH, LOW = [80, 82, 84, 86, 88, 90, 92], [60, 62, 64, 66, 68, 70, 72]
SIGN_ABOVE = "At G = 4, sign ends above drgrpo"
EVERY_SEED = "At G = 4, every seed of sign"


def verdict(outputs: Any, claim: str) -> str:
    (reading,) = [r for r in read_claims(read_study(outputs.path).settings) if r.claim.startswith(claim)]
    return reading.verdict


@pytest.mark.parametrize(
    ("sign", "drgrpo", "above", "every"),
    [
        (HIGH, LOW, "agrees", "agrees"),
        (LOW, HIGH, "disagrees", "disagrees"),
        # Far apart in mean, but one seed of drgrpo is above one of sign.
        ([80, 82, 84, 86, 88, 90, 61], [60, 62, 64, 66, 68, 70, 63], "agrees", "disagrees"),
        ([60, 70, 80], [61, 70, 79], "can't be told at this n", "disagrees"),
        # 3 v 3: the smallest p is 0.10, however far they are apart.
        (HIGH[:3], LOW[:3], "can't be told at this n", "can't be told at this n"),
        ([90], [10], "can't be told at this n", "can't be told at this n"),
    ],
)
def test_a_difference_is_read_as_it_fell(outputs: Any, sign: Any, drgrpo: Any, above: str, every: str) -> None:
    outputs.cell("sign", sign)
    outputs.cell("drgrpo", drgrpo)
    assert verdict(outputs, SIGN_ABOVE) == above
    assert verdict(outputs, EVERY_SEED) == every
    assert verdict(outputs, "At G = 8, sign") == "not tested"


@pytest.mark.parametrize(
    ("with_replay", "told"),
    [(HIGH, "disagrees"), (LOW[::-1], "agrees"), ([67, 72, 77, 82, 70, 75, 80], "can't be told at this n")],
)
def test_no_difference_seen_is_not_yet_agreement(outputs: Any, with_replay: Any, told: str) -> None:
    outputs.cell("sign", [68, 72, 76, 80, 70, 74, 78])
    outputs.cell("sign_ce", with_replay)
    assert verdict(outputs, "Cross-entropy replay does not improve sign") == told


@pytest.mark.parametrize(
    ("base", "told"), [(24, "agrees"), (5, "disagrees"), (20, "can't be told at this n"), (90, "agrees")]
)
def test_little_gain_over_base(outputs: Any, base: int, told: str) -> None:
    outputs.base(base)
    outputs.cell("drgrpo", [24, 25, 26])
    assert verdict(outputs, "At G = 4, drgrpo gains little") == told


def test_flipping_the_data_flips_the_sentence_in_the_report(outputs: Any) -> None:
    def sentence() -> str:
        assert outputs.call("report")[0] == 0
        page = (outputs.path / "report" / "index.html").read_text()
        (row,) = re.findall(rf"<tr><td class='verdict \w+'>([^<]*)</td><td>{SIGN_ABOVE}", page)
        return row

    outputs.cell("sign", HIGH)
    outputs.cell("drgrpo", LOW)
    assert sentence() == "agrees"
    outputs.cell("sign", LOW)
    outputs.cell("drgrpo", HIGH)
    assert sentence() == "disagrees"


def test_dead_groups_are_read_against_the_homogeneous_share(outputs: Any) -> None:
    # At an accuracy of .5 equal prompts give 2 * .5^4 = 12.5 % dead groups, at .01 they give 96 %.
    outputs.cell("drgrpo", [50, 52, 54])
    outputs.base(50)
    assert verdict(outputs, "At G = 4, more of drgrpo's groups") == "agrees"
    outputs.base(1)
    assert verdict(outputs, "At G = 4, more of drgrpo's groups") == "disagrees"


def test_shares_over_the_training(outputs: Any) -> None:
    outputs.cell("sign", [90, 91, 92, 93, 94], tables=True, steps=60)
    assert verdict(outputs, "Under sign at G = 4, the all-fail share falls") == "agrees"
    assert verdict(outputs, "Under drgrpo at G = 4") == "not tested"


def test_one_claim_is_read_in_every_setting(outputs: Any) -> None:
    for limit, (sign, drgrpo) in {14: (HIGH, LOW), 20: (LOW, HIGH)}.items():
        outputs.cell("sign", sign, completion_limit=limit)
        outputs.cell("drgrpo", drgrpo, completion_limit=limit)
    readings = [r for r in read_claims(read_study(outputs.path).settings) if r.claim.startswith(SIGN_ABOVE)]
    assert {r.setting: r.verdict for r in readings} == {
        "tiny-sums-completion_limit-14": "agrees",
        "tiny-sums-completion_limit-20": "disagrees",
    }
