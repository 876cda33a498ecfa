"""Text to an extracted answer to a verdict: pure functions, and worker processes for what needs symbols."""

from __future__ import annotations

from gradstarve.grading.golds import EXTRACTOR_VERSION, check_gold, normalised_question, parse_gold_gsm8k
from gradstarve.grading.gsm8k import Rule, grade_bare_number, grade_number
from gradstarve.grading.mathematics import MathGrader
from gradstarve.grading.policy import DEFAULT, Policy
from gradstarve.grading.verdict import Grade, Verdict

__all__ = [
    "DEFAULT",
    "EXTRACTOR_VERSION",
    "Grade",
    "MathGrader",
    "Policy",
    "Rule",
    "Verdict",
    "check_gold",
    "grade_bare_number",
    "grade_number",
    "normalised_question",
    "parse_gold_gsm8k",
]
