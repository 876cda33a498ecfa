"""`gradstarve advantages`: every advantage with its formula and what it gives dead groups."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from gradstarve.analysis.text import table
from gradstarve.errors import UserError
from gradstarve.estimators.advantages import ADVANTAGES, Advantage, get_advantage


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
        parameters[key.strip()] = int(number) if equals and number.is_integer() else number
    return get_advantage(name.strip(), parameters)


def parse_advantages(texts: Sequence[str] | None) -> dict[str, Advantage]:
    """Advantages by the text they were asked for with; all of them with their defaults where none is named."""
    return {text: parse_advantage(text) for text in texts} if texts else dict(ADVANTAGES)


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
    listed = rows(parse_advantages(arguments.advantage), arguments.group_size)
    if arguments.json:
        print(json.dumps(listed, indent=2))
        return 0
    cells = [[str(row["advantage"]), f"{row['all_fail']:+.4g}", f"{row['all_pass']:+.4g}"] for row in listed]
    print(f"What each completion of a dead group gets, group size {arguments.group_size}\n")
    print(table(["advantage", "all-fail", "all-pass"], cells))
    for row in listed:
        print(f"\n{row['advantage']}: {row['formula']}")
        print(f"  baseline: {row['baseline']}; scale: {row['scale']}\n  source: {row['source']}")
    return 0
