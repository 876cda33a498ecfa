"""Published labels that we grade otherwise: each looked at by hand, kept with its reason, and true of its siblings."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradstarve.grading import MathGrader, grade_bare_number, grade_number, parse_gold_gsm8k

DECISIONS = [json.loads(line) for line in Path(__file__).with_name("decisions.jsonl").read_text("utf-8").splitlines()]
AS_VERDICT = {True: "right", False: "wrong"}


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    with MathGrader(workers=1, seconds=20) as started:
        yield started


def rows_of(path: Path) -> list[dict[str, Any]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in content.splitlines()]


def verdict(grader: MathGrader, case: dict[str, Any]) -> str:
    if "pred" in case:
        return grader.grade_bare([case["pred"]], [case["gold"]])[0].verdict
    return grader.grade(case["completion"], case["gold"]).verdict


@pytest.mark.parametrize("decision", DECISIONS, ids=[d["decision"] for d in DECISIONS])
def test_a_decision_holds_for_its_rows_and_for_their_siblings(grader: MathGrader, decision: dict[str, Any]) -> None:
    assert decision["reason"] and len(decision["siblings"]) >= 2
    for case in decision["rows"] + decision["siblings"]:
        assert (case, verdict(grader, case)) == (case, case["verdict"])


def known(source: str) -> dict[str, str]:
    return {row["id"]: row["verdict"] for decision in DECISIONS for row in decision["rows"] if row["source"] == source}


def test_math500_outputs_disagree_only_where_it_was_decided(grader: MathGrader, shared_data: Path) -> None:
    rows = rows_of(shared_data / "labelled_outputs_math500.jsonl.gz")
    grades = grader.grade_many([row["completion"] for row in rows], [row["gold"] for row in rows])
    differ = {
        row["id"]: grade.verdict
        for row, grade in zip(rows, grades, strict=True)
        if grade.verdict != AS_VERDICT[row["label"]]
    }
    assert differ == known("labelled_outputs_math500")
    table = Counter((row["label"], grade.verdict) for row, grade in zip(rows, grades, strict=True))
    assert table == {(True, "right"): 663, (True, "wrong"): 1, (False, "wrong"): 329, (False, "right"): 7}


def test_verifier_cases_disagree_only_where_it_was_decided(grader: MathGrader, shared_data: Path) -> None:
    rows = rows_of(shared_data / "verifier_cases.jsonl")
    math = [row for row in rows if row["kind"] == "math"]
    verdicts = dict(
        zip(
            [row["id"] for row in math],
            [g.verdict for g in grader.grade_bare([row["pred"] for row in math], [row["gold"] for row in math])],
            strict=True,
        )
    )
    verdicts |= {
        row["id"]: grade_bare_number(row["pred"], row["gold"]).verdict for row in rows if row["kind"] == "gsm8k"
    }
    differ = {row["id"]: verdicts[row["id"]] for row in rows if verdicts[row["id"]] != AS_VERDICT[row["expect"]]}
    assert differ == known("verifier_cases")


def test_samples_of_a_third_model_disagree_only_on_a_wrong_label(grader: MathGrader, shared_data: Path) -> None:
    samples = [
        (text, row["gold"], bool(reward))
        for row in rows_of(shared_data / "rollouts_math_qwen25math_100x8.jsonl")
        for text, reward in zip(row["completions"], row["rewards"], strict=True)
    ]
    grades = grader.grade_many([text for text, _, _ in samples], [gold for _, gold, _ in samples])
    differ = [
        gold for (_, gold, label), grade in zip(samples, grades, strict=True) if grade.verdict != AS_VERDICT[label]
    ]
    assert differ == ["10{,}000"]


def test_solutions_of_math500_are_right(grader: MathGrader, shared_data: Path) -> None:
    rows = rows_of(shared_data / "math500.jsonl")
    assert grader.unreadable([row["answer"] for row in rows]) == []
    grades = grader.grade_many([row["solution"] for row in rows], [row["answer"] for row in rows], "strict")
    assert [row["answer"] for row, grade in zip(rows, grades, strict=True) if grade.verdict != "right"] == []


def test_gsm8k_outputs_agree_on_every_row(shared_data: Path) -> None:
    rows = rows_of(shared_data / "labelled_outputs_gsm8k_gpt3.jsonl.gz")
    assert len(rows) == 5276
    differ = [
        r["id"] for r in rows if grade_number(r["completion"], r["gold"], "flexible").verdict != AS_VERDICT[r["label"]]
    ]
    assert differ == []


@pytest.mark.parametrize("name", ["gsm8k_test.jsonl", "gsm8k_train.jsonl.gz"])
def test_gsm8k_solutions_are_right_by_both_rules(name: str, shared_data: Path) -> None:
    for row in rows_of(shared_data / name):
        gold = parse_gold_gsm8k(row["answer"])
        for rule in ("strict", "flexible"):
            assert (grade_number(row["answer"], gold, rule).verdict, row["answer"]) == ("right", row["answer"])
