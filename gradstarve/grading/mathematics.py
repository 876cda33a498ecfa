"""Answers in mathematical notation, as in MATH-500: exact where they can be, symbolic within hard limits elsewhere."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Literal, Self

from gradstarve.grading.answers import Answer, Scalar, read_answer
from gradstarve.grading.comparison import Comparison, compare
from gradstarve.grading.finding import MAX_ANSWER, Found, find_answer, find_bare_answer
from gradstarve.grading.numbers import TooLongError, read_number
from gradstarve.grading.policy import DEFAULT, Policy
from gradstarve.grading.pool import Pair, WorkerPool
from gradstarve.grading.text import plain
from gradstarve.grading.verdict import Grade, Verdict

MAX_EXTRACTED = 500
# Longer than any expression that is sent to a worker.
MAX_EXPRESSION = 600
# Powers whose value alone would fill a machine: a tower of numbers, an exponent or factorial of five digits.
_TOO_LARGE = re.compile(
    r"\^\s*\{?\s*\(?\s*-?\d{5,}|\d{5,}\s*!|\d\s*\^\s*(?:\{\s*)?\(?\s*\d+\s*\)?\s*\^|!\s*\)?\s*!|\\binom\s*\{?\s*\d{5,}|\^\s*\{\s*\d+\s*\^\s*\{?\s*\d{2,}"
)


class MathGrader:
    """Grades mathematical answers: `with MathGrader(workers=2) as grader: grader.grade(completion, gold)`.

    Numbers, words, and what is built of them (lists, intervals, matrices) are decided here, exactly. Other expressions
    go to `workers` processes that import sympy and math-verify but not torch; each pair may take `seconds` and each
    worker `memory_bytes`. What exceeds a limit is "unverifiable". Needs no signals, so any thread of any process may
    use it; the workers end with their parent, however it ends. Pairs that were decided are remembered.
    """

    def __init__(
        self,
        workers: int = 1,
        seconds: float = 5.0,
        memory_bytes: int = 2 << 30,
        policy: Policy = DEFAULT,
        rule: Literal["strict", "flexible"] = "flexible",
        remembered: int = 100_000,
    ) -> None:
        self.policy, self.rule = policy, rule
        self._pool = WorkerPool(workers, seconds, memory_bytes)
        self._known: dict[Pair, tuple[Verdict, str]] = {}
        self._remembered = remembered

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def grade(self, completion: str, gold: str, rule: Literal["strict", "flexible"] | None = None) -> Grade:
        return self.grade_many([completion], [gold], rule)[0]

    def grade_many(
        self, completions: Sequence[str], golds: Sequence[str], rule: Literal["strict", "flexible"] | None = None
    ) -> list[Grade]:
        """Grade completions against golds of the same length, in parallel over the workers; the order is kept."""
        return self._grade([find_answer(completion, rule or self.rule) for completion in completions], golds)

    def grade_bare(self, answers: Sequence[str], golds: Sequence[str]) -> list[Grade]:
        """Grade answers that were already taken out of their texts."""
        return self._grade([find_bare_answer(answer) for answer in answers], golds)

    def unreadable(self, golds: Sequence[str]) -> list[int]:
        """Which golds hold an expression that can't be read: an answer could equal them only letter by letter."""
        wanted: dict[Hashable, Pair] = {
            (row, part): Pair(part)
            for row, gold in enumerate(golds)
            for part in _expressions(read_gold(gold, self.policy))
        }
        bad: set[int] = set()

        def decided(key: Hashable, verdict: Verdict, _: str) -> dict[Hashable, Pair]:
            if verdict != "right":
                bad.add(key[0])  # type: ignore[index]
            return {}

        self._pool.decide(wanted, decided)
        return sorted(bad)

    def _grade(self, found: Sequence[Found], golds: Sequence[str]) -> list[Grade]:
        if len(found) != len(golds):
            raise ValueError(f"{len(found)} answers but {len(golds)} golds")
        rows = [_Row(answer, gold, self.policy) for answer, gold in zip(found, golds, strict=True)]
        asked: dict[Pair, list[_Row]] = {}

        def advance(row: _Row) -> dict[Hashable, Pair]:
            """Take a row as far as what is known allows; the pairs that must be asked first."""
            while row.grade is None:
                assert row.pair is not None
                if row.pair in self._known:
                    row.answer(*self._known[row.pair])
                    continue
                asked.setdefault(row.pair, []).append(row)
                return {row.pair: row.pair} if len(asked[row.pair]) == 1 else {}
            return {}

        def decided(key: Hashable, verdict: Verdict, why: str) -> dict[Hashable, Pair]:
            assert isinstance(key, Pair)
            if len(self._known) >= self._remembered:
                self._known.pop(next(iter(self._known)))
            self._known[key] = (verdict, why)
            further: dict[Hashable, Pair] = {}
            for row in asked.pop(key):
                # The answer is given from here: the memory may be smaller than a batch.
                row.answer(verdict, why)
                further |= advance(row)
            return further

        first: dict[Hashable, Pair] = {}
        for row in rows:
            first |= advance(row)
        self._pool.decide(first, decided)
        return [row.grade for row in rows if row.grade is not None]


