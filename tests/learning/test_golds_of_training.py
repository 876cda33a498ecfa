"""The golds of mathematics: what stands in the last box of a solution, or nothing that is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradstarve.errors import UserError
from gradstarve.learning.questions import load_questions

SOLUTION = {"problem": "Half of one?", "solution": r"It is \boxed{\frac{1}{2}}.", "answer": "a half"}
EVALUATION = [{"problem": "One third of six?", "answer": "2"}, {"problem": "Its half?", "answer": r"so \boxed{1}"}]


def golds(compose_config: Any, folder: Path, rows: list[dict[str, str]], *more: str) -> list[list[str]]:
    """Of training and evaluation."""
    paths = []
    for side, content in (("train", rows), ("eval", EVALUATION)):
        file = folder / f"{side}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in content))
        paths.append(f"dataset.{side}_path={file}")
    config = compose_config("model=smollm2_135m", "dataset=math500", *paths, *more)
    return [[gold for *_, gold in side] for side in load_questions(config.dataset)]


def test_a_solution_s_gold_is_its_last_box_and_an_answer_is_one_with_or_without(
    compose_config: Any, tmp_path: Path
) -> None:
    assert golds(compose_config, tmp_path, [SOLUTION]) == [[r"\frac{1}{2}"], ["2", "1"]]
    assert golds(compose_config, tmp_path, [SOLUTION], "dataset.train_answer=answer") == [["a half"], ["2", "1"]]
    assert golds(compose_config, tmp_path, [SOLUTION], "dataset.train_answer=null") == [["a half"], ["2", "1"]]


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ("Half of one is one half.", r"dataset\.train_answer: no \\boxed\{\.\.\.\} around the answer"),
        (r"It is \boxed{\frac{1}{2}", r"dataset\.train_answer: no \\boxed\{\.\.\.\} around the answer"),
        (r"First \boxed{1}, then \boxed{ }.", r"dataset\.train_answer: the last \\boxed\{\.\.\.\} is empty"),
    ],
)
def test_a_solution_without_an_answer_is_named_by_file_and_row(
    compose_config: Any, tmp_path: Path, solution: str, message: str
) -> None:
    row = {"problem": "Half of it?", "solution": solution, "answer": "a quarter"}
    with pytest.raises(UserError, match=rf"train\.jsonl, row 2: {message}$"):
        golds(compose_config, tmp_path, [SOLUTION, row])
