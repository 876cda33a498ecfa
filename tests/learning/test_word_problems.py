"""Word problems: what is asked, what is right, and what ends an answer."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gradstarve.errors import UserError
from gradstarve.grading import normalised_question
from gradstarve.grading.integers import grade_first_line
from gradstarve.learning import tiny
from gradstarve.learning.evaluation import evaluate
from gradstarve.learning.policy import Policy
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.run import execute
from gradstarve.learning.stop_tokens import end_at_stop, stop_tokens
from gradstarve.learning.tasks import Task, load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.learning.word_problems import draw_examples, draw_word_problems
from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import WordProblemsConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_name, run_name

from .small_models import needs_smollm2

CHOICES = ("model=smollm2_135m", "dataset=word_problems")

# What a reader would do with a problem, from its words alone: the order of the numbers is that of the text.
SOLUTIONS = (
    (r"(buys \d+ more|together|\d+ red .* \d+ blue|Monday and \d+ on Tuesday)", lambda a, b: a + b),
    (r"(gave|took|How many more)", lambda a, b: a - b),
    (r"(bags with \d+|One box holds|a day\.|friends have \d+)", lambda a, b: a * b),
    (r"(shares \d+|puts \d+)", lambda a, b: a // b),
    (r"(One bag holds|friends split \d+)", lambda a, b: b // a),
)


def solve(text: str) -> int:
    a, b = map(int, re.findall(r"\d+", text))
    (answer,) = [solution(a, b) for words, solution in SOLUTIONS if re.search(words, text)]
    return answer


def words(config: RunConfig) -> WordProblemsConfig:
    assert isinstance(config.dataset, WordProblemsConfig)
    return config.dataset


def test_every_gold_is_what_the_words_say(compose_config: Any) -> None:
    config = words(compose_config(*CHOICES, "dataset.largest_term=30", "dataset.largest_factor=12"))
    problems = [*draw_word_problems(config, True), *draw_word_problems(config, False), *draw_examples(config)]
    assert len(problems) == 1204
    for problem in problems:
        answer = solve(problem.text)
        assert problem.gold == str(answer) and answer > 0
        first, sign, second, equals, result = problem.working.split()
        assert (equals, result) == ("=", problem.gold)
        a, b = int(first), int(second)
        assert {"+": a + b, "-": a - b, "x": a * b, "/": a / b}[sign] == answer
        assert sorted([a, b]) == sorted(map(int, re.findall(r"\d+", problem.text)))
    assert {problem.working.split()[1] for problem in problems} == set("+-x/")


def test_no_question_is_asked_on_both_sides_or_twice(compose_config: Any) -> None:
    sides: dict[str, set[str]] = {"train": set(), "eval": set()}
    for seed in range(4):
        task = load_task(words(compose_config(*CHOICES, f"dataset.seed={seed}")))
        for side, questions in (("train", task.train), ("eval", task.evaluation)):
            texts = [normalised_question(question.text) for question in questions]
            assert len(texts) == len(set(texts))
            examples = re.findall(r"Q: (.*)\nA: ", str(questions[0].prompt))
            assert len(examples) == 4
            assert not {normalised_question(example) for example in examples} & {*texts}
            sides[side] |= {*texts, *(normalised_question(example) for example in examples if side == "train")}
    assert len(sides["train"]) > 3000 and len(sides["eval"]) > 500
    assert not sides["train"] & sides["eval"]


def test_the_same_config_asks_the_same_whatever_the_other_side_s_size(compose_config: Any) -> None:
    task = load_task(words(compose_config(*CHOICES)))
    fewer = load_task(words(compose_config(*CHOICES, "dataset.eval_size=10", "dataset.train_size=20")))
    assert fewer.evaluation == task.evaluation[:10] and fewer.train == task.train[:20]
    assert load_task(words(compose_config(*CHOICES, "dataset.seed=9"))).train != task.train


def test_the_texts_of_version_1_hold(compose_config: Any) -> None:
    """Other texts from the same config would share a name with finished runs: raise the version with them."""
    task = load_task(words(compose_config(*CHOICES)))
    asked = "\n".join(f"{q.id} {q.prompt} {q.gold}" for q in [*task.train, *task.evaluation])
    assert words(compose_config(*CHOICES)).version == 1
    assert hashlib.sha256(asked.encode()).hexdigest()[:16] == "8f25215a2d2a7f5f"


def test_a_prompt_is_solved_problems_and_one_to_solve(compose_config: Any) -> None:
    config = words(compose_config(*CHOICES))
    lines = str(load_task(config).train[0].prompt).split("\n")
    assert len(lines) == 2 * config.shots + 2 and lines[-1] == "A:"
    assert [line[:3] for line in lines] == ["Q: ", "A: "] * config.shots + ["Q: ", "A:"]
    for question, answer in zip(lines[0:-2:2], lines[1:-2:2], strict=True):
        assert solve(question) == int(answer.split("= ")[1])
    assert [line.split()[2] for line in lines[1:-2:2]] == ["+", "-", "x", "/"]
    (bare,) = {str(q.prompt).count("\n") for q in load_task(words(compose_config(*CHOICES, "dataset.shots=0"))).train}
    assert bare == 1


@pytest.mark.parametrize(
    ("completion", "gold", "verdict", "extracted"),
    [
        (" 3 + 4 = 7\n", "7", "right", "7"),
        (" 7", "7", "right", "7"),
        (" 7 apples.\nQ: Tom has 9", "7", "right", "7"),
        ("\n\n 3 + 4 = 7\n", "7", "right", "7"),
        (" 3 + 4 = 8\n 3 + 4 = 7", "7", "wrong", "8"),
        (" 5 - 12 = -7\n", "7", "wrong", "-7"),
        (" 5-12=7\n", "7", "right", "7"),
        (" 12-7", "7", "right", "7"),
        (" 15 / 2 = 7.5\n", "7", "wrong", "7.5"),
        (" It is 7.\n", "7", "right", "7"),
        (" 14/2\n", "7", "wrong", "14/2"),
        (" 14/2\n", "2", "wrong", "14/2"),
        (" 500 x 2 = 1,000\n", "1000", "right", "1,000"),
        (" 007\n", "7", "right", "007"),
        (" seven\n", "7", "wrong", None),
        ("\n", "7", "wrong", None),
        ("", "7", "wrong", None),
        (" " + "7" * 5000, "7", "wrong", "7" * 100),
    ],
)
def test_the_last_number_of_the_first_line_is_the_answer(
    completion: str, gold: str, verdict: str, extracted: str | None
) -> None:
    grade = grade_first_line(completion, gold)
    assert (grade.verdict, grade.extracted) == (verdict, extracted)
    assert grade.rule == ("none" if extracted is None else "first_line")


def test_an_answer_that_was_cut_off_is_none() -> None:
    assert grade_first_line(" 3 + 4 = 7", "7", truncated=True).rule == "none"
    assert grade_first_line(" 3 + 4 = 7 apples", "7", truncated=True).verdict == "right"
    assert grade_first_line(" 3 + 4 = 7\nQ: Tom has 1", "7", truncated=True).verdict == "right"


def test_what_names_a_run_and_an_evaluation(compose_config: Any) -> None:
    config = compose_config(*CHOICES)

    def names(**changed: Any) -> tuple[bool, bool]:
        """Whether the run, and the evaluation, keep their names."""
        other = replace(config, dataset=replace(config.dataset, **changed))
        return run_name(other) == run_name(config), evaluation_name(other) == evaluation_name(config)

    assert names(name="other") == (True, True)
    assert names(eval_size=7) == (True, False)
    assert names(train_size=7) == (False, True)
    for key, value in (("shots", 2), ("largest_term", 11), ("largest_factor", 8), ("seed", 2), ("stop", None)):
        assert names(**{key: value}) == (False, False)
    # The untrained model is one run, whatever it is asked.
    assert run_name(compose_config(*CHOICES, "advantage=base")) == run_name(
        compose_config("model=smollm2_135m", "dataset=gsm8k", "advantage=base")
    )


@pytest.mark.parametrize("stop", ["ab", "", "é"])
def test_a_stop_is_one_character_that_no_tokenizer_splits(compose_config: Any, stop: str) -> None:
    with pytest.raises(UserError, match=r"dataset\.stop: "):
        compose_config(*CHOICES, f"dataset.stop='{stop}'")


def test_other_texts_than_those_here_cannot_be_asked_for(compose_config: Any) -> None:
    with pytest.raises(UserError, match=r"dataset\.version: "):
        compose_config(*CHOICES, "dataset.version=2")


def forced(answer: str) -> Policy:
    """A character model that says `answer` over and over, whatever it is asked: "=" stands for the line's end."""
    tokenizer = tiny.build_tokenizer()
    size = len(tokenizer)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, tie_word_embeddings=False, bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size, 16))
        model.lm_head.weight.zero_()
        cycle = tokenizer(answer)["input_ids"]
        for token, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            model.lm_head.weight[following, token] = 50.0
        model.lm_head.weight[cycle[0]] += torch.tensor([0.0 if i in cycle else 50.0 for i in range(16)])
    return Policy(model.eval(), tokenizer)


