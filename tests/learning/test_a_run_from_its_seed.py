"""Through a run's own door: what two seeds share, what one repeats, and what a run says of itself."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gradstarve.learning.provenance import provenance
from gradstarve.learning.run import execute
from gradstarve.runs.folder import RunFolder

SHORT = ("steps=1", "eval_every=0", "checkpoint_every=0", "evaluation.limit=2")
LORA = "model.lora={rank: 4, alpha: 8, dropout: 0.0, targets: all-linear}"


def test_two_seeds_begin_with_unlike_adapters_and_one_repeats(quick: tuple[str, ...], compose_config: Any) -> None:
    def begun(seed: int) -> tuple[dict[str, torch.Tensor], list[str]]:
        # A step too small to be seen: the adapter that is kept is the one that training began with.
        config = compose_config(*quick, *SHORT, LORA, f"seed={seed}", "learning_rate=1e-12")
        # Every fresh process begins alike: what is drawn before the run is seeded is the same for all seeds.
        torch.manual_seed(0)
        execute(config)
        folder = RunFolder.of(config)
        kept = load_file(folder.weights / "adapter_model.safetensors")
        completions = folder.read("completions")["completion"].tolist()
        shutil.rmtree(folder.path)
        return {name: weight for name, weight in kept.items() if "lora_A" in name}, completions

    (first, texts), (again, texts_again), (other, other_texts) = begun(42), begun(42), begun(43)
    assert first.keys() == other.keys() and len(first) > 3
    for name, weight in first.items():
        assert torch.equal(weight, again[name]), name
        assert not torch.allclose(weight, other[name], atol=1e-3), name
    assert texts == texts_again != other_texts


def test_a_run_says_its_formula_its_truncation_and_that_its_code_has_changed(
    quick: tuple[str, ...], compose_config: Any
) -> None:
    config = compose_config(*quick, *SHORT, "advantage=drgrpo", "completion_limit=1")
    folder = RunFolder.of(config)
    # It was begun with other code, before an interruption.
    earlier = {**provenance(), "code": {"commit": "b" * 40, "dirty": False}}
    folder.write_provenance({**earlier, "sessions": [earlier], "mixed": False})
    said: list[str] = []
    execute(config, said.append)

    formula = "(r - n_plus/G) / sample std of the group (ddof = 1); 0 in dead groups"
    assert f"advantage drgrpo: {formula}; reward: the grader's verdict" in said
    result = folder.result()
    assert result is not None and result["resolved_formula"] == formula

    truncated = result["evaluation"]["truncated"]
    assert truncated > 0.2 and result["shares"]["truncated"] > 0.2
    told = f"warning: {truncated:.0%} of the evaluated completions were cut off at 1 tokens"
    assert [line for line in said if line.startswith(told)]
    early = f"warning: {result['shares']['truncated']:.0%} of the completions of the first 1 steps were cut off at"
    assert len([line for line in said if line.startswith(early)]) == 1

    # Two versions of the code are no version: the run is marked as one with uncommitted changes is.
    assert folder.provenance()["mixed"] is True and len(folder.provenance()["sessions"]) == 2
    assert result["code"] == {"commit": "b" * 40, "dirty": True}


@pytest.mark.parametrize("advantage", ["tasa", "base"])
def test_what_a_run_is_made_of_is_in_its_result(quick: tuple[str, ...], compose_config: Any, advantage: str) -> None:
    config = compose_config(*quick, *SHORT, f"advantage={advantage}")
    execute(config)
    result = RunFolder.of(config).result()
    assert result is not None
    trains = advantage != "base"
    assert result["resolved_formula"].endswith("(c = 0.5)" if trains else "untrained")
    assert result["unverifiable"] == (0 if trains else None)
    assert (result["evaluation"]["n"], result["evaluation"]["unverifiable"]) == (2, 0)
