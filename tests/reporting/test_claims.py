"""The reading of the paper's claims follows the numbers, whichever way they fall."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic

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


@pytest.mark.parametrize("control", [{"loss__reward": "random", "loss__random_rate": 0.25}, {"loss__reward": "length"}])
def test_a_control_speaks_to_no_claim_and_says_what_it_is(outputs: Any, control: dict[str, Any]) -> None:
    outputs.base(30)
    outputs.cell("sign", HIGH, **control)
    outputs.cell("drgrpo", LOW, **control)
    readings = read_claims(read_study(outputs.path).settings)
    assert {reading.verdict for reading in readings} == {"not tested"}
    out = " ".join(outputs.tables().split())
    assert "REWARDED " in out and "not by the verdict" in out
    assert "rewarded with " in out
    runs = pd.read_csv(outputs.path / "tables" / "runs.csv")
    assert runs.groupby("arm")["training_reward"].unique().map(list).to_dict()["sign"] == [control["loss__reward"]]
    assert runs[runs["arm"] == "base"]["training_reward"].isna().all()
    # Beside runs that were rewarded with the verdict, they are a setting of their own.
    outputs.cell("sign", LOW)
    outputs.tables()
    assert outputs.csv("table1-tiny-sums")["sign"]["mean"] == "0.66"
    name = f"tiny-sums-reward-{control['loss__reward']}"
    assert outputs.csv(f"table1-{name}")["sign"]["mean"] == "0.86"
    told = f"Not mixed in: 14 runs of {name}, which differ in reward {control['loss__reward']} (here verified)"
    assert told in outputs.text("table1-tiny-sums").replace("\\", "")


def test_math500_is_its_own_claim_whatever_was_trained_on(outputs: Any, tmp_path: Path) -> None:
    model = {
        "source": "hub", "name": "some", "id": "some/model", "revision": "0" * 40, "dtype": "bfloat16", "lora": None,
        "gradient_checkpointing": True, "attention": None,
    }  # fmt: skip
    data = tmp_path / "math.jsonl"
    data.write_text(json.dumps({"problem": "1+1?", "answer": "2", "solution": "\\boxed{2}"}) + "\n")
    for arm, rights in (("sign", HIGH), ("drgrpo", LOW)):
        for seed, right in enumerate(rights, 42):
            config = synthetic.config(
                outputs.path, arm, 4, seed, dataset="math500", model_config=model, dataset__train_path=str(data),
                dataset__eval_path=str(data), steps=20,
            )  # fmt: skip
            synthetic.write_run(config, right, 100)
    assert verdict(outputs, "On MATH-500, sign is above drgrpo at G = 4") == "agrees"
    # The claim of Table 1 is about GSM8K.
    assert verdict(outputs, SIGN_ABOVE) == "not tested"


def test_models_are_compared_at_one_value_of_everything_else(outputs: Any) -> None:
    for kl in (0.0, 0.04):
        for name, hidden, base, sign in (("small", 96, 20, [40, 42]), ("large", 192, 60, [70, 71])):
            outputs.base(base, model__name=name, model__hidden_size=hidden)
            outputs.cell("sign", sign, model__name=name, model__hidden_size=hidden, loss__kl=kl)
    outputs.tables()
    for told in ("0", "0.04"):
        rows = outputs.csv(f"table3-sums-kl-{told}")
        assert len(rows) == 2
        assert "differ in more than the model" not in outputs.text(f"table3-sums-kl-{told}")
    readings = [r for r in read_claims(read_study(outputs.path).settings) if r.claim.startswith("The stronger")]
    assert [(reading.setting, len(reading.runs)) for reading in readings] == [("kl-0", 4), ("kl-0.04", 4)]


def test_a_model_that_does_not_learn_is_left_out_as_the_paper_does(outputs: Any) -> None:
    """The paper's own numbers: 25.5 to 73.8, 57.5 to 75.1, 70.4 to 81.7, and a small model without a gain."""
    models = (("2b", 17, [17, 18]), ("9b", 25, [73, 74]), ("8b", 57, [74, 76]), ("llama", 70, [81, 82]))
    for width, (name, base, sign) in enumerate(models, 1):
        outputs.base(base, model__name=name, model__hidden_size=96 * width)
        outputs.cell("sign", sign, model__name=name, model__hidden_size=96 * width)

    def reading() -> Any:
        (found,) = [r for r in read_claims(read_study(outputs.path).settings) if r.claim.startswith("The stronger")]
        return found

    # In order, but three models fall in one order of six by chance.
    assert reading().verdict == "can't be told at this n"
    assert reading().evidence.endswith("; left out, no gain seen: 2b.")
    outputs.base(90, model__name="strong", model__hidden_size=96 * 5)
    outputs.cell("sign", [92, 92], model__name="strong", model__hidden_size=96 * 5)
    assert reading().verdict == "agrees"
    # The screen reads it from every setting, however many there are.
    assert "agrees: The stronger the untrained model" in outputs.tables()
    outputs.base(80, model__name="odd", model__hidden_size=96 * 6)
    outputs.cell("sign", [99, 99], model__name="odd", model__hidden_size=96 * 6)
    assert reading().verdict == "disagrees"
