"""Choosing an engine for rollouts: what the config takes, what TRL is told, what is refused, and in how many words."""

from __future__ import annotations

import copy
import http.server
import importlib.util
import inspect
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.qwen3_5 import (
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
)
from trl.import_utils import is_vllm_available

from gradstarve.errors import UserError
from gradstarve.learning import rollout_engine, vllm_rollouts
from gradstarve.learning.policy import load_policy
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.tasks import load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.learning.trl_arguments import trl_config
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import cell_key, run_name

REPOSITORY = Path(__file__).resolve().parents[2]
PROMPT = list(range(3, 60))
COLOCATE, SERVER = "rollout=vllm_colocate", "rollout=vllm_server"


# The config, and a run's name


@pytest.mark.parametrize(
    "override",
    [
        "rollout.vllm.memory_share=0.2", "rollout.vllm.sleep=false", "rollout.vllm.tensor_parallel=2",
        "rollout.vllm.max_model_length=4096",
    ],
)  # fmt: skip
def test_where_the_engine_runs_leaves_the_name(compose_config: Any, override: str) -> None:
    assert run_name(compose_config(COLOCATE, override)) == run_name(compose_config(COLOCATE))


@pytest.mark.parametrize(
    "override", ["rollout.vllm.correction=token_mask", "rollout.vllm.correction_cap=3", "rollout.temperature=0.9"]
)
def test_what_the_engine_samples_changes_the_name(compose_config: Any, override: str) -> None:
    assert cell_key(compose_config(COLOCATE, override)) != cell_key(compose_config(COLOCATE))


def test_each_engine_is_a_cell_of_its_own(compose_config: Any) -> None:
    assert len({cell_key(compose_config(f"rollout={name}")) for name in ("hf", "vllm_colocate", "vllm_server")}) == 3
    elsewhere = compose_config(SERVER, "rollout.vllm.server.host=other", "rollout.vllm.server.port=1")
    assert run_name(elsewhere) == run_name(compose_config(SERVER))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((COLOCATE, "rollout.vllm.correction=none"), "rollout.vllm.correction_cap: null with"),
        ((COLOCATE, "rollout.vllm.correction_cap=null"), "rollout.vllm.correction_cap: null with"),
        ((COLOCATE, "rollout.vllm.correction_cap=0.5"), "rollout.vllm.correction_cap"),
        ((COLOCATE, "rollout.vllm.memory_share=1.5"), "rollout.vllm.memory_share"),
        ((COLOCATE, "+rollout.vllm.slep=true"), "Did you mean 'sleep'"),
        ((SERVER, "rollout.vllm.server=null"), "rollout.vllm.server: vllm_server has one"),
        ((SERVER, "rollout.vllm.sleep=true"), "rollout.vllm.sleep: a server"),
        ((SERVER, "rollout.vllm.server.port=0"), "rollout.vllm.server.port"),
        ((COLOCATE, "rollout.engine=hf"), "rollout.vllm: read only with"),
        (("rollout.engine=vllm_server",), "rollout.vllm: missing; choose rollout=vllm_server"),
        (("rollout.engine=vllm",), "rollout.engine"),
    ],
)
def test_a_mistake_is_one_line(compose_config: Any, overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError) as raised:
        compose_config(*overrides)
    assert words in str(raised.value) and "\n" not in str(raised.value)


# What TRL is told


def test_trl_is_told_every_setting_of_the_engine(compose_config: Any, tmp_path: Path) -> None:
    colocate = trl_config(compose_config(COLOCATE, "rollout.vllm.tensor_parallel=2"), tmp_path, 2, 77)
    assert colocate.use_vllm and colocate.vllm_mode == "colocate"
    assert (colocate.temperature, colocate.top_p, colocate.top_k, colocate.min_p) == (1.0, 1.0, 0, None)
    assert (colocate.vllm_gpu_memory_utilization, colocate.vllm_enable_sleep_mode) == (0.4, True)
    assert (colocate.vllm_tensor_parallel_size, colocate.vllm_max_model_length) == (2, 77)
    assert colocate.vllm_importance_sampling_correction
    assert colocate.vllm_importance_sampling_mode == "token_truncate"
    assert colocate.vllm_importance_sampling_clip_max == 2.0

    server = trl_config(
        compose_config(SERVER, "rollout.vllm.correction=none", "rollout.vllm.correction_cap=null",
                       "rollout.vllm.server.host=node7", "rollout.vllm.server.timeout=9"),
        tmp_path,
    )  # fmt: skip
    assert server.vllm_mode == "server" and not server.vllm_importance_sampling_correction
    assert (server.vllm_server_host, server.vllm_server_port, server.vllm_group_port) == ("node7", 8000, 51216)
    assert server.vllm_server_timeout == 9.0
    assert not trl_config(compose_config(), tmp_path).use_vllm


