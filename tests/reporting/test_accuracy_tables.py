"""Table 1, the G = 8 control: their numbers, what they name as missing, and what they keep apart."""

from __future__ import annotations

import json
import math
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from gradstarve.runs.claim import claim
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.status import write_failure, write_status


def test_numbers_worked_out_by_hand(outputs: Any) -> None:
    outputs.base(25)
    outputs.cell("sign", [80, 84, 88])
    outputs.cell("drgrpo", [70, 74, 78])
    outputs.tables()
    row = outputs.csv("table1-tiny-sums")["sign"]
    value = {key: float(row[key]) for key in row if key not in {"arm"} and row[key]}
    assert (value["n"], value["mean"], value["median"], value["min"], value["max"]) == (3, 0.84, 0.84, 0.80, 0.88)
    assert value["sd"] == pytest.approx(0.04, abs=1e-12)
    # t(0.975, df 2) = 4.302653
    assert value["ci95_low"] == pytest.approx(0.84 - 4.302653 * 0.04 / math.sqrt(3), abs=1e-7)
    assert value["to_base"] == pytest.approx(0.59)
    assert value["to_drgrpo"] == pytest.approx(0.10)
    # t = 0.1 / sqrt(2 * 0.04^2 / 3) at 4 degrees of freedom; 2 of the 20 relabellings are as far apart.
    assert value["welch_p"] == pytest.approx(2 * stats.t.sf(0.1 / math.sqrt(2 * 0.0016 / 3), 4))
    assert value["permutation_p"] == pytest.approx(0.1)
    assert value["smallest_p"] == pytest.approx(0.1)
    assert (value["seed_42"], value["seed_43"], value["seed_44"]) == (0.80, 0.84, 0.88)
    drgrpo = outputs.csv("table1-tiny-sums")["drgrpo"]
    assert drgrpo["to_drgrpo"] == drgrpo["permutation_p"] == ""
    assert float(outputs.csv("table1-tiny-sums")["base"]["mean"]) == 0.25


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    a=st.lists(st.integers(0, 100), min_size=2, max_size=5),
    b=st.lists(st.integers(0, 100), min_size=2, max_size=5),
)
def test_any_values_give_what_scipy_gives(outputs: Any, tmp_path_factory: Any, a: list[int], b: list[int]) -> None:
    outputs.path = tmp_path_factory.mktemp("outputs")
    outputs.cell("tasa", a)
    outputs.cell("drgrpo", b)
    outputs.tables()
    row = outputs.csv("table1-tiny-sums")["tasa"]
    assert float(row["mean"]) == pytest.approx(fmean(a) / 100)
    assert float(row["to_drgrpo"]) == pytest.approx((fmean(a) - fmean(b)) / 100)
    if len(set(a)) > 1:
        assert float(row["welch_p"]) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    expected = stats.permutation_test((a, b), lambda x, y: abs(fmean(x) - fmean(y)), alternative="greater").pvalue
    assert float(row["permutation_p"]) == pytest.approx(expected, abs=1e-9)


def test_arms_stand_in_the_papers_order(outputs: Any) -> None:
    outputs.base()
    for arm in ("rloo", "drgrpo", "contrastive_pair", "tasa_ce", "tasa", "grpo", "sign_ce", "sign"):
        outputs.cell(arm, [50, 60])
    outputs.tables()
    rows = list(outputs.csv("table1-tiny-sums"))
    assert rows == ["base", "sign", "sign_ce", "tasa", "tasa_ce", "contrastive_pair", "drgrpo", "grpo", "rloo"]


def test_one_name_with_two_parameters_is_two_arms(outputs: Any) -> None:
    outputs.cell("weighted", [50, 60], parameters={"weight": 0.1})
    outputs.cell("weighted", [70, 80], parameters={"weight": 0.5})
    outputs.tables()
    rows = outputs.csv("table1-tiny-sums")
    assert set(rows) == {"base", "weighted (weight 0.1)", "weighted (weight 0.5)"} - {"base"}
    assert float(rows["weighted (weight 0.5)"]["mean"]) == 0.75


