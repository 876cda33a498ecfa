"""Answers that are one whole number, as in the embedded sums: exact, by the rule in the row."""

from __future__ import annotations

import re

from gradstarve.grading.verdict import Grade

# Raised whenever a verdict may change; enters run signatures.
INTEGER_VERSION = "1"

_INTEGER = re.compile(r"[0-9]+")


def grade_integer(completion: str, gold: str, truncated: bool = False) -> Grade:
    """Compare the completion's last whole number with `gold`.

    A truncated completion that ends in a digit was cut off inside its last number, for all one can know, so there is no
    answer: wrong, rule "none".
    """
    matches = _INTEGER.findall(completion)
    if not matches or (truncated and completion[-1:].isdigit()):
        return Grade("wrong", None, "none")
    answer = matches[-1]
    # Compared as text without leading zeros: int() refuses very long digits, and no value needs more.
    right = (answer.lstrip("0") or "0") == (gold.strip().lstrip("0") or "0")
    return Grade("right" if right else "wrong", answer[:100], "last_integer")
