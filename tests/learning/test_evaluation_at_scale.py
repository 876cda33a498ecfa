"""Evaluations that take long: kept as they come, resumed where they stopped, and equal to uninterrupted ones."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from gradstarve.errors import UserError
from gradstarve.learning.evaluation import evaluate, write_summary
from gradstarve.learning.policy import Policy, load_policy
from gradstarve.learning.run import execute
from gradstarve.learning.stopping import Stopped
from gradstarve.learning.tasks import load_task
from gradstarve.reporting.show import as_text, describe
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_name, run_name

SAMPLED = ("advantage=base", "evaluation.name=samples", "evaluation.greedy=false", "evaluation.samples=16")
FILE = "step-000000.jsonl"


class AfterBatches:
    """Says stop once so many batches have been answered; counts how often it was asked."""

    def __init__(self, batches: float = float("inf")) -> None:
        self.batches, self.asked = batches, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.batches


def answers(config: RunConfig, policy: Policy, folder: Path, stopping: Callable[[], bool] = lambda: False) -> Any:
    summary = evaluate(policy.model, policy.tokenizer, load_task(config.dataset), config, 0, folder, stopping=stopping)
    return pd.read_parquet(folder / "step-000000.parquet"), summary


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "seconds"}


@pytest.mark.parametrize("batch_size", [7, 16, 50])
def test_stopped_again_and_again_equals_uninterrupted(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path, batch_size: int
) -> None:
    config = compose_config(*quick, *SAMPLED, f"evaluation.batch_size={batch_size}")
    policy = load_policy(config)
    whole, summary = answers(config, policy, tmp_path / "whole")
    assert len(whole) == 6 * 16 and whole["completion"].nunique() > 6
    total, sessions = -(-96 // batch_size), 0
    while True:
        stopping = AfterBatches(1)
        try:
            rows, resumed = answers(config, policy, tmp_path / "broken", stopping)
            break
        except Stopped:
            sessions += 1
            kept = (tmp_path / "broken" / FILE).read_bytes()
            assert kept.count(b"\n") == 1 + sessions  # the head, and one batch a session: none was lost or asked twice
            # What a kill inside the next write leaves.
            (tmp_path / "broken" / FILE).write_bytes(kept + b'{"seconds": 0.1, "rows": [{"question_id": "eval/0", "sa')
    assert sessions == total - 1
    pd.testing.assert_frame_equal(rows, whole, check_exact=True)
    assert timeless(resumed) == timeless(summary)


def test_killed_and_run_again(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    """Through the run's own door: once by a signal that nothing can answer."""
    config = compose_config(*quick, *SAMPLED, "evaluation.samples=64", "evaluation.batch_size=8")
    whole, _ = answers(config, load_policy(config), tmp_path / "whole")
    folder = RunFolder.of(config)
    kept = folder.evaluation(config) / FILE
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gradstarve.learning.run"])
    batches = 0
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = context.Process(target=execute, args=(config,))
        process.start()
        while process.is_alive() and (not kept.exists() or kept.read_bytes().count(b"\n") < batches + 4):
            time.sleep(0.01)
        os.kill(process.pid or 0, number)
        process.join()
        assert process.exitcode == -number
        assert not folder.is_done(config)
        before, batches = batches, kept.read_bytes().count(b"\n") - 1
        assert before + 3 <= batches < 48
    stopping, said = AfterBatches(), []
    execute(config, said.append, stopping)
    assert stopping.asked == 48 - batches
    assert f"evaluating: {8 * batches} of 384 completions are there from before" in said
    rows = pd.read_parquet(kept.with_suffix(".parquet"))
    pd.testing.assert_frame_equal(rows, whole, check_exact=True)
    assert folder.is_done(config) and not kept.exists()


