"""Evaluation through vLLM: the same prompt tokens, stop tokens and sampling as transformers, on exported weights.

vLLM is imported only where it is asked for. It can sample differently in one respect: transformers draws a batch from
one seed, vLLM each request from its own, so sampled completions of the two engines are draws of one distribution and
not the same texts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from gradstarve.errors import UserError
from gradstarve.learning import processes
from gradstarve.learning.decoding import TOP_P, Asked, Decoding, Generate
from gradstarve.learning.export import merged
from gradstarve.learning.rollout_engine import require_installed

# Of the GPU memory that is free, for weights and key-value cache: this process has held a model there before.
MEMORY_SHARE = 0.9


def require_vllm() -> None:
    """Raises UserError where vLLM is not installed or could not start: before anything is loaded or trained."""
    if processes.count() > 1:
        raise UserError(
            "evaluation.engine: vllm starts in a run of one process only; train with evaluation.engine=hf, then ask "
            "for vllm in one process: it evaluates the kept weights"
        )
    require_installed("evaluation.engine", "evaluation.engine=hf")


@contextmanager
def vllm_engine(
    model: Any, tokenizer: Any, decoding: Decoding, longest_prompt: int, export: Path, say: Callable[[str], None]
) -> Iterator[Generate]:
    """An engine that serves the model's weights from `export`, which is written first and removed at the end.

    An adapter is merged into the model itself, as `gradstarve export` merges it, so the model is used up.
    """
    require_vllm()
    # In this process: an engine of its own would outlive a run that is killed, and keep its GPU.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    on_gpu = torch.cuda.is_available()
    say("evaluating: starting vLLM on the exported weights")
    try:
        _export(model, tokenizer, export)
        from vllm import LLM, SamplingParams, TokensPrompt

        engine = LLM(
            model=str(export),
            dtype=str(model.dtype).removeprefix("torch."),
            max_model_len=longest_prompt + decoding.completion_limit,
            seed=decoding.seed,
            generation_config="vllm",  # nothing but what SamplingParams says
            trust_remote_code=False,
            enforce_eager=not on_gpu,
            disable_log_stats=True,
            **({"gpu_memory_utilization": _memory_share()} if on_gpu else {}),
        )

        def parameters(first: Asked, n: int) -> SamplingParams:
            sampling = (
                {"temperature": 0.0}
                if decoding.greedy
                else {"n": n, "temperature": decoding.temperature, "top_p": TOP_P, "seed": decoding.seed_of(first)}
            )
            return SamplingParams(
                max_tokens=decoding.completion_limit,
                stop_token_ids=list(decoding.ends),
                detokenize=False,  # token ids go in and come out
                top_k=0,  # all tokens
                **sampling,
            )

        def generate(batch: Sequence[Asked]) -> list[list[int]]:
            # A question's samples are one request, so that its prompt is computed once.
            requests = [list(group) for _, group in groupby(batch, key=lambda one: one.question.id)]
            outputs = engine.generate(
                [TokensPrompt(prompt_token_ids=list(request[0].tokens)) for request in requests],
                [parameters(request[0], len(request)) for request in requests],
                use_tqdm=False,
            )
            return [list(sample.token_ids) for output in outputs for sample in output.outputs]

        try:
            yield generate
        finally:
            engine.llm_engine.engine_core.shutdown()
    finally:
        shutil.rmtree(export, ignore_errors=True)


def _export(model: Any, tokenizer: Any, folder: Path) -> None:
    """The policy as any process loads it."""
    shutil.rmtree(folder, ignore_errors=True)
    (merged(model) if isinstance(model, PeftModel) else model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _memory_share() -> float:
    free, total = torch.cuda.mem_get_info()
    return MEMORY_SHARE * free / total
