"""Names hold: written in the past they stay, and what must change them does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gradstarve.errors import UserError
from gradstarve.runs.config import plain_config, read_config
from gradstarve.runs.signature import cell_key, evaluation_name, model_key, run_name, setting_key

# Written on 2026-11-30. A change here renames finished runs: their owners would pay for them again.
WRITTEN = {
    (): "sign-g4-s42-d12dbbe2",
    ("advantage=drgrpo", "seed=48", "group_size=8"): "drgrpo-g8-s48-34eb42b4",
    ("advantage=sign_ce",): "sign_ce-g4-s42-dce647d4",
    ("advantage=base",): "base-944524e1",
    ("model=smollm2_135m", "dataset=gsm8k", "advantage=tasa"): "tasa-g4-s42-6503983d",
}


@pytest.mark.parametrize("overrides", list(WRITTEN))
def test_names_written_in_the_past_still_hold(compose_config: Any, overrides: tuple[str, ...]) -> None:
    assert run_name(compose_config(*overrides)) == WRITTEN[overrides]


@pytest.mark.parametrize(
    "override",
    [
        "outputs=elsewhere", "dry_run=true", "eval_every=1", "checkpoint_every=7", "completions_per_pass=2",
        "evaluation.limit=5", "evaluation.greedy=false", "model.name=other", "dataset.name=other",
        "dataset.eval_size=7", "dataset@evaluation=longer_sums", "model.gradient_checkpointing=true", "advantage.c=0.5",
    ],
)  # fmt: skip
def test_where_and_how_it_is_run_leaves_the_name(compose_config: Any, override: str) -> None:
    assert run_name(compose_config("advantage=tasa", override)) == run_name(compose_config("advantage=tasa"))


@pytest.mark.parametrize(
    "override",
    [
        "steps=201", "learning_rate=0.0002", "completion_limit=15", "prompts_per_step=8", "loss.kl=0.01",
        "loss.aggregation=dapo", "optimizer.max_grad_norm=0.5", "model.hidden_size=48", "dataset.train_size=999",
        "model.warm_start.seed=1", "rollout.temperature=0.9", "advantage.c=0.4",
        "model.lora={rank: 4, alpha: 8, dropout: 0.0, targets: all-linear}",
    ],
)  # fmt: skip
def test_what_changes_training_changes_the_name(compose_config: Any, override: str) -> None:
    before, after = compose_config("advantage=tasa"), compose_config("advantage=tasa", override)
    assert run_name(before) != run_name(after)
    assert cell_key(before) != cell_key(after)
    assert (setting_key(before) == setting_key(after)) == override.startswith("advantage.")


def test_seeds_share_a_cell_and_arms_share_a_setting(compose_config: Any) -> None:
    sign, other_seed = compose_config(), compose_config("seed=43")
    drgrpo = compose_config("advantage=drgrpo", "group_size=8")
    assert cell_key(sign) == cell_key(other_seed) != cell_key(drgrpo)
    assert setting_key(sign) == setting_key(other_seed) == setting_key(drgrpo)
    assert model_key(sign) == model_key(compose_config("advantage=base"))


def test_base_has_no_seed_and_no_group(compose_config: Any) -> None:
    names = {
        run_name(compose_config("advantage=base", *more))
        for more in ((), ("seed=7",), ("group_size=8",), ("steps=3",), ("learning_rate=1",))
    }
    assert len(names) == 1
    assert names != {run_name(compose_config("advantage=base", "model.hidden_size=48"))}


def test_an_evaluation_is_what_is_asked_and_how(compose_config: Any) -> None:
    name = evaluation_name(compose_config())
    assert evaluation_name(compose_config("seed=9", "advantage=tasa", "evaluation.batch_size=1")) == name
    assert evaluation_name(compose_config("evaluation.seed=9", "evaluation.samples=4")) == name  # greedy reads neither
    for override in (
        "evaluation.limit=5",
        "completion_limit=9",
        "dataset.eval_size=9",
        "evaluation.greedy=false",
        "evaluation.split=train",
        "dataset@evaluation=longer_sums",
    ):
        assert evaluation_name(compose_config(override)) != name


def test_a_local_file_is_what_it_contains(compose_config: Any, tmp_path: Path) -> None:
    def named(file: Path) -> str:
        return run_name(
            compose_config(
                "model=smollm2_135m", "dataset=gsm8k", f"dataset.train_path={file}", f"dataset.eval_path={file}"
            )
        )

    one, copy, other = tmp_path / "one.jsonl", tmp_path / "copy.jsonl", tmp_path / "other.jsonl"
    one.write_text(json.dumps({"question": "1+1?", "answer": "#### 2"}) + "\n")
    copy.write_bytes(one.read_bytes())
    other.write_text(json.dumps({"question": "1+2?", "answer": "#### 3"}) + "\n")
    assert named(one) == named(copy) != named(other)
    with pytest.raises(UserError, match=r"^dataset\.train_path: no such file: "):
        named(tmp_path / "absent.jsonl")


def test_a_config_survives_its_file(compose_config: Any) -> None:
    for overrides in WRITTEN:
        config = compose_config(*overrides)
        again = read_config(json.loads(json.dumps(plain_config(config))))
        assert again == config and run_name(again) == run_name(config)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("group_size=1", "group_size: a group needs at least 2 completions to be compared, got 1"),
        ("steps=0", "steps: should be greater than or equal to 1, got 0"),
        ("steps=many", "steps: should be a valid integer, got 'many'"),
        ("seed=4.5", "seed: should be a valid integer, got 4.5"),
        ("+lerning_rate=1", "lerning_rate: unknown key. Did you mean 'learning_rate'?"),
        ("+loss.klp=1", "loss.klp: unknown key. Did you mean 'kl'?"),
        ("+model.warm_start.step=1", "model.warm_start.step: unknown key. Did you mean 'steps' or"),
        ("advantage.c=2", "advantage: tasa"),
        ("+advantage.d=2", "advantage: advantage 'tasa' has no parameter 'd'. Known: c."),
        ("completions_per_pass=5", "completions_per_pass: 5 does not divide the 16 completions of a step"),
        ("dataset=gsm8k", "model=tiny and dataset=gsm8k do not go together"),
        ("loss.aggregation=mean", "loss.aggregation: should be 'grpo', 'bnpo', 'dapo' or 'dr_grpo', got 'mean'"),
        ("dataset.operand_shares={2: 0.5}", "dataset.operand_shares: shares should add up to 1, got 1.35"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(compose_config: Any, override: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        compose_config("advantage=tasa", override)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_packed_file_will_do(compose_config: Any, tmp_path: Path) -> None:
    packed = tmp_path / "one.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"question": "1+1?", "answer": "#### 2"}\n', mtime=0))
    config = compose_config(
        "model=smollm2_135m", "dataset=gsm8k", f"dataset.train_path={packed}", f"dataset.eval_path={packed}"
    )
    assert run_name(config).startswith("sign-g4-s42-")