@pytest.mark.parametrize(("stop", "truncated", "length"), [("=", False, 3), (None, True, 7)])
def test_training_and_evaluation_end_a_completion_at_the_stop(
    compose_config: Any, tmp_path: Path, stop: str | None, truncated: bool, length: int
) -> None:
    """The model writes "12=12=12=": it has an end token of its own, and never says it."""
    policy = forced("12=")
    config = compose_config(
        "model=smollm2_135m", "dataset=word_problems", f"outputs={tmp_path}", "dataset.shots=0", "steps=1",
        "prompts_per_step=1", "group_size=2", "completion_limit=7", "evaluation.limit=3", "dataset.train_size=4",
        f"dataset.stop={'null' if stop is None else repr(stop)}", "model.lora=null",
    )  # fmt: skip
    end_at_stop(policy.model, policy.tokenizer, config.dataset)
    task = load_task(config.dataset)
    task = Task(
        [type(q)(q.id, "1+2=", q.text, "12") for q in task.train],
        [type(q)(q.id, "1+2=", q.text, "12") for q in task.evaluation],
        task.graders,
        task.rule,
    )
    summary = evaluate(policy.model, policy.tokenizer, task, config, 0, tmp_path)
    assert (summary["truncated"], summary["mean_length"]) == (float(truncated), length)
    completions = pd.read_parquet(tmp_path / "step-000000.parquet")["completion"]
    assert set(completions) == {"12=" if stop else "12=12=1"}

    folder = RunFolder.of(config)
    trainer = BinaryRewardTrainer(
        config, policy, task.train, task.grade, Recorder(folder, config), tmp_path / "checkpoints"
    )
    trainer.train()
    rows = folder.read("completions")
    assert list(rows["completion"]) == ["12=" if stop else "12=12=1"] * 2
    assert list(rows["truncated"]) == [truncated] * 2
    assert list(rows["length"]) == [length] * 2


def test_a_stop_is_every_token_that_holds_it() -> None:
    tokenizer = tiny.build_tokenizer()
    assert tokenizer.convert_ids_to_tokens(stop_tokens(tokenizer, "=")) == ["="]
    assert stop_tokens(tokenizer, "\n") == []


@pytest.mark.slow
@needs_smollm2
def test_smollm2_answers_in_one_line(compose_config: Any, tmp_path: Path) -> None:
    config = compose_config(
        *CHOICES, "advantage=sign", f"outputs={tmp_path}", "steps=1", "prompts_per_step=1", "group_size=2",
        "eval_every=0", "evaluation.limit=32",
    )  # fmt: skip
    execute(config)
    folder = RunFolder.of(config)
    (summary,) = folder.evaluations().values()
    assert summary["final"]["truncated"] < 0.2
    assert 0.2 < summary["final"]["accuracy"] < 0.8
    rows = pd.read_parquet(next(folder.path.glob("evaluations/*/*.parquet")))
    complete = rows.loc[~rows["truncated"], "completion"]
    assert complete.str.rstrip("\n").str.contains("\n").sum() == 0
    assert complete.str.endswith("\n").mean() > 0.9
