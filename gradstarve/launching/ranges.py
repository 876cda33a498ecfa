"""Ranges of integers: `42..48` is 42, 43, ..., 48; `1..9..4` is 1, 5, 9; `3..1` goes down. Both ends belong to it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from gradstarve.errors import UserError
from gradstarve.estimators import ADVANTAGES
from gradstarve.runs.config import RunConfig

_RANGE = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)(?:\.\.(-?[0-9]+))?")

# No study has a million values of one key; a typing error such as 42..480000000 has.
MOST_VALUES = 1_000_000


def parse_range(text: str) -> range | None:
    """The integers that `text` stands for, or None where it is no range (`../data`, `a..b`, `1.5..3`).

    The step may carry the sign of its direction or none. Raises UserError for a step of 0 or of the wrong direction.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    direction = 1 if last >= first else -1
    step = direction
    if match[3] is not None:
        step = int(match[3])
        if step == 0:
            raise UserError(f"{text}: the step of a range cannot be 0")
        if match[3].startswith("-") and direction > 0:
            raise UserError(f"{text}: a step of {step} never gets from {first} to {last}")
        step = abs(step) * direction
    values = range(first, last + direction, step)
    if len(values) > MOST_VALUES:
        raise UserError(f"{text}: a range of {len(values)} values; at most {MOST_VALUES} are taken")
    return values


def expand(key: str, values: list[Any]) -> Iterator[Any]:
    """The values of a list with each range in its place, where `key` takes integers; otherwise the values as they are.

    `values` are what Hydra's grammar made of the text, so that a quoted '1..3' is no `str` and is left alone.
    """
    for value in values:
        numbers = parse_range(value) if isinstance(value, str) and takes_integers(key) else None
        if numbers is None:
            yield value
        else:
            yield from numbers


def takes_integers(key: str) -> bool:
    """Whether a dotted key is an integer in the config, wherever it stands: seed, evaluation.limit, advantage.k, ..."""
    return key in _integer_keys()


@functools.cache
def _integer_keys() -> frozenset[str]:
    keys = set(_integers_below(RunConfig, ""))
    for advantage in ADVANTAGES.values():
        hints = get_type_hints(advantage.function)
        keys.update(f"advantage.{name}" for name in advantage.parameters if hints.get(name) is int)
    return frozenset(keys)


def _integers_below(hint: Any, prefix: str) -> Iterator[str]:
    """The dotted integer keys of a config dataclass, or of every one that a union of them offers."""
    for option in _dataclasses_in(hint):
        for name, below in get_type_hints(option).items():
            if below is int or set(get_args(below)) == {int, NoneType}:
                yield prefix + name
            yield from _integers_below(below, f"{prefix}{name}.")


def _dataclasses_in(hint: Any) -> list[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [found for argument in get_args(hint) for found in _dataclasses_in(argument)]