def test_what_is_missing_is_named(outputs: Any) -> None:
    done = outputs.cell("sign", [80, 84])
    failed, never, gone = (outputs.config("sign", 4, seed) for seed in (44, 45, 46))
    folder = RunFolder.of(failed)
    folder.write_config(failed)
    write_failure(folder.path, MemoryError("no more\nout of memory"))
    RunFolder.of(gone).write_config(gone)
    write_status(RunFolder.of(gone).path, "running")
    outputs.declare([*done, failed, never, gone])
    out = outputs.tables()
    row = outputs.csv("table1-tiny-sums")["sign"]
    assert (row["n"], row["n_absent"]) == ("2", "3")
    assert "2/5†" in out
    for config, told in (
        (failed, "failed (MemoryError: out of memory)"),
        (never, "never started"),
        (gone, "process is gone"),
    ):
        line = next(line for line in out.splitlines() if RunFolder.of(config).name in line)
        assert told in out[out.index(line) :][:250]
    assert "that were not run here: base, sign_ce, tasa, tasa_ce, contrastive_pair, drgrpo" in outputs.text(
        "table1-tiny-sums"
    ).replace("\\", "")


def test_a_run_that_is_running_is_named_as_that(outputs: Any) -> None:
    outputs.cell("sign", [80])
    config = outputs.config("sign", 4, 50)
    folder = RunFolder.of(config)
    folder.write_config(config)
    write_status(folder.path, "running")
    with claim(folder.path):
        out = outputs.tables()
    assert f"{folder.name}: running" in out


def test_settings_never_mix(outputs: Any) -> None:
    outputs.base()
    outputs.cell("sign", [80, 84])
    outputs.cell("sign", [10, 20], completion_limit=20)
    outputs.cell("sign", [30, 40], evaluation__limit=50)
    out = outputs.tables()
    files = sorted(file.stem for file in (outputs.path / "tables").glob("table1-*.csv"))
    assert len(files) == 3
    assert sorted(float(outputs.csv(name)["sign"]["mean"]) for name in files) == [0.15, 0.35, 0.82]
    limited = next(name for name in files if "completion_limit-20" in name)
    assert float(outputs.csv(limited)["sign"]["mean"]) == 0.15
    assert "Not mixed in: 2 runs" in out
    # The untrained model was evaluated in the first way only.
    assert [name for name in files if "base" in outputs.csv(name)] == [
        name for name in files if float(outputs.csv(name)["sign"]["mean"]) == 0.82
    ]


def test_a_run_evaluated_otherwise_is_named_where_it_is_missing(outputs: Any) -> None:
    done = outputs.cell("sign", [80, 84])
    odd = outputs.config("sign", 4, 44)
    synthetic.write_run(outputs.config("sign", 4, 44, evaluation__limit=50), 40, 50)
    outputs.declare([*done, odd])
    outputs.tables()
    name = next(
        file.stem
        for file in (outputs.path / "tables").glob("table1-*.csv")
        if outputs.csv(file.stem)["sign"]["n"] == "2"
    )
    text = outputs.text(name).replace("\\", "")
    assert f"{RunFolder.of(odd).name}: not evaluated (finished, but evaluated as greedy-" in text


def test_other_code_and_versions_are_named_and_marked(outputs: Any) -> None:
    outputs.cell("sign", [80, 84, 88])
    outputs.cell("drgrpo", [70, 74])
    odd = outputs.config("drgrpo", 4, 50)
    synthetic.write_run(odd, 71, 100, commit="b" * 40, dirty=True, versions={"torch": "2.9.1"})
    out = outputs.tables()
    assert "3‡" in out
    told = " ".join(out.split())
    assert f"‡ {RunFolder.of(odd).name}: code bbbbbbbbbb with uncommitted changes (most, 5 of 6: aaaaaaaaaa)" in told
    assert "torch 2.9.1 (most: 2.13.0)" in told


def test_a_copied_folder_counts_once(outputs: Any) -> None:
    (config,) = outputs.cell("sign", [80])
    folder = RunFolder.of(config).path
    copy = folder.with_name("sign-g4-s42-copied00")
    copy.mkdir()
    for name in ("result.json", "config.yaml"):
        (copy / name).write_bytes((folder / name).read_bytes())
    outputs.tables()
    assert outputs.csv("table1-tiny-sums")["sign"]["n"] == "1"


def test_every_mean_is_that_of_the_runs_that_provenance_names(outputs: Any) -> None:
    outputs.base()
    outputs.cell("sign", [80, 84, 88])
    outputs.cell("drgrpo", [70, 74])
    outputs.tables()
    provenance = json.loads((outputs.path / "tables" / "provenance.json").read_text())
    rows = outputs.csv("table1-tiny-sums")
    assert set(provenance["tables"]["table1-tiny-sums"]["rows"]) == set(rows)
    for key, entry in provenance["tables"]["table1-tiny-sums"]["rows"].items():
        results = [json.loads((outputs.path / "runs" / run / "result.json").read_text()) for run in entry["runs"]]
        assert float(rows[key]["mean"]) == pytest.approx(fmean(r["evaluation"]["right"] / 100 for r in results))


