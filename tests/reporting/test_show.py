"""`gradstarve show`: one run explained, or two compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradstarve.cli import main
from gradstarve.reporting.show import describe
from gradstarve.runs.folder import RunFolder


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
