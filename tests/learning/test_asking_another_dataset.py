"""Weights trained on one data set and asked another one: `dataset@evaluation=NAME`, without training again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradstarve.cli import main
from gradstarve.errors import UserError
from gradstarve.launching.fetching import fetch
from gradstarve.learning.decoding import ask
from gradstarve.learning.run import execute
from gradstarve.learning.tasks import load_task, task_asked
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_identity, evaluation_name, run_name

from .small_models import save_small_model, small_tokenizer, write_questions

LONGER = ("dataset@evaluation=longer_sums", "evaluation.dataset.eval_size=5")
# Asked as MATH-500 is: the golds are LaTeX, the answer is in the last box.
MATHEMATICS = [
    {"problem": "What is half of one?", "answer": r"\frac{1}{2}"},
    {"problem": "What is 2+3?", "answer": "5"},
]


@pytest.fixture
def mathematics(tmp_path: Path) -> list[str]:
    file = tmp_path / "mathematics.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in MATHEMATICS), encoding="utf-8")
    return ["dataset@evaluation=math500", f"evaluation.dataset.eval_path={file}"]


@pytest.fixture
def chat(tmp_path: Path, compose_config: Any) -> Any:
    """A config with a small Qwen3 and questions in GSM8K's form."""
    model, questions = save_small_model("qwen3", tmp_path / "qwen3"), write_questions(tmp_path)

    def configured(*more: str) -> RunConfig:
        return compose_config(
            "model=qwen3_8b", f"model.id={model}", f"outputs={tmp_path / 'outputs'}", "model.dtype=float32",
            "model.lora.rank=4", *questions, "steps=2", "prompts_per_step=2", "group_size=2", "completion_limit=6",
            "eval_every=1", "checkpoint_every=1", *more,
        )  # fmt: skip

    return configured


def answers(config: RunConfig) -> pd.DataFrame:
    (file,) = RunFolder.of(config).evaluation(config).glob(f"step-{config.steps:06d}.parquet")
    return pd.read_parquet(file)


def test_the_same_run_whatever_it_is_asked(compose_config: Any) -> None:
    own, longer = compose_config(), compose_config("dataset@evaluation=longer_sums")
    assert run_name(own) == run_name(longer)
    assert evaluation_name(own) != evaluation_name(longer)
    # How a question is asked and graded does not depend on what was trained on.
    trained_on_it = compose_config("dataset=longer_sums", "model.warm_start.concise_shares=[0.5]")
    assert evaluation_identity(longer) == evaluation_identity(trained_on_it)
    assert run_name(trained_on_it) != run_name(own)
    chat = compose_config("model=qwen3_8b", "dataset=gsm8k", "dataset@evaluation=math500")
    assert (chat.completion_limit, chat.evaluation.completion_limit) == (256, 1024)


def test_a_trained_run_is_asked_without_training_again(quick: tuple[str, ...], compose_config: Any) -> None:
    own, longer = compose_config(*quick), compose_config(*quick, *LONGER)
    folder = RunFolder.of(own)
    execute(own)
    before = {file: file.read_bytes() for file in folder.path.glob("*.parquet")}
    result = folder.result()
    said: list[str] = []
    execute(longer, said.append)
    assert "trained already; evaluating the kept weights" in said
    assert before == {file: file.read_bytes() for file in folder.path.glob("*.parquet")}
    assert folder.result() == result
    asked = answers(longer)
    assert len(asked) == 5 and set(asked["question"].str.count(r"\+")) == {5}
    assert set(answers(own)["question"].str.count(r"\+")) <= {1, 2}
    summary = json.loads((folder.evaluation(longer) / "summary.json").read_text())
    assert summary["dataset"] == "longer_sums"


def test_a_run_that_trains_is_asked_the_other_questions_between_its_steps_too(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    longer, own = compose_config(*quick, *LONGER), compose_config(*quick)
    execute(longer)
    execute(own)
    by_step = json.loads((RunFolder.of(longer).evaluation(longer) / "summary.json").read_text())["by_step"]
    assert {step: summary["n"] for step, summary in by_step.items()} == {"3": 5, "6": 5}
    # They are asked, and that is all: the run ends as one that was never asked them.
    again = dataclasses.replace(own, outputs=str(tmp_path / "again"))
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "models").symlink_to(tmp_path / "outputs" / "models")
    execute(again)
    pd.testing.assert_frame_equal(answers(own), answers(again), check_exact=True)