def test_separation_of_seeds_is_said_either_way(outputs: Any) -> None:
    outputs.cell("sign", [80, 84, 88], 8)
    outputs.cell("drgrpo", [70, 74, 78], 8)
    out = " ".join(outputs.tables().split())
    assert "Every seed of sign is above every seed of drgrpo (lowest 80.0, highest 78.0)" in out
    outputs.cell("drgrpo", [90, 94, 98], 8)
    out = " ".join(outputs.tables().split())
    assert "Every seed of drgrpo is above every seed of sign (lowest 90.0, highest 88.0)" in out
    outputs.cell("drgrpo", [70, 94, 78], 8)
    assert "(70.0 to 94.0) overlap" in " ".join(outputs.tables().split())


def test_the_control_has_its_own_table(outputs: Any) -> None:
    outputs.cell("sign", [50, 60], 4)
    outputs.cell("sign", [80, 90], 8)
    outputs.cell("sign", [70, 80], 16)
    outputs.tables()
    means = [float(outputs.csv(f"{kind}-tiny-sums")["sign"]["mean"]) for kind in ("table1", "table2", "accuracy-g16")]
    assert means == [0.55, 0.85, 0.75]


def test_a_run_declared_under_two_evaluations_is_missing_in_both(outputs: Any) -> None:
    limited = {"evaluation__limit": 50}
    done = [*outputs.cell("sign", [80, 84]), *outputs.cell("drgrpo", [30, 40], **limited)]
    never, never_limited = outputs.config("sign", 4, 50), outputs.config("sign", 4, 50, **limited)
    assert RunFolder.of(never).path == RunFolder.of(never_limited).path
    outputs.declare([*done, never], "first")
    outputs.declare([*done, never_limited], "second")
    outputs.tables()
    files = [file.stem for file in (outputs.path / "tables").glob("table1-*.csv")]
    assert len(files) == 2
    for name in files:
        assert outputs.csv(name)["sign"]["n_absent"] == "1"
        assert f"{RunFolder.of(never).name}: missing (never started)" in outputs.text(name).replace("\\", "")


def test_answers_to_training_questions_are_never_held_out_accuracy(outputs: Any) -> None:
    outputs.base(25)
    outputs.cell("sign", [80, 84])
    outputs.cell("drgrpo", [30, 34])
    outputs.cell("sign", [99, 99], evaluation__split="train", learning_rate=0.5)
    outputs.cell("drgrpo", [10, 10], evaluation__split="train", learning_rate=0.5)
    out = outputs.tables()
    written = {file.stem for file in (outputs.path / "tables").glob("*.csv")}
    assert {name for name in written if "training-questions" in name} == {"accuracy-g4-tiny-sums-training-questions"}
    assert float(outputs.csv("table1-tiny-sums")["sign"]["mean"]) == 0.82
    text = outputs.text("accuracy-g4-tiny-sums-training-questions")
    assert "Accuracy on training questions of sums, which are not held out" in text.splitlines()[0]
    assert "100 training questions (not held out) of sums" in text
    frame = pd.read_csv(outputs.path / "tables" / "runs.csv")
    assert set(frame.loc[frame["accuracy"] == 0.99, "split"]) == {"train"}
    assert set(frame.loc[frame["accuracy"] == 0.80, "split"]) == {"eval"}
    # The claims are read against held-out questions only.
    assert "training-questions" not in out[out.index("The paper's claims") : out.index("Written:")]


def test_rules_that_disagree_are_said(outputs: Any) -> None:
    outputs.cell("sign", [80, 80], strict_right=60, flexible_right=80)
    outputs.cell("drgrpo", [30, 30], strict_right=29, flexible_right=30)
    outputs.cell("rloo", [50, 50])
    outputs.tables()
    rows = outputs.csv("table1-tiny-sums")
    told = [(rows[arm]["mean_strict"], rows[arm]["mean_flexible"]) for arm in ("sign", "drgrpo", "rloo")]
    assert told == [("0.6", "0.8"), ("0.29", "0.3"), ("", "")]
    notes = [line for line in outputs.text("table1-tiny-sums").splitlines() if "strict rule" in line]
    assert notes == [
        "- sign: 60.0 % right where answers are found by the strict rule, 80.0 % by the flexible one; the flexible "
        "rule counts here."
    ]
    frame = pd.read_csv(outputs.path / "tables" / "runs.csv").set_index("arm")
    assert list(frame.loc["sign", "strict_accuracy"]) == [0.6, 0.6]
    assert list(frame.loc["sign", "flexible_accuracy"]) == [0.8, 0.8]
