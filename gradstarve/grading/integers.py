"""Answers that are one whole number, as in the embedded sums and in word problems: exact, by the rule in the row."""

from __future__ import annotations

import re

from gradstarve.grading.verdict import Grade

# Raised whenever a verdict may change; enters run signatures.
INTEGER_VERSION = "1"

FIRST_LINE_VERSION = "1"

_INTEGER = re.compile(r"[0-9]+")
# With what would make it another number: a sign, thousands, a fraction or decimals. A full stop after it does not.
_NUMBER = re.compile(r"(?<![0-9])-?[0-9]+(?:,[0-9]{3}(?![0-9]))*(?:[./][0-9]+)?")


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


def grade_first_line(completion: str, gold: str, truncated: bool = False) -> Grade:
    """Compare the last number of the completion's first line that is not blank with `gold`; later lines do not count.

    The line may be working ("3 + 4 = 7") or the answer alone. A number that is not whole is wrong: 7.5 is not 7. A
    truncated completion that ends in that number was cut off inside it, for all one can know, so there is no answer:
    wrong, rule "none".
    """
    text = completion.lstrip()
    line = text.partition("\n")[0]
    numbers = list(_NUMBER.finditer(line))
    if not numbers or (truncated and numbers[-1].end() == len(text)):
        return Grade("wrong", None, "none")
    answer = numbers[-1].group()
    digits = answer.replace(",", "")
    right = digits.isdigit() and (digits.lstrip("0") or "0") == (gold.strip().lstrip("0") or "0")
    return Grade("right" if right else "wrong", answer[:100], "first_line")