def test_an_engine_s_gpus_divide_the_run_s_processes(compose_config: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rollout.vllm.tensor_parallel: 2 GPUs an engine do not divide .* 1 process$"):
        trl_config(compose_config(COLOCATE, "rollout.vllm.tensor_parallel=2"), tmp_path)


def test_the_engine_has_room_for_the_longest_prompt_and_its_completion(compose_config: Any) -> None:
    assert vllm_rollouts.model_length(compose_config(COLOCATE, "completion_limit=100"), 28) == 128
    assert vllm_rollouts.model_length(compose_config(COLOCATE, "rollout.vllm.max_model_length=40"), 28) == 40
    with pytest.raises(UserError, match=r"completion_limit \(13\) need 41"):
        vllm_rollouts.model_length(
            compose_config(COLOCATE, "rollout.vllm.max_model_length=40", "completion_limit=13"), 28
        )


# What must be there


def test_the_supported_versions_are_trl_s() -> None:
    source = inspect.getsource(is_vllm_available)
    bounds = re.findall(r'Version\("([\d.]+)"\)', source)
    assert bounds == [str(rollout_engine.OLDEST), str(rollout_engine.NEWEST)]


@pytest.fixture
def dry_run(tmp_path: Path) -> Any:
    """`python run.py dry_run=true ...`, with a vLLM of the given version on the path: its metadata, and no code."""

    def run(version: str | None, *overrides: str) -> subprocess.CompletedProcess[str]:
        site = tmp_path / f"site-{version}"
        if version is not None:
            (site / "vllm").mkdir(parents=True)
            (site / "vllm" / "__init__.py").write_text("raise ImportError('a dry run needs no engine')")
            metadata = site / f"vllm-{version}.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
            (metadata / "top_level.txt").write_text("vllm\n")
        return subprocess.run(
            [sys.executable, "run.py", "dry_run=true", f"outputs={tmp_path / 'outputs'}", *overrides],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def error_of(finished: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refused dry run ends in, after its plan."""
    assert finished.returncode == 2, finished.stderr
    assert "1 would run" in finished.stdout
    assert len(finished.stderr.strip().splitlines()) == 1, finished.stderr
    return finished.stderr.strip()


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_a_dry_run_says_so(dry_run: Any) -> None:
    assert error_of(dry_run(None, SERVER)).startswith(f"run.py: {SERVER}: vllm is not installed; pip install")
    assert dry_run(None, COLOCATE, "advantage=base").returncode == 0  # trains nothing


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_version_that_trl_does_not_know_and_a_missing_gpu_are_one_line_each(dry_run: Any) -> None:
    newer = error_of(dry_run("0.32.0", COLOCATE))
    assert "vllm 0.32.0 is installed, and trl 1." in newer and "works with 0.22.0 to 0.31.0" in newer
    assert error_of(dry_run("0.31.0+cu129", COLOCATE)).endswith(
        "rollout=vllm_colocate: needs a CUDA GPU, and this process sees none; choose rollout=hf"
    )


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_server_that_does_not_answer_is_one_line_with_the_command_that_starts_it(dry_run: Any, port: int) -> None:
    error = error_of(
        dry_run(
            "0.31.0", SERVER, "model=qwen3_8b", "dataset=gsm8k", "rollout.vllm.server.host=127.0.0.1",
            f"rollout.vllm.server.port={port}", "rollout.vllm.tensor_parallel=2",
        )
    )  # fmt: skip
    assert f"no server answers at http://127.0.0.1:{port}; start one with `" in error
    words = shlex.split(error.split("`")[1])
    assert words[:4] == ["VLLM_SERVER_DEV_MODE=1", "vllm", "serve", "Qwen/Qwen3-8B"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    assert re.fullmatch("[0-9a-f]{40}", given["--revision"])
    assert json.loads(given["--weight-transfer-config"]) == {"backend": "nccl"}
    assert given["--logprobs-mode"] == "processed_logprobs"
    assert (given["--port"], given["--tensor-parallel-size"]) == (str(port), "2")
    assert (given["--dtype"], given["--max-model-len"]) == ("bfloat16", "auto")


def test_another_service_on_the_port_is_no_server(dry_run: Any, tmp_path: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        error = error_of(
            dry_run(
                "0.31.0", SERVER, "rollout.vllm.server.host=127.0.0.1", f"rollout.vllm.server.port={other.server_port}"
            )
        )
        other.shutdown()
    assert "no server answers at" in error


@pytest.mark.parametrize(
    ("transfer", "mode", "words"),
    [
        (None, "processed_logprobs", "cannot take weights"),
        ({"backend": "nccl"}, "raw_logprobs", "reports raw_logprobs, not processed_logprobs"),
    ],
)
def test_a_server_with_other_settings_is_one_line(compose_config: Any, transfer: Any, mode: str, words: str) -> None:
    config = compose_config(SERVER)
    settings = {"weight_transfer_config": transfer, "model_config": {"logprobs_mode": mode}}
    with pytest.raises(UserError, match=f"{words}; start it with `VLLM_SERVER_DEV_MODE=1 vllm serve"):
        rollout_engine.check_server_settings(config, settings)
    rollout_engine.check_server_settings(
        config, {"weight_transfer_config": {"backend": "nccl"}, "model_config": {"logprobs_mode": "processed_logprobs"}}
    )


# Seeds, and weights that move


def test_every_completion_of_every_run_has_a_seed_of_its_own() -> None:
    seeds = [
        vllm_rollouts.sampling_seed(run, step, engine, place)
        for run in (0, 42, 43)
        for step in range(40)
        for engine in range(2)
        for place in range(64)
    ]
    assert len(set(seeds)) == len(seeds)
    # A server counts on from a prompt's seed: groups of up to a thousand must not meet.
    assert min(b - a for a, b in zip(sorted(seeds), sorted(seeds)[1:], strict=False)) > 1000
    # Written in the past: a resumed run must draw as it would have.
    assert vllm_rollouts.sampling_seed(42, 3, 0, 7) == 17826427326813


def tiny_llama(seed: int = 0, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(dtype)


def log_probs(model: Any, tokens: list[int]) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :-1].float().log_softmax(-1)
    return logits.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


def test_weights_that_are_handed_over_are_seen_to_move_and_others_are_an_error() -> None:
    policy = tiny_llama()
    handed, forgotten = copy.deepcopy(policy), copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    good = vllm_rollouts.ServedWeights("vllm_colocate", lambda: vllm_rollouts.fingerprint(policy))
    bad = vllm_rollouts.ServedWeights("vllm_colocate", lambda: vllm_rollouts.fingerprint(policy))
    good.look(PROMPT, lambda tokens: log_probs(handed, tokens))
    bad.look(PROMPT, lambda tokens: log_probs(forgotten, tokens))

    for _ in range(10):  # steps in which every group is dead: the policy itself stays
        bad.look(PROMPT, lambda tokens: log_probs(forgotten, tokens))
    assert not bad.moved

    for step in range(1, vllm_rollouts.PATIENCE + 1):
        policy(torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        handed.load_state_dict(policy.state_dict())
        good.look(PROMPT, lambda tokens: log_probs(handed, tokens))
        assert good.moved
        if step < vllm_rollouts.PATIENCE:
            bad.look(PROMPT, lambda tokens: log_probs(forgotten, tokens))
    with pytest.raises(UserError, match=r"rollout=vllm_colocate: the policy has moved in 5 steps .* choose rollout=hf"):
        bad.look(PROMPT, lambda tokens: log_probs(forgotten, tokens))


def test_noise_of_the_engine_is_no_movement() -> None:
    policy = tiny_llama()
    noise = iter([0.0, 1e-3, *[5e-4, -1e-3] * vllm_rollouts.PATIENCE])
    watch = vllm_rollouts.ServedWeights("vllm_server", iter(range(100)).__next__)

    def served(tokens: list[int]) -> list[float]:
        shift = next(noise)
        return [value + shift for value in log_probs(policy, tokens)]

    watch.look(PROMPT, served)
    with pytest.raises(UserError, match="rollout=vllm_server"):
        for _ in range(vllm_rollouts.PATIENCE):
            watch.look(PROMPT, served)


def test_the_same_tokens_are_asked_for_whatever_a_later_rollout_begins_with() -> None:
    policy = tiny_llama()
    asked: list[list[int]] = []
    watch = vllm_rollouts.ServedWeights("vllm_server", iter(range(100)).__next__)

    def served(tokens: list[int]) -> list[float]:
        asked.append(tokens)
        return log_probs(policy, tokens)

    for prompt in (PROMPT, PROMPT[:5], [*PROMPT, 1]):
        watch.look(prompt, served)
    assert asked == [vllm_rollouts.probe(PROMPT)] * 4
    assert vllm_rollouts.probe([7]) == [7, 7] and len(vllm_rollouts.probe(list(range(100)))) == 64


def test_the_smallest_step_of_an_adapter_shows_in_a_16_bit_copy_of_the_weights() -> None:
    # TRL adds the adapter to the weights in their own precision, where most of a first step's change is rounded away.
    base = tiny_llama(dtype=torch.bfloat16)
    policy = get_peft_model(
        copy.deepcopy(base), LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"), autocast_adapter_dtype=False
    )
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=2e-5)
    watch = vllm_rollouts.ServedWeights("vllm_colocate", lambda: vllm_rollouts.fingerprint(policy))

    def merged(tokens: list[int]) -> list[float]:
        policy.merge_adapter()
        found = log_probs(policy, tokens)
        policy.unmerge_adapter()
        return found

    watch.look(PROMPT, merged)
    for _ in range(vllm_rollouts.PATIENCE):
        policy(torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.look(PROMPT, merged)
        if watch.moved:
            break
    assert watch.moved


def test_a_text_model_s_parameters_are_named_as_in_the_vision_language_checkpoint() -> None:
    text = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    }  # fmt: skip
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}
    config = Qwen3_5Config(text_config=text, vision_config=vision)
    whole, ours = Qwen3_5ForConditionalGeneration(config), Qwen3_5ForCausalLM(config.text_config)
    name = vllm_rollouts.renamed(type(ours).__name__, type(whole).__name__)
    theirs = {n: p.shape for n, p in whole.named_parameters() if "visual" not in n}
    assert {name(n): p.shape for n, p in ours.named_parameters()} == theirs
    assert vllm_rollouts.renamed("LlamaForCausalLM", "LlamaForCausalLM")("model.norm.weight") == "model.norm.weight"
    with pytest.raises(UserError, match="vLLM would serve Gemma3ForConditionalGeneration where LlamaForCausalLM"):
        vllm_rollouts.renamed("LlamaForCausalLM", "Gemma3ForConditionalGeneration")


def test_what_vllm_would_build_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path / "served")
    assert vllm_rollouts.checkpoint_class(str(tmp_path / "served"), None) == "LlamaForCausalLM"
    assert type(AutoModelForCausalLM.from_pretrained(tmp_path / "served")).__name__ == "LlamaForCausalLM"


# The sampler against the trainer, with transformers


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.8)])
def test_transformers_samples_from_what_the_trainer_differentiates(
    quick: tuple[str, ...], compose_config: Any, temperature: float, top_p: float
) -> None:
    """TRL's ratio is 1 by construction here, so the sampler's own log-probabilities are asked for."""
    config = compose_config(*quick, f"rollout.temperature={temperature}", f"rollout.top_p={top_p}")
    seed_everything(config.seed)
    task, folder = load_task(config.dataset), RunFolder.of(config)
    trainer = BinaryRewardTrainer(
        config, load_policy(config), task.train, task.grade, Recorder(folder, config), folder.checkpoints
    )
    tokenizer = trainer.processing_class
    prompts = tokenizer([q.prompt for q in task.train[:8]], return_tensors="pt", padding=True)
    width = prompts["input_ids"].shape[1]
    with torch.no_grad():
        sampled = trainer.model.eval().generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            generation_config=trainer.generation_config,
            output_scores=True,
            return_dict_in_generate=True,
        )
        completions = sampled.sequences[:, width:]
        ends = torch.isin(completions, torch.tensor(trainer.eos_token_ids)).int()
        mask = ends.cumsum(1) - ends == 0
        scores_BTV = torch.stack(sampled.scores, dim=1)
        sampler_BT = scores_BTV.log_softmax(-1).gather(-1, completions[..., None])[..., 0]
        whole_mask = torch.cat([prompts["attention_mask"], mask.long()], dim=1)
        trainer_BT, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, sampled.sequences, whole_mask, completions.shape[1]
        )
    # top_p samples from the likeliest tokens alone, made to add up to 1; the trainer's policy is the whole one.
    outside_BT = (trainer_BT - sampler_BT)[mask]
    if top_p == 1.0:
        assert outside_BT.abs().max() < 1e-4
    else:
        assert (outside_BT < 1e-4).all() and (outside_BT >= torch.tensor(top_p).log() - 1e-4).all()
        assert outside_BT.min() < -0.01


def test_only_an_engine_of_its_own_adds_columns(quick: tuple[str, ...], compose_config: Any) -> None:
    measured = {
        "sampling/sampling_logp_difference/mean": 0.01,
        "sampling/sampling_logp_difference/max": 0.4,
        "sampling/importance_sampling_ratio/min": 0.7,
        "sampling/importance_sampling_ratio/mean": 1.0,
        "sampling/importance_sampling_ratio/max": 1.5,
    }
    rows = {}
    for name in ("hf", "vllm_colocate"):
        config = compose_config(*quick, f"rollout={name}")
        folder = RunFolder.of(config)
        folder.path.mkdir(parents=True)
        Recorder(folder, config).record_step(1, {"loss": 0.0, **measured}, {"rollout": 1.0})
        folder.close_tables()
        rows[name] = folder.read("steps").iloc[0].to_dict()
    added = {key: value for key, value in rows["vllm_colocate"].items() if key not in rows["hf"]}
    assert added == {
        "sampling_difference_mean": 0.01,
        "sampling_difference_max": 0.4,
        "sampling_ratio_min": 0.7,
        "sampling_ratio_mean": 1.0,
        "sampling_ratio_max": 1.5,
    }
