"""`gradstarve grade FILE --task gsm8k|math500`: grade completions against golds, both rules counted."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

from gradstarve.analysis.output_file import check_output
from gradstarve.analysis.rows import Unreadable, read_rows
from gradstarve.analysis.text import printable
from gradstarve.errors import UserError
from gradstarve.grading import (
    DEFAULT,
    EXTRACTOR_VERSION,
    Grade,
    MathGrader,
    check_gold,
    grade_bare_number,
    grade_number,
)
from gradstarve.runs.files import whole_file

RULES: tuple[Literal["strict", "flexible"], ...] = ("strict", "flexible")
TASKS = ("gsm8k", "math500")
FIRST_FEW = 5
_BATCH = 512
_MOST_WORKERS = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        help="rows with `gold` and `completion` (or `pred`, a bare answer): .jsonl, .jsonl.gz, .parquet, or - (stdin)",
    )
    parser.add_argument("--task", required=True, choices=TASKS, help="how answers are found and compared")
    parser.add_argument(
        "--rule",
        default="flexible",
        choices=RULES,
        help="which rule gives each row's verdict (default: flexible); both are counted",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the rows with `verdict`, `extracted` and `rule` to this .jsonl, or to standard output with -",
    )
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
    parser.add_argument(
        "--workers",
        type=_workers,
        default=min(4, os.cpu_count() or 1),
        help="processes for symbolic answers (default: %(default)s)",
    )
    parser.epilog = (
        "The summary goes to standard output, or to standard error with --out -. "
        "Exit code: 0, or 1 where a row could not be read (each is named; the others are graded)."
    )


def _workers(text: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= _MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST_WORKERS}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out not in (None, "-"):
        _check_out(Path(arguments.out), arguments.file)
    rows: list[tuple[int, dict[str, Any]]] = []
    unreadable: list[Unreadable] = []
    for at, row in read_rows(arguments.file):
        problem = row if isinstance(row, Unreadable) else _problem(at, row, arguments.task)
        if problem is not None:
            unreadable.append(problem)
        else:
            assert not isinstance(row, Unreadable)
            rows.append((at, row))
    if not rows and not unreadable:
        raise UserError(f"{arguments.file} has no rows")
    source = "standard input" if arguments.file == "-" else arguments.file
    if not rows and not any(problem.parsed for problem in unreadable):
        raise UserError(
            f"{source}: no line of it is a JSON object ({printable(str(unreadable[0]), 160)}); "
            "give .jsonl, .jsonl.gz or .parquet with `gold` and `completion`"
        )
    grades = _grade(rows, arguments.task, arguments.workers)
    chosen = grades[arguments.rule]
    graded = [
        row | {"verdict": grade.verdict, "extracted": grade.extracted, "rule": grade.rule}
        for (_, row), grade in zip(rows, chosen, strict=True)
    ]
    summary = _summary(arguments, rows, grades, unreadable)
    for problem in unreadable:
        print(f"gradstarve grade: {printable(f'{source} {problem}', 300)}", file=sys.stderr)
    if arguments.out == "-":
        for row in graded:
            print(_line(row))
    elif arguments.out is not None:
        _write(Path(arguments.out), graded)
    to = sys.stderr if arguments.out == "-" else sys.stdout
    if arguments.json:
        print(_line(summary), file=to)
    else:
        _print_summary(summary, to)
    return 1 if unreadable else 0


def _problem(at: int, row: dict[str, Any], task: str) -> Unreadable | None:
    """What keeps a row from being graded, or None."""
    present = [name for name in ("completion", "pred") if row.get(name) is not None]
    if not present:
        return Unreadable(at, "has neither `completion` nor `pred`")
    if not isinstance(row[present[0]], str):
        return Unreadable(at, f"`{present[0]}` is {type(row[present[0]]).__name__}, not text")
    if row.get("gold") is None:
        return Unreadable(at, "has no `gold`")
    label = row.get("label")
    if label is not None and not isinstance(label, bool) and label not in (0, 1):
        return Unreadable(at, f"`label` is {printable(repr(label), 40)}, not true or false")
    try:
        check_gold(_gold(row), task)
    except ValueError as error:
        return Unreadable(at, str(error))
    return None


def _gold(row: dict[str, Any]) -> Any:
    """A gold given as a JSON number is the number as it was written."""
    gold = row["gold"]
    return str(gold) if isinstance(gold, (int, float)) and not isinstance(gold, bool) else gold


def _grade(rows: Sequence[tuple[int, dict[str, Any]]], task: str, workers: int) -> dict[str, list[Grade]]:
    """The grades of all rows by rule."""
    grades: dict[str, list[Grade]] = {rule: [] for rule in RULES}
    progress = _Progress(len(rows))
    if task == "gsm8k":
        for done, (_, row) in enumerate(rows, 1):
            for rule in RULES:
                if row.get("completion") is not None:
                    grades[rule].append(grade_number(row["completion"], _gold(row), rule))
                else:
                    grades[rule].append(grade_bare_number(row["pred"], _gold(row)))
            progress.show(done)
    else:
        with MathGrader(workers=workers, policy=DEFAULT) as grader:
            for begin in range(0, len(rows), _BATCH):
                batch = [row for _, row in rows[begin : begin + _BATCH]]
                for rule in RULES:
                    grades[rule] += _grade_batch(grader, batch, rule)
                progress.show(begin + len(batch))
    progress.end()
    return grades


def _grade_batch(
    grader: MathGrader, batch: Sequence[dict[str, Any]], rule: Literal["strict", "flexible"]
) -> list[Grade]:
    full = [at for at, row in enumerate(batch) if row.get("completion") is not None]
    bare = [at for at, row in enumerate(batch) if row.get("completion") is None]
    found = dict(
        zip(
            full,
            grader.grade_many([batch[at]["completion"] for at in full], [_gold(batch[at]) for at in full], rule),
            strict=True,
        )
    )
    found |= dict(
        zip(bare, grader.grade_bare([batch[at]["pred"] for at in bare], [_gold(batch[at]) for at in bare]), strict=True)
    )
    return [found[at] for at in range(len(batch))]


class _Progress:
    """A line on standard error once the work has taken two seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._next, self._shown = total, time.monotonic() + 2.0, False

    def show(self, done: int) -> None:
        if time.monotonic() >= self._next:
            print(f"\rgraded {done:,} of {self._total:,}", end="", file=sys.stderr, flush=True)
            self._next, self._shown = time.monotonic() + 1.0, True

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def _summary(
    arguments: argparse.Namespace,
    rows: Sequence[tuple[int, dict[str, Any]]],
    grades: dict[str, list[Grade]],
    unreadable: Sequence[Unreadable],
) -> dict[str, Any]:
    counts = {rule: _counts(grades[rule]) for rule in RULES}
    summary: dict[str, Any] = {
        "task": arguments.task,
        "rule": arguments.rule,
        "extractor_version": EXTRACTOR_VERSION[arguments.task],
        "rows": len(rows),
        "unreadable": [{"row": problem.row, "why": problem.why} for problem in unreadable],
        **counts[arguments.rule],
        "rules": counts,
    }
    labelled = [
        (at, row, grade)
        for (at, row), grade in zip(rows, grades[arguments.rule], strict=True)
        if row.get("label") is not None
    ]
    if labelled:
        summary["labels"] = _agreement(labelled)
    return summary


