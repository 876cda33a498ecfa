"""Two answers compared part by part: exactly where they are numbers or words, and by asking where they are symbols."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from gradstarve.grading.answers import MAX_ITEMS, Answer, Matrix, Scalar, Several, read_answer
from gradstarve.grading.policy import Policy
from gradstarve.grading.verdict import Verdict

_RELATION = re.compile(r"[<>]|\\[lg]eq")
_CHOICE = re.compile(r"\(?\s*([A-J])\s*[).:]\s+\S")

# A comparison yields the pairs (gold, answer) of expressions that only symbols can decide, and is sent their verdicts.
Comparison = Generator[tuple[str, str], Verdict, Verdict]


def compare(gold: Answer, answer: Answer, policy: Policy) -> Comparison:
    """The verdict on `answer`: "unverifiable" only where every other part agrees and a pair could not be decided."""
    if gold.name and answer.name and gold.name != answer.name:
        return (yield from _equations(gold, answer))
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return (yield from _matrices(gold, answer, policy))
    if isinstance(gold, Several) or isinstance(answer, Several):
        return (yield from _several(gold, answer, policy))
    return (yield from _scalars(gold, answer, policy))


def _equations(gold: Answer, answer: Answer) -> Comparison:
    """x = 5 is not y = 5, but x = y + 1 is y = x - 1: two equations that share their variables are left to symbols."""
    if not isinstance(gold, Scalar) or not isinstance(answer, Scalar):
        return "wrong"
    if _letters(gold) != _letters(answer) or gold.value is not None or answer.value is not None:
        return "wrong"
    left, right = (f"{side.name} = {side.text}" if side.name else side.text for side in (gold, answer))
    return (yield left, right)


def _letters(answer: Scalar) -> set[str]:
    return set(re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", " ", f"{answer.name} {answer.text}")))


def _scalars(gold: Scalar, answer: Scalar, policy: Policy) -> Comparison:
    if gold.base != answer.base and (policy.base == "required" or (gold.base and answer.base)):
        return "wrong"
    if gold.unit != answer.unit and ((gold.unit and answer.unit) or (gold.unit and policy.units == "required")):
        return "wrong"
    if gold.value is not None and answer.value is not None:
        return "right" if _same_number(gold, answer, policy) else "wrong"
    squeezed = re.sub(r"\s", "", gold.text), re.sub(r"\s", "", answer.text)
    if squeezed[0] == squeezed[1] and squeezed[0]:
        return "right"
    if gold.words or answer.words:
        return "right" if _same_words(gold, answer) else "wrong"
    if gold.base or answer.base or not gold.text or not answer.text:
        return "wrong"
    if (choice := _CHOICE.match(answer.text)) and len(gold.text) == 1:
        return "right" if choice[1] == gold.text else "wrong"
    if bool(gold.name) != bool(answer.name) and "=" in (answer if gold.name else gold).text:
        return (yield from _equations(gold, answer))
    if "=" in answer.text and "=" not in gold.text and not gold.name:
        return (yield from _last_side(gold, answer, policy))
    return (yield gold.text, answer.text)


def _last_side(gold: Scalar, answer: Scalar, policy: Policy) -> Comparison:
    """9 + 9 = 18 and 2(k + 1) = 2k + 2 say their last side; x^2 + y = 0 is an equation, not the value 0."""
    left, _, last = answer.text.rpartition("=")
    if re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", left)) and not re.search(
        "[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", last)
    ):
        return "wrong"
    return (yield from compare(gold, read_answer(last, policy), policy))


def _same_words(gold: Scalar, answer: Scalar) -> bool:
    left, right = (re.sub(r"[\s.'-]", "", (side.words or side.text).casefold()) for side in (gold, answer))
    return left == right and bool(left)


def _same_number(gold: Scalar, answer: Scalar, policy: Policy) -> bool:
    assert gold.value is not None and answer.value is not None
    golds, answers = {gold.value}, {answer.value}
    if policy.percent != "unit" and gold.percent != answer.percent:
        for side, values in ((gold, golds), (answer, answers)):
            if side.percent and side.value is not None:
                hundredth = side.value / 100
                values |= {hundredth}
                if policy.percent == "hundredth":
                    values -= {side.value} - {hundredth}
    if policy.tolerance is None:
        return bool(golds & answers)
    return any(abs(a - g) <= policy.tolerance * abs(g) for a in answers for g in golds)


def _matrices(gold: Answer, answer: Answer, policy: Policy) -> Comparison:
    """Matrices entry by entry; a column or row may also be written as an ordered tuple."""
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
            return "wrong"
        return (yield from _in_order(_entries(gold), _entries(answer), policy))
    tuples = [side for side in (gold, answer) if isinstance(side, Several) and side.opening in ("(", "[")]
    if len(tuples) == 1 and _is_vector(gold) and _is_vector(answer):
        left, right = (side.items if isinstance(side, Several) else _entries(side) for side in (gold, answer))
        return (yield from _in_order(left, right, policy))
    if isinstance(gold, Scalar) or isinstance(answer, Scalar):
        left_text, right_text = (_latex(side) for side in (gold, answer))
        if "matrix" in left_text and "matrix" in right_text:
            return (yield left_text, right_text)
    return "wrong"


def _entries(matrix: Answer) -> tuple[Answer, ...]:
    assert isinstance(matrix, Matrix)
    return tuple(cell for row in matrix.rows for cell in row)


def _is_vector(answer: Answer) -> bool:
    return isinstance(answer, Several) or (
        isinstance(answer, Matrix) and (len(answer.rows) == 1 or all(len(row) == 1 for row in answer.rows))
    )


def _latex(answer: Answer) -> str:
    if isinstance(answer, Scalar):
        return answer.text
    if isinstance(answer, Several):
        inside = ", ".join(_latex(item) for item in answer.items)
        opening, closing = answer.opening.replace("{", "\\{"), answer.closing.replace("}", "\\}")
        return f"{opening}{inside}{closing}"
    rows = r" \\ ".join(" & ".join(_latex(cell) for cell in row) for row in answer.rows)
    return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"


def _several(gold: Answer, answer: Answer, policy: Policy) -> Comparison:
    if not (isinstance(gold, Several) and isinstance(answer, Several)):
        sides = [side for side in (gold, answer) if isinstance(side, Several)]
        other = answer if isinstance(gold, Several) else gold
        # {5} is 5, and "639/40 or 15 39/40" is one value written twice; different values are several answers.
        whole = sides[0] is answer or len(sides[0].items) == 1
        if whole and sides[0].opening in ("", "{") and len(sides[0].items) <= MAX_ITEMS:
            items, others = sides[0].items, [other] * len(sides[0].items)
            return (
                yield from _in_order(items, others, policy) if sides[0] is gold else _in_order(others, items, policy)
            )
        if sides[0].relation and isinstance(other, Scalar) and _RELATION.search(other.text):
            return (yield (sides[0].relation, other.text) if sides[0] is gold else (other.text, sides[0].relation))
        return "wrong"
    if len(gold.items) != len(answer.items) or len(gold.items) > MAX_ITEMS:
        return "wrong" if len(gold.items) != len(answer.items) else "unverifiable"
    listed = [side.opening in ("", "{") for side in (gold, answer)]
    if listed[0] != listed[1]:
        if policy.list_brackets == "required" or not listed[1]:
            return "wrong"
        return (yield from _in_order(gold.items, answer.items, policy))
    if listed[0] and policy.list_order == "ignored":
        return (yield from _in_any_order(gold.items, answer.items, policy))
    if (gold.opening, gold.closing) != (answer.opening, answer.closing):
        return "wrong"
    return (yield from _in_order(gold.items, answer.items, policy))


def _in_order(golds: Sequence[Answer], answers: Sequence[Answer], policy: Policy) -> Comparison:
    if len(golds) != len(answers):
        return "wrong"
    undecided = False
    for gold, answer in zip(golds, answers, strict=True):
        verdict = yield from compare(gold, answer, policy)
        if verdict == "wrong":
            return "wrong"
        undecided |= verdict == "unverifiable"
    return "unverifiable" if undecided else "right"


def _in_any_order(golds: Sequence[Answer], answers: Sequence[Answer], policy: Policy) -> Comparison:
    """Each gold takes the first answer that is equal to it: equality is transitive, so no choice is better."""
    left, undecided = list(answers), 0
    for gold in golds:
        maybe = False
        for at, answer in enumerate(left):
            verdict = yield from compare(gold, answer, policy)
            if verdict == "right":
                del left[at]
                break
            maybe |= verdict == "unverifiable"
        else:
            if not maybe:
                return "wrong"
            undecided += 1
    return "unverifiable" if undecided else "right"
