"""What a run would stop at, told by a dry run, or before any run begins, in one line and with exit code 2."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import get_args

import pytest
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from gradstarve.errors import UserError
from gradstarve.launching.lora_targets import check_lora_targets
from gradstarve.runs.model_config import Attention
from tests.conftest import ComposeConfig

from .conftest import Door
from .estimated_models import LARGE

QWEN3 = ("model=qwen3_8b", "dataset=gsm8k")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("[q_proj,in_proj_qkv]", "qwen3_8b has no layer called 'in_proj_qkv'. "),
        ("[mlp]", "qwen3_8b has no layer called 'mlp'. Known: "),
        ("'.*attn'", "no layer of qwen3_8b has a name that matches '.*attn', such as model.layers.0."),
        ("'(q_proj'", "'(q_proj' is no regular expression: "),
    ],
)
def test_lora_targets_that_are_no_layers(compose_config: ComposeConfig, targets: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        check_lora_targets(compose_config(*QWEN3, f"model.lora.targets={targets}").model)
    assert str(refused.value).startswith(f"model.lora.targets: {message}")


@pytest.mark.parametrize(
    "typed",
    [
        (*QWEN3, "model.lora.targets=[self_attn.q_proj,embed_tokens,lm_head]"),
        (*QWEN3, "model.lora.targets='.*_proj'"),
        (*QWEN3, "model.lora.targets=all-linear"),
        (*QWEN3, "model.lora.targets=[q_prj]", "model.id=of/unknown-shape"),
        (*LARGE, "model.lora.targets=[in_proj_qkv,out_proj,conv1d]"),
    ],
)
def test_lora_targets_that_are_layers_or_cannot_be_known(compose_config: ComposeConfig, typed: tuple[str, ...]) -> None:
    check_lora_targets(compose_config(*typed).model)


def test_a_dry_run_names_the_nearest_layer_where_something_is_trained(door: Door) -> None:
    typed = ("dry_run=true", *QWEN3, "model.lora.targets=[q_prj]")
    assert door(*typed).line.startswith(
        "model.lora.targets: qwen3_8b has no layer called 'q_prj'. Did you mean 'q_proj' or "
    )
    assert door(*typed, "advantage=base").code == 0


@pytest.mark.parametrize("typed", [(), ("-m", "hydra/launcher=slurm", "advantage=sign,drgrpo")], ids=["here", "slurm"])
def test_no_run_is_begun_whose_lora_reaches_nothing(door: Door, tmp_path: Path, typed: tuple[str, ...]) -> None:
    line = door(*typed, *QWEN3, "model.lora.targets=[q_proj,k_prj]").line
    assert line.startswith("model.lora.targets: qwen3_8b has no layer called 'k_prj'. ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", ["longer_sums,sums", "sums,longer_sums"])
def test_no_run_is_begun_that_is_asked_what_it_is_trained_on(door: Door, tmp_path: Path, order: str) -> None:
    """Of several evaluations too, whichever comes first."""
    line = door("-m", f"dataset@evaluation={order}", "evaluation.split=train", "steps=1").line
    assert line.startswith("evaluation.dataset: question train/0 of sums is trained on, as sums train/")
    assert not list(tmp_path.glob("outputs/runs/*"))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("dataset@evaluation=500", "dataset@evaluation=500: dataset is chosen by a name, one of conf/dataset/"),
        ("dataset=null", "dataset=null: dataset is chosen by a name, one of conf/dataset/"),
        ("dataset@evaluation=word_problems", "evaluation.dataset.source: should be 'sums' or 'questions', got 'word_"),
        ("dataset@evaluation=longersums", "dataset=longersums: no such option. Did you mean 'longer_sums' or 'sums'?"),
        ("evaluation.dataset.eval_size=6", "evaluation.dataset.eval_size: unknown key. evaluation.dataset is null in "),
    ],
)
def test_a_data_set_that_cannot_be_asked_is_one_line(door: Door, typed: str, message: str) -> None:
    assert door(typed, "dry_run=true").line.startswith(message)
    assert door("-m", typed, "dry_run=true").line.startswith(message)


def test_null_asks_the_own_data_set(door: Door) -> None:
    alone, null = door("dry_run=true"), door("dry_run=true", "dataset@evaluation=null")
    assert (null.code, null.out) == (0, alone.out)
    both = door("-m", "dry_run=true", "dataset@evaluation=null,longer_sums")
    assert both.code == 0 and "evaluation.dataset.name=longer_sums" in both.out and "# 1 run: 0 done" in both.out


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_an_evaluation_by_vllm_that_is_not_installed(door: Door) -> None:
    answer = door("dry_run=true", "advantage=base", "evaluation.engine=vllm")
    assert answer.code == 2 and "1 would run" in answer.out
    said = "vllm is not installed; pip install -c constraints.txt -e '.[vllm]', or choose evaluation.engine=hf"
    assert answer.err == f"run.py: evaluation.engine: {said}\n"


def test_attention_that_transformers_does_not_know(compose_config: ComposeConfig) -> None:
    with pytest.raises(UserError, match=r"^model\.attention: should be 'eager', 'sdpa', .*, got 'flash'$"):
        compose_config(*QWEN3, "model.attention=flash")
    assert compose_config(*QWEN3, "model.attention=flash_attention_2").model.attention == "flash_attention_2"
    assert compose_config(*QWEN3, "model.attention=null").model.attention is None
    # Those with a bar are for serving.
    named = {name for name in ALL_ATTENTION_FUNCTIONS.valid_keys() if "|" not in name}
    assert set(get_args(Attention)) == {"eager", *named}
