"""`gradstarve show`: one run explained, or two compared."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import synthetic

from gradstarve.cli import main
from gradstarve.reporting.show import describe
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.status import write_failure


@pytest.fixture
def two_runs(compose_config: Any, tmp_path: Path) -> tuple[str, str]:
    names = []
    for arm in ("tasa", "sign_ce"):
        config = compose_config(f"advantage={arm}", f"outputs={tmp_path}", "steps=3")
        folder = RunFolder.of(config)
        folder.write_config(config)
        folder.append("steps", [{"step": 2, "reward": 0.25}])
        names.append(folder.name)
    return names[0], names[1]


def test_a_run_is_explained(two_runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "tasa", "--outputs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(two_runs[0])
    assert "(c = 0.5)" in out and "step 2 of 3, reward 25.0 %" in out and "advantage.c: 0.5" in out


def test_what_differs_between_two_runs(
    two_runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *two_runs, "--outputs", str(tmp_path), "--json"]) == 0
    differs = json.loads(capsys.readouterr().out)["differs"]
    assert differs["from"] == two_runs[1]
    assert differs["advantage.name"] == ["tasa", "sign_ce"]
    assert differs["advantage.replay.weight"] == [None, 0.05]
    assert "seed" not in differs


def test_an_unknown_or_ambiguous_name_is_one_line(
    two_runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "tassa-g4", "--outputs", str(tmp_path)]) == 2
    assert "no run 'tassa-g4' in " in capsys.readouterr().err
    assert main(["show", "", "--outputs", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("gradstarve show: 2 runs begin with ''")


def test_a_copied_folder_is_told_as_the_tables_tell_it(two_runs: tuple[str, str], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / two_runs[0])
    assert describe(folder)["state"] == "interrupted"
    folder.write_result({"run": "another"})
    shown = describe(folder)
    assert shown["state"] == "unreadable"
    assert "a copied folder?" in shown["why"]


@pytest.fixture
def finished(tmp_path: Path) -> RunFolder:
    return synthetic.write_run(synthetic.config(tmp_path, "sign", 4, 42, steps=5), 80, 100, tables=True)


def replaced(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


DAMAGES: dict[str, tuple[Callable[[RunFolder], Any], str]] = {
    "evaluations removed": (lambda run: shutil.rmtree(run.path / "evaluations"), "is gone or has no summary"),
    "summary emptied": (
        lambda run: next(run.path.glob("evaluations/*/summary.json")).write_text("{}"),
        "summary.json has no final result",
    ),
    "summary edited": (
        lambda run: replaced(next(run.path.glob("evaluations/*/summary.json")), '"right": 80', '"right": 90'),
        "right 80 there, 90 here",
    ),
    "answers removed": (lambda run: None, "its answers can't be read or graded again"),
    "result of another seed": (
        lambda run: replaced(run.path / "result.json", '"seed": 42', '"seed": 43'),
        "result.json contradicts its config.yaml: seed 43 there, 42 here",
    ),
    "config edited": (
        lambda run: replaced(run.path / "config.yaml", "seed: 42", "seed: 43"),
        "its config.yaml is that of sign-g4-s43-",
    ),
    "result typed by hand": (
        lambda run: (run.path / "result.json").write_text(json.dumps({"layout": 1, "run": run.name})),
        "its result.json lacks shares, finished",
    ),
    "steps cut": (lambda run: (run.path / "steps.parquet").write_bytes(b"PAR1"), "its table of steps is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_go_together_is_said(
    finished: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    inflict, said = DAMAGES[damage]
    inflict(finished)
    assert main(["show", finished.name, "--outputs", str(tmp_path)]) == 0
    problems = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  PROBLEM: ")]
    assert any(said in line for line in problems)
    assert main(["show", finished.name, "--outputs", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert len(shown["problems"]) == len(problems)


def test_a_sound_run_has_no_problem_and_a_broken_config_is_one_line(
    finished: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next(finished.path.glob("evaluations/*/summary.json")).with_name("step-000005.parquet").touch()
    assert describe(finished)["problems"] == []
    for text in ("a: [1", "[1]", "advantage: sign\n"):
        (finished.path / "config.yaml").write_text(text)
        assert main(["show", finished.name, "--outputs", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "damaged or edited after the run" in error


def test_what_a_run_left_steers_no_terminal(
    finished: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished.path / "result.json").unlink()
    write_failure(finished.path, ValueError("\x1b[2J\u202e" + "x" * 5000))
    assert main(["show", finished.name, "--outputs", str(tmp_path)]) == 0
    assert all(line.isprintable() and len(line) < 1200 for line in capsys.readouterr().out.splitlines())