def test_completions_of_other_weights_are_not_taken_over(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    config = compose_config(*quick, *SAMPLED, "evaluation.batch_size=16")
    policy = load_policy(config)
    with pytest.raises(Stopped):
        answers(config, policy, tmp_path / "one", AfterBatches(4))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(0.9)
    stopping = AfterBatches()
    rows, _ = answers(config, policy, tmp_path / "one", stopping)
    assert stopping.asked == 6
    pd.testing.assert_frame_equal(rows, answers(config, policy, tmp_path / "other")[0], check_exact=True)


def test_greedy_goes_on_with_smaller_batches(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    config, smaller = (compose_config(*quick, "advantage=base", f"evaluation.batch_size={size}") for size in (4, 2))
    policy = load_policy(config)
    whole, summary = answers(config, policy, tmp_path / "whole")
    with pytest.raises(Stopped):
        answers(config, policy, tmp_path / "broken", AfterBatches(1))
    stopping = AfterBatches()
    rows, _ = answers(smaller, policy, tmp_path / "broken", stopping)
    assert stopping.asked == 1
    pd.testing.assert_frame_equal(rows, whole, check_exact=True)
    assert summary["n"] == summary["questions"] == 6


def test_a_kill_before_the_summary_costs_no_completion(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    config = compose_config(*quick, *SAMPLED)
    policy = load_policy(config)
    whole, _ = answers(config, policy, tmp_path)
    stopping = AfterBatches(0)
    rows, summary = answers(config, policy, tmp_path, stopping)
    assert stopping.asked == 0
    pd.testing.assert_frame_equal(rows, whole, check_exact=True)
    write_summary(tmp_path, "a-run", config, summary, final=True)
    assert sorted(file.name for file in tmp_path.glob("s*")) == ["step-000000.parquet", "summary.json"]


def test_training_is_not_disturbed(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    config = compose_config(*quick, *SAMPLED)
    policy = load_policy(config)
    policy.model.train()
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(Stopped):
        answers(config, policy, tmp_path, AfterBatches(0))
    assert policy.model.training
    answers(config, policy, tmp_path)
    assert policy.model.training
    assert torch.equal(torch.rand(3), wanted)


def test_what_was_asked_and_how_is_recorded_and_truncation_is_shown(
    quick: tuple[str, ...], compose_config: Any
) -> None:
    config = compose_config(*quick, *SAMPLED, "evaluation.temperature=0.7", "evaluation.completion_limit=3")
    execute(config)
    folder = RunFolder.of(config)
    final = json.loads((folder.evaluation(config) / "summary.json").read_text())["final"]
    assert final["decoding"] == {
        "engine": "hf", "greedy": False, "samples": 16, "temperature": 0.7, "top_p": 1.0, "top_k": 0, "seed": 0,
        "completion_limit": 3, "end_tokens": {"0": "<end>"}, "batch_size": 128,
    }  # fmt: skip
    rows = pd.read_parquet(folder.evaluation(config) / "step-000000.parquet")
    assert (rows["truncated"] == (rows["length"] == 3) & ~rows["completion"].str.len().lt(3)).all()
    assert 0 < final["truncated"] == rows["truncated"].mean()
    assert f"truncated {100 * final['truncated']:.1f} %" in as_text(describe(folder))


def test_base_is_evaluated_once_and_shared(quick: tuple[str, ...], compose_config: Any) -> None:
    base = compose_config(*quick, "advantage=base")
    execute(base)
    for other in ("seed=43", "group_size=8", "steps=9", "learning_rate=0.5"):
        again = compose_config(*quick, "advantage=base", other)
        assert run_name(again) == run_name(base)
        never_asked = AfterBatches(0)
        execute(again, stopping=never_asked)
        assert never_asked.asked == 0
    assert len(list(RunFolder.of(base).path.glob("evaluations/*/*.parquet"))) == 1


def test_names_of_evaluations(compose_config: Any) -> None:
    assert evaluation_name(compose_config()) == "greedy-64af8379"  # as it was before there was another engine
    assert evaluation_name(compose_config("evaluation.engine=vllm")) != "greedy-64af8379"
    assert run_name(compose_config("evaluation.engine=vllm")) == run_name(compose_config())


def test_without_vllm_nothing_is_loaded(compose_config: Any, tmp_path: Path) -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vllm is installed beside this Python")
    config = compose_config("evaluation.engine=vllm", f"outputs={tmp_path}")
    with pytest.raises(UserError, match=r"^evaluation\.engine: vllm is not installed") as raised:
        execute(config)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "models").exists()
    # Its config is there, so that `gradstarve retry` knows what to run.
    assert (RunFolder.of(config).path / "config.yaml").exists()
