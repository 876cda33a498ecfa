"""The embedded task: sums such as `12+7+5=`.

A verbose answer writes each partial sum (`12+7=19,+5=24`), a concise one the total (`24`). With a completion limit of
12 tokens the verbose habit overruns on half the sums of three operands and on all of four and five, so a model with
that habit fails them always, although it can answer: the shape of prompt difficulty that arXiv 2605.07689 reports.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

from gradstarve.runs.dataset_config import SumsConfig

# One question in five is held out, decided by the question's own text: no size or seed can move one across.
HELD_OUT_ONE_IN = 5


def is_held_out(question: str) -> bool:
    return hashlib.sha256(question.encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def question_text(operands: Sequence[int]) -> str:
    return "+".join(map(str, operands)) + "="


def verbose_answer(operands: Sequence[int]) -> str:
    totals = list(accumulate(operands))
    first = f"{operands[0]}+{operands[1]}={totals[1]}"
    return ",".join([first, *(f"+{operand}={total}" for operand, total in zip(operands[2:], totals[2:], strict=True))])


def concise_answer(operands: Sequence[int]) -> str:
    return str(sum(operands))


def generate(config: SumsConfig, rng: random.Random, held_out: bool) -> Iterator[tuple[int, ...]]:
    """Endless operands of one side of the split, drawn by `operand_shares`."""
    counts, shares = list(config.operand_shares), list(config.operand_shares.values())
    while True:
        (count,) = rng.choices(counts, shares)
        operands = tuple(rng.randint(1, config.largest_operand) for _ in range(count))
        if is_held_out(question_text(operands)) == held_out:
            yield operands


def draw_sums(config: SumsConfig, held_out: bool) -> list[tuple[int, ...]]:
    """`train_size` or `eval_size` sums. One may come twice: there are few of two operands."""
    wanted = config.eval_size if held_out else config.train_size
    stream = generate(config, random.Random(f"{config.seed}-{held_out}"), held_out)
    return list(itertools.islice(stream, wanted))
