"""A grader that may decide otherwise makes other runs and other evaluations: old and new numbers never meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradstarve.grading import EXTRACTOR_VERSION
from gradstarve.runs import signature
from gradstarve.runs.signature import cell_key, evaluation_name, run_name


@pytest.mark.parametrize("dataset", ["gsm8k", "math500"])
def test_a_newer_extractor_is_another_run_and_another_evaluation(
    compose_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    file = tmp_path / "questions.jsonl"
    rows = [{"question": "1+1?", "answer": "#### 2", "problem": "1+1?", "solution": "\\boxed{2}"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = compose_config(
        "model=smollm2_135m", f"dataset={dataset}", f"dataset.train_path={file}", f"dataset.eval_path={file}"
    )
    before = run_name(config), cell_key(config), evaluation_name(config)
    monkeypatch.setitem(EXTRACTOR_VERSION, dataset, "another")
    after = run_name(config), cell_key(config), evaluation_name(config)
    assert all(old != new for old, new in zip(before, after, strict=True)), (before, after)


def test_a_newer_reading_of_integers_is_another_run_and_another_evaluation(
    compose_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose_config()
    before = run_name(config), evaluation_name(config)
    monkeypatch.setattr(signature, "INTEGER_VERSION", "another")
    assert run_name(config) != before[0] and evaluation_name(config) != before[1]


def test_the_version_of_a_grader_is_none_of_the_others(compose_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_config()
    before = run_name(config), evaluation_name(config)
    for task in EXTRACTOR_VERSION:
        monkeypatch.setitem(EXTRACTOR_VERSION, task, "another")
    assert (run_name(config), evaluation_name(config)) == before
