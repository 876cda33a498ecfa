"""A real vLLM engine in the training process, on the CPU: seeds, log-probabilities, weights that move.

Runs where vLLM is installed (`make test-vllm`; its CPU build will do). No GPU, so no sleep mode, no memory share and no
server: docs/rollouts.md says what was not measured.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch

from gradstarve.errors import UserError
from gradstarve.learning import vllm_rollouts
from gradstarve.learning.policy import load_policy
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.tasks import load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.runs.folder import RunFolder
from tests.conftest import QUICK

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed beside this Python: `make test-vllm` makes a virtual environment for it",
)

STEPS = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, compose_config: Any) -> tuple[BinaryRewardTrainer, RunFolder]:
    """A run of a few steps whose completions come from vLLM, through TRL."""
    import vllm._custom_ops as ops

    # TRL asks for compiled kernels, which take minutes here.
    os.environ |= {"TORCH_COMPILE_DISABLE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if not torch.cuda.is_available():
        # The CPU build packs each matrix for its kernel and drops it, so that no weights can be handed over; without
        # that kernel it computes with the matrices themselves, as GPU builds do.
        ops._supports_onednn = False
    outputs = tmp_path_factory.mktemp("vllm")
    config = compose_config(
        *QUICK, "rollout=vllm_colocate", "rollout.vllm.sleep=false", f"outputs={outputs}", f"steps={STEPS}",
        "checkpoint_every=0", "eval_every=0", "model.heads=2", "advantage=sign", "learning_rate=0.001",
    )  # fmt: skip
    seed_everything(config.seed)
    task, folder = load_task(config.dataset), RunFolder.of(config)
    trainer = BinaryRewardTrainer(
        config, load_policy(config), task.train, task.grade, Recorder(folder, config), folder.checkpoints
    )
    trainer.train()
    return trainer, folder


def test_the_engine_s_log_probabilities_are_compared_with_the_trainer_s_in_every_step(trained: Any) -> None:
    _, folder = trained
    steps = folder.read("steps")
    assert steps["step"].tolist() == list(range(1, STEPS + 1))
    # Two implementations, one of them in bfloat16: not equal, and not far.
    assert (steps["sampling_difference_mean"] > 0).all()
    assert (steps["sampling_difference_mean"] < 0.05).all(), steps["sampling_difference_mean"].tolist()
    assert ((steps["sampling_ratio_mean"] > 0.9) & (steps["sampling_ratio_mean"] < 1.1)).all()
    assert (steps["sampling_ratio_max"] <= 2.0).all()


def test_completions_of_a_group_are_not_copies_of_one(trained: Any) -> None:
    _, folder = trained
    rows = folder.read("completions")
    different = rows.groupby(["step", "group"])["completion"].nunique()
    assert different.max() > 1 and different.mean() > 1.5, different.tolist()


def test_a_seed_repeats_and_another_differs(trained: Any) -> None:
    trainer, _ = trained
    engine = trainer.vllm_generation.llm
    prompts = [trainer.processing_class(trainer.questions[0].prompt)["input_ids"]] * 8

    def sampled(seed: int, step: int) -> list[list[int]]:
        engine._seed = lambda place: vllm_rollouts.sampling_seed(seed, step, 0, place)
        return [list(ids) for ids in trainer.vllm_generation.generate(prompts, None, 4)[1]]

    first = sampled(42, 0)
    assert sampled(42, 0) == first
    assert sampled(43, 0) != first
    assert sampled(42, 1) != first
    assert len({tuple(ids) for ids in first}) > 1


def test_the_trained_weights_are_the_served_ones(trained: Any) -> None:
    trainer, _ = trained
    engine = trainer.vllm_generation.llm
    assert engine._weights.moved
    trainer.vllm_generation.sync_weights()
    tokens = vllm_rollouts.probe(trainer.processing_class(trainer.questions[0].prompt)["input_ids"])
    with torch.no_grad():
        logits = trainer.model.eval()(torch.tensor([tokens[:-1]])).logits
    ours = logits.float().log_softmax(-1)[0].gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0]
    served = torch.tensor(engine._served(tokens, _parameters()))
    assert (ours - served).abs().max() < 0.1, (ours, served)


def test_an_engine_that_is_handed_no_weights_is_an_error(trained: Any) -> None:
    trainer, _ = trained
    engine = trainer.vllm_generation.llm
    watch = vllm_rollouts.ServedWeights("vllm_colocate", lambda: vllm_rollouts.fingerprint(trainer.model))
    prompt = trainer.processing_class(trainer.questions[0].prompt)["input_ids"]

    def look() -> None:
        watch.look(prompt, lambda tokens: engine._served(tokens, _parameters()))

    look()
    for step in range(vllm_rollouts.PATIENCE):
        with torch.no_grad():
            next(trainer.model.parameters()).add_(1e-3)
        if step + 1 < vllm_rollouts.PATIENCE:
            look()
    with pytest.raises(UserError, match="the weights that vLLM serves have not"):
        look()
    trainer.vllm_generation.sync_weights()
    look()
    assert watch.moved


def test_end_tokens_of_the_policy_end_completions(trained: Any) -> None:
    trainer, folder = trained
    assert trainer.vllm_generation.generation_kwargs["stop_token_ids"] == sorted(trainer.eos_token_ids)
    rows = folder.read("completions")
    assert not rows["truncated"].all()


def _parameters() -> Any:
    from vllm import SamplingParams

    return SamplingParams()