def _counts(grades: Sequence[Grade]) -> dict[str, Any]:
    verdicts = Counter(grade.verdict for grade in grades)
    found_by = Counter(grade.rule for grade in grades)
    return {
        **{verdict: verdicts[verdict] for verdict in ("right", "wrong", "unverifiable")},
        # Every row counts, whatever could not be decided.
        "accuracy": verdicts["right"] / len(grades) if grades else None,
        "found_by": dict(sorted(found_by.items())),
    }


def _agreement(labelled: Sequence[tuple[int, dict[str, Any], Grade]]) -> dict[str, Any]:
    """Verdicts against labels; a row that could not be decided agrees with neither label."""
    table = Counter((bool(row["label"]), grade.verdict) for _, row, grade in labelled)
    agree = table[True, "right"] + table[False, "wrong"]

    def first(label: bool, verdict: str) -> list[dict[str, Any]]:
        shown = [
            (at, row, grade) for at, row, grade in labelled if bool(row["label"]) == label and grade.verdict == verdict
        ]
        return [
            {"row": at, "gold": row["gold"], "extracted": grade.extracted, "rule": grade.rule}
            for at, row, grade in shown[:FIRST_FEW]
        ]

    return {
        "rows": len(labelled),
        "agree": agree,
        "agreement": agree / len(labelled),
        "false_positives": table[False, "right"],
        "false_negatives": table[True, "wrong"],
        "unverifiable": table[True, "unverifiable"] + table[False, "unverifiable"],
        "first_false_positives": first(False, "right"),
        "first_false_negatives": first(True, "wrong"),
        "first_unverifiable": first(True, "unverifiable") + first(False, "unverifiable"),
    }


def _print_summary(summary: dict[str, Any], to: TextIO) -> None:
    version = summary["extractor_version"]
    print(
        f"{summary['task']}, {summary['rows']:,} rows, verdicts by the {summary['rule']} rule (extractor {version})",
        file=to,
    )
    for rule, counts in summary["rules"].items():
        share = "-" if counts["accuracy"] is None else f"{100 * counts['accuracy']:.2f} %"
        verdicts = "  ".join(f"{verdict} {counts[verdict]:,}" for verdict in ("right", "wrong", "unverifiable"))
        print(f"  {rule:<9} {verdicts}  accuracy {share}", file=to)
    if labels := summary.get("labels"):
        agreement = f"{labels['agree']:,} of {labels['rows']:,} agree ({100 * labels['agreement']:.2f} %)"
        kinds = {
            "false_positives": "false positive",
            "false_negatives": "false negative",
            "unverifiable": "unverifiable",
        }
        print(
            f"  labels    {agreement}, " + ", ".join(f"{name}: {labels[kind]}" for kind, name in kinds.items()), file=to
        )
        for kind, name in kinds.items():
            for case in labels[f"first_{kind}"]:
                gold, extracted = (printable(repr(case[key])) for key in ("gold", "extracted"))
                compared = f"gold {gold}, extracted {extracted} ({case['rule']})"
                print(f"    {name}: row {case['row']}: {compared}", file=to)
    if summary["unreadable"]:
        print(f"  not graded: {len(summary['unreadable'])} rows that could not be read", file=to)


def _check_out(path: Path, source: str) -> None:
    """Before anything is graded: an output that cannot be written, or that would take the place of the input."""
    check_output(path, "--out")
    if source != "-" and path.resolve() == Path(source).resolve():
        raise UserError(f"--out {path}: is the file that is graded; rows that cannot be read would be lost")


def _line(row: dict[str, Any]) -> str:
    """JSON has no NaN and no infinity: null. What only parquet knows (dates, bytes) is written as its text."""
    return json.dumps(_finite(row), allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(_line(row) + "\n")
