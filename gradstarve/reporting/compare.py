"""`gradstarve compare`: anyone's numbers, from a csv, with the statistics of our tables."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from gradstarve.errors import UserError, nearest
from gradstarve.reporting.compare_text import ALL_EQUAL, LONGEST_NAME, all_equal, describe
from gradstarve.reporting.statistics import Comparison, Summary, compare, holm, summarise

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_LONGEST_NUMBER = 100
_LARGEST_EXPONENT = 100

SHOWN_AS_NULL = {"ci95": "interval", "welch": "Welch test", "hodges_lehmann": "shift", "hedges_g": "Hedges g"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare every group of numbers in a csv with a baseline: means and intervals, Welch, the exact permutation "
        "test, Mann-Whitney, effect sizes, Holm over all comparisons. One row is one seed (or one of whatever is "
        "independent); docs/statistics.md explains each number."
    )
    parser.add_argument("file", metavar="FILE.csv", help="csv with a header; - reads standard input")
    parser.add_argument("--group", required=True, metavar="COLUMN", help="column that names the group of a row")
    parser.add_argument("--value", required=True, metavar="COLUMN", help="column with the number to compare")
    parser.add_argument("--baseline", required=True, metavar="NAME", help="the group that the others are held against")
    parser.add_argument("--json", action="store_true", help="print JSON (fractions as given, null where undefined)")


def run(arguments: argparse.Namespace) -> int:
    groups = read_groups(arguments.file, arguments.group, arguments.value)
    if arguments.baseline not in groups:
        raise UserError(
            f"no row has the baseline {arguments.baseline!r} in column {arguments.group!r}. "
            f"{nearest(arguments.baseline, groups)}"
        )
    others = [name for name in groups if name != arguments.baseline]
    if not others:
        raise UserError(f"every row is of the baseline {arguments.baseline!r}: there is nothing to compare it with.")
    for name, values in groups.items():
        if len(values) < 2:
            raise UserError(
                f"group {_cut(name)} has one value: it has no spread to test. Give it more, or leave it out."
            )
    summaries = {name: summarise(values) for name, values in groups.items()}
    console = Console(stderr=True)
    steps = track(others, "comparing", console=console, transient=True, disable=not console.is_terminal)
    comparisons = {name: compare(groups[name], groups[arguments.baseline]) for name in steps}
    family = holm([comparison.permutation.p_two_sided for comparison in comparisons.values()])
    holm_ps = dict(zip(comparisons, family, strict=True))
    if arguments.json:
        print(json.dumps(_as_json(summaries, comparisons, holm_ps, arguments.baseline), indent=2, allow_nan=False))
        for name, comparison in comparisons.items():
            told = _undefined(comparison)
            if all_equal(summaries[name], summaries[arguments.baseline]):
                told.append(ALL_EQUAL)
            if told:
                print(f"{_cut(name)} against {_cut(arguments.baseline)}: {'; '.join(told)}", file=sys.stderr)
    else:
        print(describe(summaries, comparisons, holm_ps, arguments.baseline, arguments.value))
    return 0


def _undefined(comparison: Comparison) -> list[str]:
    """What JSON has as null, by its reason."""
    fields: dict[str, list[str]] = {}
    for field, shown in SHOWN_AS_NULL.items():
        if field in comparison.reasons:
            fields.setdefault(comparison.reasons[field], []).append(shown)
    return [f"no {', no '.join(shown)}: {reason}" for reason, shown in fields.items()]


def _cut(name: str) -> str:
    return repr(name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "...")


def read_groups(file: str, group_column: str, value_column: str) -> dict[str, list[Decimal]]:
    """The values of each group, in the order of the file; each exactly as its text says.

    Raises `UserError` that names the line for a missing group or a value that is not a finite number, and for a file
    that can't be read as a csv with these columns.
    """
    text = _read(file)
    where = "standard input" if file == "-" else file
    groups: dict[str, list[Decimal]] = {}
    try:
        for line, row in _rows(text, where, (group_column, value_column)):
            name, value = row[group_column].strip(), row[value_column].strip()
            if not name:
                raise UserError(
                    f"{where}, line {line}: column {group_column!r} is empty. Name the group of this value."
                )
            groups.setdefault(name, []).append(_number(value, f"{where}, line {line}: column {value_column!r}"))
    except csv.Error as error:
        raise UserError(f"{where} can't be read as csv: {error}.") from error
    if not groups:
        raise UserError(f"{where} has a header but no rows.")
    return groups


def _rows(text: str, where: str, columns: tuple[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise UserError(f"{where} is empty. It needs a header and one row for each value.")
    for column in columns:
        if column not in header:
            commas = " Is it separated by something other than commas?" if len(header) == 1 else ""
            raise UserError(f"{where} has no column {column!r}. {nearest(column, header)}{commas}")
        if Counter(header)[column] > 1:
            raise UserError(f"{where} has more than one column {column!r}. Rename all but one.")
    if columns[0] == columns[1]:
        raise UserError(f"--group and --value are both {columns[0]!r}. Name two different columns.")
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise UserError(f"{where}, line {reader.line_num}: {len(cells)} cells under a header of {len(header)}.")
        yield reader.line_num, dict(zip(header, cells, strict=True))


def _read(file: str) -> str:
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(f"{file} does not exist.") from error
    except OSError as error:
        raise UserError(f"{file} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text (byte {error.start}).") from error


def _number(text: str, where: str) -> Decimal:
    if not text:
        raise UserError(f"{where} is empty. Give the value, or delete the row.")
    shown = repr(text if len(text) <= 40 else text[:40] + "…")
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
        raise UserError(f"{where} is {shown}, not a number. Write it as 67.8, without % or thousands separators.")
    value = Decimal(text)
    if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
        raise UserError(f"{where} is {shown}, beyond what can be compared. Give it in another unit.")
    return value if value else Decimal(0)


def _as_json(
    summaries: dict[str, Summary],
    comparisons: dict[str, Comparison],
    holm_ps: dict[str, float | None],
    baseline: str,
) -> dict[str, Any]:
    groups = {
        name: {
            "n": summary.n,
            "mean": summary.mean,
            "sd": summary.sd,
            "median": summary.median,
            # An interval without width would say that the mean is known.
            "ci95": None if summary.sd == 0 else summary.ci95,
        }
        for name, summary in summaries.items()
    }
    return {
        "groups": groups,
        "comparisons": [
            {
                "a": name,
                "b": baseline,
                "difference": comparison.difference,
                "ci95": comparison.ci95,
                "welch": {key: getattr(comparison.welch, key, None) for key in ("t", "df", "p")},
                "permutation": {
                    key: getattr(comparison.permutation, key)
                    for key in ("p_two_sided", "p_greater", "smallest_p", "exact")
                },
                "mann_whitney_p": comparison.mann_whitney_p,
                "hodges_lehmann": comparison.hodges_lehmann,
                "hedges_g": comparison.hedges_g,
                "probability_of_improvement": comparison.probability_of_improvement,
                "holm_p": holm_ps[name],
            }
            for name, comparison in comparisons.items()
        ],
    }
