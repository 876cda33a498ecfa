"""How an evaluation's completions are decoded: the same tokens, stop tokens, limit and sampling for every engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gradstarve.learning.tasks import Question
from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import DatasetConfig

# Temperature alone shapes a sampled token: no nucleus and no cut to the most likely tokens.
TOP_P, TOP_K = 1.0, 0

Engine = Literal["hf", "vllm"]


@dataclass(frozen=True)
class Asked:
    """One completion that is asked for: the `sample`-th of a question, with the prompt's tokens."""

    question: Question
    sample: int
    tokens: tuple[int, ...]

    @property
    def key(self) -> tuple[str, int]:
        return self.question.id, self.sample


# The completion's tokens for each that is asked, in the same order, with or without what follows an end token.
Generate = Callable[[Sequence[Asked]], list[list[int]]]


@dataclass(frozen=True)
class Decoding:
    """Everything that decides a completion, save the prompt and the weights. `ends` are all tokens that end one."""

    engine: Engine
    greedy: bool
    temperature: float
    completion_limit: int
    ends: tuple[int, ...]
    seed: int
    batch_size: int

    @classmethod
    def of(cls, config: RunConfig, model: Any, tokenizer: Any, engine: Engine) -> Decoding:
        evaluation = config.evaluation
        return cls(
            engine=engine,
            greedy=evaluation.greedy,
            temperature=evaluation.temperature,
            completion_limit=evaluation.completion_limit or config.completion_limit,
            ends=end_tokens(model, tokenizer),
            seed=evaluation.seed,
            batch_size=evaluation.batch_size,
        )

    def described(self, tokenizer: Any, samples: int) -> dict[str, Any]:
        """For summary.json: what was asked for, in full. `end_tokens` maps ids to the vocabulary's own spelling."""
        sampling = {"temperature": self.temperature, "top_p": TOP_P, "top_k": TOP_K, "seed": self.seed}
        return {
            "engine": self.engine,
            "greedy": self.greedy,
            "samples": samples,
            **({} if self.greedy else sampling),
            "completion_limit": self.completion_limit,
            "end_tokens": {str(end): tokenizer.convert_ids_to_tokens(end) for end in self.ends},
            "batch_size": self.batch_size,
        }

    def seed_of(self, first: Asked) -> int:
        """The seed of the completions that are drawn together, by the first of them.

        No generator runs on from one batch to the next, so what was drawn before, or in an earlier session, decides
        nothing.
        """
        text = f"{self.seed}/{first.question.id}/{first.sample}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1

    def cut(self, ids: Sequence[int]) -> tuple[list[int], bool]:
        """The completion up to and with its end token, and whether it had none within the limit."""
        end = next((place for place, token in enumerate(ids) if token in self.ends), None)
        return (list(ids), True) if end is None else (list(ids[: end + 1]), False)


def ask(tokenizer: Any, questions: Sequence[Question], config: RunConfig) -> list[Asked]:
    """Every completion that the evaluation wants, question by question."""
    samples = 1 if config.evaluation.greedy else config.evaluation.samples
    return [
        Asked(question, sample, tokens)
        for question in questions
        for tokens in [tuple(prompt_tokens(tokenizer, question, config.asked_dataset))]
        for sample in range(samples)
    ]


def batches(asked: Sequence[Asked], size: int) -> list[list[Asked]]:
    """Prompts of like length share a batch, so that little is padded; a question's samples stand beside each
    other."""
    order = sorted(range(len(asked)), key=lambda i: (len(asked[i].tokens), i))
    return [[asked[i] for i in order[start : start + size]] for start in range(0, len(order), size)]


def prompt_tokens(tokenizer: Any, question: Question, dataset: DatasetConfig) -> list[int]:
    """The same tokens that training on the data set puts before a completion."""
    if isinstance(question.prompt, str):
        return list(tokenizer(question.prompt)["input_ids"])
    thinking = dataset.prompt.thinking if dataset.source == "questions" else False
    return list(
        tokenizer.apply_chat_template(
            question.prompt, add_generation_prompt=True, tokenize=True, return_dict=True, enable_thinking=thinking
        )["input_ids"]
    )


def end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends a completion, as TRL's trainer counts them."""
    declared = model.generation_config.eos_token_id
    ends = [declared] if isinstance(declared, int) else list(declared or [])
    return tuple(ends if tokenizer.eos_token_id in ends else [tokenizer.eos_token_id, *ends])
