"""Rollout logs in one shape, whoever wrote them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from gradstarve.analysis.text import printable, show_progress
from gradstarve.errors import UserError

Row = TypeVar("Row")

REWARDS = "a reward is 1, 0, true, false, or null where it is not known"
# Of a completion, in whatever it is counted; sums of more could overflow.
LARGEST_LENGTH = 1e15

# Column names that loggers use, the first that is there wins.
PROMPT_COLUMNS = ("prompt_id", "prompt", "input", "question", "problem")
REWARD_COLUMNS = ("reward", "score", "correct", "is_correct")
TEXT_COLUMNS = ("completion", "output", "response", "completions", "outputs", "responses")
TOKEN_COLUMNS = (
    "length",
    "tokens",
    "num_tokens",
    "completion_tokens",
    "completion_length",
    "response_length",
    "lengths",
)


@dataclass(frozen=True)
class Group:
    """The completions of one prompt in one step.

    `rewards` holds 1, 0 or None (unverifiable). `lengths` and `truncated` are None where the log does not tell them.
    `where` is the place in the log, for messages.
    """

    where: str
    prompt: str
    step: int | None
    rewards: tuple[int | None, ...]
    lengths: tuple[float, ...] | None = None
    truncated: tuple[bool, ...] | None = None

    @property
    def successes(self) -> int:
        return sum(reward == 1 for reward in self.rewards)

    @property
    def verdicts(self) -> int:
        return sum(reward is not None for reward in self.rewards)


@dataclass(frozen=True)
class StepMetrics:
    """What a log of training metrics says of one step beside the reward; None where it says nothing."""

    step: int
    reward: float | None
    evaluation: float | None = None
    entropy: float | None = None
    length: float | None = None


@dataclass
class Rollouts:
    """A rollout log: its groups in the order of their steps, and what was done to read it.

    `length_unit` names what `Group.lengths` counts. `notes` are (id, text) of everything that was left out, inferred or
    recoded.
    """

    kind: str
    groups: list[Group]
    length_unit: str | None = None
    metrics: list[StepMetrics] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Completion:
    """One row of a log with a row for each completion. `reward` is 1, 0, None, or -1 until `recode` has seen all;
    `text` is a hash of what was written, to tell repeated rows.
    """

    where: str
    prompt: str
    step: int | None
    reward: int | None
    length: float | None
    truncated: bool | None
    text: int | None = None
    group: int | None = None


def parse_reward(value: Any, where: str, threshold: float | None) -> int | None:
    """1, 0, -1 (some loggers' wrong) or None (unverifiable: null, NaN or empty). Refuses anything else by its place."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("", "nan", "null", "none"):
            return None
        if word in ("true", "false"):
            return int(word == "true")
        try:
            value = float(word)
        except ValueError:
            raise UserError(f"{where}: reward {printable(word, 30)!r} is not a number; {REWARDS}") from None
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: reward {printable(repr(value), 30)} is not a number; {REWARDS}") from None
    if math.isnan(number):
        return None
    if threshold is not None:
        return int(number >= threshold)
    if number in (-1, 0, 1):
        return int(number)
    raise UserError(
        f"{where}: reward {number:g} is neither 0 nor 1; --threshold T counts rewards of at least T as right"
    )


def recode(rewards: Iterable[tuple[int | None, str]]) -> bool:
    """Whether -1 stands for wrong. Refused where -1 and 0 both occur, by the place of the first -1."""
    first_minus, zero = None, False
    for reward, where in rewards:
        if reward == -1 and first_minus is None:
            first_minus = where
        zero = zero or reward == 0
    if first_minus is not None and zero:
        raise UserError(f"{first_minus}: reward -1 in a log that also has 0; --threshold T says which count as right")
    return first_minus is not None


def first_column(columns: Iterable[str], names: Sequence[str]) -> str | None:
    present = set(columns)
    return next((name for name in names if name in present), None)


def parse_step(row: Mapping[str, Any], where: str, column: str = "step") -> int | None:
    value = row.get(column)
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        number = float(value)
        step = int(number)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: {column} {printable(repr(value), 30)} is not a number") from None
    if step != number:
        raise UserError(f"{where}: {column} {number:g} is not whole; a step is counted 1, 2, 3")
    return step


def parse_number(value: Any, where: str, name: str) -> float | None:
    """A finite number, or None for what is missing or NaN."""
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: {name} {printable(repr(value), 30)} is not a number") from None
    return number if math.isfinite(number) else None


def parse_length(value: Any, where: str, name: str) -> float | None:
    """How long a completion is, or None for what is missing or NaN."""
    number = parse_number(value, where, name)
    if number is not None and not 0 <= number <= LARGEST_LENGTH:
        raise UserError(f"{where}: {name} {number:g} is not the length of a completion")
    return number


def parse_truncated(value: Any, where: str) -> bool | None:
    """Whether a completion was cut off, or None for what is missing or NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    word = str(value).strip().lower()
    if word in ("", "nan", "null", "none"):
        return None
    if word in ("true", "1", "1.0"):
        return True
    if word in ("false", "0", "0.0"):
        return False
    raise UserError(f"{where}: truncated is {printable(repr(value), 30)}, neither true nor false")


def live_rows(rows: Sequence[Row], steps: Sequence[int], one_row_a_step: bool) -> tuple[list[Row], int]:
    """Rows less those that a restart wrote again, and how many were dropped.

    Where the log goes back to a step that it had already reached, what it had from that step on belongs to the attempt
    that was given up. A log whose steps are in no order at all is kept as it is, but for repeated steps where a step
    has one row: there the last counts.
    """
    backward = sum(later < earlier for earlier, later in pairwise(steps))
    if backward > len(set(steps)) / 4:
        if not one_row_a_step:
            return list(rows), 0
        last = dict(zip(steps, rows, strict=True))
        return list(last.values()), len(rows) - len(last)
    kept: list[tuple[int, Row]] = []
    reached: set[int] = set()
    previous: int | None = None
    for row, step in zip(rows, steps, strict=True):
        again = previous is not None and (step < previous or (one_row_a_step and step == previous))
        if again and step in reached:
            kept = [item for item in kept if item[0] < step]
            reached = {item[0] for item in kept}
        kept.append((step, row))
        reached.add(step)
        previous = step
    return [row for _, row in kept], len(rows) - len(kept)


def group_completions(completions: Sequence[Completion]) -> tuple[list[Group], list[tuple[str, str]]]:
    """Groups by (step, group, prompt), in the order in which they begin, and notes on what was dropped or recoded."""
    notes: list[tuple[str, str]] = []
    rows: Sequence[Completion] = completions
    steps = [row.step for row in rows if row.step is not None]
    if len(steps) == len(rows):
        rows, dropped = live_rows(rows, steps, one_row_a_step=False)
        if dropped:
            notes.append(("restart", f"{dropped} completions were written by an attempt that a restart replaced"))
    minus_is_wrong = recode((row.reward, row.where) for row in rows)
    if minus_is_wrong:
        notes.append(("rewards-recoded", "rewards are 1 and -1; -1 is counted as wrong"))
    found: dict[tuple[int | None, int | None, str], list[Completion]] = {}
    for row in rows:
        found.setdefault((row.step, row.group, row.prompt), []).append(row)
    return [_group(members) for members in found.values()], notes


def _group(members: list[Completion]) -> Group:
    lengths = [member.length for member in members if member.length is not None]
    truncated = [member.truncated for member in members if member.truncated is not None]
    first = members[0]
    return Group(
        where=first.where,
        prompt=first.prompt,
        step=first.step,
        rewards=tuple(0 if member.reward == -1 else member.reward for member in members),
        lengths=tuple(lengths) if len(lengths) == len(members) else None,
        truncated=tuple(truncated) if len(truncated) == len(members) else None,
    )


def with_progress(rows: Iterable[Row], what: str) -> Iterator[Row]:
    """The rows; after two seconds a line on standard error says how far it is."""
    began = time.monotonic()
    count = 0
    for count, row in enumerate(rows, start=1):
        yield row
        if count % 5000 == 0:
            show_progress(began, f"{what}: {count:,}")
    show_progress(began, f"{what}: {count:,}", last=True)
