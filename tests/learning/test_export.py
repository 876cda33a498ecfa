"""`gradstarve export`: a run's final policy as a plain folder, whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gradstarve.cli import main
from gradstarve.errors import UserError
from gradstarve.learning.export import export
from gradstarve.learning.policy import load_policy, load_trained
from gradstarve.learning.run import execute
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder

LORA = "model.lora={rank: 4, alpha: 8, dropout: 0.0, targets: all-linear}"


def logits(model: Any, tokenizer: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**tokenizer("1+2=", return_tensors="pt")).logits
    return found


@pytest.mark.parametrize("lora", [(), (LORA,)], ids=["all-weights", "lora"])
def test_the_exported_folder_is_the_trained_policy(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], lora: tuple[str]
) -> None:
    config: RunConfig = compose_config(*quick, *lora, "learning_rate=0.01", "steps=2", "eval_every=0")
    execute(config)
    folder, target = RunFolder.of(config), tmp_path / "new" / "policy"
    capsys.readouterr()
    assert main(["export", folder.name[:6], str(target), "--outputs", config.outputs]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert [path.name for path in target.parent.iterdir()] == ["policy"]
    assert not list(target.glob("adapter*"))

    model, tokenizer = AutoModelForCausalLM.from_pretrained(target), AutoTokenizer.from_pretrained(target)
    trained, before = load_trained(config, folder.weights), load_policy(config)
    assert torch.allclose(logits(model, tokenizer), logits(trained.model, trained.tokenizer), atol=1e-4)
    assert not torch.allclose(logits(model, tokenizer), logits(before.model, before.tokenizer), atol=1e-2)
    assert tokenizer("12+7=", add_special_tokens=False)["input_ids"] == before.tokenizer("12+7=")["input_ids"]

    written = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    assert main(["export", str(folder.path), str(target)]) == 2
    assert "is there already; name a folder that is not" in capsys.readouterr().err
    assert written == {path: path.stat().st_mtime_ns for path in target.iterdir()}


def test_what_has_nothing_to_export_is_refused(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = compose_config(*quick, "advantage=base")
    execute(base)
    target = tmp_path / "policy"
    with pytest.raises(UserError, match=r"^base-[0-9a-f]{8} trained nothing: its model is tiny as it was$"):
        export(RunFolder.of(base), target)
    begun = compose_config(*quick)
    RunFolder.of(begun).write_config(begun)
    with pytest.raises(UserError, match=r"has no final weights: it has not been trained to its end$"):
        export(RunFolder.of(begun), target)
    (tmp_path / "file").write_text("")
    assert main(["export", "sgin", str(target), "--outputs", base.outputs]) == 2
    assert "no run 'sgin' in" in capsys.readouterr().err
    assert not target.exists()


def test_an_export_that_fails_leaves_nothing(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    config = compose_config(*quick, LORA, "steps=1", "eval_every=0")
    execute(config)
    folder = RunFolder.of(config)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/policy cannot be written: Not a directory$"):
        export(folder, tmp_path / "file" / "policy")
    adapter = folder.weights / "adapter_model.safetensors"
    adapter.write_bytes(adapter.read_bytes()[:100])
    (tmp_path / "place").mkdir()
    with pytest.raises(Exception, match=r"[Hh]eader|safetensors"):
        export(folder, tmp_path / "place" / "policy")
    assert not list((tmp_path / "place").iterdir())
