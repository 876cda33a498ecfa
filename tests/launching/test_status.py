from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradstarve.cli import main
from gradstarve.errors import UserError
from gradstarve.launching import status
from gradstarve.launching.standing import Standing, Wanted
from gradstarve.launching.table import duration, progress_of, summary
from gradstarve.runs.claim import claim, process_identity
from gradstarve.runs.config import RunConfig
from gradstarve.runs.files import write_json
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_name, run_name
from gradstarve.runs.status import write_failure, write_status
from gradstarve.runs.sweeps import declare

Compose = Callable[..., RunConfig]


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    status.configure(parser)
    assert status.run(parser.parse_args([*arguments, "--outputs", "outputs"])) == 0
    return capsys.readouterr().out


def write_steps(folder: RunFolder, rewards: Sequence[float], dead: Sequence[float]) -> None:
    rows = [
        {"step": number, "reward": reward, "dead": share, "truncated": 0.25}
        | {"seconds_rollout": 1.0, "seconds_loss": 0.5, "seconds_rest": 0.5}
        for number, (reward, share) in enumerate(zip(rewards, dead, strict=True), 1)
    ]
    folder.append("steps", rows)


def write_done(config: RunConfig, accuracy: float) -> None:
    folder = RunFolder.of(config)
    name = evaluation_name(config)
    folder.write_config(config)
    write_json(folder.path / "evaluations" / name / "summary.json", {"final": {"accuracy": accuracy}})
    trained = config.advantage.trains
    shares = {"dead": 0.5, "truncated": 0.125} if trained else None
    folder.write_result(
        {
            "run": folder.name,
            "steps": config.steps if trained else None,
            "reward_last": 0.75 if trained else None,
            "shares": shares,
            "evaluation": {"name": name, "accuracy": accuracy},
            "seconds": {"total": 9.0},
        }
    )


