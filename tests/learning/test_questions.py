"""Question files: what is read, what is refused, and how a question becomes a prompt."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradstarve.errors import UserError
from gradstarve.learning.questions import build_prompt
from gradstarve.learning.tasks import load_task
from gradstarve.runs.dataset_config import PromptConfig

TRAIN = [{"question": f"What is {i} + 1?", "answer": f"It is <<{i}+1={i + 1}>>.\n#### {i + 1}"} for i in range(3)]
TEST = [{"question": "What is 1,000 + 234?", "answer": "#### 1,234"}]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text(lines)
    return path


@pytest.fixture
def load(compose_config: Any, tmp_path: Path) -> Any:
    def loaded(train: Path, evaluation: Path, *more: str) -> Any:
        return load_task(
            compose_config(
                "model=smollm2_135m", "dataset=gsm8k", f"dataset.train_path={train}", f"dataset.eval_path={evaluation}",
                *more,
            ).dataset
        )  # fmt: skip

    return loaded


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet"])
def test_the_formats_hold_the_same(load: Any, tmp_path: Path, suffix: str) -> None:
    task = load(write(tmp_path / f"train{suffix}", TRAIN), write(tmp_path / f"test{suffix}", TEST))
    assert [q.gold for q in task.train] == ["1", "2", "3"]
    assert [q.gold for q in task.evaluation] == ["1234"]
    grades = task.grade(["... #### 1234", "1234.00", "1235"], ["1234"] * 3, [False] * 3)
    assert [g.verdict for g in grades] == ["right", "right", "wrong"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question": "1?", "answer": "one"}], r"train\.jsonl, row 1: .*####"),
        ([*TRAIN, {"question": "1?", "answer": "#### soon"}], r"train\.jsonl, row 4: .*soon"),
        ([{"questions": "1?", "answer": "#### 1"}], r"row 1: no text in column 'question'. Did you mean 'questions'\?"),
        ([{"question": None, "answer": "#### 1"}], r"row 1: no text in column 'question'"),
        (
            [*TRAIN, {"question": "what IS  1000+234 ?", "answer": "#### 1"}],
            r"training row train/3 asks the same question",
        ),
        ([], r"train\.jsonl: no rows"),
    ],
)
def test_what_cannot_be_trusted_is_named_by_row(load: Any, tmp_path: Path, rows: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        load(write(tmp_path / "train.jsonl", rows), write(tmp_path / "test.jsonl", TEST))
    assert "\n" not in str(raised.value)


def test_a_broken_line_and_an_unknown_ending_are_one_line(load: Any, tmp_path: Path) -> None:
    test = write(tmp_path / "test.jsonl", TEST)
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(TRAIN[0]) + "\n{nonsense\n")
    with pytest.raises(UserError, match=r"broken\.jsonl, line 2: not JSON"):
        load(broken, test)
    text = tmp_path / "train.txt"
    text.write_text("1")
    with pytest.raises(UserError, match=r"train\.txt should end in \.jsonl, "):
        load(text, test)


def test_prompts_are_built_as_configured() -> None:
    chat = PromptConfig(
        "1", "Be brief.", "{question} Answer:", chat=True, examples=[{"question": "1+1?", "answer": "2"}]
    )
    assert build_prompt(chat, "2+2?") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1? Answer:"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2? Answer:"},
    ]
    plain = PromptConfig(
        "1", None, "Q: {question}\nA:", chat=False, answer_prefix=" ", examples=[{"question": "1+1?", "answer": "2"}]
    )
    assert build_prompt(plain, "2{question}?") == "Q: 1+1?\nA: 2\n\nQ: 2{question}?\nA: "


def test_gsm8k_in_full(load: Any, shared_data: Path) -> None:
    task = load(shared_data / "gsm8k_train.jsonl.gz", shared_data / "gsm8k_test.jsonl")
    assert (len(task.train), len(task.evaluation)) == (7473, 1319)
    grades = task.graders["strict"](
        [f"#### {q.gold}" for q in task.evaluation], [q.gold for q in task.evaluation], [False] * 1319
    )
    assert all(g.verdict == "right" for g in grades)


def test_shared_questions_can_be_left_out_of_training(load: Any, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", [*TRAIN, {"question": "what is 1000+234", "answer": "#### 1"}])
    task = load(train, write(tmp_path / "test.jsonl", TEST), "dataset.overlap=drop_from_training")
    assert [q.text for q in task.train] == [row["question"] for row in TRAIN]


def test_math_golds_are_the_last_box_and_are_graded_by_meaning(
    compose_config: Any, tmp_path: Path, shared_data: Path
) -> None:
    train = write(
        tmp_path / "train.jsonl",
        [{"problem": "Half of one?", "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}."}],
    )
    config = compose_config(
        "model=smollm2_135m", "dataset=math500", f"dataset.train_path={train}",
        f"dataset.eval_path={shared_data / 'math500.jsonl'}",
    )  # fmt: skip
    task = load_task(config.dataset)
    assert [q.gold for q in task.train] == [r"\frac{1}{2}"]
    assert len(task.evaluation) == 500
    grades = task.grade([r"so \boxed{0.5}", r"so \boxed{\frac13}", "0.5"], [task.train[0].gold] * 3, [False] * 3)
    assert [g.verdict for g in grades] == ["right", "wrong", "wrong"]
    assert task.graders["flexible"](["the answer is 0.5"], [task.train[0].gold], [False])[0].verdict == "right"
