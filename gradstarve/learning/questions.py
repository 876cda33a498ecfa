"""Question and answer data from the hub or from local files, checked row by row, and put into prompts."""

from __future__ import annotations

import functools
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx
import pandas as pd

from gradstarve.errors import UserError, nearest
from gradstarve.grading import Grade, MathGrader, check_gold, grade_number, normalised_question, parse_gold_gsm8k
from gradstarve.grading.integers import grade_integer
from gradstarve.grading.text import boxes
from gradstarve.runs.dataset_config import HubSource, PromptConfig, QuestionsConfig

Messages = list[dict[str, str]]
Prompt = str | Messages
# (completion, gold, truncated) of every row -> their grades, in the same order.
GradeMany = Callable[[Sequence[str], Sequence[str], Sequence[bool]], list[Grade]]
# id, prompt, question text, gold
Row = tuple[str, Prompt, str, str]


def load_questions(config: QuestionsConfig, key: str = "dataset") -> tuple[list[Row], list[Row]]:
    """Training and evaluation rows. `key` is where the data set stands in the config.

    Raises UserError with file and row for a missing column, a gold that cannot be read, or a question that stands in
    both (compared without case, white space and punctuation).
    """
    train = load_side(config, "train", key)
    evaluation = load_side(config, "eval", key)
    seen = {normalised_question(text): row_id for row_id, _, text, _ in evaluation}
    shared = [row for row in train if normalised_question(row[2]) in seen]
    if shared and config.overlap == "refuse":
        row_id, _, text, _ = shared[0]
        raise UserError(
            f"dataset {config.name}: training row {row_id} asks the same question as evaluation row "
            f"{seen[normalised_question(text)]} ({len(shared)} such rows); take it out of one of them, or set "
            f"{key}.overlap=drop_from_training"
        )
    if shared:
        print(f"{len(shared)} training questions stand in the evaluation too and are not trained on", file=sys.stderr)
        train = [row for row in train if row not in shared]
    train = train[: config.train_limit]
    return train, evaluation


def build_prompt(config: PromptConfig, question: str) -> Prompt:
    """The prompt of one question: chat messages, or text that ends where the answer begins."""
    user = config.user.replace("{question}", question)
    if config.chat:
        messages = [{"role": "system", "content": config.system}] if config.system is not None else []
        for example in config.examples:
            messages.append({"role": "user", "content": config.user.replace("{question}", example["question"])})
            messages.append({"role": "assistant", "content": example["answer"]})
        return [*messages, {"role": "user", "content": user}]
    shots = [
        config.user.replace("{question}", example["question"]) + config.answer_prefix + example["answer"]
        for example in config.examples
    ]
    return "\n\n".join([*([config.system] if config.system is not None else []), *shots, user]) + config.answer_prefix


@functools.cache
def question_graders(grader: str, rule: str) -> dict[str, GradeMany]:
    """Every rule that evaluation reports, by name. Kept, as those of mathematics have worker processes."""
    if grader == "integer":
        return {rule: lambda texts, golds, cut: [grade_integer(*row) for row in zip(texts, golds, cut, strict=True)]}
    if grader == "gsm8k":
        return {
            "strict": lambda texts, golds, _: [grade_number(t, g, "strict") for t, g in zip(texts, golds, strict=True)],
            "flexible": lambda texts, golds, _: [
                grade_number(t, g, "flexible") for t, g in zip(texts, golds, strict=True)
            ],
        }

    @functools.cache
    def math() -> MathGrader:
        """Worker processes, started with the first grade; they end with this process."""
        return MathGrader(workers=min(4, os.cpu_count() or 1)).__enter__()

    return {
        "strict": lambda texts, golds, _: math().grade_many(texts, golds, "strict"),
        "flexible": lambda texts, golds, _: math().grade_many(texts, golds, "flexible"),
    }


def _read_gold(answer: str, grader: str, boxed: bool) -> str:
    """The gold inside a row's answer. Raises ValueError where no completion could be compared with it.

    `boxed`: what stands in no box is a solution of mathematics, and no gold.
    """
    if grader == "integer":
        return str(int(answer))
    if grader == "gsm8k":
        return parse_gold_gsm8k(answer)
    found = boxes(answer)
    if boxed and not found:
        raise ValueError("no \\boxed{...} around the answer")
    gold = answer[found[-1][1] : found[-1][2]] if found else answer
    if found and not gold.strip():
        raise ValueError("the last \\boxed{...} is empty")
    check_gold(gold, grader)
    return gold


def load_side(config: QuestionsConfig, side: Literal["train", "eval"], key: str) -> list[Row]:
    """The rows of one side, whatever the other holds. Raises UserError with file and row."""
    path = config.path(side)
    answer_column = (config.train_answer if side == "train" else None) or config.answer
    where, records = (
        _read_file(path, f"{key}.{side}_path") if path is not None else _read_hub(config, config.hub_source(side), key)
    )
    boxed = answer_column != config.answer
    rows: list[Row] = []
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping):
            raise UserError(f"{where}, row {number}: not an object with columns")
        for column in (config.question, answer_column):
            if column not in record or not isinstance(record[column], str | int | float):
                raise UserError(f"{where}, row {number}: no text in column {column!r}. {nearest(column, record)}")
        question, answer = str(record[config.question]), str(record[answer_column])
        try:
            gold = _read_gold(answer, config.grader, boxed)
        except ValueError as error:
            column = f"{key}.train_answer: " if boxed else ""
            raise UserError(f"{where}, row {number}: {column}{error}") from None
        rows.append((f"{side}/{number - 1}", build_prompt(config.prompt, question), question, gold))
    if not rows:
        raise UserError(f"{where}: no rows")
    return rows


def _read_file(path: str, key: str) -> tuple[str, list[Any]]:
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{key}: no such file: {path}")
    if not file.name.endswith((".jsonl", ".jsonl.gz", ".json", ".parquet")):
        raise UserError(f"{key}: {path} should end in .jsonl, .jsonl.gz, .json or .parquet")
    try:
        if file.suffix == ".parquet":
            return path, pd.read_parquet(file).to_dict("records")
        if file.suffix == ".json":
            return path, list(json.loads(file.read_text(encoding="utf-8")))
        return path, _read_lines(file)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path}: not readable: {' '.join(str(error).split())[:160]}") from None


def _read_lines(file: Path) -> list[Any]:
    rows = []
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise UserError(f"{file}, line {number}: not JSON ({error.msg})") from None
    return rows


def _read_hub(config: QuestionsConfig, source: HubSource, key: str) -> tuple[str, Iterable[Any]]:
    # Slow to import, and not needed for local files.
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError, DatasetsError

    where = f"{source.hub_id} ({source.split}, revision {source.revision})"
    try:
        return where, load_dataset(source.hub_id, source.hub_config, split=source.split, revision=source.revision)
    except (OSError, ValueError, RuntimeError, DatasetsError, httpx.HTTPError) as error:
        # datasets says "an error occurred" of what broke off while it was read; what did lies under that.
        first = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        raise UserError(
            f"dataset {config.name}: {source.hub_id} could not be loaded from the hub "
            f"({type(first).__name__}: {' '.join(str(first).split())[:120]}); with a local copy set "
            f"{key}.train_path and {key}.eval_path"
        ) from None
