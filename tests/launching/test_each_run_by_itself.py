"""Runs of one command share no process, and each failure is told when it comes and again at the end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradstarve.runs.signature import run_name
from gradstarve.runs.status import read_status

Start = Callable[..., subprocess.Popen[str]]


def test_one_after_the_other_two_runs_have_two_processes_and_fail_each_on_its_own(
    start: Start, quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    names = [run_name(compose_config(*quick, f"seed={seed}")) for seed in (42, 43)]
    folders = [tmp_path / "outputs" / "runs" / name for name in names]
    for folder in folders:
        # A folder where a table should be: a run fails on it before a model is loaded.
        (folder / "steps.jsonl").mkdir(parents=True)
    process = start("-m", "seed=42,43", *quick, "hydra.launcher.jobs=1")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (1, "")
    as_it_came, _, at_the_end = err.partition("2 runs: 0 done, 2 failed\n")
    for folder in folders:
        assert f"failed {folder.name}: IsADirectoryError" in as_it_came
        assert f"  failed: {folder.name}: IsADirectoryError" in at_the_end
        assert str(folder / "log.txt") in at_the_end
    statuses = [read_status(folder) or {} for folder in folders]
    assert [status["state"] for status in statuses] == ["failed", "failed"]
    assert all("Traceback" in status["traceback"] for status in statuses)
    assert as_it_came.index(f"failed {names[0]}") < as_it_came.index(f"started {names[1]}")
    # State of the GPU, of random numbers or of a library cannot leak from one into the next.
    assert len({process.pid, *(status["pid"] for status in statuses)}) == 3
