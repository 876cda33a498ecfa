"""`gradstarve advantages`: every advantage with its formula and what it gives dead groups."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence

from gradstarve.analysis.text import shortened, table
from gradstarve.errors import UserError
from gradstarve.estimators.advantages import ADVANTAGES, Advantage, get_advantage
from gradstarve.estimators.coefficients import LARGEST_GROUP

# Squares of advantages over probabilities of at least SMALLEST_P are still floats.
LARGEST_PARAMETER = 1e50
SMALLEST_P = 1e-50


def parse_advantage(text: str) -> Advantage:
    """An advantage as it is typed: `name` or `name:parameter=value,...`, such as `passk:k=3`."""
    name, _, given = text.partition(":")
    parameters: dict[str, float] = {}
    for item in filter(None, given.split(",")):
        key, equals, value = item.partition("=")
        try:
            number = float(value)
        except ValueError:
            raise UserError(f"{text!r}: {item!r} is not parameter=number, as in passk:k=3") from None
        if math.isfinite(number) and abs(number) > LARGEST_PARAMETER:
            raise UserError(f"{text!r}: {item!r} is beyond what can be computed; give at most {LARGEST_PARAMETER:g}")
        key = key.strip()
        if key in parameters:
            raise UserError(f"{text!r} gives {key!r} twice; give it once")
        parameters[key] = int(number) if equals and number.is_integer() else number
    return get_advantage(name.strip(), parameters)


def parse_advantages(texts: Sequence[str] | None) -> dict[str, Advantage]:
    """Advantages by the text they were asked for with; all of them with their defaults where none is named."""
    return {text: parse_advantage(text) for text in texts} if texts else dict(ADVANTAGES)


def check_group_size(group_size: int, option: str = "--group-size") -> None:
    if group_size < 2:
        raise UserError(
            f"{option}: a group has at least 2 completions, so a size between 2 and {LARGEST_GROUP}; "
            f"got {shortened(group_size)}"
        )
    if group_size > LARGEST_GROUP:
        raise UserError(f"{option} {shortened(group_size)}: a group size lies between 2 and {LARGEST_GROUP}")


def check_p(p: float, option: str) -> None:
    """Refuse what is no probability, or is too near 0 for its inverse's square to be a float."""
    if not 0 <= p <= 1:
        raise UserError(f"{option}: a success probability p lies in [0, 1], got {p:g}")
    if 0 < p < SMALLEST_P:
        raise UserError(f"{option} {p:g}: too near 0 to compute with; give 0, or at least {SMALLEST_P:g}")


def add_advantage_option(parser: argparse.ArgumentParser, note: str) -> None:
    parser.add_argument(
        "--advantage",
        nargs="+",
        metavar="NAME[:PARAMETER=VALUE,...]",
        help=f"which advantages, such as sign or passk:k=3 ({note})",
    )


def rows(advantages: dict[str, Advantage], group_size: int) -> list[dict[str, object]]:
    """One row for each advantage; `all_fail` and `all_pass` are what each completion of such a group gets."""
    return [
        {
            "advantage": label,
            "formula": advantage.resolved_formula(),
            "baseline": advantage.baseline,
            "scale": advantage.scale,
            "all_fail": advantage.all_fail(group_size),
            "all_pass": advantage.all_pass(group_size),
            "source": advantage.source,
        }
        for label, advantage in advantages.items()
    ]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group-size", type=int, default=4, metavar="G", help="completions in a group (default 4)")
    add_advantage_option(parser, "default: all")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    check_group_size(arguments.group_size)
    listed = rows(parse_advantages(arguments.advantage), arguments.group_size)
    if arguments.json:
        print(json.dumps(listed, indent=2, allow_nan=False))
        return 0
    cells = [[str(row["advantage"]), f"{row['all_fail']:+.4g}", f"{row['all_pass']:+.4g}"] for row in listed]
    print(f"What each completion of a dead group gets, group size {arguments.group_size}\n")
    print(table(["advantage", "all-fail", "all-pass"], cells))
    for row in listed:
        print(f"\n{row['advantage']}: {row['formula']}")
        print(f"  baseline: {row['baseline']}; scale: {row['scale']}\n  source: {row['source']}")
    return 0
