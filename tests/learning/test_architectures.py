"""The architectures of conf/model/, small, through the code that a run uses: LoRA, padding, checkpointing, resuming."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer, Qwen3_5TextConfig

from gradstarve.errors import UserError
from gradstarve.learning.adapters import check_adapter, reach
from gradstarve.learning.decoding import prompt_tokens
from gradstarve.learning.evaluation import evaluate
from gradstarve.learning.export import export
from gradstarve.learning.policy import load_policy, load_trained, lora
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.replay import Kept
from gradstarve.learning.run import execute
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.tasks import load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.runs import checkpoints
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.model_config import LoraConfig

from .small_models import (
    ARCHITECTURES,
    CONF,
    LLAMA_TOKENS,
    QWEN_TOKENS,
    chat_template,
    save_small_model,
    small_tokenizer,
    write_questions,
)

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED_DELTA = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
MLP = ("gate_proj", "up_proj", "down_proj")

Configure = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_small_model(name, folder / name) for name in ARCHITECTURES}


@pytest.fixture(scope="module")
def configure(small: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, compose_config: Any) -> Configure:
    """The config of conf/model/ for an architecture, with the small model in its place."""
    questions = write_questions(tmp_path_factory.mktemp("questions"))

    def configured(architecture: str, outputs: Path, *overrides: str) -> RunConfig:
        return compose_config(
            f"model={CONF[architecture]}", f"model.id={small[architecture]}", f"outputs={outputs}",
            "model.dtype=float32", "model.lora.rank=4", "model.lora.alpha=8", *questions,
            "advantage=sign", "learning_rate=0.01", "steps=2", "prompts_per_step=2", "group_size=2",
            "completion_limit=6", "checkpoint_every=1", "eval_every=0", "evaluation.limit=3", *overrides,
        )  # fmt: skip

    return configured


@pytest.fixture(scope="module")
def trained(configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunConfig]:
    """A finished run of an architecture, done once."""
    done: dict[str, RunConfig] = {}

    def run(architecture: str) -> RunConfig:
        if architecture not in done:
            done[architecture] = configure(architecture, tmp_path_factory.mktemp(architecture))
            execute(done[architecture])
        return done[architecture]

    return run


def make_trainer(config: RunConfig, adapter: bool = False) -> tuple[BinaryRewardTrainer, RunFolder]:
    """A trainer as a run makes it; with `adapter`, one whose adapter is not the zero that it starts with."""
    seed_everything(config.seed)
    task, folder = load_task(config.dataset), RunFolder.of(config)
    trainer = BinaryRewardTrainer(
        config, load_policy(config), task.train, task.grade, Recorder(folder, config), folder.checkpoints
    )
    if adapter:
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(weight, std=0.05)
    return trainer, folder


def wrapped_layers(model: nn.Module) -> list[str]:
    names = [name.removesuffix(".lora_A") for name, _ in model.named_modules() if name.endswith(".lora_A")]
    return sorted(name.removeprefix("base_model.model.") for name in names)


@pytest.mark.parametrize("name", ["qwen3_5_9b", "qwen3_5_2b", "qwen3_8b", "llama3_1_8b_instruct"])
def test_every_model_of_the_paper_is_a_choice(compose_config: Any, name: str, tmp_path: Path) -> None:
    questions = write_questions(tmp_path)
    config = compose_config(f"model={name}", *questions)
    assert (config.model.name, config.model.dtype, config.learning_rate) == (name, "bfloat16", 2e-5)
    assert (config.model.lora.rank, config.model.lora.alpha, config.model.lora.dropout) == (64, 128, 0.0)
    assert config.model.gradient_checkpointing and not config.dataset.prompt.thinking
    for moving in ("main", "null", config.model.revision[:8]):
        with pytest.raises(
            UserError, match=rf"^model\.revision: {moving} may move; pin a commit .*'{config.model.id}'"
        ):
            compose_config(f"model={name}", *questions, f"model.revision={moving}")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lora_wraps_every_linear_layer_but_the_head(configure: Configure, tmp_path: Path, architecture: str) -> None:
    config = configure(architecture, tmp_path)
    trainer, _ = make_trainer(config)
    expected = [
        f"model.layers.{layer}.mlp.{name}" for layer in range(4 if architecture == "qwen3_5" else 2) for name in MLP
    ]
    if architecture == "qwen3_5":
        expected += [f"model.layers.{layer}.linear_attn.{name}" for layer in (0, 1, 2) for name in GATED_DELTA]
        expected += [f"model.layers.3.self_attn.{name}" for name in ATTENTION]
    else:
        expected += [f"model.layers.{layer}.self_attn.{name}" for layer in (0, 1) for name in ATTENTION]
    assert wrapped_layers(trainer.model) == sorted(expected)
    assert all("lora_" in name for name, weight in trainer.model.named_parameters() if weight.requires_grad)

    said: list[str] = []
    load_policy(config, said.append)
    assert said == [f"LoRA wraps {len(expected)} of {len(expected)} linear layers, 100.0% of their weights"]


def test_attention_alone_misses_most_of_qwen3_5(configure: Configure, tmp_path: Path) -> None:
    said: list[str] = []
    few = configure("qwen3_5", tmp_path, f"model.lora.targets=[{','.join(ATTENTION)}]")
    load_policy(few, said.append)
    assert len(said) == 1 and said[0].startswith("warning: LoRA wraps 4 of 31 linear layers")
    assert wrapped_layers(make_trainer(few)[0].model) == sorted(f"model.layers.3.self_attn.{n}" for n in ATTENTION)

    # At the real size, which is what transformers' defaults for this architecture are: nothing is allocated.
    with torch.device("meta"):
        real = AutoModelForCausalLM.from_config(Qwen3_5TextConfig())
    attention = reach(real, LoraConfig(64, 128, 0.0, list(ATTENTION)))
    all_of_it = reach(real, LoraConfig(64, 128, 0.0, [*ATTENTION, *GATED_DELTA, *MLP]))
    assert (attention.wrapped, all_of_it.wrapped, all_of_it.layers) == (32, 248, 248)
    assert attention.share == pytest.approx(0.0679, abs=1e-4) and all_of_it.share == 1
    assert reach(real, LoraConfig(64, 128, 0.0, "all-linear")) == all_of_it


def test_reach_counts_what_peft_wraps(configure: Configure, tmp_path: Path) -> None:
    for targets in ("all-linear", r"'.*layers\.[02]\..*_proj'", "[mlp.up_proj,in_proj_a]"):
        config = configure("qwen3_5", tmp_path, f"model.lora.targets={targets}")
        trainer, _ = make_trainer(config)
        assert config.model.lora is not None
        counted = reach(load_policy(config).model, config.model.lora)
        assert counted.wrapped == len(wrapped_layers(trainer.model)) > 0


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("[q_proj,in_proj_qvk]", r"no module is called 'in_proj_qvk'\. Did you mean 'in_proj_qkv'"),
        ("'.*qkvz'", r"no module's name matches '\.\*qkvz'"),
    ],
)
def test_a_target_that_is_nothing_is_refused(configure: Configure, tmp_path: Path, targets: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^model\.lora\.targets: {message}"):
        load_policy(configure("qwen3_5", tmp_path, f"model.lora.targets={targets}"))


def test_the_text_model_of_a_vision_language_checkpoint_is_the_same_model(
    configure: Configure, small: dict[str, Path], tmp_path: Path
) -> None:
    whole = AutoModelForImageTextToText.from_pretrained(small["qwen3_5"])
    policy = load_policy(configure("qwen3_5", tmp_path))
    assert type(policy.model).__name__ == "Qwen3_5ForCausalLM"
    ids = policy.tokenizer("Ann has 3 apples", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert torch.equal(policy.model(ids).logits, whole(ids).logits)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_left_padded_batches_equal_single_prompts(configure: Configure, tmp_path: Path, architecture: str) -> None:
    # top_p so small that sampling takes the likeliest token, in the code that samples.
    config = configure(architecture, tmp_path, "rollout.top_p=1e-9", "completion_limit=12")
    trainer, _ = make_trainer(config, adapter=True)
    trainer.model.train()
    prompts = [question.prompt for question in trainer.questions]
    prompt_ids = trainer._generate(prompts)[0]
    assert len({len(ids) for ids in prompt_ids}) == len(prompts)
    together = trainer._generate(prompts)[1]
    assert together == [trainer._generate([prompt])[1][0] for prompt in prompts]

    rows = [(question.id, Kept(tuple(ids), 1)) for question, ids in zip(trainer.questions, together, strict=True)]
    # Of unlike lengths, so that the batch is padded on both sides.
    rows = [(name, Kept(kept.tokens[: 3 + place], 1)) for place, (name, kept) in enumerate(rows)]
    with torch.no_grad():
        batched, mask = trainer._log_probs(trainer.model, rows)
        for place, row in enumerate(rows):
            alone, _ = trainer._log_probs(trainer.model, [row])
            length = int(mask[place].sum())
            assert length == 3 + place
            assert torch.allclose(batched[place, :length], alone[0], atol=1e-5)

    task, texts = load_task(config.dataset), []
    for batch_size in (1, 4):
        ours = replace(config, evaluation=replace(config.evaluation, batch_size=batch_size, limit=4))
        evaluate(trainer.model, trainer.processing_class, task, ours, 0, tmp_path / str(batch_size))
        texts.append(pd.read_parquet(tmp_path / str(batch_size) / "step-000000.parquet")["completion"].tolist())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradient_checkpointing_changes_nothing_but_the_work(
    configure: Configure, tmp_path: Path, architecture: str
) -> None:
    weights, rows, logs, lengths = [], [], [], []
    for place, switch in enumerate(("true", "false")):
        config = configure(
            architecture, tmp_path / switch, f"model.gradient_checkpointing={switch}", "checkpoint_every=0"
        )
        trainer, folder = make_trainer(config)
        seen: list[tuple[bool, int]] = []
        model: Any = trainer.model
        model.base_model.model.model.layers[0].mlp.register_forward_pre_hook(
            lambda module, inputs, seen=seen: seen.append((torch.is_grad_enabled(), inputs[0].shape[1]))
        )
        trainer.train()
        assert model.is_gradient_checkpointing == (place == 0)
        lengths.append(seen)
        weights.append({name: w.detach().clone() for name, w in model.named_parameters() if w.requires_grad})
        rows.append(folder.read("completions"))
        logs.append([(row["loss"], row["grad_norm"]) for row in trainer.state.log_history if "grad_norm" in row])
    # The rollouts are the same tokens, made with a cache: a prompt at once, then a token at a time.
    pd.testing.assert_frame_equal(*rows)
    generated = [length for graded, length in lengths[0] if not graded]
    assert generated == [length for graded, length in lengths[1] if not graded]
    assert generated.count(1) == 2 * (6 - 1)
    assert logs[0] == logs[1] and any(norm > 0 for _, norm in logs[0])
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    # And a checkpointed layer is computed again on the way back.
    graded = [sum(graded for graded, _ in seen) for seen in lengths]
    assert graded[1] == 2 and graded[0] == 2 * graded[1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_resumed_equals_uninterrupted(
    trained: Callable[[str], RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    whole = trained(architecture)
    broken = replace(whole, outputs=str(tmp_path))

    class Stopped(BaseException):
        pass

    append = RunFolder.append

    def appended(self: RunFolder, table: Any, rows: Any) -> None:
        append(self, table, rows)
        if table == "steps" and rows[-1]["step"] == 2:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", appended)
        with pytest.raises(Stopped):
            execute(broken)
    found = checkpoints.newest_whole(RunFolder.of(broken).checkpoints)
    assert found is not None and found.step == 1
    execute(broken)
    folders = [RunFolder.of(config) for config in (whole, broken)]
    pd.testing.assert_frame_equal(*[folder.read("completions") for folder in folders])
    first, second = [load_file(folder.weights / "adapter_model.safetensors") for folder in folders]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    answers = [pd.read_parquet(next(folder.path.glob("evaluations/*/*.parquet"))) for folder in folders]
    pd.testing.assert_frame_equal(*answers)


def test_an_exported_policy_is_loaded_by_another_process(trained: Callable[[str], RunConfig], tmp_path: Path) -> None:
    """One process for the three: nothing of ours is imported in it."""
    for architecture in ARCHITECTURES:
        export(RunFolder.of(trained(architecture)), tmp_path / architecture)
    script = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
found = {}
for folder in sys.argv[1:]:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Ann has 3 apples", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        found[folder] = [type(model).__name__, model(ids).logits[0].tolist(), model.generation_config.eos_token_id,
                         tokenizer.chat_template, any(name.startswith("gradstarve") for name in sys.modules)]
print(json.dumps(found))
"""
    folders = [str(tmp_path / architecture) for architecture in ARCHITECTURES]
    printed = subprocess.run(
        [sys.executable, "-c", script, *folders], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    for architecture, (class_name, logits, ends, template, ours) in zip(
        ARCHITECTURES, json.loads(printed).values(), strict=True
    ):
        config = trained(architecture)
        policy, untrained = load_trained(config, RunFolder.of(config).weights), load_policy(config)
        ids = policy.tokenizer("Ann has 3 apples", return_tensors="pt")["input_ids"]
        with torch.no_grad():
            expected, before = policy.model(ids).logits[0], untrained.model(ids).logits[0]
        assert torch.allclose(torch.tensor(logits), expected, atol=1e-4)
        assert not torch.allclose(expected, before, atol=1e-2)
        assert class_name == type(untrained.model).__name__ and not ours
        assert ends == untrained.model.generation_config.eos_token_id
        assert template == untrained.tokenizer.chat_template


def test_bfloat16_as_the_configs_have_it(configure: Configure, tmp_path: Path) -> None:
    """The dtypes of a run on a GPU: weights in bfloat16, adapter in float32; merged with one rounding."""
    config = configure("qwen3_5", tmp_path, "model.dtype=bfloat16")
    execute(config)
    folder = RunFolder.of(config)
    adapter = load_file(folder.weights / "adapter_model.safetensors")
    assert {weight.dtype for weight in adapter.values()} == {torch.float32}
    assert all(torch.isfinite(weight).all() for weight in adapter.values())

    export(folder, tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    base = load_policy(config).model
    assert merged.dtype == base.dtype == torch.bfloat16
    name = "model.layers.0.linear_attn.in_proj_qkv"
    down, up = (adapter[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
    exact = base.get_submodule(name).weight.float() + config.model.lora.alpha / config.model.lora.rank * up @ down  # type: ignore[union-attr]
    assert torch.equal(merged.get_submodule(name).weight, exact.to(torch.bfloat16))
    assert not torch.equal(merged.get_submodule(name).weight, base.get_submodule(name).weight)


def test_an_adapter_of_the_other_class_is_an_error(
    trained: Callable[[str], RunConfig], small: dict[str, Path], tmp_path: Path
) -> None:
    """peft warns, and goes on with an adapter that does nothing."""
    from peft import PeftModel, get_peft_model

    config = trained("qwen3_5")
    weights = RunFolder.of(config).weights
    whole = AutoModelForImageTextToText.from_pretrained(small["qwen3_5"])
    with pytest.warns(UserWarning, match="missing adapter keys"):
        other = PeftModel.from_pretrained(whole, str(weights))
    with pytest.raises(ValueError, match=r"adapter weights fit no module, such as base_model\.model\.model\.layers"):
        check_adapter(other, weights)

    fresh = AutoModelForImageTextToText.from_pretrained(small["qwen3_5"])
    get_peft_model(fresh, lora(config.model.lora)).save_pretrained(tmp_path)
    with (
        pytest.warns(UserWarning, match="missing adapter keys"),
        pytest.raises(
            ValueError, match=r"adapter weights fit no module, such as base_model\.model\.model\.language_model"
        ),
    ):
        load_trained(config, tmp_path)


def test_an_adapter_that_lacks_weights_is_an_error(trained: Callable[[str], RunConfig], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    config = trained("llama")
    weights = RunFolder.of(config).weights
    kept = load_file(weights / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_bytes((weights / "adapter_config.json").read_bytes())
    save_file({name: w for name, w in kept.items() if "layers.1." not in name}, tmp_path / "adapter_model.safetensors")
    with (
        pytest.warns(UserWarning, match="missing adapter keys"),
        pytest.raises(ValueError, match=r"the adapter lacks 14 of the model's weights"),
    ):
        load_trained(config, tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_prompt_ends_where_the_answer_begins_with_no_thinking(
    configure: Configure, tmp_path: Path, architecture: str
) -> None:
    config = configure(architecture, tmp_path)
    trainer, _ = make_trainer(config)
    question = trainer.questions[0]
    (tokens,), *_ = trainer._tokenize_prompts([question.prompt])
    assert tokens == prompt_tokens(trainer.processing_class, question, config.dataset)
    text = trainer.processing_class.decode(tokens)
    assert "1+1?" in text
    assert text.endswith(
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        if architecture == "llama"
        else "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    if architecture == "llama":
        # One beginning of text, and no date but the template's own: a prompt must not change with the day.
        assert text.count("<|begin_of_text|>") == 1
        assert re.findall(r"Today Date: .*", text) == ["Today Date: 26 Jul 2024"]


def test_what_a_chat_template_cannot_do_is_refused(
    configure: Configure, small: dict[str, Path], tmp_path: Path
) -> None:
    def with_template(template: str | None) -> str:
        folder = tmp_path / "model"
        AutoModelForCausalLM.from_pretrained(small["qwen3"]).save_pretrained(folder)
        tokenizer = small_tokenizer("qwen3")
        tokenizer.chat_template = template
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        tokenizer.save_pretrained(folder)
        return f"model.id={folder}"

    refused = pytest.raises(UserError, match=r"^model qwen3_8b: its tokenizer has no chat template")
    with refused:
        load_policy(configure("qwen3", tmp_path, with_template(None)))
    load_policy(configure("qwen3", tmp_path, with_template(None), "dataset.prompt.chat=false"))
    always = with_template(chat_template("deepseek_r1_distill"))
    with pytest.raises(UserError, match=r"opens <think> although dataset\.prompt\.thinking is false"):
        load_policy(configure("qwen3", tmp_path, always))
    load_policy(configure("qwen3", tmp_path, always, "dataset.prompt.thinking=true"))
    with pytest.raises(UserError, match=r"^dataset\.prompt\.thinking: .* has no thinking; set it to false"):
        load_policy(configure("llama", tmp_path, "dataset.prompt.thinking=true"))
    load_policy(configure("qwen3_5", tmp_path, "dataset.prompt.thinking=true"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_end_token_ends_a_completion_and_no_other_setting_of_the_model_counts(
    configure: Configure, tmp_path: Path, architecture: str
) -> None:
    trainer, _ = make_trainer(configure(architecture, tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(configure(architecture, tmp_path).model.id)  # type: ignore[union-attr]
    ends = ("<|end_of_text|>", "<|eot_id|>") if architecture == "llama" else ("<|im_end|>", "<|endoftext|>")
    assert set(ends) <= {*LLAMA_TOKENS, *QWEN_TOKENS}
    assert sorted(trainer.eos_token_ids) == sorted(tokenizer.convert_tokens_to_ids(list(ends)))
    model: Any = trainer.model
    for setting in ("repetition_penalty", "top_k", "top_p", "temperature"):
        assert getattr(model.generation_config, setting) in (None, 1.0, 0), setting


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="flash_attn is installed here")
def test_an_attention_that_is_not_installed_is_one_line(configure: Configure, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^model\.attention: flash_attention_2 cannot be used here"):
        load_policy(configure("qwen3", tmp_path, "model.attention=flash_attention_2"))
