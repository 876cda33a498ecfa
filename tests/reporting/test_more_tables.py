"""Comparisons, replay, group size, dead groups, cost, models, transfer, pass@k, leave-one-out, noise."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
import synthetic

from gradstarve.reporting.cells import Setting
from gradstarve.reporting.study import read_study
from gradstarve.reporting.tables.pass_at_k import pass_at_k_of
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_name

SAMPLED = {
    "evaluation": {"greedy": False, "samples": 4, "temperature": 1.0, "limit": None, "completion_limit": 14},
    "dataset": {},
}


def sampled(outputs: Any, config: Any, right_of: dict[str, list[bool]]) -> None:
    """An evaluation with several samples a question."""
    rows = pd.DataFrame(
        [(q, "right" if right else "wrong") for q, answers in right_of.items() for right in answers],
        columns=["question_id", "verdict"],
    )
    right = int((rows["verdict"] == "right").sum())
    final = {"step": 20, "n": len(rows), "questions": len(right_of), "right": right, "truncated": 0.0}
    if not config.advantage.trains:
        final["step"] = 0
    folder = RunFolder.of(config)
    synthetic.write_evaluation(folder, config, final, name="samples-00000001", rows=rows, identity=SAMPLED)


def test_comparisons_in_full(outputs: Any) -> None:
    outputs.cell("sign", [80, 84, 88, 92, 96])
    outputs.cell("drgrpo", [60, 64, 68, 72, 76, 78, 79])
    outputs.tables()
    row = outputs.csv("contrasts-g4-tiny-sums")["sign − drgrpo"]
    assert row["every_a_above_every_b"] == "true"
    # 5 v 7, fully separated: one of C(12, 5) = 792 relabellings, as in the paper.
    assert float(row["permutation_p_greater"]) == pytest.approx(1 / 792)
    assert float(row["difference"]) == pytest.approx(0.88 - fmean([60, 64, 68, 72, 76, 78, 79]) / 100)
    assert float(row["probability_of_improvement"]) == 1


def test_replay_is_compared_with_the_same_arm_without(outputs: Any) -> None:
    outputs.cell("tasa", [50, 52])
    outputs.cell("tasa_ce", [56, 58])
    outputs.cell("contrastive_pair", [10, 20])
    outputs.tables()
    rows = outputs.csv("replay-g4-tiny-sums")
    assert list(rows) == ["tasa_ce − tasa", "contrastive_pair − tasa"]
    assert float(rows["tasa_ce − tasa"]["difference"]) == pytest.approx(0.06)
    assert float(rows["contrastive_pair − tasa"]["difference"]) == pytest.approx(-0.36)


def test_equal_tokens(outputs: Any) -> None:
    # 20 steps x 4 prompts x 12 tokens: 3840 tokens at G = 4, 7680 at G = 8, which has 3840 after step 10.
    outputs.base(20)
    outputs.cell("sign", [60, 70], 4)
    outputs.cell("sign", [90, 90], 8, by_step={10: 40}, tables=True)
    outputs.tables()
    frame = pd.read_csv(outputs.path / "tables" / "group-size-tiny-sums.csv")
    small, large = (frame[frame["group_size"] == size].iloc[0] for size in (4, 8))
    assert small["budget"] == large["budget"] == 3840
    assert small["equal_tokens"] == pytest.approx(0.65)
    assert large["mean"] == pytest.approx(0.90)
    assert large["equal_tokens"] == pytest.approx(0.40)


def test_equal_tokens_between_two_evaluations(outputs: Any) -> None:
    outputs.base(20)
    outputs.cell("sign", [60], 4)
    outputs.cell("sign", [90], 8, by_step={5: 30}, tables=True)
    outputs.tables()
    frame = pd.read_csv(outputs.path / "tables" / "group-size-tiny-sums.csv")
    # From (1920 tokens, 30 %) to (7680, 90 %): a third of the way at 3840.
    assert frame[frame["group_size"] == 8].iloc[0]["equal_tokens"] == pytest.approx(0.30 + 0.60 / 3)


def test_equal_tokens_from_the_steps_where_the_evaluation_does_not_say(outputs: Any) -> None:
    outputs.cell("sign", [60], 4)
    (config,) = outputs.cell("sign", [90], 8, tables=True)
    final = {"step": 20, "n": 100, "right": 90, "truncated": 0.0}
    earlier = {"10": final | {"step": 10, "right": 50}}
    synthetic.write_evaluation(RunFolder.of(config), config, final, earlier=earlier)
    outputs.tables()
    frame = pd.read_csv(outputs.path / "tables" / "group-size-tiny-sums.csv")
    assert frame[frame["group_size"] == 8].iloc[0]["equal_tokens"] == pytest.approx(0.50)


def test_dead_groups_stand_beside_the_homogeneous_share(outputs: Any) -> None:
    outputs.base(25)
    configs = outputs.cell("drgrpo", [30, 32], tables=True)
    outputs.tables()
    row = outputs.csv("degeneracy-tiny-sums")["drgrpo"]
    shares = [RunFolder.of(config).result()["shares"] for config in configs]
    rewards = [RunFolder.of(config).read("steps")["reward"].mean() for config in configs]
    assert float(row["dead"]) == pytest.approx(fmean(s["dead"] for s in shares))
    assert float(row["all_fail"]) + float(row["mixed"]) + float(row["all_pass"]) == pytest.approx(1)
    assert float(row["d_iid_base"]) == pytest.approx(0.25**4 + 0.75**4)
    p = fmean(rewards)
    assert float(row["d_iid"]) == pytest.approx(p**4 + (1 - p) ** 4)
    assert float(row["ratio"]) == pytest.approx(float(row["dead"]) / float(row["d_iid"]))


def test_cost(outputs: Any) -> None:
    configs = outputs.cell("sign", [80, 84])
    for config in configs:
        RunFolder.of(config).write_provenance({"hardware": {"gpus": ["H200", "H200"]}})
    outputs.tables()
    row = outputs.csv("cost-tiny-sums")["sign"]
    assert (row["tokens"], row["tokens_all"]) == ("3840", "7680")
    assert float(row["seconds"]) == 9.0
    assert float(row["gpu_hours"]) == pytest.approx(2 * 18 / 3600)
    assert row["hardware"] == "2 x H200"


def test_leave_one_seed_out(outputs: Any) -> None:
    outputs.cell("sign", [60, 62, 94])
    outputs.cell("drgrpo", [59, 61, 63])
    outputs.tables()
    assert "largest Welch p" in outputs.text("leave-one-out-g4-tiny-sums").split("|")[0]
    row = outputs.csv("leave-one-out-g4-tiny-sums")["sign"]
    assert float(row["lowest"]) == pytest.approx(0.61)
    assert row["lowest_without"] == "44"
    assert float(row["difference_low"]) == pytest.approx(0.0)
    assert float(row["highest"]) == pytest.approx(0.78)


def test_a_repeated_evaluation_shows_its_noise(outputs: Any) -> None:
    (config,) = outputs.cell("sign", [80])
    key = evaluation_name(config).rsplit("-", 1)[1]
    final = {"step": 20, "n": 100, "right": 82, "truncated": 0.0}
    synthetic.write_evaluation(RunFolder.of(config), config, final, name=f"again-{key}")
    out = outputs.tables()
    row = outputs.csv("repeats")[RunFolder.of(config).name]
    assert float(row["spread"]) == pytest.approx(0.02)
    assert "moved by up to 2.0 points" in " ".join(out.split())
    # The repeat is no second seed.
    assert outputs.csv("table1-tiny-sums")["sign"]["n"] == "1"


@pytest.mark.parametrize(
    ("sign", "told"), [([30, 32, 34], "drgrpo is above sign"), ([50, 52, 54], "sign is above drgrpo")]
)
def test_transfer_is_as_prominent_whatever_its_sign(outputs: Any, sign: list[int], told: str) -> None:
    def transferred(configs: list[Any], rights: list[int]) -> None:
        for config, right in zip(configs, rights, strict=True):
            final = {"step": 20, "n": 100, "right": right, "truncated": 0.0}
            synthetic.write_evaluation(RunFolder.of(config), config, final, name="math500-00000002", dataset="math500")

    transferred(outputs.cell("sign", [80, 84, 88], 8), sign)
    transferred(outputs.cell("drgrpo", [70, 74, 78], 8), [40, 42, 44])
    out = " ".join(outputs.tables().split())
    assert "Transfer to math500" in out
    assert f"G = 8: {told}" in out
    frame = pd.read_csv(outputs.path / "tables" / "transfer-tiny-sums-on-math500.csv")
    assert frame.iloc[0]["sign_to_drgrpo"] == pytest.approx(fmean(sign) / 100 - 0.42)
    assert not list((outputs.path / "tables").glob("table*-on-math500*"))


def test_models_side_by_side(outputs: Any) -> None:
    for name, hidden, base, sign in (("small", 96, 20, [40, 42]), ("large", 192, 60, [70, 72])):
        outputs.base(base, model__name=name, model__hidden_size=hidden)
        outputs.cell("sign", sign, model__name=name, model__hidden_size=hidden)
    outputs.tables()
    rows = outputs.csv("table3-sums")
    gains = {name.split("-")[0]: float(row["sign_to_base"]) for name, row in rows.items()}
    assert gains == {"small": pytest.approx(0.21), "large": pytest.approx(0.11)}
    assert "differ in more than the model" not in outputs.text("table3-sums")
    outputs.cell("sign", [1, 2], model__name="other", learning_rate=0.5)
    outputs.tables()
    assert "differ in more than the model: learning_rate" in outputs.text("table3-sums").replace("\\", "")


def test_pass_at_k_by_hand(outputs: Any) -> None:
    base = outputs.base()
    (config,) = outputs.cell("sign", [80])
    # c of 4 right: 1, 4, 0. pass@2 = 1 - C(4-c, 2) / C(4, 2) = 1/2, 1, 0.
    sampled(outputs, config, {"a": [True, False, False, False], "b": [True] * 4, "c": [False] * 4})
    sampled(outputs, base, {"a": [False] * 4, "b": [True] * 4, "c": [False] * 4})
    outputs.tables()
    frame = pd.read_csv(outputs.path / "tables" / "pass-at-k-tiny-sums-samples.csv").set_index("arm")
    assert [frame.loc["sign", f"pass{k}"] for k in (1, 2, 4)] == pytest.approx([5 / 12, 0.5, 2 / 3])
    assert frame.loc["base", "pass4"] == pytest.approx(1 / 3)
    # More draws than samples can't be judged without bias.
    assert "pass8" not in frame
    error = pd.Series([0.5, 1.0, 0.0]).std() / math.sqrt(3)
    assert frame.loc["sign", "pass2_ci95_low"] == pytest.approx(max(0, 0.5 - 1.96 * error))


def test_pass_at_k_averages_seeds_question_by_question(outputs: Any) -> None:
    first, second = outputs.cell("sign", [80, 80])
    sampled(outputs, first, {"a": [True] * 4, "b": [False] * 4})
    sampled(outputs, second, {"b": [True, True, False, False], "a": [True] * 4})
    setting: Setting = next(s for s in read_study(outputs.path).settings if s.samples > 1)
    (cell,) = setting.cells
    result = pass_at_k_of(cell, setting.evaluation)
    assert result is not None
    assert result.by_k[1][0] == pytest.approx((1 + 0.25) / 2)
    assert (result.n_seeds, result.questions) == (2, 2)


def test_two_untrained_models_with_samples_both_have_tables(outputs: Any) -> None:
    for name, hidden in (("small", 96), ("large", 192)):
        base = outputs.base(model__name=name, model__hidden_size=hidden)
        sampled(outputs, base, {"a": [True] * 4, "b": [False] * 4})
    outputs.tables()
    for name in ("small", "large"):
        assert (outputs.path / "tables" / f"table1-{name}-sums.csv").is_file()
        assert (outputs.path / "tables" / f"pass-at-k-{name}-sums-samples.csv").is_file()


def test_samples_of_the_untrained_model_alone_have_a_table_beside_trained_runs(outputs: Any) -> None:
    sampled(outputs, outputs.base(), {"a": [True] * 4, "b": [False] * 4})
    outputs.cell("sign", [80])
    outputs.tables()
    assert list(outputs.csv("pass-at-k-tiny-sums-samples")) == ["base"]
