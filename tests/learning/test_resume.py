"""Interrupted and resumed equals uninterrupted, bit for bit; a finished run is not run again."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.numpy import load_file

from gradstarve.learning.run import execute
from gradstarve.runs import checkpoints
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder

# What a run leaves that may differ between two equal runs: times, and where and when it was run.
TIMES = ("seconds", "seconds_rollout", "seconds_loss", "seconds_rest", "finished", "code")


def same_run(a: RunFolder, b: RunFolder) -> None:
    """Everything that a run leaves is equal, times aside."""
    for table in ("steps", "groups", "completions"):
        left, right = (f.read(table).drop(columns=list(TIMES), errors="ignore") for f in (a, b))  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    weights = [load_file(next(f.weights.glob("*model.safetensors"))) for f in (a, b)]
    assert weights[0].keys() == weights[1].keys()
    for name in weights[0]:
        assert (weights[0][name] == weights[1][name]).all(), name
    assert timeless(a.result()) == timeless(b.result())
    assert {k: timeless(v) for k, v in a.evaluations().items()} == {k: timeless(v) for k, v in b.evaluations().items()}
    for left_file in a.path.glob("evaluations/*/*.parquet"):
        right_file = b.path / left_file.relative_to(a.path)
        pd.testing.assert_frame_equal(pd.read_parquet(left_file), pd.read_parquet(right_file), check_exact=True)


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return value


def elsewhere(config: RunConfig, tmp_path: Path, name: str) -> RunConfig:
    """The same run, kept under another outputs folder with the same models."""
    import dataclasses

    outputs = tmp_path / name
    outputs.mkdir()
    (outputs / "models").symlink_to(Path(config.outputs) / "models")
    return dataclasses.replace(config, outputs=str(outputs))


class Stopped(BaseException):
    """Stands for whatever stops a run."""


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Stop a run right after the row of `step` is written."""
    append = RunFolder.append

    def appended(self: RunFolder, table: Any, rows: Any) -> None:
        append(self, table, rows)
        if table == "steps" and rows[-1]["step"] == step:
            raise Stopped

    monkeypatch.setattr(RunFolder, "append", appended)


@pytest.mark.parametrize(
    "overrides",
    [
        # Six prompts of training make an epoch of one step, so that every resumption is past the first epoch.
        ("advantage=sign", "dataset.train_size=6", "completions_per_pass=4"),
        ("advantage=sign_ce", "advantage.replay.warm_up_steps=2"),
        ("advantage=contrastive_pair", "advantage.replay.warm_up_steps=2", "loss.kl=0.05"),
        ("advantage=drgrpo", "model.lora={rank: 4, alpha: 8, dropout: 0.1, targets: all-linear}"),
        ("advantage=sign", "loss.reward=random", "loss.random_rate=0.5", "completions_per_pass=8"),
    ],
    ids=["epochs-and-passes", "cross-entropy", "pairs-and-kl", "lora-dropout", "random-reward"],
)
def test_resumed_equals_uninterrupted(
    quick: tuple[str, ...],
    compose_config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
) -> None:
    config = compose_config(*quick, *overrides, "learning_rate=0.003")
    whole, broken = elsewhere(config, tmp_path, "whole"), elsewhere(config, tmp_path, "broken")
    execute(whole)
    for step in (1, 4, 5):
        with monkeypatch.context() as patch:
            stop_at(patch, step)
            with pytest.raises(Stopped):
                execute(broken)
        found = checkpoints.newest_whole(RunFolder.of(broken).checkpoints)
        assert (found.step if found else 0) == step - step % 2 - (2 if step == 4 else 0)
        assert len(list(RunFolder.of(broken).checkpoints.glob("checkpoint-*"))) <= 1
    execute(broken)
    same_run(RunFolder.of(whole), RunFolder.of(broken))
    assert not RunFolder.of(broken).checkpoints.exists()


