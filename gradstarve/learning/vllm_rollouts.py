"""A vLLM engine that samples as the run says: its seed, its end tokens, and weights that are seen to move.

TRL 1.16 starts an engine in the training process with the process's number for a seed, whatever the run's seed, and
that resets the process's own random numbers; one `seed` in the sampling parameters would give all completions of a
prompt the same noise there, and every step the same noise on a server. So each completion gets a seed of its own, from
the run's seed, the step and its place. The objects here stand between TRL and vLLM (in `VLLMGeneration`'s `llm` or
`vllm_client`) and pass on all else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from huggingface_hub import snapshot_download
from peft import PeftModel
from transformers import PreTrainedConfig

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig
from gradstarve.runs.model_config import HubModelConfig

# How often the policy may move without the engine: the smallest steps can vanish in a 16-bit copy of the weights.
PATIENCE = 5

# Mean difference of log-probabilities, in nats, above which the engine samples from a policy that is noticeably another
# than the trained one. 16-bit kernels alone make a few hundredths.
MUCH_DIFFERENT = 0.1

PROBE_TOKENS = 64
REQUESTS_AT_A_TIME = 64

# Policy class and class of the checkpoint that vLLM builds, where both can be told apart by a prefix alone.
_PREFIXES = {
    ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"): ("model.", "model.language_model."),
    ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"): ("model.", "model.language_model."),
}

LogProbs = list[float]


def sampling_seed(run_seed: int, step: int, engine: int, place: int) -> int:
    """The seed of one completion (of one prompt on a server): a function of these four alone, so that a resumed run
    draws as it would have. `engine` numbers the engines of a run, `place` the requests of a step."""
    return random.Random(f"rollout-{run_seed}-{step}-{engine}-{place}").getrandbits(48)


class ServedWeights:
    """Sees to it that what an engine serves moves once the policy does.

    The engine is asked for log-probabilities of the same few tokens: twice at first, which shows what it repeats
    to, then after each step until they differ by more than that. Nothing is asked after that. The tokens are those that
    the first rollout begins with.
    """

    def __init__(self, engine: str, policy: Callable[[], float]) -> None:
        self.engine, self._policy = engine, policy
        self.moved = False
        self._first: tuple[list[int], float, LogProbs, float] | None = None
        self._unmoved = 0

    def look(self, prompt: Sequence[int], served: Callable[[list[int]], LogProbs]) -> None:
        """Called after weights were handed over. Raises UserError where the engine has not moved with the policy."""
        if self.moved:
            return
        policy = self._policy()
        if self._first is None:
            tokens = probe(prompt)
            first, again = served(tokens), served(tokens)
            self._first = tokens, policy, first, difference(first, again)
            return
        tokens, policy_then, first, repeats_to = self._first
        if policy == policy_then:
            return
        if difference(first, served(tokens)) > repeats_to:
            self.moved = True
            return
        self._unmoved += 1
        if self._unmoved >= PATIENCE:
            raise UserError(
                f"rollout={self.engine}: the policy has moved in {PATIENCE} steps and the weights that vLLM serves "
                "have not: completions would come from the untrained model; choose rollout=hf, or another vllm version"
            )


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference between two lists of log-probabilities of the same tokens."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def fingerprint(model: torch.nn.Module) -> float:
    """A number that changes with the trained weights."""
    return float(sum(p.detach().sum(dtype=torch.float64) for p in model.parameters() if p.requires_grad))


class ColocatedEngine:
    """In place of vLLM's `LLM`: one request a completion, each with its own seed."""

    def __init__(self, llm: Any, seed: Callable[[int], int], weights: ServedWeights) -> None:
        self._llm, self._seed, self._weights = llm, seed, weights

    def generate(self, prompts: Sequence[Any], sampling_params: Any, **options: Any) -> Any:
        # TRL has handed over this step's weights, and the engine is awake.
        self._weights.look(prompts[0]["prompt_token_ids"], lambda tokens: self._served(tokens, sampling_params))
        seeded = []
        for place in range(len(prompts)):
            parameters = sampling_params.clone()
            parameters.seed = self._seed(place)
            seeded.append(parameters)
        return self._llm.generate(prompts, sampling_params=seeded, **options)

    def _served(self, tokens: list[int], sampling_params: Any) -> LogProbs:
        asked = type(sampling_params)(max_tokens=1, temperature=0.0, prompt_logprobs=1)
        output = self._llm.generate([{"prompt_token_ids": tokens}], sampling_params=asked, use_tqdm=False)[0]
        found = zip(tokens[1:], output.prompt_logprobs[1:], strict=True)
        return [float(log_probs[token].logprob) for token, log_probs in found]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)


