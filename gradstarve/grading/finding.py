"""Where the answer of a mathematical text stands."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gradstarve.grading.numbers import TooLongError, ends_a_list, last_number
from gradstarve.grading.text import answer_part, boxes, plain

# Longer than any answer that people write; a longer one is a number, a list that is wrong, or undecided.
MAX_ANSWER = 2_000


class Found(NamedTuple):
    """An answer's text and the rule that found it: "boxed", "phrase", "formula", "last number" or "answer"; or why
    there is none: "none", "list" (candidates instead of an answer) or "length"."""

    text: str
    rule: str


_BETWEEN_BOXES = re.compile(
    r"(?:[\s,;.$&]|\\(?:quad|qquad|[()\[\],; ])|\\text\s*\{\s*(?:,?\s*(?:and|or)\s*)?\}|\band\b|\bor\b)*+"
)
_PHRASE = re.compile(r"\b(?:final\s+answer|answer)\b(?:\s+is|\s+are|\s*:|\s*\*\*\s*:?)(?:\s*:)?", re.IGNORECASE)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$((?:\\.|[^$\n\\])+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n")
_JOINED = re.compile(r"(?:\s|,|;|\band\b|\bor\b)*+")


def find_answer(completion: str, rule: Literal["strict", "flexible"]) -> Found:
    """The answer of a completion. strict: the last box. flexible: failing that, what follows "answer is" or "answer:",
    the last formula, the last number.

    Boxes with nothing but "and", "or" or commas between them are one answer with several parts, which is right only as
    a whole: boxing every candidate gains nothing. Empty boxes are none.
    """
    text = plain(answer_part(completion))
    if boxed := _last_boxes(text):
        return Found(boxed, "boxed")
    if rule == "strict":
        return Found("", "none")
    tail = text[-MAX_ANSWER:]
    phrases = list(_PHRASE.finditer(tail))
    if phrases and (stated := _stated(tail[phrases[-1].end() :])).rule != "none":
        return stated
    return _latest(text, tail)


def find_bare_answer(answer: str) -> Found:
    """The answer in a text that is meant to be one: all of it, or what `find_answer` finds where it is a sentence."""
    text = plain(answer).strip()
    if not text:
        return Found("", "none")
    outside = _FORMULA.sub(" ", text)
    prose = len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[a-zA-Z]+(?:\{[^{}]*\})?|\b(?:and|or)\b", " ", outside))) > 2
    if "\\boxed" in text or "\\fbox" in text or ((prose or _FORMULA.search(text)) and outside.strip(" .,%")):
        found = find_answer(answer, "flexible")
        if found.rule != "none":
            return found
    return Found(text, "answer")


def _last_boxes(text: str) -> str:
    found = [box for box in boxes(text) if text[box[1] : box[2]].strip(" .?\n\t")]
    if not found:
        return ""
    parts = [found[-1]]
    for box in reversed(found[:-1]):
        if _BETWEEN_BOXES.fullmatch(text, box[3], parts[-1][0]) is None:
            break
        parts.append(box)
    contents = [text[begin:end].strip() for _, begin, end, _ in reversed(parts)]
    return ", ".join(dict.fromkeys(contents))


def _stated(rest: str) -> Found:
    """What the sentence after "answer is" names: all of a short one, else its last formula or number."""
    rest = rest.lstrip(" *:\n")
    blank = _FORMULA.sub(lambda formula: "#" * len(formula.group()), rest)
    end = _SENTENCE_END.search(blank)
    sentence, outline = (rest[: end.start()], blank[: end.start()]) if end else (rest, blank)
    if "#" not in outline and 0 < len(outline.split()) <= 4:
        return Found(sentence.strip(" *"), "phrase")
    found = _latest(sentence, sentence)
    return Found(found.text, "phrase") if found.text else found


def _latest(text: str, tail: str) -> Found:
    """The last formula of `tail` or the last number of `text`, whichever ends later."""
    parts: list[str] = []
    ends = -1
    for formula in _FORMULA.finditer(tail):
        if parts and not _JOINED.fullmatch(tail, ends, formula.start()):
            parts = []
        parts.append(next(group for group in formula.groups() if group is not None).strip())
        ends = formula.end()
    try:
        number = last_number(text)
    except TooLongError:
        return Found("", "length")
    if number is not None and (not parts or number.end - len(text) > ends - len(tail)):
        if ends_a_list(text, number):
            return Found("", "list")
        return Found(text[number.start : number.end].strip(), "last number")
    return Found(", ".join(parts), "formula") if parts else Found("", "none")
