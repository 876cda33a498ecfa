"""`gradstarve regrade RUN ...`: grade stored text again with today's graders and show what moved. Trains nothing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow

from gradstarve.analysis.text import printable
from gradstarve.errors import UserError
from gradstarve.learning.questions import GradeMany, question_graders
from gradstarve.learning.tasks import made_graders, task_graders
from gradstarve.runs.config import read_config
from gradstarve.runs.dataset_config import GRADERS, DatasetConfig
from gradstarve.runs.files import read_json
from gradstarve.runs.folder import RunFolder, runs_root

FIRST_FEW = 5
COLUMNS = ("question_id", "completion", "gold", "truncated", "extracted", "verdict")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", help="run folders; without any, every run of --outputs")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="default: outputs")
    parser.add_argument("--rule", help="grade by this rule instead of the one that the run was evaluated with")
    parser.add_argument("--json", action="store_true", help="a JSON array with an object for each stored evaluation")
    parser.epilog = "Exit code: 0 where no verdict moved, 1 where one did."


def run(arguments: argparse.Namespace) -> int:
    folders = [Path(name) for name in arguments.runs]
    if not folders:
        folders = sorted(file.parent for file in runs_root(arguments.outputs).glob("*/config.yaml"))
    if not folders:
        raise UserError(f"no runs in {runs_root(arguments.outputs)}")
    graded = []
    for place, path in enumerate(folders, start=1):
        print(f"grading {path.name} ({place} of {len(folders)})", file=sys.stderr)
        graded += regrade(RunFolder(path), arguments.rule)
    if arguments.json:
        print(json.dumps(graded, indent=2, allow_nan=False))
    else:
        for row in graded:
            print(as_text(row))
        print(f"{sum(len(row['moved']) for row in graded)} verdicts moved in {len(graded)} stored evaluations")
    return int(any(row["moved"] for row in graded))


def regrade(folder: RunFolder, rule: str | None = None) -> list[dict[str, Any]]:
    """Every stored evaluation of a run: counts before and after, and the rows whose verdict moved."""
    dataset = read_config(folder.read_config()).dataset
    rows = []
    for file in sorted(folder.path.glob("evaluations/*/*.parquet")):
        graders, usual = _graders(file.parent, dataset)
        if rule is not None and rule not in graders:
            raise UserError(f"--rule: {rule!r} is none of {', '.join(graders)}")
        frame = _read(file)
        grades = graders[rule or usual](list(frame["completion"]), list(frame["gold"]), list(frame["truncated"]))
        after = [grade.verdict for grade in grades]
        moved = [i for i, before in enumerate(frame["verdict"]) if after[i] != before]
        rows.append(
            {
                "run": folder.name,
                "evaluation": file.parent.name,
                "file": file.name,
                "n": len(frame),
                "right_before": int((frame["verdict"] == "right").sum()),
                "right_after": after.count("right"),
                "moved": [
                    {
                        "question_id": str(frame["question_id"].iloc[i]),
                        "gold": frame["gold"].iloc[i],
                        "extracted_before": None if pd.isna(frame["extracted"].iloc[i]) else frame["extracted"].iloc[i],
                        "extracted_after": grades[i].extracted,
                        "before": frame["verdict"].iloc[i],
                        "after": after[i],
                    }
                    for i in moved
                ],
            }
        )
    return rows


def _graders(evaluation: Path, trained_on: DatasetConfig) -> tuple[dict[str, GradeMany], str]:
    """Of the questions that were asked, which need not be of the data set trained on; and the rule that decided."""
    summary = read_json(evaluation / "summary.json") or read_json(evaluation / "partial.json") or {}
    asked = (summary.get("identity") or {}).get("dataset") or {}
    if asked.get("grader") in GRADERS:
        return question_graders(asked["grader"], asked["rule"]), asked["rule"]
    if asked.get("source") == "word_problems":
        return made_graders("word_problems")
    if "operand_shares" in asked:
        return made_graders("sums")
    # Written before summaries said what was asked.
    return task_graders(trained_on)


def _read(file: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{file}: not a whole parquet file ({printable(str(error), 80)}); evaluate again") from None
    missing = [name for name in COLUMNS if name not in frame]
    if missing:
        raise UserError(f"{file}: not the answers of an evaluation (no column {', '.join(missing)})")
    return frame


def as_text(row: dict[str, Any]) -> str:
    lines = [
        f"{row['run']} {row['evaluation']}/{row['file']}: {row['right_before']} right of {row['n']} before, "
        f"{row['right_after']} after, {len(row['moved'])} verdicts moved"
    ]
    for moved in row["moved"][:FIRST_FEW]:
        lines.append(
            f"  {printable(moved['question_id'])}: {moved['before']} -> {moved['after']}; "
            f"gold {_quoted(moved['gold'])}, extracted {_quoted(moved['extracted_before'])} -> "
            f"{_quoted(moved['extracted_after'])}"
        )
    if len(row["moved"]) > FIRST_FEW:
        lines.append(f"  and {len(row['moved']) - FIRST_FEW} more (--json lists all)")
    return "\n".join(lines)


def _quoted(text: str | None) -> str:
    return printable(repr(text))
