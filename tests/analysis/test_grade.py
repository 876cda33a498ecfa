"""`gradstarve grade`: rows in, verdicts out, bad rows named, counts for scripts and for people."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

from gradstarve.cli import main

ROWS: list[dict[str, Any]] = [
    {"gold": "18", "completion": "#### 18", "label": True, "id": "a"},
    {"gold": "18", "completion": "in all 18", "label": False},
    {"gold": "1,018", "completion": "#### 1018.0"},
    {"gold": 18, "pred": "17", "label": True},
]
VERDICTS = ["right", "right", "right", "wrong"]


def as_jsonl(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def graded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet", "-"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(as_jsonl(ROWS).encode())))
        return "-"
    path = tmp_path / f"rows.{request.param}"
    if request.param == "jsonl":
        path.write_text(as_jsonl(ROWS), "utf-8")
    elif request.param == "parquet":
        pandas.DataFrame([row | {"gold": str(row["gold"])} for row in ROWS]).to_parquet(path)
    else:
        path.write_bytes(gzip.compress(as_jsonl(ROWS).encode()))
    return str(path)


def test_rows_come_back_graded_from_every_source(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "graded.jsonl"
    assert main(["grade", source, "--task", "gsm8k", "--out", str(out), "--json"]) == 0
    rows = graded(out)
    assert [row["verdict"] for row in rows] == VERDICTS
    assert [row["extracted"] for row in rows] == ["18", "18", "1018.0", "17"]
    assert [row["rule"] for row in rows] == ["last number"] * 3 + ["answer"]
    assert rows[0]["id"] == "a" and rows[0]["completion"] == "#### 18"
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["right"], summary["wrong"], summary["unverifiable"]) == (4, 3, 1, 0)
    assert summary["accuracy"] == 0.75 and summary["rule"] == "flexible"
    assert summary["rules"]["flexible"]["right"] == 3 and summary["rules"]["strict"]["right"] == 2
    labels = summary["labels"]
    assert (labels["rows"], labels["agree"], labels["false_positives"], labels["false_negatives"]) == (3, 1, 1, 1)
    assert labels["first_false_positives"][0]["row"] == 2 and labels["first_false_negatives"][0]["row"] == 4


def test_the_rule_chooses_the_verdicts(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.jsonl", tmp_path / "graded.jsonl"
    path.write_text(as_jsonl(ROWS), "utf-8")
    assert main(["grade", str(path), "--task", "gsm8k", "--rule", "strict", "--out", str(out)]) == 0
    assert [row["verdict"] for row in graded(out)] == ["right", "wrong", "right", "wrong"]


def test_bad_rows_are_named_and_the_rest_is_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        b'{"gold": "18", "completion": "18"}', b"{broken", b"", b"[1]", b'{"completion": "18"}', b'{"gold": "18"}',
        b'{"gold": "many", "completion": "18"}', b'{"gold": "18", "completion": 18}', b"\xff\xfe",
        b'{"gold": "18", "completion": "18", "label": "yes"}', b'{"gold": "18", "completion": "\\ud800 18"}',
    ]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert main(["grade", str(path), "--task", "gsm8k", "--json"]) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["rows"] == summary["right"] == 2
    assert [bad["row"] for bad in summary["unreadable"]] == [2, 4, 5, 6, 7, 8, 9, 10]
    for line in (2, 4, 5, 6, 7, 8, 9, 10):
        assert f"line {line}: " in printed.err


def test_damaged_compression_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(as_jsonl(ROWS * 2000).encode())[:-200])
    assert main(["grade", str(path), "--task", "gsm8k", "--json"]) == 1
    printed = capsys.readouterr()
    assert "damaged" in printed.err and json.loads(printed.out)["rows"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "there is no file missing.jsonl"),
        (["."], "is a folder"),
        (["empty.jsonl"], "has no rows"),
        (["bad.parquet"], "not a readable parquet"),
        (["rows.jsonl", "--out", "nowhere/out.jsonl"], "there is no folder nowhere"),
    ],
)
def test_a_users_mistake_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").touch()
    Path("rows.jsonl").write_text(as_jsonl(ROWS), "utf-8")
    Path("bad.parquet").write_bytes(b"PAR1 no parquet")
    assert main(["grade", *arguments, "--task", "gsm8k"]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


def test_math_answers_are_graded_by_the_same_door(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.jsonl", tmp_path / "graded.jsonl"
    rows = [
        {"gold": "x+1", "completion": "so \\boxed{1 + x}"}, {"gold": "(1,2)", "pred": "(1, 2)"},
        {"gold": "4210_5", "pred": "4210_6"}, {"gold": "x", "completion": "\\boxed{9^9^9^9}"},
        {"gold": "7", "completion": "The answer is $7$."},
    ]  # fmt: skip
    path.write_text(as_jsonl(rows), "utf-8")
    assert main(["grade", str(path), "--task", "math500", "--out", str(out)]) == 0
    assert [row["verdict"] for row in graded(out)] == ["right", "right", "wrong", "unverifiable", "right"]
    assert main(["grade", str(path), "--task", "math500", "--rule", "strict", "--out", str(out)]) == 0
    assert [row["verdict"] for row in graded(out)] == ["right", "right", "wrong", "unverifiable", "wrong"]


def test_a_pipe_of_commands_carries_rows_alone() -> None:
    command = [sys.executable, "-m", "gradstarve", "grade", "-", "--task", "gsm8k", "--out", "-"]
    done = subprocess.run(command, input=as_jsonl(ROWS), capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == VERDICTS
    assert "flexible" in done.stderr and "accuracy 75.00 %" in done.stderr


def test_the_summary_is_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(as_jsonl(ROWS), "utf-8")
    assert main(["grade", str(path), "--task", "gsm8k"]) == 0
    printed = capsys.readouterr().out
    assert "4 rows" in printed and "1 of 3 agree" in printed and "false positive: row 2" in printed


def test_published_labels_agree_through_the_door(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shared_data / "labelled_outputs_gsm8k_gpt3.jsonl.gz"
    assert main(["grade", str(path), "--task", "gsm8k", "--json"]) == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert (labels["rows"], labels["agree"]) == (5276, 5276)


GARBAGE = {
    "noise.parquet": bytes(range(128, 256)) * 8,
    "cut.parquet": b"PAR1" + bytes(200),
    "noise.jsonl.gz": bytes(range(128, 256)) * 8,
    "head.jsonl.gz": gzip.compress(as_jsonl(ROWS).encode())[:20],
    "header.gz": b"\x1f\x8b" + bytes(30),
    "latin.jsonl": "caf\xe9\n".encode("latin-1"),
    "rows.csv": b"gold,completion\n18,18\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_file_without_rows_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).write_bytes(GARBAGE[name])
    assert main(["grade", str(tmp_path / name), "--task", "gsm8k", "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and name in printed.err


def test_a_damaged_parquet_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.parquet"
    pandas.DataFrame({"gold": ["18"] * 500, "completion": ["18"] * 500}).to_parquet(path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:10] + b"\xff" * 60 + whole[70:]):
        path.write_bytes(damaged)
        for command in (["grade", str(path), "--task", "gsm8k"], ["diagnose", str(path), "--reward", "gold"]):
            assert main(command) == 2
            printed = capsys.readouterr()
            assert printed.out == "" and printed.err.count("\n") == 1 and "rows.parquet" in printed.err


def test_what_json_has_not_is_written_as_null_or_text(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.parquet", tmp_path / "graded.jsonl"
    frame = pandas.DataFrame({"gold": ["18"], "completion": ["18"], "score": [float("inf")], "blob": [b"\xff"]})
    frame.assign(when=pandas.Timestamp("2026-01-02")).to_parquet(path)
    assert main(["grade", str(path), "--task", "gsm8k", "--out", str(out)]) == 0
    row = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert row["score"] is None and row["when"].startswith("2026-01-02") and row["verdict"] == "right"
