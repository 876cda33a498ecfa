"""An engine that TRL has made is taken over: it draws from the run's seed, and stale weights end the run.

What stands for the engine here computes with weights of its own, as vLLM does; tests/vllm has a real one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from gradstarve.errors import UserError
from gradstarve.learning.policy import Policy, load_policy
from gradstarve.learning.vllm_rollouts import PATIENCE, sampling_seed, take_over
from gradstarve.runs.config import RunConfig

PROMPT = [3, 4, 5, 6, 7]


class Parameters:
    """What vLLM is asked with."""

    def __init__(self, seed: int | None = None, **asked: Any) -> None:
        self.seed, self.asked = seed, asked

    def clone(self) -> Parameters:
        return Parameters(self.seed, **self.asked)


class Served:
    """The weights that an engine holds, which are not the policy's, and the seeds that it was asked with."""

    def __init__(self, model: Any) -> None:
        self.model, self.seeds = copy.deepcopy(model), list[int | None]()

    def log_probs(self, tokens: list[int]) -> list[float]:
        with torch.no_grad():
            logits = self.model(torch.tensor([tokens])).logits[0, :-1].float().log_softmax(-1)
        return logits.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


class Llm(Served):
    """vLLM's `LLM`, as far as it is used."""

    def generate(self, prompts: Any, sampling_params: Any, **options: Any) -> Any:
        if isinstance(sampling_params, list):
            self.seeds = [parameters.seed for parameters in sampling_params]
            return [prompt["prompt_token_ids"] for prompt in prompts]
        (tokens,) = (prompt["prompt_token_ids"] for prompt in prompts)
        told = [
            {token: SimpleNamespace(logprob=p)} for token, p in zip(tokens[1:], self.log_probs(tokens), strict=True)
        ]
        return [SimpleNamespace(prompt_logprobs=[None, *told])]


class Client(Served):
    """TRL's client of a server, as far as it is used."""

    def generate(self, prompts: Any, generation_kwargs: Any = None, **options: Any) -> dict[str, Any]:
        (prompt,) = prompts
        self.seeds.append(generation_kwargs["seed"])
        return {"prompt_ids": [prompt] * options["n"], "completion_ids": [[generation_kwargs["seed"]]] * options["n"]}

    def get_sequence_logprobs(self, sequences: Any, lengths: Any, **options: Any) -> dict[str, Any]:
        return {"actual_logprobs": [[[p] for p in self.log_probs(sequences[0])]]}


@pytest.fixture
def policy(quick: tuple[str, ...], compose_config: Any) -> Iterator[Policy]:
    Accelerator(cpu=True)  # TRL's trainer has made one by then
    yield load_policy(compose_config(*quick))
    AcceleratorState._reset_state(reset_partial_state=True)


def taken(policy: Policy, config: RunConfig, step: list[int], process: int = 0) -> tuple[Any, Served]:
    """TRL's engine after the take-over, and what serves behind it."""
    colocated = config.rollout.engine == "vllm_colocate"
    served: Served = Llm(policy.model) if colocated else Client(policy.model)
    generation = SimpleNamespace(
        mode="colocate" if colocated else "server",
        generation_kwargs={},
        _iter_named_params=policy.model.named_parameters,
        **{"llm" if colocated else "vllm_client": served},
    )
    take_over(generation, config, policy.model, [9, 2], lambda: step[0], process)
    return generation, served


def test_an_engine_in_the_process_draws_from_the_run_s_seed(
    quick: tuple[str, ...], compose_config: Any, policy: Policy
) -> None:
    drawn = []
    for seed, process in ((42, 0), (43, 0), (42, 1)):
        step = [0]
        config = compose_config(*quick, "rollout=vllm_colocate", f"seed={seed}")
        generation, served = taken(policy, config, step, process)
        assert generation.generation_kwargs["stop_token_ids"] == [2, 9]
        for step[0] in (0, 1):
            asked = [{"prompt_token_ids": [*PROMPT, place]} for place in range(3)]
            texts = generation.llm.generate(asked, sampling_params=Parameters(seed=7), use_tqdm=False)
            assert texts == [[*PROMPT, place] for place in range(3)]
            assert served.seeds == [sampling_seed(seed, step[0], process, place) for place in range(3)]
            drawn += served.seeds
    assert len(set(drawn)) == len(drawn) == 18


def test_building_an_engine_leaves_no_random_state_that_all_runs_share(
    quick: tuple[str, ...], compose_config: Any, policy: Policy
) -> None:
    def after(seed: int, before: int) -> float:
        torch.manual_seed(before)
        taken(policy, compose_config(*quick, "rollout=vllm_colocate", f"seed={seed}"), [0])
        return float(torch.rand(()))

    assert after(42, 0) == after(42, 1) != after(43, 0)


def test_a_server_draws_from_the_run_s_seed_and_answers_stay_in_order(
    quick: tuple[str, ...], compose_config: Any, policy: Policy
) -> None:
    config = compose_config(*quick, "rollout=vllm_server")
    generation, served = taken(policy, config, [4])
    prompts = [[*PROMPT, place] for place in range(3)]
    answer = generation.vllm_client.generate(prompts, generation_kwargs={"stop_token_ids": [2]}, n=2)
    seeds = [sampling_seed(config.seed, 4, 0, place) for place in range(3)]
    assert sorted(served.seeds, key=str) == sorted(seeds, key=str)
    assert answer["prompt_ids"] == [prompt for prompt in prompts for _ in range(2)]
    assert answer["completion_ids"] == [[seed] for seed in seeds for _ in range(2)]


@pytest.mark.parametrize("engine", ["vllm_colocate", "vllm_server"])
def test_weights_that_never_reach_the_engine_end_the_run(
    quick: tuple[str, ...], compose_config: Any, policy: Policy, engine: str
) -> None:
    def generate(generation: Any) -> None:
        if engine == "vllm_colocate":
            generation.llm.generate([{"prompt_token_ids": PROMPT}], sampling_params=Parameters())
        else:
            generation.vllm_client.generate([PROMPT], generation_kwargs={}, n=1)

    def moved() -> None:
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(1.01)

    config = compose_config(*quick, f"rollout={engine}")
    generation, served = taken(policy, config, [0])
    generate(generation)
    for _ in range(PATIENCE - 1):
        moved()
        generate(generation)
    moved()
    with pytest.raises(UserError, match=rf"^rollout={engine}: .* choose rollout=hf"):
        generate(generation)

    generation, served = taken(policy, config, [0])
    generate(generation)
    for _ in range(PATIENCE + 1):
        moved()
        served.model.load_state_dict(policy.model.state_dict())
        generate(generation)
