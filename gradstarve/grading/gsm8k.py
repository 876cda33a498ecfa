"""Answers that are one number, as in GSM8K: found by a strict or a flexible rule, compared exactly."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Literal

from gradstarve.grading.numbers import Number, TooLongError, ends_a_list, last_number, numbers, read_number
from gradstarve.grading.policy import DEFAULT, Policy
from gradstarve.grading.text import answer_part, boxes, plain
from gradstarve.grading.verdict import Grade

Rule = Literal["strict", "flexible"]

# What of a long answer is kept for the reader.
MAX_EXTRACTED = 200

_MARK = re.compile(r"(?<!#)####(?!#)")
_NOT_BLANK = re.compile(r"\s*+")
_STARTS = re.compile(r"[\s*_`$\\({+-]*+\.?\d[\d,.]*|[\s*_`$-]*+\\[dtc]?frac")
_HEADING = re.compile(r"(?<=[.):])\s+\**[A-Za-z]|[):]\s+\**[A-Za-z]")
# What may stand beside the one number of a marked answer: words, units, and the dress of Markdown and LaTeX.
_WORDS = re.compile(
    r"(?:[A-Za-z\s.,;:!?'\"°$€£()_*`~{}-]|\\(?:text|mathrm|mbox|textbf|mathbf|\W|[,;!]|quad|circ)|\^\{?[23]\}?)*+"
)


def grade_number(completion: str, gold: str, rule: Rule = "flexible", policy: Policy = DEFAULT) -> Grade:
    """Grade a completion whose answer is one number. Pure and exact; linear in the text, so usable as a reward.

    strict: the number after the last `####`, or in the last \\boxed, whichever comes last; a mark with several numbers
    gives no single answer and is wrong. flexible: the last number of the text, unless it closes a list of candidates.
    Grades name their rule: "####", "boxed", "last number", "none" (nothing found), "list" (candidates instead of an
    answer), "length" (unverifiable: a fraction or power beyond the bounds of `numbers`).

    Raises ValueError where `gold` can't be read as a number.
    """
    wanted = read_gold_number(gold, policy)
    text = plain(answer_part(completion))
    if rule == "flexible":
        return _grade_last(text, wanted, policy)
    if rule == "strict":
        return _grade_marked(text, wanted, policy)
    raise ValueError(f"rule is 'strict' or 'flexible', not {rule!r}")


def grade_bare_number(answer: str, gold: str, policy: Policy = DEFAULT) -> Grade:
    """Grade an answer that was already taken out of its text: one number as a whole, or with words around it."""
    wanted = read_gold_number(gold, policy)
    text = plain(answer)
    if not text.strip():
        return Grade("wrong", None, "none")
    return _grade_segment(text, 0, len(text), "answer", wanted, policy)


@lru_cache(maxsize=16_384)
def read_gold_number(gold: str, policy: Policy = DEFAULT) -> Fraction:
    """A gold as an exact number. Raises ValueError that says what was read where it is none."""
    try:
        number = read_number(plain(gold), policy)
    except TooLongError:
        number = None
    if number is None or number.value is None:
        raise ValueError(f"the gold {_shown(gold)} can't be read as a number")
    return _value(number, policy)


def _shown(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[:most] + "...")


def _value(number: Number, policy: Policy) -> Fraction:
    assert number.value is not None
    return number.value / 100 if number.percent and policy.percent == "hundredth" else number.value


def _equal(number: Number, wanted: Fraction, policy: Policy) -> bool:
    if number.value is None:
        return False
    values = [_value(number, policy)]
    if number.percent and policy.percent == "either":
        values.append(number.value / 100)
    if policy.tolerance is not None:
        return any(abs(value - wanted) <= policy.tolerance * abs(wanted) for value in values)
    return wanted in values


def _grade_last(text: str, wanted: Fraction, policy: Policy) -> Grade:
    try:
        number = last_number(text, policy)
        if number is None:
            return Grade("wrong", None, "none")
        extracted = text[number.start : number.end]
        if not _equal(number, wanted, policy):
            return Grade("wrong", extracted, "last number")
        if ends_a_list(text, number, policy):
            return Grade("wrong", extracted, "list")
        return Grade("right", extracted, "last number")
    except TooLongError:
        return Grade("unverifiable", None, "length")


def _grade_marked(text: str, wanted: Fraction, policy: Policy) -> Grade:
    marks = [(mark.start(), mark.end(), -1) for mark in _MARK.finditer(text)]
    marks += [(start, begin, end) for start, begin, end, _ in boxes(text)]
    after = len(text)
    for start, begin, end in sorted(marks, reverse=True):
        if end >= 0:
            return _grade_segment(text, begin, end, "boxed", wanted, policy)
        begin = _NOT_BLANK.match(text, begin).end()  # type: ignore[union-attr]
        newline = text.find("\n", begin, after)
        line_end, after = (after if newline < 0 else newline), start
        # A heading such as "#### Step 2" or "#### 2. Adding up" is no answer.
        if (starts := _STARTS.match(text, begin, line_end)) and not _HEADING.match(text, starts.end(), line_end):
            return _grade_segment(text, begin, line_end, "####", wanted, policy)
    return Grade("wrong", None, "none")


def _grade_segment(text: str, begin: int, end: int, rule: str, wanted: Fraction, policy: Policy) -> Grade:
    """Grade text[begin:end], which must hold one number and beside it nothing but words."""
    segment = text[begin:end]
    extracted = segment.strip()[:MAX_EXTRACTED]
    if rule != "####" and "=" in segment:
        begin += segment.rindex("=") + 1
        segment = text[begin:end]
    try:
        found = list(islice(numbers(segment, policy), 2))
        if not found:
            return Grade("wrong", extracted or None, rule if extracted else "none")
        number = found[0]
        if len(found) > 1:
            return Grade("wrong", extracted, "list")
        if not (_WORDS.fullmatch(segment, 0, number.start) and _WORDS.fullmatch(segment, number.end)):
            return Grade("wrong", extracted, rule)
        if not _equal(number, wanted, policy):
            return Grade("wrong", extracted, rule)
        placed = number._replace(start=number.start + begin, end=number.end + begin)
        if ends_a_list(text, placed, policy):
            return Grade("wrong", extracted, "list")
        return Grade("right", extracted, rule)
    except TooLongError:
        return Grade("unverifiable", extracted, "length")
