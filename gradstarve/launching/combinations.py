"""From what was typed, or written in a sweep file, to the overrides of each run: lists and ranges, multiplied out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Transformer
from hydra.errors import OverrideParseException

from gradstarve.errors import UserError
from gradstarve.launching.ranges import expand, parse_range, takes_integers

MOST_RUNS = 100_000


def parse_overrides(texts: Iterable[str], loader: ConfigLoader | None = None) -> list[Override]:
    """The parsed overrides. Raises UserError for one that Hydra's grammar does not know, and for a key given twice.

    `loader` is needed where `glob(*)` is to be read.
    """
    parser = OverridesParser.create(config_loader=loader)
    overrides: list[Override] = []
    for text in texts:
        try:
            override = parser.parse_overrides([text])[0]
        except OverrideParseException as error:
            if "=" not in text:
                raise UserError(f"{text!r} is not an override: write KEY=VALUE, for example seed=43") from None
            raise UserError(f"malformed override {text!r}: {_reason(error)}") from None
        if not override.key_or_group:
            raise UserError(f"{text!r} is not an override: write KEY=VALUE, for example seed=43")
        overrides.append(override)
    first: dict[str, str] = {}
    for override in overrides:
        key = key_of(override)
        text = override.input_line or key
        if key in first:
            raise UserError(f"{key} is given twice: {first[key]} and {text}; for several runs write {key}=A,B with -m")
        first[key] = text
    return overrides


def _reason(error: OverrideParseException) -> str:
    """What the grammar's parser says, less the override itself, the address of a manual, and every token it knows."""
    text = str(error).removeprefix(f"Error parsing override '{error.override}'")
    if text.startswith("LexerNoViableAltException"):
        return "a character that cannot stand there; quote the value"
    return " ".join(text.split("\nSee https")[0].split(" expecting ")[0].split())


def key_of(override: Override) -> str:
    """The key that an override sets, without +, ++ or ~."""
    return override.get_key_element().lstrip("+~")


def chooses_nothing(override: Override) -> bool:
    """Whether it leaves a group without a choice in its second place, as `dataset@evaluation=null` does."""
    return override.package is not None and not override.is_sweep_override() and override.value() is None


def choices(override: Override) -> Sequence[str]:
    """The overrides, one a value, that stand for this one: itself where it is neither a list nor a range."""
    key = override.get_key_element()
    if override.is_sweep_override():
        if not override.is_discrete_sweep():
            raise UserError(f"{override.input_line}: an interval cannot be enumerated; write a list or a range")
        return [
            f"{key}={Transformer.str(value)}" for value in expand(key_of(override), list(override.sweep_iterator()))
        ]
    assert override.input_line is not None
    if takes_integers(key_of(override)) and "=" in override.input_line:
        numbers = parse_range(override.get_value_string())
        if numbers is not None:
            return [f"{key}={number}" for number in numbers]
    return [override.input_line]


def combinations(overrides: Sequence[Override]) -> list[tuple[str, ...]]:
    """Every combination of the values: the overrides of each run. The first key changes slowest."""
    axes = [choices(override) for override in overrides]
    total = math.prod(len(axis) for axis in axes)
    if total > MOST_RUNS:
        raise UserError(f"this asks for {total} runs; at most {MOST_RUNS} are taken")
    return list(itertools.product(*axes))
