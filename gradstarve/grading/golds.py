"""Golds and questions as datasets state them: read once when loaded, so that no question is impossible in silence."""

from __future__ import annotations

import re
import unicodedata

from gradstarve.grading.gsm8k import read_gold_number
from gradstarve.grading.mathematics import read_gold
from gradstarve.grading.policy import DEFAULT, Policy
from gradstarve.grading.text import plain

# Raised whenever a verdict or an extracted answer may change; enters run signatures.
EXTRACTOR_VERSION: dict[str, str] = {"gsm8k": "1", "math500": "1"}


def parse_gold_gsm8k(answer: str) -> str:
    """The gold of a GSM8K answer: what follows its last `####`, without thousands commas. Raises ValueError."""
    _, mark, gold = answer.rpartition("####")
    if not mark:
        raise ValueError("the answer has no '####' before its gold")
    gold = gold.strip().replace(",", "")
    check_gold(gold, "gsm8k")
    return gold


def check_gold(gold: object, task: str, policy: Policy = DEFAULT) -> None:
    """Raise ValueError, saying what is wrong, where no answer could be compared with `gold`.

    task is "gsm8k" (one number) or "math500" (LaTeX or text with balanced brackets). Whether every expression can be
    parsed is what `MathGrader.unreadable` asks of a worker.
    """
    if not isinstance(gold, str):
        raise ValueError(f"the gold is {type(gold).__name__}, not text")
    if not gold.strip():
        raise ValueError("the gold is empty")
    if task == "gsm8k":
        read_gold_number(gold, policy)
    elif task == "math500":
        _check_braces(gold)
        read_gold(gold, policy)
    else:
        raise ValueError(f"task is 'gsm8k' or 'math500', not {task!r}")


def _check_braces(gold: str) -> None:
    depth = 0
    for mark in re.findall(r"\\.|[{}]", gold, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth < 0:
            break
    if depth:
        raise ValueError(f"the gold {gold[:60]!r} has a brace that is not closed or not opened")


def normalised_question(question: str) -> str:
    """A question as its words and numbers alone: two questions that differ in spacing, case, punctuation, LaTeX sizes
    or typographic marks are one. For the check that train and evaluation do not overlap."""
    text = unicodedata.normalize("NFKC", plain(question)).casefold()
    text = re.sub(r"\\(?:left|right|displaystyle|[,;:!])|[$]", " ", text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    return " ".join(re.findall(r"\w+|[+*/^=<>-]", text))
