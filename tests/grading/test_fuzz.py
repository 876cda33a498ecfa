"""10,000 hostile texts: a verdict each time, never a crash, never right by accident."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradstarve.grading import MathGrader, grade_bare_number, grade_number
from gradstarve.grading.answers import read_answer
from gradstarve.grading.finding import find_answer, find_bare_answer

PIECES = [
    "####", "#### ", "\\boxed{", "\\boxed", "}", "{", "\\{", "\\}", "\\frac", "\\frac{1}{2}", "\\sqrt", "\\text{",
    "\\pm",
    "^", "_", "_5", "10^", "9^9^9^9", "!", "%", "\\%", "$", "$$", "\\(", "\\)", "\\[", "\\]", "\\\\", "\\", "&",
    "\\begin{pmatrix}",
    "\\end{pmatrix}", "(", ")", "[", "]", ",", ";", ":", "=", "<", "\\leq", "\\in", "\\cup", "\\infty", " and ",
    " or ", "\n", " ",
    "\0", "\u202e", "\u200b", "\ud800", "١", "８", "½", "²", "−", "<think>", "</think>", "<|im_end|>", "[INST]",
    "answer is ",
    "x", "e", "i", "pi", "billion", "percent", "cm", "-", "+", "/", "*", ".", "0", "1", "7", "18", "1,000", "1e9",
    "1e999999999",
    "\\degree", "^\\circ", "'", '"', "~", "\\,", "\\!", "{,}", "≤", "∪", "π", "√", "°",
]  # fmt: skip
HOSTILE = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
QUICK = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
# No text is right for this gold unless it writes it; the pieces cannot.
UNSEEN = "123456789.25"


@settings(max_examples=6_000, **QUICK)
@given(HOSTILE)
def test_numbers(text: str) -> None:
    for rule in ("strict", "flexible"):
        grade = grade_number(text, UNSEEN, rule)
        assert grade.verdict in ("wrong", "unverifiable")
        assert (grade.extracted is None) or grade.verdict != "right"
    assert grade_bare_number(text, UNSEEN).verdict in ("wrong", "unverifiable")


@settings(max_examples=2_500, **QUICK)
@given(HOSTILE)
def test_mathematical_answers_are_found_and_read(text: str) -> None:
    for found in (
        find_answer(text, "flexible"),
        find_answer("\\boxed{" + text + "}", "strict"),
        find_bare_answer(text),
    ):
        assert (found.rule in ("none", "length")) == (not found.text) or not found.text.strip()
        read_answer(found.text)


@settings(max_examples=1_000, **QUICK)
@given(
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**6),
    st.sampled_from(["{}", "${}", "#### {}", "\\boxed{{{}}}", "it is {}."]),
)
def test_a_number_written_in_any_dress_is_right(whole: int, thousandths: int, dress: str) -> None:
    for written in (f"{whole}", f"{whole:,}", f"{whole}.{thousandths:06d}"):
        gold = written.replace(",", "")
        assert grade_number(dress.format(written), gold).verdict == "right"
        assert grade_number(dress.format(written), gold + "1" if "." in gold else gold + ".5").verdict == "wrong"


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    with MathGrader(workers=1, seconds=1.0) as started:
        yield started


@settings(max_examples=500, **QUICK)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_symbols(grader: MathGrader, text: str) -> None:
    assert grader.grade("\\boxed{" + text + "}", "\\sqrt{123456789}").verdict in ("wrong", "unverifiable")
    assert grader.grade(text, UNSEEN).verdict in ("wrong", "unverifiable")
