"""The section "# estimates" that a dry run prints: what it says of a setting, and what it adds up."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from gradstarve.launching.estimate import estimate
from gradstarve.launching.estimate_text import settings_of
from gradstarve.launching.jobs import jobs_of
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import LAYOUT, RunFolder
from gradstarve.runs.signature import evaluation_name
from tests.conftest import ComposeConfig

from .conftest import RUN_PY, Door
from .estimated_models import CONFIGS, LARGE, NO_LORA, built, counted


def section(out: str) -> list[str]:
    """The lines of the estimates; what stands before them, and they themselves, are YAML still."""
    head, found, rest = out.partition("# estimates")
    assert found
    lines, ran, _ = rest.partition("# runs\n")
    assert ran
    assert yaml.safe_load(head + found + lines) == yaml.safe_load(head)
    assert all(line.startswith("#") for line in lines.splitlines()[1:])
    return lines.splitlines()


def find(lines: Sequence[str], word: str) -> str:
    return next(line for line in lines if word in line)


def test_the_section_says_what_fits_and_what_does_not(door: Door, tmp_path: Path) -> None:
    answer = door("dry_run=true", *LARGE, "completion_limit=1024")
    assert (answer.code, answer.err) == (0, "")
    lines = section(answer.out)
    assert "8,953,803,264 parameters" in find(lines, "model qwen3_5_9b")
    assert "not measured" in lines[0] and "docs/sizing.md" in lines[0]
    assert "fits" in find(lines, "H200") and "does not fit" not in find(lines, "H200")
    assert "does not fit; with completions_per_pass=" in find(lines, "H100 80 GB")
    assert "neither checkpointing nor smaller passes make it" in find(lines, "RTX 4090")
    assert f"at most: {120 * 64 * 1024:,} sampled" in find(lines, "tokens, at most")
    assert "8,953,803,264 x 2 bytes (bfloat16)" in find(lines, " weights ")
    assert list(tmp_path.iterdir()) == []


def test_all_weights_of_9b_fit_no_gpu_here_but_lora_would(door: Door) -> None:
    lines = section(door("dry_run=true", *LARGE, NO_LORA).out)
    assert "all weights trained need" in find(lines, "H100 80 GB")
    assert "model.lora trains fewer" in find(lines, "H100 80 GB")


def test_what_rounds_to_nothing_is_said_in_words(door: Door) -> None:
    lines = section(door("dry_run=true").out)
    assert find(lines, "H100 80 GB").endswith("fits; under 0.01 GPU hours, estimated")
    assert find(lines, " weights ").split()[2:4] == ["under", "0.01"]
    assert "under 0.01 on H200 141 GB" in lines[-1]
    assert not re.search(r"\de-\d|\b0\.0+\b", "\n".join(lines))


def test_where_nothing_is_known_a_dry_run_still_says_so(door: Door) -> None:
    answer = door(
        "dry_run=true",
        "model=qwen3_8b",
        "model.id=some/unheard-of-model",
        "dataset=gsm8k",
        "dataset.hub_id=some/data",
    )
    assert (answer.code, answer.err) == (0, "")
    lines = section(answer.out)
    assert "shape not known here: fetch the model first" in find(lines, "model qwen3_8b")
    assert "evaluation not counted" in find(lines, "tokens, at most")
    assert "the questions are not known here" in find(lines, "tokens, at most")
    assert "GPU hours not known" in lines[-1]


def test_a_local_folder_says_its_shape(door: Door, tmp_path: Path) -> None:
    CONFIGS["qwen3_5, tied"].save_pretrained(tmp_path / "model")
    count = counted(built(CONFIGS["qwen3_5, tied"]))
    lines = section(door("dry_run=true", "model=qwen3_5_2b", f"model.id={tmp_path / 'model'}", "dataset=gsm8k").out)
    assert f"{count:,} parameters" in find(lines, "model qwen3_5_2b")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "gpt2"}')
    lines = section(door("dry_run=true", "model=qwen3_5_2b", f"model.id={tmp_path / 'model'}", "dataset=gsm8k").out)
    assert "the architecture gpt2 is not counted here" in find(lines, "model qwen3_5_2b")
    (tmp_path / "model" / "config.json").write_text("{")
    lines = section(door("dry_run=true", "model=qwen3_5_2b", f"model.id={tmp_path / 'model'}", "dataset=gsm8k").out)
    assert "not readable" in find(lines, "model qwen3_5_2b")


def finished(config: RunConfig, trained_only: bool) -> None:
    """The two files that make a run done, or trained."""
    folder = RunFolder.of(config)
    evaluation = folder.path / "evaluations" / evaluation_name(config)
    evaluation.mkdir(parents=True)
    (folder.path / "result.json").write_text(json.dumps({"layout": LAYOUT, "run": folder.name}))
    if not trained_only:
        (evaluation / "summary.json").write_text("{}")


def test_done_runs_cost_nothing_and_the_rest_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compose_config: ComposeConfig
) -> None:
    monkeypatch.chdir(tmp_path)
    default = compose_config()
    configs = [dataclasses.replace(default, seed=seed, group_size=g) for seed in (1, 2, 3) for g in (4, 8)]
    one = {config.group_size: estimate(config) for config in configs}

    def sampled() -> int:
        return sum(setting.runs * setting.estimate.tokens_sampled for setting in settings_of(jobs_of(configs)))

    assert [setting.runs for setting in settings_of(jobs_of(configs))] == [3, 3]
    assert sampled() == 3 * one[4].tokens_sampled + 3 * one[8].tokens_sampled
    finished(configs[0], trained_only=False)
    assert sampled() == 2 * one[4].tokens_sampled + 3 * one[8].tokens_sampled
    finished(configs[1], trained_only=True)
    assert sampled() == 2 * one[4].tokens_sampled + 2 * one[8].tokens_sampled
    left = [setting for setting in settings_of(jobs_of(configs)) if setting.trained]
    assert [(setting.runs, setting.estimate.tokens_evaluated) for setting in left] == [(1, 400 * 12)]


def test_two_evaluations_of_a_run_train_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compose_config: ComposeConfig
) -> None:
    monkeypatch.chdir(tmp_path)
    default = compose_config("eval_every=0")
    configs = [
        dataclasses.replace(default, evaluation=dataclasses.replace(default.evaluation, limit=limit))
        for limit in (10, 20)
    ]
    settings = settings_of(jobs_of(configs))
    assert [(s.runs, s.estimate.tokens_sampled, s.estimate.tokens_evaluated) for s in settings] == [
        (1, 120 * 16 * 12, 120),
        (1, 0, 240),
    ]


def test_a_sweep_says_each_setting_and_the_whole(door: Door) -> None:
    lines = section(door("-m", "advantage=sign,drgrpo,sign_ce,base", "seed=1..3", "dry_run=true").out)
    assert find(lines, "6 x no replay").startswith("#   6 x no replay: ")
    assert find(lines, "3 x cross_entropy") and find(lines, "1 x untrained")
    sampled, evaluated = 9 * 120 * 16 * 12, 9 * 9600 + 4800
    assert f"in all, 10 to do: at most {sampled:,} tokens sampled and {evaluated:,} evaluated" in lines[-1]
    assert "GPU hours, estimated" in lines[-1]


def test_the_estimate_imports_no_torch(tmp_path: Path) -> None:
    """Neither for a model of the hub nor for a GGUF file: a dry run of many runs takes seconds."""
    program = (
        "import runpy, sys\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print(sorted({'torch', 'transformers', 'trl', 'peft', 'datasets'} & set(sys.modules)))\n"
    )
    typed = ["-m", "model=qwen3_5_9b,smollm2_135m", "dataset=gsm8k", "dry_run=true"]
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = {[str(RUN_PY), *typed]!r}\n{program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "# estimates" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"
