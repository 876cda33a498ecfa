"""Every run folder as one row, whatever state it is in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reporting"))

import synthetic

from gradstarve.runs.claim import claim
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.rows import identify, read_rows
from gradstarve.runs.signature import cell_key, evaluation_name, setting_key
from gradstarve.runs.status import write_failure, write_status


def begun(outputs: Path, seed: int) -> RunFolder:
    config = synthetic.config(outputs, "sign", 4, seed, steps=5)
    folder = RunFolder.of(config)
    folder.write_config(config)
    return folder


def test_no_outputs_is_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "nowhere") == []


def test_a_finished_run_has_its_result_and_evaluations(tmp_path: Path) -> None:
    config = synthetic.config(tmp_path, "sign", 4, 42, steps=5)
    folder = synthetic.write_run(config, 80, 100)
    unfinished = folder.path / "evaluations" / "other-00000000"
    unfinished.mkdir()
    (unfinished / "partial.json").write_text("{}")
    (row,) = read_rows(tmp_path)
    assert (row.run, row.state, row.why) == (folder.name, "done", None)
    assert row.result == folder.result()
    assert row.evaluations == folder.evaluations()
    assert set(row.evaluations) == {evaluation_name(config)}


def test_every_other_state(tmp_path: Path) -> None:
    failed, interrupted, queued, running, lost, silent = (begun(tmp_path, seed) for seed in range(6))
    write_failure(failed.path, ValueError("first\nlast line"))
    write_failure(interrupted.path, KeyboardInterrupt())
    write_status(queued.path, "queued")
    write_status(lost.path, "running")
    write_status(running.path, "running")
    (tmp_path / "runs" / "empty").mkdir()
    with claim(running.path):
        rows = {row.run: row for row in read_rows(tmp_path)}
    states = {folder.name: rows[folder.name].state for folder in (failed, interrupted, queued, running, lost, silent)}
    assert list(states.values()) == ["failed", "interrupted", "queued", "running", "lost", "interrupted"]
    assert rows[failed.name].why == "ValueError: last line"
    assert "empty" not in rows
    assert all(row.result is None for row in rows.values())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: text.replace('"layout": 1', '"layout": 99'), "layout 99"),
        (lambda text: text.replace('"run": "', '"run": "x'), "a copied folder?"),
        (lambda text: "[1, 2]", "no object"),
    ],
)
def test_a_result_that_cannot_be_trusted_is_no_result(tmp_path: Path, change: object, told: str) -> None:
    folder = synthetic.write_run(synthetic.config(tmp_path, "sign", 4, 42, steps=5), 80, 100)
    file = folder.path / "result.json"
    file.write_text(change(file.read_text()))  # type: ignore[operator]
    (row,) = read_rows(tmp_path)
    assert row.state == "unreadable"
    assert row.result is None
    assert told in (row.why or "")


def test_an_undeclared_run_says_which_cell_it_belongs_to(tmp_path: Path) -> None:
    folder = begun(tmp_path, 7)
    config = synthetic.config(tmp_path, "sign", 4, 7, steps=5)
    (row,) = read_rows(tmp_path)
    identity = identify(row)
    assert identity is not None
    assert (identity["cell"], identity["setting"], identity["seed"]) == (cell_key(config), setting_key(config), 7)
    (folder.path / "config.yaml").write_text("seed: 1\n")
    assert identify(row) is None


def test_numbers_survive_the_round_trip(tmp_path: Path) -> None:
    folder = synthetic.write_run(synthetic.config(tmp_path, "sign", 4, 42, steps=5), 1, 3)
    (row,) = read_rows(tmp_path)
    assert row.result == json.loads((folder.path / "result.json").read_text())
