"""What a grader says of one completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["right", "wrong", "unverifiable"]


@dataclass(frozen=True)
class Grade:
    """A verdict with what led to it.

    `extracted` is the answer as it stands in the completion, or None where none was found: that is wrong, with the rule
    "none". `rule` names how the answer was found and compared. "unverifiable" means that the grader could not decide
    (a limit of time, memory or length, or a parser that failed), never that the answer is missing.
    """

    verdict: Verdict
    extracted: str | None
    rule: str

    @property
    def reward(self) -> float | None:
        """1.0, 0.0, or None where the grader could not decide."""
        return {"right": 1.0, "wrong": 0.0, "unverifiable": None}[self.verdict]
