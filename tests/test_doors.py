"""Mistakes at the doors of `gradstarve`: one line, exit code 2, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradstarve.cli import main
from gradstarve.runs.files import write_json

ROWS = '{"gold": "1", "completion": "#### 1", "prompt_id": "a", "rewards": [1, 0]}\nnot JSON\n'


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("grade", "IN", "--task", "gsm8k", "--out", "IN"), "is the file that is graded"),
        (("grade", "IN", "--task", "gsm8k", "--out", "."), "is a folder; name a file"),
        (("grade", "IN", "--task", "gsm8k", "--out", "nowhere/out.jsonl"), "there is no folder nowhere"),
        (("diagnose", "IN", "--html", "."), "name a file in a folder that exists"),
        (("diagnose", "IN", "--threshold", "nan"), "--threshold nan: should be a number"),
        (("plan", "IN", "--budget", "100", "--threshold", "inf"), "--threshold inf: should be a number"),
        (("diagnose", "-"), "standard input is not read here"),
        (("status", "--outputs", "IN"), "not a folder with runs"),
        (("tables", "--outputs", "IN"), "not a folder with runs"),
        (("show", "sign", "--outputs", "IN"), "no run 'sign' in"),
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = tmp_path / "rows.jsonl"
    given.write_text(ROWS)
    assert main([word.replace("IN", str(given)) for word in command]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1 and captured.out == ""
    assert given.read_text() == ROWS


def test_a_folder_copied_in_part_is_named_and_stops_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "sign-g4-s42-01234567"
    write_json(tmp_path / "runs" / name / "result.json", {"layout": 1, "run": name, "advantage": "sign"})
    main(["status", "--outputs", str(tmp_path), "--json"])
    shown = capsys.readouterr().out
    assert '"state": "unreadable"' in shown and "its config.yaml is missing" in shown
    main(["tables", "--outputs", str(tmp_path)])
    assert "1 unreadable" in capsys.readouterr().err
