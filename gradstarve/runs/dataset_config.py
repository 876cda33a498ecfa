"""The data set part of a run's config."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Field

from gradstarve.runs.config_types import Fraction, NonNegative, Positive, strict

Grader = Literal["gsm8k", "math500", "integer"]
GRADERS: tuple[str, ...] = get_args(Grader)


@strict
@dataclass(frozen=True)
class SumsConfig:
    """Generated sums such as `12+7+5=`, with a held-out set that shares no question with training."""

    source: Literal["sums"]
    name: str
    operand_shares: dict[int, Fraction]
    largest_operand: Positive
    train_size: Positive
    eval_size: Positive
    seed: int


@strict
@dataclass(frozen=True)
class PromptConfig:
    """How a question becomes a prompt. `version` names the wording; change one, change the other.

    `user` must contain `{question}`. With `chat: false` the prompt is system + few-shot + user text, joined by blank
    lines and ending in `answer_prefix`.
    """

    version: str
    system: str | None
    user: str
    chat: bool
    thinking: bool = False
    answer_prefix: str = ""
    examples: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class HubSource:
    """One split of a data set on the hub, pinned."""

    hub_id: str | None
    hub_config: str | None
    revision: str | None
    split: str | None


@strict
@dataclass(frozen=True)
class QuestionsConfig:
    """Questions with answers: from the hub (`hub_id`, pinned by `revision`) or from local files.

    A local file is .jsonl, .jsonl.gz, .json or .parquet; `question` and `answer` name its columns. The keys that begin
    with `train_hub` and `train_answer` say where training questions differ; null means as for evaluation.
    """

    source: Literal["questions"]
    name: str
    grader: Grader
    rule: Literal["strict", "flexible"]
    train_path: str | None
    eval_path: str | None
    hub_id: str | None
    hub_config: str | None
    revision: str | None
    train_split: str | None
    eval_split: str | None
    question: str
    answer: str
    prompt: PromptConfig
    train_limit: Positive | None = None
    train_hub_id: str | None = None
    train_hub_config: str | None = None
    train_revision: str | None = None
    train_answer: str | None = None
    overlap: Literal["refuse", "drop_from_training"] = "refuse"

    def path(self, side: Literal["train", "eval"]) -> str | None:
        """The local file of one side."""
        return self.train_path if side == "train" else self.eval_path

    def hub_source(self, side: Literal["train", "eval"]) -> HubSource:
        """Where one side comes from when it has no local file."""
        if side == "train" and self.train_hub_id is not None:
            return HubSource(self.train_hub_id, self.train_hub_config, self.train_revision, self.train_split)
        split = self.train_split if side == "train" else self.eval_split
        return HubSource(self.hub_id, self.hub_config, self.revision, split)


@strict
@dataclass(frozen=True)
class WordProblemsConfig:
    """Generated single-step word problems, asked after `shots` solved ones; no held-out one is trained on.

    `version` is that of the texts. Every token of the vocabulary that has the character `stop` in it ends a completion,
    as the model's own end tokens do, in training and in evaluation; null adds none. One ASCII character is always
    inside one token; a longer text may not be.
    """

    source: Literal["word_problems"]
    name: str
    version: Literal[1]
    shots: NonNegative
    largest_term: Annotated[int, Field(ge=2, le=1000)]
    largest_factor: Annotated[int, Field(ge=2, le=1000)]
    train_size: Annotated[int, Field(ge=1, le=10_000)]
    eval_size: Annotated[int, Field(ge=1, le=1_000)]
    seed: int
    stop: Annotated[str, Field(pattern=r"^[\x00-\x7f]$")] | None


DatasetConfig = Annotated[SumsConfig | QuestionsConfig | WordProblemsConfig, Discriminator("source")]
