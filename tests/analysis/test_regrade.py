"""`gradstarve regrade`: stored text, today's graders, nothing trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradstarve.analysis.regrade import regrade
from gradstarve.cli import main
from gradstarve.runs.files import write_json, write_parquet
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_identity


def stored(compose_config: Any, tmp_path: Path, verdicts: list[str]) -> RunFolder:
    config = compose_config("advantage=base", f"outputs={tmp_path}")
    folder = RunFolder.of(config)
    folder.write_config(config)
    frame = pd.DataFrame(
        {
            "question_id": ["eval/0", "eval/1", "eval/2"],
            "gold": ["19", "24", "7"],
            "completion": ["12+7=19", "12+7=19,+5=2", "8"],
            "truncated": [False, True, False],
            "extracted": ["19", "2", "8"],
            "verdict": verdicts,
        }
    )
    write_parquet(folder.evaluation(config) / "step-000000.parquet", frame)
    return folder


def test_nothing_moves_where_the_grader_is_the_same(
    compose_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(compose_config, tmp_path, ["right", "wrong", "wrong"])
    assert main(["regrade", "--outputs", str(tmp_path)]) == 0
    assert "1 right of 3 before, 1 after, 0 verdicts moved" in capsys.readouterr().out


def test_what_moved_is_listed(compose_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored(compose_config, tmp_path, ["wrong", "right", "wrong"])
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.path.rglob("*"))
    assert main(["regrade", str(folder.path), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["right_before"], row["right_after"]) == (1, 1)
    assert [(m["question_id"], m["before"], m["after"]) for m in row["moved"]] == [
        ("eval/0", "wrong", "right"),
        ("eval/1", "right", "wrong"),
    ]
    assert before == sorted((p, p.stat().st_mtime_ns) for p in folder.path.rglob("*"))


def test_each_evaluation_is_graded_by_the_rules_of_what_it_asked(compose_config: Any, tmp_path: Path) -> None:
    """The untrained model is one run, whatever it was asked first."""
    first = compose_config("model=smollm2_135m", "dataset=gsm8k", "advantage=base", f"outputs={tmp_path}")
    folder = RunFolder.of(first)
    folder.write_config(first)
    problems = compose_config("model=smollm2_135m", "dataset=word_problems", "advantage=base", f"outputs={tmp_path}")
    assert RunFolder.of(problems).path == folder.path
    # Right on its first line; the last number, which GSM8K's rule reads, is another one.
    frame = pd.DataFrame(
        {"question_id": ["eval/0"], "gold": ["7"], "completion": ["7\nQ: 5"], "truncated": [False],
         "extracted": ["7"], "verdict": ["right"]}
    )  # fmt: skip
    write_parquet(folder.evaluation(problems) / "step-000000.parquet", frame)
    summary = {"identity": evaluation_identity(problems)}
    write_json(folder.evaluation(problems) / "summary.json", summary)
    (row,) = regrade(folder)
    assert row["moved"] == []


def test_an_unknown_rule_or_no_runs_is_one_line(
    compose_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored(compose_config, tmp_path, ["right", "wrong", "wrong"])
    assert main(["regrade", str(folder.path), "--rule", "strict"]) == 2
    assert "--rule: 'strict' is none of last_integer" in capsys.readouterr().err
    assert main(["regrade", "--outputs", str(tmp_path / "none")]) == 2
    assert "no runs in" in capsys.readouterr().err


def test_answers_without_extraction_and_damaged_files(
    compose_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored(compose_config, tmp_path, ["wrong", "right", "wrong"])
    (file,) = folder.path.glob("evaluations/*/*.parquet")
    frame = pd.read_parquet(file)
    write_parquet(file, frame.assign(extracted=[None, "2", "8"], question_id=["\x1b[2J", "eval/1", "eval/2"]))
    assert main(["regrade", str(folder.path), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert row["moved"][0]["extracted_before"] is None
    assert main(["regrade", str(folder.path)]) == 1
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
    write_parquet(file, frame.drop(columns="gold"))
    assert main(["regrade", str(folder.path)]) == 2
    assert "no column gold" in capsys.readouterr().err
    file.write_bytes(b"PAR1")
    assert main(["regrade", str(folder.path)]) == 2
    assert "not a whole parquet file" in capsys.readouterr().err
