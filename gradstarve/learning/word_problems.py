"""The task of a real language model at CPU scale: single-step word problems with one small whole number as the answer.

The prompt is plain text: solved problems ("Q: ...", then "A: 3 + 4 = 7"), and one to solve. A model that goes on writes
the answer, a line break, and another problem; so the line break ends a completion.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from gradstarve.grading import normalised_question
from gradstarve.runs.dataset_config import WordProblemsConfig

# One problem in five is held out, decided by its normalised text: no size or seed can move one across.
HELD_OUT_ONE_IN = 5

# Raised with dataset.version whenever the same config would give other texts: tests/learning/test_word_problems.py
# holds a digest of them.
NAMES = ("Tom", "Anna", "Ben", "Lily", "Sam", "Mia", "Max", "Eva", "Jack", "Rosa", "Leo", "Nina")
THINGS = ("apples", "books", "coins", "cards", "pens", "eggs", "shells", "stamps", "marbles", "cookies", "flowers")

# {a} and {b} are the numbers, and the answer is a + b, a - b, a * b or a / b.
TEMPLATES = {
    "add": (
        "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?",
        "{name} has {a} {things} and {other} has {b}. How many {things} do they have together?",
        "A box has {a} red {things} and {b} blue {things}. How many {things} are in the box?",
        "{name} found {a} {things} on Monday and {b} on Tuesday. How many {things} did {name} find in all?",
    ),
    "subtract": (
        "{name} had {a} {things} and gave {b} to {other}. How many {things} does {name} have left?",
        "There were {a} {things} on a table. {name} took {b}. How many {things} are still on the table?",
        "{name} has {a} {things} and {other} has {b}. How many more {things} does {name} have than {other}?",
        "{name} needs {a} {things} and has {b}. How many more {things} does {name} need?",
    ),
    "multiply": (
        "{name} has {a} bags with {b} {things} in each. How many {things} does {name} have?",
        "One box holds {b} {things}. How many {things} do {a} boxes hold?",
        "{name} buys {b} {things} a day. How many {things} does {name} buy in {a} days?",
        "{a} friends have {b} {things} each. How many {things} do they have in all?",
    ),
    "share": (
        "{name} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
        "{name} puts {a} {things} into {b} equal piles. How many {things} are in each pile?",
        "One bag holds {b} {things}. How many bags does {name} need for {a} {things}?",
        "{b} friends split {a} {things} evenly. How many {things} does each friend get?",
    ),
}

SIGNS = {"add": "+", "subtract": "-", "multiply": "x", "share": "/"}


@dataclass(frozen=True)
class WordProblem:
    """One problem, the equation that solves it ("3 + 4 = 7"), and its answer in digits."""

    text: str
    working: str
    gold: str


def is_held_out(text: str) -> bool:
    return hashlib.sha256(normalised_question(text).encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def draw_word_problems(config: WordProblemsConfig, held_out: bool) -> list[WordProblem]:
    """`train_size` or `eval_size` problems, no two with the same text, none of them among the solved examples."""
    wanted = config.eval_size if held_out else config.train_size
    seen = {normalised_question(example.text) for example in draw_examples(config)}
    return _distinct(config, random.Random(f"{config.seed}-{held_out}"), held_out, wanted, seen)


def draw_examples(config: WordProblemsConfig) -> list[WordProblem]:
    """The solved problems that stand before every question: the operations in turn, from the side of training."""
    rng = random.Random(f"{config.seed}-examples")
    operations = list(TEMPLATES)
    seen: set[str] = set()
    examples: list[WordProblem] = []
    for shot in range(config.shots):
        stream = generate(config, rng, held_out=False, operation=operations[shot % len(operations)])
        example = next(problem for problem in stream if normalised_question(problem.text) not in seen)
        seen.add(normalised_question(example.text))
        examples.append(example)
    return examples


def prompt_text(examples: list[WordProblem], question: str) -> str:
    return "".join(f"Q: {example.text}\nA: {example.working}\n" for example in examples) + f"Q: {question}\nA:"


def generate(
    config: WordProblemsConfig, rng: random.Random, held_out: bool, operation: str | None = None
) -> Iterator[WordProblem]:
    """Endless problems of one side of the split, of one operation or of all of them equally often."""
    while True:
        problem = _problem(config, rng, operation or rng.choice(list(TEMPLATES)))
        if is_held_out(problem.text) == held_out:
            yield problem


def _problem(config: WordProblemsConfig, rng: random.Random, operation: str) -> WordProblem:
    term, factor = config.largest_term, config.largest_factor
    if operation in ("add", "subtract"):
        a, b = rng.randint(2, term), rng.randint(2, term)
        if operation == "subtract":
            a, b = max(a, b) + 1, min(a, b)
        answer = a + b if operation == "add" else a - b
    else:
        a, b = rng.randint(2, factor), rng.randint(2, factor)
        answer = a * b
        if operation == "share":
            a, answer = answer, a
    name, other = rng.sample(NAMES, 2)
    template = rng.choice(TEMPLATES[operation])
    text = template.format(name=name, other=other, things=rng.choice(THINGS), a=a, b=b)
    return WordProblem(text, f"{a} {SIGNS[operation]} {b} = {answer}", str(answer))


def _distinct(
    config: WordProblemsConfig, rng: random.Random, held_out: bool, wanted: int, seen: set[str]
) -> list[WordProblem]:
    problems: list[WordProblem] = []
    for problem in generate(config, rng, held_out):
        if len(problems) == wanted:
            break
        if (text := normalised_question(problem.text)) not in seen:
            seen.add(text)
            problems.append(problem)
    return problems
