"""Answers that are one number: found by a strict or a flexible rule, compared exactly, never right by listing."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from gradstarve.grading import (
    Grade,
    Policy,
    check_gold,
    grade_bare_number,
    grade_number,
    normalised_question,
    parse_gold_gsm8k,
)

WRITTEN = [  # (the end of a completion, the number that it writes)
    ("She has 18 apples.", "18"), ("A: 18", "18"), ("x = -5", "-5"), ("so it fell to -5 degrees", "-5"),
    ("= - 5", "-5"), ("10-5", "5"), ("it is 10 - 5", "5"), ("−18", "-18"), ("-$5", "-5"), ("$-5", "-5"),
    ("$1,234.50", "1234.5"), ("€1,234", "1234"), ("10,\\!080", "10080"), ("10{,}080", "10080"),
    ("1 234 567", "1234567"), ("$400 000", "400000"), ("18.00", "18"), ("018", "18"), ("...18", "18"), (".5", "0.5"),
    ("18 %", "18"), ("18\\%", "18"), ("18 percent", "18"), ("1/2", "0.5"), ("2 1/2", "2.5"), ("2½", "2.5"),
    ("½", "1/2"), ("\\frac{1}{2}", "1/2"), ("\\dfrac12", "1/2"), ("-\\frac{3}{4}", "-3/4"), ("2\\frac{1}{2}", "5/2"),
    ("3e5", "300000"), ("3 x 10^5", "300000"), ("3 × 10⁵", "300000"), ("2.5 \\times 10^{-1}", "1/4"),
    ("2^10", "1024"), ("1.8 billion", "1800000000"), ("3 million", "3000000"), ("5 thousand dollars", "5000"),
    ("18 m^2", "18"), ("18 m²", "18"), ("18 cm2", "18"), ("18kg", "18"), ("１８", "18"), ("١٨", "18"), ("१८", "18"),
    ("\u202e18", "18"), ("1\u200b8", "18"), ("18\0", "18"), ("May 5, 18", "18"), ("18 or 18.0", "18"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), WRITTEN)
def test_a_number_is_read_as_it_is_written(text: str, number: str) -> None:
    assert grade_number(text, number).verdict == "right"
    assert grade_number(text, str(Fraction(number.replace(",", "")) + Fraction(1, 7))).verdict == "wrong"


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("#### 18", "right"), ("####18", "right"), ("####\n18", "right"), ("#### $18.00", "right"),
        ("#### **18**", "right"), ("#### 18 dollars", "right"), ("#### \\boxed{18}", "right"), ("\\boxed{18}", "right"),
        ("\\boxed{18\\text{ m}}", "right"), ("\\boxed{\\$18}", "right"), ("\\boxed{x = 18}", "right"),
        ("\\boxed{9 + 9 = 18}", "right"), ("\\boxed{\\boxed{18}}", "right"), ("\\fbox{18}", "right"),
        ("\\boxed 18", "right"), ("\\boxed{\\frac{36}{2}}", "right"), ("#### 5\n#### 18", "right"),
        ("#### 18\n#### Step 2: check", "right"), ("#### 18\n#### 2. Check", "right"), ("#### 18</s>", "right"),
        ("18", "wrong"), ("\\boxed{18", "wrong"), ("#### 18\n\\boxed{5}", "wrong"), ("\\boxed{18}\n#### 5", "wrong"),
        ("#### -18", "wrong"), ("#### 18 2", "wrong"), ("#### 18 or 19", "wrong"), ("#### Step 18", "wrong"),
        ("\\boxed{\\sqrt{18}}", "wrong"), ("\\boxed{18^2}", "wrong"), ("##### 18", "wrong"), ("", "wrong"),
    ],
)  # fmt: skip
def test_the_strict_rule_reads_marks_alone(completion: str, verdict: str) -> None:
    assert grade_number(completion, "18", "strict").verdict == verdict


def test_grades_name_what_they_found() -> None:
    assert grade_number("so $1,018 in all", "1018") == Grade("right", "$1,018", "last number")
    assert grade_number("no idea", "18") == Grade("wrong", None, "none")
    assert grade_number("#### 17 apples", "18", "strict") == Grade("wrong", "17 apples", "####")
    assert grade_number("\\boxed{18}", "18", "strict") == Grade("right", "18", "boxed")


@pytest.mark.parametrize(
    "joint", [" ", ", ", "; ", "\n", " | ", "\n#### ", ",\n", "-", " -> ", " \u2022 ", "\t", "\n- ", "..."]
)
@pytest.mark.parametrize("rule", ["strict", "flexible"])
def test_listing_numbers_is_never_right(joint: str, rule: str) -> None:
    for last in range(3, 60):
        listing = joint.join(str(number) for number in range(last + 1))
        for completion in (listing, "#### " + listing, f"\\boxed{{{listing}}}"):
            assert grade_number(completion, str(last), rule).verdict == "wrong"


@pytest.mark.parametrize(
    "completion",
    [
        " ".join(f"\\boxed{{{n}}}" for n in range(19)),
        "17 or 18",
        "\\boxed{17} or \\boxed{18}",
        "1, 2, and 18",
        "16, 17 or 18",
    ],
)
def test_candidates_are_no_answer(completion: str) -> None:
    assert grade_number(completion, "18") == Grade("wrong", "18", "list")


def test_numbers_of_a_sum_before_an_answer_are_no_list() -> None:
    assert grade_number("between $15000 and $20000\n#### 1350", "1350").verdict == "right"
    assert grade_number("12 + 6 = 18\n18", "18").verdict == "right"


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("<think>is it 18? #### 18", "wrong"), ("<think>5</think>18", "right"), ("5</think> #### 18", "right"),
        ("#### 18 <think> or 19", "right"), ("<think>18</think>", "wrong"), ("18<|im_end|>\n19", "right"),
        ("17<|im_end|>18", "wrong"), ("17</s>18", "wrong"), ("<|im_start|>assistant\n18", "right"),
        ("17 [INST] 18", "wrong"),
    ],
)  # fmt: skip
def test_thinking_and_other_turns_are_no_answer(completion: str, verdict: str) -> None:
    assert grade_number(completion, "18").verdict == verdict


def test_percent_words_and_tolerance_are_policies() -> None:
    assert grade_number("18 %", "0.18").verdict == "wrong"
    assert grade_number("18 %", "0.18", policy=Policy(percent="hundredth")).verdict == "right"
    assert grade_number("18 %", "18", policy=Policy(percent="hundredth")).verdict == "wrong"
    assert grade_number("18 %", "18", policy=Policy(percent="either")).verdict == "right"
    assert grade_number("18 %", "0.18", policy=Policy(percent="either")).verdict == "right"
    assert grade_number("2 million", "2").verdict == "wrong"
    assert grade_number("2 million", "2", policy=Policy(scale_words=False)).verdict == "right"
    assert grade_number("0.333", "1/3").verdict == "wrong"
    assert grade_number("0.333", "1/3", policy=Policy(tolerance=Fraction(1, 1000))).verdict == "right"


def test_no_float_decides() -> None:
    assert grade_number("0.1", "0.1000000000000000055511151231257827").verdict == "wrong"
    assert grade_number("9007199254740993", "9007199254740992").verdict == "wrong"


@pytest.mark.parametrize("rule", ["strict", "flexible"])
@pytest.mark.parametrize(
    "piece",
    ["1", "{", "\\boxed{", "#### ", "####", "1,", "1 ", "1/", "1.", "\\frac{1}", "<think>", "</think>",
    "\\boxed{1}", "\0",
     "١", "-", "$", " ", "3 x 10^", "1e", "m2 ", "<|im_end|>", "\u202e", "18 "],
)  # fmt: skip
def test_a_megabyte_of_anything_is_graded(piece: str, rule: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert grade_number(text, "17", rule).verdict in ("wrong", "unverifiable")
    assert grade_number(text + " x = 17", "17", rule).verdict in ("right", "wrong", "unverifiable")


def test_what_is_too_long_to_work_out_is_unverifiable_and_a_long_decimal_is_not() -> None:
    assert grade_number("9/" + "7" * 5000, "3") == Grade("unverifiable", None, "length")
    assert grade_number("10^999999999", "3") == Grade("unverifiable", None, "length")
    assert grade_number("0" * 10**6 + "18", "18").verdict == "right"
    assert grade_number("18." + "0" * 10**6, "18").verdict == "right"
    assert grade_number("18." + "0" * 10**6 + "1", "18").verdict == "wrong"
    assert grade_number("1e999999999999", "3").verdict == "wrong"
    assert grade_number("5/0", "3").verdict == "wrong"


def test_golds_are_read_once_and_named_where_they_cannot_be() -> None:
    assert parse_gold_gsm8k("Is #### a mark?\n#### 1,018") == "1018"
    assert parse_gold_gsm8k("#### -3") == "-3"
    for answer in ("no mark 18", "#### eighteen", "#### ", "#### 1/0"):
        with pytest.raises(ValueError, match=r"gold|####"):
            parse_gold_gsm8k(answer)
    for gold in ("", "  ", "x", "1 or 2", "10^999999"):
        with pytest.raises(ValueError, match="gold"):
            check_gold(gold, "gsm8k")
    with pytest.raises(ValueError, match="gold"):
        grade_number("18", "many")
    with pytest.raises(ValueError, match="strict"):
        grade_number("18", "18", "loose")  # type: ignore[arg-type]


def test_a_bare_answer_is_the_answer_itself() -> None:
    assert grade_bare_number("18 dollars", "18") == Grade("right", "18 dollars", "answer")
    assert grade_bare_number("-1.8 billion", "-1800000000").verdict == "right"
    assert grade_bare_number("17 18", "18").verdict == "wrong"
    assert grade_bare_number("", "18") == Grade("wrong", None, "none")


def test_a_question_is_its_words() -> None:
    asked = "Janet\u2019s ducks lay 1,600 eggs.  How many is $\\left(16\\right)$?"
    again = "janet's ducks  lay 1600 eggs. How many is (16)"
    assert normalised_question(asked) == normalised_question(again)
    assert normalised_question(asked) != normalised_question(asked.replace("1,600", "1,601"))
    assert normalised_question("x - 1") != normalised_question("x + 1")


def test_grading_loads_neither_torch_nor_sympy() -> None:
    heavy = ("torch", "sympy", "numpy", "math_verify")
    code = f"import sys, gradstarve.grading; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
