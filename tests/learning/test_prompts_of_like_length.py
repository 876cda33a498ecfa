"""Evaluation in batches of prompts of like length: little is padded, and neither order nor batch decides an answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradstarve.learning.decoding import Asked, batches
from gradstarve.learning.evaluation import evaluate
from gradstarve.learning.policy import Policy, load_policy
from gradstarve.learning.tasks import Question, load_task

from .small_models import save_small_model

LENGTHS = [3, 40, 9, 33, 5, 21, 8]
TEXTS = {f"{'a' * length}{number}": number for number, length in enumerate(LENGTHS)}


def asked(lengths: list[int], samples: int) -> list[Asked]:
    return [
        Asked(Question(f"eval/{n}", "", "", "0"), sample, (1,) * length)
        for n, length in enumerate(lengths)
        for sample in range(samples)
    ]


@pytest.mark.parametrize(("samples", "size"), [(1, 1), (1, 4), (3, 2), (4, 8), (5, 100)])
def test_batches_hold_each_once_in_the_order_of_their_lengths(samples: int, size: int) -> None:
    every = asked(random.Random(3).choices(range(1, 50), k=30), samples)
    found = batches(every, size)
    flat = [one for batch in found for one in batch]
    assert sorted(one.key for one in flat) == sorted(one.key for one in every)
    assert [len(one.tokens) for one in flat] == sorted(len(one.tokens) for one in every)
    assert [len(batch) for batch in found[:-1]] == [size] * (len(found) - 1)
    # A question's samples stand side by side: cut only where a batch is full.
    places = [[place for place, one in enumerate(flat) if one.question.id == f"eval/{n}"] for n in range(30)]
    assert all(place[-1] - place[0] == samples - 1 for place in places)
    if size % samples == 0:
        assert all(len({place // size for place in of_one}) == 1 for of_one in places)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory, compose_config: Any) -> tuple[str, Policy]:
    folder = save_small_model("llama", tmp_path_factory.mktemp("model"))
    named = f"model.id={folder}"
    config = compose_config("model=llama3_1_8b_instruct", "dataset=gsm8k", named, "model.dtype=float32")
    return named, load_policy(config)


def answered(
    compose_config: Any, folder: Path, policy: tuple[str, Policy], questions: list[str], batch_size: int
) -> tuple[pd.DataFrame, list[list[str]]]:
    """The rows of an evaluation, and the questions of each of its batches."""
    folder.mkdir()
    paths = []
    for side, texts in (("train", ["b?"]), ("eval", questions)):
        file = folder / f"{side}.jsonl"
        rows = [{"question": text, "answer": f"#### {TEXTS.get(text, 0)}"} for text in texts]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(f"dataset.{side}_path={file}")
    config = compose_config(
        "model=llama3_1_8b_instruct", policy[0], "model.dtype=float32", "dataset=gsm8k",
        "dataset.prompt.user='{question}'", *paths, f"evaluation.batch_size={batch_size}", "completion_limit=6",
    )  # fmt: skip
    evaluate(policy[1].model, policy[1].tokenizer, load_task(config.dataset), config, 0, folder)
    _, *kept = (folder / "step-000000.jsonl").read_text().splitlines()
    frame = pd.read_parquet(folder / "step-000000.parquet")
    text_of = dict(zip(frame["question_id"], frame["question"], strict=True))
    return frame, [[text_of[row["question_id"]] for row in json.loads(line)["rows"]] for line in kept]


def test_little_is_padded_and_answers_stand_in_the_order_of_the_questions(
    compose_config: Any, tmp_path: Path, policy: tuple[str, Policy]
) -> None:
    texts = list(TEXTS)
    frame, found = answered(compose_config, tmp_path / "as they stand", policy, texts, 3)
    assert list(frame["question"]) == texts
    assert list(frame["gold"]) == [str(number) for number in TEXTS.values()]
    by_length = sorted(texts, key=len)
    assert found == [by_length[:3], by_length[3:6], by_length[6:]]

    other = random.Random(1).sample(texts, len(texts))
    assert other != texts
    shuffled, again = answered(compose_config, tmp_path / "shuffled", policy, other, 3)
    assert list(shuffled["question"]) == other and again == found
    one_by_one, single = answered(compose_config, tmp_path / "one by one", policy, texts, 1)
    assert single == [[text] for text in by_length]
    columns = ["question", "gold", "completion", "truncated", "length", "verdict"]
    expected = frame.set_index("question")[columns[1:]]
    for rows in (shuffled, one_by_one):
        pd.testing.assert_frame_equal(rows.set_index("question").loc[expected.index, columns[1:]], expected)
