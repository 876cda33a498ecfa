"""Grading against math-verify on the same real rows, one process each: `python bench/grading.py [--data FOLDER]`.

Claims: at least 100 times faster on GSM8K outputs, no slower on MATH-500 outputs (one worker, as math-verify is one
process), verdicts equal or the difference shown with the publisher's label. Exits 1 where a claim fails.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradstarve.grading import MathGrader, grade_number

GSM8K_QUESTIONS, SAMPLES = 1_319, 128


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def by_math_verify(rows: Sequence[dict[str, Any]]) -> list[bool]:
    from math_verify import parse, verify

    return [bool(verify(parse(f"${row['gold']}$"), parse(row["completion"]))) for row in rows]


def by_number(rows: Sequence[dict[str, Any]]) -> list[bool]:
    return [grade_number(row["completion"], row["gold"], "flexible").verdict == "right" for row in rows]


def report(
    name: str,
    rows: Sequence[dict[str, Any]],
    rounds: Sequence[tuple[float, float]],
    theirs: Sequence[bool],
    ours: Sequence[bool],
    wanted: float,
) -> bool:
    """Print the ratio of the median rounds and every difference; returns whether the claim held."""
    theirs_s, ours_s = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = theirs_s / ours_s
    cost = f"math-verify {1e6 * theirs_s / len(rows):,.0f} us a row, ours {1e6 * ours_s / len(rows):,.1f} us"
    print(f"{name}: {len(rows):,} rows; {cost}: {ratio:,.1f} times faster (claimed: at least {wanted:g})")
    differ = [(row, a, b) for row, a, b in zip(rows, theirs, ours, strict=True) if a != b]
    sided = sum(b == bool(row["label"]) for row, _, b in differ)
    print(f"  {len(differ)} verdicts differ; the publisher's label is ours in {sided} of them")
    for row, a, b in differ:
        end = row["completion"][-60:].replace("\n", " ")
        print(f"    {row['id']}: math-verify {a}, ours {b}, label {row['label']}, gold {row['gold']!r}, ends {end!r}")
    return ratio >= wanted


def with_one_worker(rows: Sequence[dict[str, Any]]) -> tuple[float, list[bool]]:
    """A new grader remembers nothing of the round before; its start is not part of a row's cost."""
    with MathGrader(workers=1) as grader:
        grader.grade("\\boxed{x + 1}", "1 + x")
        begin = time.perf_counter()
        grades = grader.grade_many([row["completion"] for row in rows], [row["gold"] for row in rows])
        return time.perf_counter() - begin, [grade.verdict == "right" for grade in grades]


def timed(
    work: Callable[[Sequence[dict[str, Any]]], list[bool]], rows: Sequence[dict[str, Any]]
) -> tuple[float, list[bool]]:
    begin = time.perf_counter()
    verdicts = work(rows)
    return time.perf_counter() - begin, verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--rows", type=int, default=1_000, help="GSM8K rows for math-verify (default: %(default)s)")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gsm8k = read(arguments.data / "labelled_outputs_gsm8k_gpt3.jsonl.gz")
    math500 = read(arguments.data / "labelled_outputs_math500.jsonl.gz")
    sample = gsm8k[:: max(1, len(gsm8k) // arguments.rows)]
    by_math_verify(sample[:20])
    held = True
    for name, rows, ours, wanted in (
        ("GSM8K", sample, lambda rows: timed(by_number, rows), 100.0),
        ("MATH-500", math500, with_one_worker, 1.0),
    ):
        rounds = []
        for _ in range(3):
            theirs_s, theirs = timed(by_math_verify, rows)
            ours_s, mine = ours(rows)
            rounds.append((theirs_s, ours_s))
        held &= report(name, rows, rounds, theirs, mine, wanted)
    whole = GSM8K_QUESTIONS * SAMPLES
    completions = [gsm8k[at % len(gsm8k)] for at in range(whole)]
    spent, _ = timed(by_number, completions)
    print(f"{GSM8K_QUESTIONS:,} questions x {SAMPLES} = {whole:,} GSM8K completions: {spent:.1f} s in one process")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