class ServedEngine:
    """In place of TRL's `VLLMClient`: one request a prompt, whose n completions vLLM seeds with seed, seed + 1, ..."""

    def __init__(self, client: Any, seed: Callable[[int], int], weights: ServedWeights) -> None:
        self._client, self._seed, self._weights = client, seed, weights

    def generate(self, prompts: Sequence[list[int]], generation_kwargs: Any = None, **options: Any) -> dict[str, Any]:
        self._weights.look(prompts[0], self._served)

        def ask(place: int) -> dict[str, Any]:
            seeded = {**(generation_kwargs or {}), "seed": self._seed(place)}
            return self._client.generate([prompts[place]], generation_kwargs=seeded, **options)

        with ThreadPoolExecutor(max_workers=min(REQUESTS_AT_A_TIME, len(prompts))) as threads:
            answers = list(threads.map(ask, range(len(prompts))))
        return {key: [row for answer in answers for row in answer[key]] for key in answers[0]}

    def _served(self, tokens: list[int]) -> LogProbs:
        found = self._client.get_sequence_logprobs([tokens], [1], top_logprobs=1)
        return [float(log_probs[0]) for log_probs in found["actual_logprobs"][0]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def probe(prompt: Sequence[int]) -> list[int]:
    """The tokens whose log-probabilities are watched: a prompt's first, two at least."""
    return [*prompt, *prompt][: max(2, min(len(prompt), PROBE_TOKENS))]


def renamed(policy: str, checkpoint: str) -> Callable[[str], str]:
    """What vLLM calls a parameter of the policy, also where it builds another class from the checkpoint than
    transformers did. Raises UserError where that is not known."""
    if policy == checkpoint:
        return lambda name: name
    if (policy, checkpoint) not in _PREFIXES:
        raise UserError(
            f"rollout: vLLM would serve {checkpoint} where {policy} is trained, and how the weights of one go into the "
            "other is not known; choose rollout=hf"
        )
    before, after = _PREFIXES[policy, checkpoint]
    return lambda name: after + name.removeprefix(before) if name.startswith(before) else name


def checkpoint_class(model: str, revision: str | None) -> str:
    """The class that the config of a folder or hub model names."""
    content, _ = PreTrainedConfig.get_config_dict(model, revision=revision)
    return str(content["architectures"][0])


def rename_parameters(generation: Any, name: Callable[[str], str]) -> None:
    """Hand weights over under `name(theirs)`."""
    parameters = generation._iter_named_params

    def iterate() -> Iterator[tuple[str, Any]]:
        for theirs, weight in parameters():
            yield name(theirs), weight

    generation._iter_named_params = iterate


@contextmanager
def from_cache(config: RunConfig, model: Any) -> Iterator[None]:
    """While it lasts, the model names the folder that it was loaded from: vLLM is told a name and no revision."""
    chosen, name = config.model, model.name_or_path
    if config.rollout.engine == "vllm_colocate" and isinstance(chosen, HubModelConfig) and not Path(chosen.id).is_dir():
        model.name_or_path = snapshot_download(chosen.id, revision=chosen.revision, local_files_only=True)
    try:
        yield
    finally:
        model.name_or_path = name


def take_over(
    generation: Any, config: RunConfig, model: Any, ends: Sequence[int], step: Callable[[], int], process: int
) -> None:
    """Make TRL's engine (`VLLMGeneration`) obey the run. `model` is the policy, `ends` its end tokens, `step` the
    number of steps done."""
    vllm = config.rollout.vllm
    assert vllm is not None
    # The end tokens that vLLM reads beside the weights need not be the policy's.
    generation.generation_kwargs["stop_token_ids"] = sorted(ends)
    policy: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    revision = config.model.revision if isinstance(config.model, HubModelConfig) else None
    source = policy.name_or_path
    for adapter in getattr(model, "peft_config", {}).values():
        adapter.base_model_name_or_path = source  # not the folder that vLLM was told (from_cache)
    built = checkpoint_class(source, None if Path(source).is_dir() else revision)
    rename_parameters(generation, renamed(type(policy).__name__, built))
    weights = ServedWeights(config.rollout.engine, lambda: fingerprint(model))
    if generation.mode == "server":
        if process == 0:
            generation.vllm_client = ServedEngine(
                generation.vllm_client, lambda place: sampling_seed(config.seed, step(), 0, place), weights
            )
        return
    engine = process // vllm.tensor_parallel
    generation.llm = ColocatedEngine(
        generation.llm, lambda place: sampling_seed(config.seed, step(), engine, place), weights
    )
    # Building the engine has reset this process's random numbers to the same ones for every run.
    set_seed(config.seed, device_specific=True)


def model_length(config: RunConfig, longest_prompt: int) -> int:
    """Tokens that an engine must have room for. Raises UserError where the config allows fewer than that."""
    vllm = config.rollout.vllm
    assert vllm is not None
    needed = longest_prompt + config.completion_limit
    if vllm.max_model_length is not None and vllm.max_model_length < needed:
        raise UserError(
            f"rollout.vllm.max_model_length: {vllm.max_model_length}, but the longest prompt ({longest_prompt} tokens) "
            f"and completion_limit ({config.completion_limit}) need {needed}; null takes what is needed"
        )
    return vllm.max_model_length or needed
