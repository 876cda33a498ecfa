"""Where published graders differ: each choice named, with its default and the reason for it (docs/grading.md)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True)
class Policy:
    """How answers are compared. The defaults are part of `EXTRACTOR_VERSION`.

    percent: "unit" reads 18 % as 18, since the golds of GSM8K and MATH drop the sign; "hundredth" reads it as 0.18;
        "either" accepts both.
    scale_words: 1.8 billion is 1 800 000 000; False reads 1.8 and takes the word for a unit.
    units: "optional" lets one side leave its unit out; two units that differ are wrong. "required" wants the gold's
        unit where the gold has one.
    list_order: "ignored" compares `1, 2` and sets without order, as "find all solutions" asks for no order; "kept"
        compares lists in order. Tuples, intervals, vectors and matrices are always in order.
    list_brackets: "required" keeps the point (1, 2) apart from the list 1, 2; "optional" lets the answer leave out the
        brackets of the gold.
    inequalities: "intervals" compares -2 <= x <= 7 with [-2, 7]; "text" does not.
    base: "required" wants the base of 4210_5 written, as 4210 alone is another number; "optional" lets an answer leave
        it out. A base that differs, or a value converted to base ten, is wrong either way.
    decimal_comma: False reads 1,22 as two numbers; True as 1.22.
    tolerance: largest relative difference that counts as equal; None compares exactly, so that 0.333 is not 1/3.
    """

    percent: Literal["unit", "hundredth", "either"] = "unit"
    scale_words: bool = True
    units: Literal["optional", "required"] = "optional"
    list_order: Literal["ignored", "kept"] = "ignored"
    list_brackets: Literal["required", "optional"] = "required"
    inequalities: Literal["intervals", "text"] = "intervals"
    base: Literal["required", "optional"] = "required"
    decimal_comma: bool = False
    tolerance: Fraction | None = None


DEFAULT = Policy()
