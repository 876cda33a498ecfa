"""Real training runs in processes of their own, started, stopped, killed and started again through run.py."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gradstarve.runs.status import read_status
from gradstarve.runs.sweeps import read_sweeps

from .conftest import changed

Start = Callable[..., subprocess.Popen[str]]
FOUR = ("-m", "advantage=sign,drgrpo", "seed=42..43")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=600)
    assert out == ""
    return process.returncode, err


def folders(tmp_path: Path) -> dict[str, Path]:
    """The run folders, without the eight digits of their names."""
    return {path.name.rsplit("-", 1)[0]: path for path in (tmp_path / "outputs" / "runs").iterdir()}


def until(what: Callable[[], Any], seconds: float = 600) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def training(tmp_path: Path, least: int) -> list[int]:
    """The processes of runs that have done a step, once there are so many."""
    stepped = [path.parent for path in (tmp_path / "outputs").glob("runs/*/steps.jsonl") if path.stat().st_size]
    return [(read_status(folder) or {})["pid"] for folder in stepped] if len(stepped) >= least else []


def none_left(pids: list[int]) -> None:
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids), seconds=60)


def test_runs_are_run_once_and_a_failed_one_stops_no_other(
    start: Start, quick: tuple[str, ...], tmp_path: Path
) -> None:
    quick = changed(quick, steps=2)
    plan, _ = start("dry_run=true", "advantage=sign", "seed=43", *quick).communicate(timeout=120)
    run = next(line.split()[0] for line in plan.splitlines() if line.startswith("sign-"))
    obstacle = tmp_path / "outputs" / "runs" / run / "steps.jsonl"
    obstacle.mkdir(parents=True)

    code, err = ended(start(*FOUR, *quick, "hydra.launcher.jobs=1"))
    assert code == 1
    assert f"failed {run}: IsADirectoryError" in err
    assert err.index(f"failed {run}") < err.index("done drgrpo-g4-s43")
    assert "4 runs: 3 done, 1 failed\n" in err
    status = read_status(obstacle.parent) or {}
    assert status["state"] == "failed" and "Traceback" in status["traceback"]
    assert "Traceback" in (obstacle.parent / "log.txt").read_text()

    obstacle.rmdir()
    code, err = ended(start(*FOUR, *quick))
    assert code == 0
    assert [line for line in err.splitlines() if line.startswith("started")] == [f"started {run}"]
    assert "4 runs: 4 done (3 before), 0 failed\n" in err

    code, err = ended(start(*FOUR, *quick))
    assert (code, err) == (0, "4 runs, all done already\n")
    assert sorted(folders(tmp_path)) == ["drgrpo-g4-s42", "drgrpo-g4-s43", "sign-g4-s42", "sign-g4-s43"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs"]
    declared = read_sweeps(tmp_path / "outputs")
    assert [len(sweep["runs"]) for sweep in declared] == [4]
    rewards = [json.loads((path / "result.json").read_text())["reward_last"] for path in folders(tmp_path).values()]
    assert all(0 <= reward <= 1 for reward in rewards)


def test_one_run_is_no_sweep(start: Start, quick: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "outputs" / "runs").mkdir()
    code, err = ended(start("advantage=base", *quick))
    assert code == 0 and "1 run: 1 done, 0 failed" in err
    assert list(folders(tmp_path)) == ["base"]
    assert not (tmp_path / "outputs" / "sweeps").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_stops_all_and_the_same_command_goes_on(
    start: Start, quick: tuple[str, ...], tmp_path: Path, number: signal.Signals
) -> None:
    process = start(*FOUR, *changed(quick, steps=1000), "hydra.launcher.jobs=2")
    pids = until(lambda: training(tmp_path, 2))
    process.send_signal(number)
    code, err = ended(process)
    assert code == 130
    assert "stopping 2 runs" in err and "4 left; the same command goes on" in err
    assert not any(psutil.pid_exists(pid) for pid in pids)
    states = {name: (read_status(path) or {})["state"] for name, path in folders(tmp_path).items()}
    assert states == {"sign-g4-s42": "interrupted", "sign-g4-s43": "interrupted"}
    assert not list((tmp_path / "outputs").glob("runs/*/claim.json"))


def test_no_run_outlives_a_launcher_that_is_killed(start: Start, quick: tuple[str, ...], tmp_path: Path) -> None:
    process = start(*FOUR, *changed(quick, steps=1000), "hydra.launcher.jobs=2")
    pids = until(lambda: training(tmp_path, 2))
    process.kill()
    process.communicate()
    none_left(pids)
    assert {(read_status(path) or {})["state"] for path in folders(tmp_path).values()} == {"interrupted"}


def test_two_commands_share_the_work_and_take_over_from_the_dead(
    start: Start, quick: tuple[str, ...], tmp_path: Path
) -> None:
    two = ("-m", "seed=42..43", *changed(quick, steps=40))
    one, other = start(*two, "hydra.launcher.jobs=1"), start(*two, "hydra.launcher.jobs=1")
    # The faster command's run is held, so that it has not done both before the other command has loaded torch.
    held = psutil.Process(until(lambda: training(tmp_path, 1))[0])
    held.suspend()
    runs = [psutil.Process(pid) for pid in until(lambda: training(tmp_path, 2))]
    killed = next(run for run in runs if one.pid in {parent.pid for parent in run.parents()})
    killed.kill()
    if held != killed:
        held.resume()
    first_code, first = ended(one)
    other_code, second = ended(other)
    # The one whose run was killed says so; the other does that run in its place.
    assert first_code == 1 and "was ended by SIGKILL" in first
    assert other_code == 0 and "2 runs: 2 done" in second
    # A run that both have started at once, one of them for nothing, is told twice.
    assert len({line for line in second.splitlines() if line.startswith("started ")}) == 2
    assert all((path / "result.json").is_file() for path in folders(tmp_path).values())