def test_a_torn_checkpoint_and_a_garbage_result_are_not_trusted(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose_config(*quick, "learning_rate=0.003")
    whole, broken = elsewhere(config, tmp_path, "whole"), elsewhere(config, tmp_path, "broken")
    execute(whole)
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(Stopped):
            execute(broken)
    folder = RunFolder.of(broken)
    optimizer = folder.checkpoints / "checkpoint-4" / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:1000])
    assert checkpoints.newest_whole(folder.checkpoints) is None
    execute(broken)
    same_run(RunFolder.of(whole), folder)

    (folder.path / "result.json").write_text('{"layout": 1, "run": ')
    assert folder.result() is None
    trained_at = (folder.weights / "model.safetensors").stat().st_mtime_ns
    execute(broken)
    same_run(RunFolder.of(whole), folder)
    assert (folder.weights / "model.safetensors").stat().st_mtime_ns == trained_at


def test_another_evaluation_of_a_finished_run_does_not_retrain(quick: tuple[str, ...], compose_config: Any) -> None:
    config = compose_config(*quick)
    execute(config)
    folder = RunFolder.of(config)
    steps = (folder.path / "steps.parquet").stat().st_mtime_ns
    shorter = compose_config(*quick, "evaluation.limit=3", "evaluation.completion_limit=30")
    assert folder.is_done(config) and not folder.is_done(shorter)
    execute(shorter)
    assert folder.is_done(config) and folder.is_done(shorter)
    assert sorted(summary["final"]["n"] for summary in folder.evaluations().values()) == [3, 6]
    assert (folder.path / "steps.parquet").stat().st_mtime_ns == steps


@pytest.mark.slow
def test_killed_at_random_moments_ends_the_same(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    """Twenty kills, by three signals, some inside a checkpoint, a rename or an evaluation; then one run to the end."""
    config = compose_config(
        *quick, "steps=60", "eval_every=3", "checkpoint_every=1", "learning_rate=0.003", "advantage=sign_ce",
        "advantage.replay.warm_up_steps=5",
    )  # fmt: skip
    whole, broken = elsewhere(config, tmp_path, "whole"), elsewhere(config, tmp_path, "broken")
    started = time.monotonic()
    execute(whole)
    duration = time.monotonic() - started
    # Torch is imported once, by the server that each attempt is forked from.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gradstarve.learning.run"])
    rng = random.Random(0)
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
    killed = 0
    for attempt in range(20):
        process = context.Process(target=execute, args=(broken,))
        process.start()
        process.join(rng.uniform(0.02, 0.25) * duration)
        if process.is_alive():
            killed += 1
            os.kill(process.pid or 0, signals[attempt % 3])
        process.join()
    assert killed >= 5
    execute(broken)
    same_run(RunFolder.of(whole), RunFolder.of(broken))


def test_no_space_left_is_an_error_and_then_resumed(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(mount)]).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        config = compose_config(*quick, "learning_rate=0.003")
        whole = elsewhere(config, tmp_path, "whole")
        execute(whole)
        import dataclasses

        (mount / "models").symlink_to(Path(config.outputs) / "models")
        full = dataclasses.replace(config, outputs=str(mount))
        with pytest.raises(Exception, match=r"No space left|write|disk|file"):
            execute(full)
        assert RunFolder.of(full).result() is None
        subprocess.run(["mount", "-o", "remount,size=200m", str(mount)], check=True)
        execute(full)
        same_run(RunFolder.of(whole), RunFolder.of(full))
    finally:
        subprocess.run(["umount", str(mount)], check=True)
        shutil.rmtree(mount, ignore_errors=True)


def test_status_tells_how_a_run_ended(quick: tuple[str, ...], compose_config: Any) -> None:
    config = compose_config(*quick)
    execute(config)
    status = json.loads((RunFolder.of(config).path / "status.json").read_text())
    assert status["state"] == "done" and "error" not in status
    assert not (RunFolder.of(config).path / "claim.json").exists()