def test_a_chat_model_trained_on_one_form_is_asked_and_graded_in_another(
    chat: Any, mathematics: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other = chat(), chat(*mathematics)
    execute(own)
    execute(other)
    rows = answers(other)
    assert rows["gold"].tolist() == [row["answer"] for row in MATHEMATICS]
    assert {"strict_verdict", "flexible_verdict"} <= set(rows)
    asked = ask(small_tokenizer("qwen3"), task_asked(other, load_task(other.dataset)).evaluation, other)
    text = small_tokenizer("qwen3").decode(asked[0].tokens)
    assert "half of one?" in text and r"\boxed{}" in text and "####" not in text
    # Graded again by the rules of what was asked: a LaTeX fraction is no number of GSM8K's.
    file = RunFolder.of(other).evaluation(other) / "step-000002.parquet"
    rows.assign(completion=[r"so \boxed{0.5}", r"\boxed{6}"], verdict=["right", "wrong"]).to_parquet(file)
    assert main(["regrade", str(RunFolder.of(other).path)]) == 0, capsys.readouterr()


def test_the_tables_set_it_apart(quick: tuple[str, ...], compose_config: Any, tmp_path: Path) -> None:
    for arm in ("sign", "drgrpo", "base"):
        for more in ((), LONGER):
            execute(compose_config(*quick, f"advantage={arm}", "steps=2", "eval_every=0", *more))
    assert main(["tables", "--outputs", str(tmp_path / "outputs"), "--no-figures"]) == 0
    tables = tmp_path / "outputs" / "tables"
    own = pd.read_csv(tables / "table1-tiny-sums.csv").set_index("arm")
    assert own.loc[["base", "sign", "drgrpo"], "n"].tolist() == [1, 1, 1]
    (transfer,) = tables.glob("transfer-*.csv")
    assert transfer.stem == "transfer-tiny-sums-on-longer_sums"
    assert not list(tables.glob("table1-*-on-*"))


@pytest.mark.parametrize("side", ["train", "eval"])
def test_a_question_that_is_trained_on_is_not_asked(chat: Any, tmp_path: Path, side: str) -> None:
    """Before anything is trained, and before a job is submitted."""
    again = ["dataset@evaluation=gsm8k", f"evaluation.dataset.eval_path={tmp_path / f'{side}.jsonl'}"]
    config = chat(*again)
    if side == "eval":
        assert len(task_asked(config, load_task(config.dataset)).evaluation) == 4
        return
    message = r"^evaluation\.dataset: question eval/0 of gsm8k is trained on, as gsm8k train/0 \(4 such questions\)"
    for do in (execute, lambda config: fetch([config], print)):
        with pytest.raises(UserError, match=message):
            do(config)
    # The untrained model has been trained on nothing.
    assert len(task_asked(chat(*again, "advantage=base"), load_task(config.dataset)).evaluation) == 4


def test_the_training_questions_of_another_data_set(chat: Any, tmp_path: Path) -> None:
    """How hard they are, say: all of them, as its own training would have them."""
    rows = [{"question": f"What is {n} and one?", "answer": f"#### {n + 1}"} for n in range(3)]
    for side, content in (("train", rows), ("eval", rows[:1])):
        (tmp_path / f"other_{side}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    config = chat(
        "dataset@evaluation=gsm8k", "evaluation.split=train", "evaluation.dataset.overlap=drop_from_training",
        *(f"evaluation.dataset.{side}_path={tmp_path / f'other_{side}.jsonl'}" for side in ("train", "eval")),
    )  # fmt: skip
    asked = task_asked(config, load_task(config.dataset))
    assert [question.gold for question in asked.train] == ["2", "3"] and not asked.evaluation


def test_data_are_loaded_once_for_all_runs(chat: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (tmp_path / "train.jsonl").read_text()
    (tmp_path / "eval.jsonl").write_text(rows.splitlines()[0] + "\n")
    fetch([chat("dataset.overlap=drop_from_training", f"advantage={arm}") for arm in ("sign", "drgrpo", "base")], print)
    assert capsys.readouterr().err.count("1 training questions stand in the evaluation too") == 1


def test_a_mistake_names_the_key_of_the_evaluation(chat: Any, compose_config: Any, tmp_path: Path) -> None:
    absent = tmp_path / "absent.jsonl"
    config = chat("dataset@evaluation=math500", f"evaluation.dataset.eval_path={absent}")
    with pytest.raises(UserError, match=rf"^evaluation\.dataset\.eval_path: no such file: {absent}$"):
        evaluation_name(config)
    with pytest.raises(UserError, match=rf"^evaluation\.dataset\.eval_path: no such file: {absent}$"):
        task_asked(config, load_task(config.dataset))
    for overrides, message in (
        (["dataset@evaluation=math500"], "a run that is trained on sums .* cannot be asked math500 .*the same source"),
        (["dataset@evaluation=longer_sums", "evaluation.dataset.operand_shares={6: 0.5}"], "operand_shares: shares"),
        (["dataset@evaluation=longer_sums", "+evaluation.dataset.size=3"], r"size: unknown key\. Did you mean"),
        (["model=qwen3_8b", "dataset=gsm8k", "dataset@evaluation=math500", "evaluation.dataset.revision=main"],
         "revision: main may move"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=rf"^evaluation\.dataset.*{message}"):
            compose_config(*overrides)
    # Of data that are only asked, the training side need not be had.
    asked = chat("dataset@evaluation=math500", "evaluation.dataset.train_revision=main")
    assert asked.evaluation.dataset is not None
    with pytest.raises(UserError, match=r"^evaluation\.dataset\.train_revision: main may move"):
        chat("dataset@evaluation=math500", "evaluation.dataset.train_revision=main", "evaluation.split=train")


def test_a_model_without_a_chat_template_is_not_asked_by_chat(
    chat: Any, mathematics: list[str], tmp_path: Path
) -> None:
    config = chat(*mathematics, "dataset.prompt.chat=false")
    (tmp_path / "qwen3" / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match=r"no chat template; set evaluation\.dataset\.prompt\.chat=false"):
        execute(config)
