"""Mistakes at the doors of `gradstarve`: one line, exit code 2, and nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gradstarve.cli import COMMANDS, main
from gradstarve.runs.files import write_json

HUGE = "1" + "0" * 400
ROWS = '{"gold": "1", "completion": "#### 1", "prompt_id": "a", "rewards": [1, 0]}\nnot JSON\n'


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("grade", "IN", "--task", "gsm8k", "--out", "IN"), "is the file that is graded"),
        (("grade", "IN", "--task", "gsm8k", "--out", "."), "is a folder; name a file"),
        (("grade", "IN", "--task", "gsm8k", "--out", "nowhere/out.jsonl"), "there is no folder nowhere"),
        (("diagnose", "IN", "--html", "."), "name a file in a folder that exists"),
        (("grade", "IN", "--task", "gsm8k", "--out", "/dev/null"), "is a device or a pipe; name a file"),
        (("diagnose", "IN", "--html", "/dev/null"), "is a device or a pipe; name a file"),
        (("diagnose", "IN", "--group-size", HUGE), "--group-size a number of more than 20 digits"),
        (("plan", "IN", "--budget", "8", "--log-group-size", HUGE), "--log-group-size a number of more than 20 digits"),
        (("plan", "--p-histogram", "0.3", "--budget", HUGE), "--budget a number of more than 20 digits"),
        (("plan", "--p-histogram", "0.3", "--budget", "-5"), "a budget of -5 completions does not fill one group"),
        (("plan", "--p-histogram", "1e-300", "--budget", "100"), "--p-histogram 1e-300: too near 0"),
        (("plan", "--p-histogram", "0.3:1e300", "--budget", "100"), "a weight lies between 0 and 1e+100"),
        (("coefficients", "--p", "1e-300"), "--p 1e-300: too near 0 to compute with"),
        (("coefficients", "--p", "nan"), "--p: a success probability p lies in [0, 1], got nan"),
        (("coefficients", "--p", ".3", "--group-size", HUGE), "a group size lies between 2 and 1000"),
        (("coefficients", "--p", ".3", "--advantage", "weighted:weight=1e300"), "give at most 1e+50"),
        (("advantages", "--group-size", HUGE), "a group size lies between 2 and 1000"),
        (("advantages", "--advantage", "passk:k=2,k=3"), "gives 'k' twice"),
        (("simulate", "--seed", "-1"), "--seed must be at least 0"),
        (("simulate", "--steps", HUGE), "--steps must be at least 1 and at most 1,000,000"),
        (("simulate", "--learning-rate", "1e308"), "--learning-rate must be above 0 and at most 100"),
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


@pytest.mark.parametrize(
    "command",
    ["advantages --json", "coefficients --p .3", "grade IN --task gsm8k --json", "grade IN --task gsm8k --out -"],
)
def test_a_full_device_is_one_line_and_a_reader_that_has_gone_none(tmp_path: Path, command: str) -> None:
    given = tmp_path / "rows.jsonl"
    given.write_text('{"gold": "1", "completion": "1"}\n')
    words = [sys.executable, "-m", "gradstarve", *command.replace("IN", str(given)).split()]
    if Path("/dev/full").exists():
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert done.stderr.endswith(
            "gradstarve: the output could not be written: No space left on device; make room and try again\n"
        )
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as gone:
        assert gone.stdout is not None and gone.stderr is not None
        gone.stdout.close()
        told = gone.stderr.read()
    assert gone.returncode == 1 and "Error" not in told and "Exception" not in told


def test_a_message_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"prompt_id": "a", "\x1b[2Jx": 1, "\u202ey": 2, "z" * 5000: 3}) + "\n")
    assert main(["diagnose", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.rstrip("\n").isprintable() and len(error) < 1200
    assert main(["advantages", "--advantage", "\x1b[2J\ud800\n" + "x" * 5000]) == 2
    error = capsys.readouterr().err
    assert error.rstrip("\n").isprintable() and len(error) < 1200


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_only_what_it_needs_to_begin(command: str) -> None:
    """Torch takes tens of seconds from a cluster's file system; pandas one or more."""
    unwanted = ["torch", "transformers", "trl", "peft", "datasets", "wandb", "hydra"]
    if command in {"grade", "coefficients", "diagnose", "advantages"}:
        unwanted.append("pandas")
    module = COMMANDS[command][0]
    code = f"import {module}, sys; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
