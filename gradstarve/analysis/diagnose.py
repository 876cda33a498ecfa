"""`gradstarve diagnose`: how much of a rollout log is starved, and why. Needs no model and no GPU."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gradstarve.analysis.diagnosis import Diagnosis, measure
from gradstarve.analysis.diagnosis_html import as_html
from gradstarve.analysis.findings import find
from gradstarve.analysis.output_file import check_output
from gradstarve.analysis.rollout_formats import Reading, read_rollouts
from gradstarve.analysis.text import percent, percent_interval, printable, shortened, table
from gradstarve.errors import UserError
from gradstarve.runs.files import whole_file

LARGEST_SIZE = 1_000_000


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a rollout log, or a folder: see docs/theory.md")
    parser.add_argument("--reward", metavar="COLUMN", help="the column of the reward, where it has an unusual name")
    parser.add_argument("--threshold", type=float, metavar="T", help="count rewards of at least T as right")


def diagnose(path: Path, reading: Reading, base: float | None = None) -> Diagnosis:
    """Read, measure and judge a rollout log. Raises UserError for one that can't be read."""
    rollouts = read_rollouts(path, reading)
    diagnosis = measure(rollouts, reading.group_size)
    diagnosis.base = base
    diagnosis.findings = find(diagnosis, rollouts)
    return diagnosis


def as_text(name: str, diagnosis: Diagnosis) -> str:
    d = diagnosis.degeneracy
    shares = [
        ["all-fail", percent(d.all_fail), percent_interval(d.all_fail_ci95)],
        ["mixed", percent(d.mixed), percent_interval(d.mixed_ci95)],
        ["all-pass", percent(d.all_pass), percent_interval(d.all_pass_ci95)],
        ["dead, unbiased", percent(d.d_real), percent_interval(d.d_real_ci95)],
        ["dead, plug-in (biased up)", percent(d.plug_in), ""],
        ["dead if all prompts were alike", percent(d.d_iid), ""],
    ]
    counted = "groups" if diagnosis.stepped else "prompts"
    lines = [
        f"{printable(name)} ({diagnosis.kind}): {diagnosis.counted()}, {diagnosis.samples} completions, "
        f"mean reward {diagnosis.mean_reward:.3f}",
        "",
        table([f"groups of {diagnosis.group_size}", "share", f"95 % over {counted}"], shares),
        "",
        "pass@k: " + ", ".join(f"{k}: {percent(value)}" for k, value in diagnosis.pass_at_k.items()),
    ]
    for finding in diagnosis.findings:
        lines += ["", f"{finding.severity.upper()} {finding.id}", f"  {finding.evidence}", f"  -> {finding.advice}"]
    return "\n".join(lines)


def configure(parser: argparse.ArgumentParser) -> None:
    add_reading_options(parser)
    parser.add_argument("--group-size", type=int, metavar="G", help="completions in a group (default: the log's own)")
    parser.add_argument("--base", type=float, metavar="P", help="the base model's success rate, to compare with")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write one offline HTML file")


def run(arguments: argparse.Namespace) -> int:
    if arguments.group_size is not None and not 2 <= arguments.group_size <= LARGEST_SIZE:
        raise UserError(
            f"--group-size {shortened(arguments.group_size)}: a group has at least 2 and at most {LARGEST_SIZE:,} "
            "completions"
        )
    if arguments.base is not None and not 0 <= arguments.base <= 1:
        raise UserError(f"--base {arguments.base:g}: a success rate lies in [0, 1]")
    if arguments.html is not None:
        check_output(arguments.html, "--html")
    reading = Reading(arguments.reward, arguments.threshold, arguments.group_size)
    diagnosis = diagnose(arguments.file, reading, arguments.base)
    if arguments.html is not None:
        with whole_file(arguments.html) as temporary:
            temporary.write_text(as_html(arguments.file.name, diagnosis), encoding="utf-8", errors="backslashreplace")
    if arguments.json:
        print(json.dumps(diagnosis.as_json(), indent=2, allow_nan=False))
    else:
        print(as_text(arguments.file.name, diagnosis))
    return 0