def dead_process() -> dict[str, Any]:
    """The claim of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = process_identity(process.pid)
    process.communicate(b"\n")
    return identity


@pytest.fixture(scope="module")
def configs(compose_config: Compose) -> dict[str, RunConfig]:
    """One run for each state, by its name."""
    kinds = ["done", "running", "lost", "failed", "interrupted", "missing"]
    return {
        **{kind: compose_config(f"seed={seed}", "steps=20") for seed, kind in enumerate(kinds, 42)},
        "base": compose_config("advantage=base"),
        "stray": compose_config("advantage=tasa", "group_size=8", "seed=7", "steps=20"),
    }


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configs: dict[str, RunConfig]) -> dict[str, RunConfig]:
    """A declared run in each state, and one that nobody declared, in outputs/."""
    monkeypatch.chdir(tmp_path)
    declare(Path("outputs"), "mine", "Mine", ["run.py"], [c for kind, c in configs.items() if kind != "stray"])
    for kind in ("done", "base", "stray"):
        write_done(configs[kind], 0.625)
    for kind in ("running", "lost", "failed", "interrupted"):
        folder = RunFolder.of(configs[kind])
        write_status(folder.path, "running")
        folder.write_config(configs[kind])
        write_steps(folder, [0.0, 0.0, *[0.5] * 10], [1.0] * 6 + [0.5] * 6)
    write_json(RunFolder.of(configs["lost"]).path / "claim.json", {**dead_process(), "id": "x", "job_id": None})
    write_failure(RunFolder.of(configs["failed"]).path, RuntimeError("first line\nlast line"))
    write_failure(RunFolder.of(configs["interrupted"]).path, KeyboardInterrupt())
    return configs


def test_runs_that_two_sweeps_have_evaluated_otherwise_stand_in_two_grids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compose_config: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own, longer = compose_config(), compose_config("dataset@evaluation=longer_sums")
    write_done(own, 0.625)
    write_json(RunFolder.of(own).evaluation(longer) / "summary.json", {"final": {"accuracy": 0.125}})
    for name, config in (("own", own), ("longer", longer)):
        declare(Path("outputs"), name, None, ["run.py"], [config])
    told = " ".join(asked(capsys).split())
    assert told.count("setting ") == 2
    for config, accuracy in ((own, "62.5 %"), (longer, "12.5 %")):
        assert accuracy in told.split(f"evaluation {evaluation_name(config)}")[1].split("setting")[0]
    assert ", asked longer_sums, " in told and told.endswith("1 run, 2 evaluations: 2 done")
    assert "evaluation" not in asked(capsys, "own")
    # A run that no sweep wants stands beside the others.
    write_done(compose_config("seed=7"), 0.5)
    assert "None" not in asked(capsys)
    # What failed is not in the run's folder, which keeps the way in which it was asked first.
    (RunFolder.of(own).evaluation(longer) / "summary.json").unlink()
    write_failure(RunFolder.of(own).path, RuntimeError("while it was asked"))
    assert main(["retry", "longer", "--outputs", "outputs"]) == 1
    told = capsys.readouterr().err
    assert (
        f"{run_name(own)}: not evaluated as {evaluation_name(longer)}; for that give its command again: run.py" in told
    )


def test_json_says_where_each_run_stands(eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str]) -> None:
    with claim(RunFolder.of(eight["running"]).path):
        rows = {row["run"]: row for row in json.loads(asked(capsys, "mine", "--json"))}
    row = {kind: rows.get(RunFolder.of(config).name) for kind, config in eight.items()}
    assert row["stray"] is None and len(rows) == 7
    for kind in ("done", "running", "lost", "failed", "interrupted", "missing"):
        assert row[kind]["state"] == kind
        assert (row[kind]["advantage"], row[kind]["group_size"], row[kind]["seed"]) == ("sign", 4, eight[kind].seed)
    assert row["base"]["state"] == "done"
    assert [row["base"][key] for key in ("group_size", "seed", "step", "dead")] == [None] * 4
    done = row["done"]
    assert [done[key] for key in ("step", "steps", "reward", "dead", "truncated", "accuracy")] == [
        20,
        20,
        0.75,
        0.5,
        0.125,
        0.625,
    ]
    running = row["running"]
    # The reward of the last ten steps; the shares of all twelve; eight steps of two seconds are left.
    assert [running[key] for key in ("step", "steps", "reward", "dead", "truncated", "remaining")] == [
        12,
        20,
        0.5,
        0.75,
        0.25,
        16.0,
    ]
    assert row["failed"]["why"] == "RuntimeError: last line"
    assert row["failed"]["remaining"] is None
    assert "gone" in row["lost"]["why"]


def test_without_a_sweep_every_run_is_shown(eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(asked(capsys, "--json"))
    stray = next(row for row in rows if row["run"] == RunFolder.of(eight["stray"]).name)
    assert len(rows) == 8
    assert (stray["state"], stray["advantage"], stray["group_size"], stray["seed"]) == ("done", "tasa", 8, 7)


def test_the_table_is_a_grid_of_advantage_by_seed(
    eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with claim(RunFolder.of(eight["running"]).path):
        out = asked(capsys, "mine")
    rows = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in out.splitlines()]
    assert ["advantage", "G", "42", "43", "44", "45", "46", "47"] in rows
    assert ["sign", "4", "62.5 %", "12/20", "lost", "failed", "interrupted", "."] in rows
    assert ["base", "", "62.5 %", "", "", "", "", ""] in rows
    assert f"failed: {RunFolder.of(eight['failed']).name}: RuntimeError: last line" in out
    assert "7 runs: 2 done, 1 running, 1 failed, 1 lost, 1 interrupted, 1 missing" in out


def test_where_seeds_do_not_fit_they_are_counted(
    eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = asked(capsys, "mine")
    assert "1 done, 1 failed, 2 lost, 1 interrupted, 1 missing" in out


def test_watching_ends_when_nothing_runs(eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert "7 runs: 2 done" in asked(capsys, "mine", "--watch", "--interval", "0.01")


def test_another_evaluation_than_the_one_that_was_made_is_missing(
    eight: dict[str, RunConfig], compose_config: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    other = compose_config("seed=42", "steps=20", "evaluation.limit=5")
    declare(Path("outputs"), "other", None, ["run.py"], [other])
    row = json.loads(asked(capsys, "other", "--json"))[0]
    assert row["state"] == "missing"
    assert row["why"].startswith("trained, but without the evaluation greedy-")


def test_a_folder_whose_config_cannot_be_read_is_shown_by_its_name(
    eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("outputs/runs/old-thing")
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 42\n")
    row = next(row for row in json.loads(asked(capsys, "--json")) if row["run"] == "old-thing")
    assert (row["state"], row["setting"]) == ("interrupted", None)


def test_steps_that_cannot_be_read_hide_no_other_run(
    eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.of(eight["failed"])
    (folder.path / "steps.jsonl").write_text('{"step": 1, "rew\n{"step": 2}\n')
    row = next(row for row in json.loads(asked(capsys, "mine", "--json")) if row["run"] == folder.name)
    assert (row["state"], row["why"], row["step"]) == ("failed", "RuntimeError: last line", None)


def test_nothing_yet_and_unknown_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert asked(capsys) == ""
    assert json.loads(asked(capsys, "--json")) == []
    with pytest.raises(UserError, match="no sweep 'mine'"):
        asked(capsys, "mine")
    assert list(tmp_path.iterdir()) == []


def test_lines() -> None:
    wanted = Wanted("sign-g4-s42-0", Path("x"), "sign", 4, 42, "tiny", "sums", "s")
    running = Standing(wanted, "running", step=3, steps=20, reward=0.5, dead=0.75, truncated=1.0, remaining=100.0)
    assert progress_of(running) == "step 3/20, reward 0.50, dead 75.0 %, truncated 100 %, 2 min left"
    assert progress_of(Standing(wanted, "running", phase="warm start", step=0, steps=20)) == "step 0/20, warm start"
    others = [Standing(replace(wanted, run=state), state) for state in ("missing", "done")]
    assert summary([running, *others]) == "3 runs: 1 done, 1 running, 1 missing"
    assert summary([*others, Standing(others[0].wanted, "done")]) == "2 runs, 3 evaluations: 2 done, 1 missing"
    assert [duration(s) for s in (8, 89, 180, 7500, 100_000, 200_000)] == [
        "8 s", "89 s", "3 min", "2 h 05 min", "27 h 47 min", "2 d 7 h",
    ]  # fmt: skip


def test_what_was_submitted_is_told_where_slurm_cannot_be_asked_and_other_code_is_shown(
    eight: dict[str, RunConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    submitted = {"batch": "gs-1", "task": 0, "submitted": 0.0, "code": {"commit": "a" * 40, "dirty": False}}
    for kind in ("missing", "done"):
        RunFolder.of(eight[kind]).write_submission(submitted)
    ran = {"code": {"commit": "b" * 40, "dirty": True}, "hardware": {"job": "1_0"}}
    RunFolder.of(eight["done"]).write_provenance({"sessions": [ran]})
    rows = {row["run"]: row for row in json.loads(asked(capsys, "mine", "--json"))}
    missing = rows[RunFolder.of(eight["missing"]).name]
    assert missing["state"] == "queued"
    assert missing["why"] == "as far as its folder says, submitted as gs-1 (no squeue here)"
    done = rows[RunFolder.of(eight["done"]).name]
    assert (done["state"], done["note"]) == ("done", "submitted with aaaaaaaa, run with bbbbbbbb with changes")
    assert "note: " in asked(capsys, "mine")
