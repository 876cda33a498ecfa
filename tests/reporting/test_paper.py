"""The paper's numbers stand beside ours only where the setting is the paper's."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
import yaml

from gradstarve.reporting.paper import Paper, the_paper
from gradstarve.reporting.study import read_study
from gradstarve.reporting.tables.accuracy import accuracy_table

MODEL = {
    "source": "hub", "name": "qwen3.5_9b", "id": "Qwen/Qwen3.5-9B", "revision": "0" * 40, "dtype": "bfloat16",
    "lora": {"rank": 64, "alpha": 128, "dropout": 0.0, "targets": "all-linear"}, "gradient_checkpointing": True,
    "attention": None,
}  # fmt: skip


@pytest.fixture
def gsm8k(outputs: Any, tmp_path: Path) -> Any:
    """Writes cells in the paper's setting, but for what is given otherwise."""
    data = tmp_path / "gsm8k.jsonl"
    data.write_text(json.dumps({"question": "1+1?", "answer": "#### 2"}) + "\n")

    def cell(
        advantage: str,
        rights: list[int],
        n: int = 1319,
        lora_rank: int = 64,
        train_questions: int | None = 7473,
        **keys: Any,
    ) -> None:
        model = copy.deepcopy(MODEL)
        model["lora"]["rank"] = lora_rank  # type: ignore[index]
        keys = {"learning_rate": 2.0e-5, "steps": 200} | keys
        for seed, right in enumerate(rights, 42):
            config = synthetic.config(
                outputs.path, advantage, 4, seed, dataset="gsm8k", model_config=model,
                dataset__train_path=str(data), dataset__eval_path=str(data), **keys,
            )  # fmt: skip
            synthetic.write_run(config, right, n, train_questions=train_questions)

    return cell


def test_beside_ours_in_the_papers_setting(outputs: Any, gsm8k: Any) -> None:
    gsm8k("sign", [900, 950])
    gsm8k("drgrpo", [400, 420])
    gsm8k("rloo", [400, 420])
    outputs.tables()
    rows = outputs.csv("table1-qwen3.5_9b-gsm8k")
    assert [rows[arm]["paper_mean"] for arm in ("sign", "drgrpo", "rloo")] == ["0.738", "0.284", ""]
    # Its text gives no KL coefficient, no limit, no temperature: no difference is claimed.
    assert rows["sign"]["to_paper"] == ""
    assert "KL coefficient" in outputs.text("table1-qwen3.5_9b-gsm8k")
    assert "| paper |" in outputs.text("table1-qwen3.5_9b-gsm8k")


def test_the_difference_stands_once_nothing_is_unknown(outputs: Any, gsm8k: Any) -> None:
    gsm8k("sign", [900, 950])
    paper = Paper({**the_paper().content, "not_given": []})
    (setting,) = read_study(outputs.path).settings
    row = accuracy_table(setting, 4, paper).row("sign")
    assert row.values["to_paper"] == pytest.approx(925 / 1319 - 0.738)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"learning_rate": 1.0e-4}, "learning_rate 0.0001, not 2e-05"),
        ({"steps": 100}, "steps 100, not 200"),
        ({"lora_rank": 8}, "model.lora.rank 8, not 64"),
        ({"prompts_per_step": 8}, "prompts_per_step 8, not 4"),
        ({"n": 100}, "100 questions, not 1319"),
        ({"dataset__train_limit": 50}, "dataset.train_limit 50, not none"),
        ({"train_questions": 1}, "1 training questions, not 7473"),
        ({"train_questions": None}, "an unknown number of training questions, not 7473"),
        ({"dataset__name": "mine"}, "dataset mine, not openai/gsm8k"),
        ({"evaluation__split": "train"}, "training questions asked"),
    ],
)
def test_left_out_with_the_reason_anywhere_else(outputs: Any, gsm8k: Any, keys: dict[str, Any], told: str) -> None:
    gsm8k("sign", [90, 95], **keys)
    outputs.tables()
    (file,) = [*(outputs.path / "tables").glob("table1-*.csv"), *(outputs.path / "tables").glob("accuracy-*.csv")]
    text = outputs.text(file.stem).replace("\\", "")
    assert "| paper |" not in text
    assert told in text
    assert outputs.csv(file.stem)["sign"]["paper_mean"] == ""


def test_another_replay_weight_has_no_number_of_the_papers(outputs: Any, gsm8k: Any) -> None:
    gsm8k("sign", [900, 950])
    gsm8k("sign_ce", [900, 950], parameters={"replay": synthetic.replay("cross_entropy") | {"weight": 0.5}})
    gsm8k("tasa_ce", [900, 950])
    outputs.tables()
    rows = outputs.csv("table1-qwen3.5_9b-gsm8k")
    assert [rows[arm]["paper_mean"] for arm in ("sign", "sign_ce", "tasa_ce")] == ["0.738", "", "0.498"]
    text = outputs.text("table1-qwen3.5_9b-gsm8k").replace("\\", "")
    assert "sign_ce has none, as its replay weight is 0.5, not 0.05" in text


def test_the_default_is_not_the_papers_setting(outputs: Any) -> None:
    outputs.cell("sign", [80, 84])
    assert "model tiny, not Qwen/Qwen3.5-9B" in " ".join(outputs.tables().split())


def test_the_numbers_are_those_of_the_papers_text(shared_data: Path) -> None:
    claims = shared_data.parent / "paper" / "claims.yaml"
    if not claims.is_file():
        pytest.skip(f"the paper's numbers are not at {claims}")
    theirs = yaml.safe_load(claims.read_text())
    ours = the_paper().content
    for arm, entry in theirs["table1"].items():
        if isinstance(entry, dict) and "mean" in entry:
            table = ours["accuracy"]["gsm8k"]
            assert (table["base"] if arm == "base" else table["g4"][arm])["mean"] == entry["mean"]
    for arm in ("sign", "drgrpo"):
        assert ours["accuracy"]["gsm8k"]["g8"][arm]["mean"] == theirs["table2"][arm]["mean"]
        for size in ("g4", "g8"):
            assert ours["accuracy"]["math500"][size][arm]["mean"] == theirs["math500"][size][arm]
    for model, entry in theirs["table3"].items():
        assert ours["models"][model].get("sign") == entry["sign"]
        assert ours["models"][model]["base"] == entry["base"]
