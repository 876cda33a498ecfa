"""How many questions a run is evaluated on, and how long its prompts are: what is known without loading data.

No tokenizer is loaded: the questions of known data sets were counted in tokens once, other texts are counted in
characters and turned into tokens by assumption.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import DatasetConfig, QuestionsConfig, SumsConfig, WordProblemsConfig

# Measured with SmolLM2's tokenizer: 3.9 in GSM8K, 2.6 in MATH-500, 1.9 in its longest question.
CHARACTERS_PER_TOKEN = 3.5
CHARACTERS_PER_TOKEN_LONGEST = 2.0
CHAT_TEMPLATE_TOKENS = 30
# Mean and longest, where nothing is known of the questions.
UNKNOWN_TOKENS = (100.0, 1000)


@dataclass(frozen=True)
class Questions:
    """Of one side of a data set: how many, and the mean and the longest question in tokens. None: not known."""

    count: int | None
    tokens: tuple[float, int] | None


# Counted in the public files, with SmolLM2's tokenizer.
KNOWN: Mapping[tuple[str, str], Questions] = {
    ("openai/gsm8k", "train"): Questions(7473, (60.3, 223)),
    ("openai/gsm8k", "test"): Questions(1319, (62.0, 188)),
    ("HuggingFaceH4/MATH-500", "test"): Questions(500, (76.2, 913)),
}


@dataclass(frozen=True)
class Prompts:
    """Tokens of a prompt, mean and longest, and the number of evaluated questions (None: not known).

    `asked_mean` and `asked_longest` are those of the evaluation: others where it asks another data set.
    """

    mean: int
    longest: int
    asked_mean: int
    asked_longest: int
    evaluated: int | None
    assumed: str


def prompts_of(config: RunConfig) -> Prompts:
    """What is known of a run's prompts, in tokens; `assumed` says what was not known."""
    count = _questions(config.asked_dataset, config.evaluation.split).count
    if count is not None and config.evaluation.limit is not None:
        count = min(count, config.evaluation.limit)
    count = config.evaluation.limit if count is None else count
    mean, longest, assumed = _tokens(config.dataset)
    asked_mean, asked_longest, also = _tokens(config.asked_dataset)
    return Prompts(
        mean, longest, asked_mean, asked_longest, count, assumed if also == assumed else f"{assumed}; {also}"
    )


def _tokens(dataset: DatasetConfig) -> tuple[int, int, str]:
    """Mean and longest prompt of a data set, and what was assumed: of training, else of evaluation questions."""
    if isinstance(dataset, SumsConfig):
        # One token a character: "12+7+5=".
        widths = {n: n * len(str(dataset.largest_operand)) + n for n, share in dataset.operand_shares.items() if share}
        total = sum(dataset.operand_shares[n] for n in widths)
        mean = sum(dataset.operand_shares[n] * width for n, width in widths.items()) / total
        return round(mean), max(widths.values()), "at most"
    if isinstance(dataset, WordProblemsConfig):
        # "Q: ...\nA: ...\n\n" of a hundred characters, for each solved problem and for the question.
        longest = 100 * (dataset.shots + 1)
        return round(longest / CHARACTERS_PER_TOKEN), round(longest / 3), "100 characters a problem"
    known = _questions(dataset, "train").tokens or _questions(dataset, "eval").tokens
    mean_tokens, longest_tokens = known or UNKNOWN_TOKENS
    around = _characters_around(dataset) / CHARACTERS_PER_TOKEN
    around += CHAT_TEMPLATE_TOKENS if dataset.prompt.chat else 0
    assumed = "no tokenizer was asked" if known else "the questions are not known here"
    return round(around + mean_tokens), round(around + longest_tokens), assumed


def _characters_around(dataset: QuestionsConfig) -> int:
    """The wording's own characters, with its solved examples."""
    prompt = dataset.prompt
    wording = len(prompt.user.replace("{question}", "")) + len(prompt.answer_prefix)
    examples = sum(wording + sum(map(len, example.values())) for example in prompt.examples)
    return len(prompt.system or "") + wording + examples


def _questions(dataset: DatasetConfig, side: Literal["train", "eval"]) -> Questions:
    if not isinstance(dataset, QuestionsConfig):
        return Questions(dataset.train_size if side == "train" else dataset.eval_size, None)
    path = dataset.path(side)
    found = _local(path, dataset.question) if path is not None else None
    if path is None:
        source = dataset.hub_source(side)
        found = KNOWN.get((source.hub_id or "", source.split or ""))
    found = found or Questions(None, None)
    if side == "train" and dataset.train_limit is not None and found.count is not None:
        return Questions(min(dataset.train_limit, found.count), found.tokens)
    return found


def _local(path: str, column: str) -> Questions | None:
    """Of a local file; None where it cannot be read, which the run will say in its own words."""
    file = Path(path)
    try:
        if file.suffix == ".parquet":
            # Only such files need it.
            import pyarrow.parquet

            texts = pyarrow.parquet.read_table(file, columns=[column])[column].to_pylist()
        elif file.suffix == ".json":
            texts = [row[column] for row in json.loads(file.read_text(encoding="utf-8"))]
        else:
            texts = [json.loads(line)[column] for line in _lines(file)]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    lengths = [len(str(text)) for text in texts]
    if not lengths:
        return None
    mean, longest = sum(lengths) / len(lengths), max(lengths)
    return Questions(len(lengths), (mean / CHARACTERS_PER_TOKEN, round(longest / CHARACTERS_PER_TOKEN_LONGEST)))


def _lines(file: Path) -> list[str]:
    opener: Any = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as stream:
        return [line for line in stream if line.strip()]
