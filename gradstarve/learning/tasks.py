"""What a run is trained and evaluated on: prompts, golds, and how a completion is graded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradstarve.errors import UserError
from gradstarve.grading import Grade, normalised_question
from gradstarve.grading.integers import grade_first_line, grade_integer
from gradstarve.learning.questions import GradeMany, Prompt, load_questions, load_side, question_graders
from gradstarve.learning.sums import concise_answer, draw_sums, question_text
from gradstarve.learning.word_problems import draw_examples, draw_word_problems, prompt_text
from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import DatasetConfig, QuestionsConfig, SumsConfig, WordProblemsConfig


@dataclass(frozen=True)
class Question:
    """One prompt. `prompt` is text, or chat messages where the model has a chat template."""

    id: str
    prompt: Prompt
    text: str
    gold: str


@dataclass(frozen=True)
class Task:
    """Training and evaluation questions that share none, and the graders.

    `graders` are all rules that evaluation reports, by name; `rule` names the one that rewards.
    """

    train: list[Question]
    evaluation: list[Question]
    graders: dict[str, GradeMany]
    rule: str

    @property
    def grade(self) -> GradeMany:
        return self.graders[self.rule]


def load_task(config: DatasetConfig) -> Task:
    """Load a data set. Raises UserError where it cannot be had, read or trusted."""
    graders, rule = task_graders(config)
    if isinstance(config, SumsConfig):
        return Task(_sums(config, held_out=False), _sums(config, held_out=True), graders, rule)
    if isinstance(config, WordProblemsConfig):
        return Task(_word_problems(config, held_out=False), _word_problems(config, held_out=True), graders, rule)
    train, evaluation = load_questions(config)
    return Task([Question(*row) for row in train], [Question(*row) for row in evaluation], graders, rule)


def task_asked(config: RunConfig, task: Task) -> Task:
    """What the evaluation of a run asks: the run's own `task`, or another data set.

    Of that the side alone is loaded that is asked, and the other is empty: its training questions may not be to be had.
    Raises UserError as `load_task` does, and where a question of it is trained on.
    """
    other, key = config.evaluation.dataset, "evaluation.dataset"
    if other is None:
        return task
    graders, rule = task_graders(other)
    training = config.evaluation.split == "train"
    if isinstance(other, SumsConfig):
        asked = _sums(other, held_out=not training)
    else:
        rows = load_questions(other, key)[0] if training else load_side(other, "eval", key)
        asked = [Question(*row) for row in rows]
    if config.advantage.trains:
        trained = {normalised_question(question.text): question.id for question in task.train}
        seen = [question for question in asked if normalised_question(question.text) in trained]
        if seen:
            raise UserError(
                f"{key}: question {seen[0].id} of {other.name} is trained on, as {config.dataset.name} "
                f"{trained[normalised_question(seen[0].text)]} ({len(seen)} such questions); take it out of one of them"
            )
    return Task(asked if training else [], [] if training else asked, graders, rule)


def task_graders(config: DatasetConfig) -> tuple[dict[str, GradeMany], str]:
    """The graders of a data set by rule, and the rule that rewards."""
    if isinstance(config, QuestionsConfig):
        return question_graders(config.grader, config.rule), config.rule
    return made_graders(config.source)


def made_graders(source: Literal["sums", "word_problems"]) -> tuple[dict[str, GradeMany], str]:
    """Those of questions that are made here."""
    if source == "sums":
        return {"last_integer": _grade_sums}, "last_integer"
    return {"first_line": _grade_word_problems}, "first_line"


def _sums(config: SumsConfig, held_out: bool) -> list[Question]:
    side = "eval" if held_out else "train"
    return [
        Question(f"{side}/{i}", question_text(operands), question_text(operands), concise_answer(operands))
        for i, operands in enumerate(draw_sums(config, held_out))
    ]


def _grade_sums(completions: Sequence[str], golds: Sequence[str], truncated: Sequence[bool]) -> list[Grade]:
    return [grade_integer(*row) for row in zip(completions, golds, truncated, strict=True)]


def _word_problems(config: WordProblemsConfig, held_out: bool) -> list[Question]:
    side, examples = "eval" if held_out else "train", draw_examples(config)
    return [
        Question(f"{side}/{i}", prompt_text(examples, problem.text), problem.text, problem.gold)
        for i, problem in enumerate(draw_word_problems(config, held_out))
    ]


def _grade_word_problems(completions: Sequence[str], golds: Sequence[str], truncated: Sequence[bool]) -> list[Grade]:
    return [grade_first_line(*row) for row in zip(completions, golds, truncated, strict=True)]