class _Row:
    """One answer on its way to a grade: the grade, or the pair that must be decided next."""

    def __init__(self, found: Found, gold: str, policy: Policy) -> None:
        self.grade: Grade | None = None
        self.pair: Pair | None = None
        self._found, self._policy = found, policy
        self._rule, self._why = found.rule, ""
        self._comparison: Comparison | None = None
        wanted = read_gold(gold, policy)
        if not found.text:
            self.grade = Grade("unverifiable" if found.rule == "length" else "wrong", None, found.rule)
        elif len(found.text) > MAX_ANSWER:
            self.grade = self._long(wanted)
        else:
            self._comparison = compare(wanted, read_answer(found.text, policy), policy)
            self._step(None)

    def _long(self, wanted: Answer) -> Grade:
        """A number of any length is decided; no list so long is the gold; anything else is too long to decide."""
        extracted = self._found.text[:MAX_EXTRACTED]
        try:
            number = read_number(plain(self._found.text), self._policy)
        except TooLongError:
            number = None
        if number is not None and isinstance(wanted, Scalar) and wanted.value is not None:
            return Grade("right" if number.value == wanted.value else "wrong", extracted, self._rule)
        if number is not None or self._found.text.count(",") > MAX_ANSWER // 8:
            return Grade("wrong", extracted, self._rule)
        return Grade("unverifiable", extracted, "length")

    def answer(self, verdict: Verdict, why: str) -> None:
        self._why = why or self._why
        self._step(verdict)

    def _step(self, verdict: Verdict | None) -> None:
        assert self._comparison is not None
        try:
            while True:
                gold, answer = self._comparison.send(verdict)  # type: ignore[arg-type]
                if max(len(gold), len(answer)) > MAX_EXPRESSION or _TOO_LARGE.search(answer):
                    verdict, self._why = "unverifiable", "length"
                    continue
                self._rule = f"{self._found.rule}, symbolic"
                self.pair = Pair(gold, answer, self._policy.tolerance)
                return
        except StopIteration as done:
            result: Verdict = done.value
        rule = f"{self._rule}, {self._why}" if result == "unverifiable" and self._why else self._rule
        self.grade = Grade(result, self._found.text[:MAX_EXTRACTED], rule)


@lru_cache(maxsize=16_384)
def read_gold(gold: str, policy: Policy = DEFAULT) -> Answer:
    """A gold as an answer. Raises ValueError where there is none in it."""
    found = find_bare_answer(gold)
    if not found.text or len(found.text) > MAX_ANSWER:
        raise ValueError(f"the gold {gold[:60]!r} holds no answer that can be read")
    return read_answer(found.text, policy)


def _expressions(answer: Answer) -> set[str]:
    """The parts of an answer that only symbols can compare."""
    if isinstance(answer, Scalar):
        return set() if answer.value is not None or answer.words or answer.base else {answer.text}
    items = answer.items if hasattr(answer, "items") else [cell for row in answer.rows for cell in row]
    return set().union(*(_expressions(item) for item in items))
