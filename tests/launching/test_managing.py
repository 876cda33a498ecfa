"""retry, cancel and clean for runs of this machine; GPUs and processes of local runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradstarve.launching.run_processes import gpus
from gradstarve.runs.status import read_status

from .conftest import changed

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`command("retry", ...)`: `gradstarve retry ...` in this test's folder, with nobody at the keyboard."""

    def given(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gradstarve", *arguments],
            cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False,
        )  # fmt: skip

    return given


def run_folders(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "outputs" / "runs").iterdir())


def sessions(tmp_path: Path) -> list[dict[str, Any]]:
    files = [folder / "provenance.json" for folder in run_folders(tmp_path)]
    return [session["hardware"] for file in files for session in json.loads(file.read_text())["sessions"]]


def test_cancel_retry_and_clean(start: Start, command: Any, quick: tuple[str, ...], tmp_path: Path) -> None:
    process = start("-m", "seed=42,43", *changed(quick, steps=400, eval_every=0), "hydra.launcher.jobs=1")
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size for path in tmp_path.glob("outputs/runs/*/steps.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (folder,) = run_folders(tmp_path)
    said = command("cancel", folder.name)
    assert said.returncode == 0 and said.stderr == "stopped 1 local run\n"
    # The other run of the command begins.
    while len(list(tmp_path.glob("outputs/runs/*/steps.jsonl"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    said = command("cancel", "--all")
    assert said.stderr == "stopped 1 local run and the command that ran them\n"
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert (read_status(folder) or {})["state"] == "interrupted"
    assert "nothing is queued or running" in command("cancel", "--all").stderr

    assert "steps: 400" in (folder / "config.yaml").read_text()
    unknown = command("retry", "sing")
    assert unknown.returncode == 2 and "no sweep and no run" in unknown.stderr
    assert command("retry").stderr.startswith("gradstarve retry: name sweeps or runs")

    refused = command("clean", "--all", "--failed")
    assert refused.returncode == 2 and "add --yes" in refused.stderr and folder.name in refused.stderr
    assert folder.is_dir()
    assert command("clean", "--all", "--failed", "--yes").returncode == 0
    assert run_folders(tmp_path) == []


def test_a_failed_run_is_retried_here(start: Start, command: Any, quick: tuple[str, ...], tmp_path: Path) -> None:
    quick = changed(quick, steps=2)
    plan = start("seed=42", *quick, "dry_run=true").communicate(timeout=120)[0]
    name = next(text.split()[0] for text in plan.splitlines() if text.startswith("sign-"))
    obstacle = tmp_path / "outputs" / "runs" / name / "groups.jsonl"
    obstacle.mkdir(parents=True)
    process = start("-m", "seed=42", *quick)
    process.communicate(timeout=300)
    assert process.returncode == 1
    obstacle.rmdir()
    again = command("retry", name)
    assert again.returncode == 0 and "1 run: 1 done" in again.stderr, again.stderr
    assert "nothing has failed" in command("retry", "--all").stderr


def test_every_run_gets_a_gpu_of_its_own_and_processes_one_each(
    quick: tuple[str, ...], tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU is there: what a run would see is what its process is told."""
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "3,5")
    quick = changed(quick, steps=1)
    process = start("-m", "seed=42,43", *quick)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert sorted(each["visible_gpus"] for each in sessions(tmp_path)) == ["3", "5"]

    process = start("-m", "seed=44", *quick, "hydra.launcher.processes=2")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert [each["visible_gpus"] for each in sessions(tmp_path) if each["processes"] == 2] == ["3,5"]

    process = start("-m", "seed=45", *quick, "hydra.launcher.processes=3")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert err.splitlines()[-1].endswith("3 processes a run need as many GPUs; there are 2 here")


@pytest.mark.parametrize(
    ("said", "found"), [("3,5", ["3", "5"]), ("-1", []), ("NoDevFiles", []), ("", []), ("2,-1,3", ["2"])]
)
def test_gpus_are_read_as_cuda_reads_them(said: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert gpus() == found
