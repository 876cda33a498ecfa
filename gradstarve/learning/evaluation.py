"""Evaluation of a policy on held-out questions: one row a completion, and a summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import GenerationConfig

from gradstarve.learning.tasks import Question, Task
from gradstarve.runs.config import RunConfig
from gradstarve.runs.files import read_json, write_json, write_parquet
from gradstarve.runs.signature import evaluation_identity, evaluation_key, evaluation_name

Say = Callable[[str], None]


def evaluate(
    model: Any,
    tokenizer: Any,
    task: Task,
    config: RunConfig,
    step: int,
    folder: Path,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Ask the evaluation questions, grade by every rule, write `folder/step-<step>.parquet`, return its summary.

    Training is not disturbed: the model's mode and torch's random state are as before.
    """
    started = time.perf_counter()
    questions = (task.train if config.evaluation.split == "train" else task.evaluation)[: config.evaluation.limit]
    was_training = model.training
    model.eval()
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(config.evaluation.seed)
        rows = _ask(model, tokenizer, questions, config, say)
    model.train(was_training)
    frame = _grade(rows, task)
    write_parquet(folder / f"step-{step:06d}.parquet", frame)
    return summarise(frame, task.rule, step, time.perf_counter() - started)


def summarise(frame: pd.DataFrame, rule: str, step: int, seconds: float) -> dict[str, Any]:
    """Counts and fractions of one evaluation. Accuracy divides by every completion of every question."""
    n = len(frame)
    counts = frame["verdict"].value_counts()
    right = int(counts.get("right", 0))
    by_rule = {
        f"{name}_right": int((frame[f"{name}_verdict"] == "right").sum()) if f"{name}_verdict" in frame else None
        for name in ("strict", "flexible")
    }
    return {
        "step": step,
        "n": n,
        "questions": int(frame["question_id"].nunique()),
        "right": right,
        "wrong": int(counts.get("wrong", 0)),
        "unverifiable": int(counts.get("unverifiable", 0)),
        "accuracy": right / n,
        "truncated": float(frame["truncated"].mean()),
        "mean_length": float(frame["length"].mean()),
        "rule": rule,
        **by_rule,
        "seconds": seconds,
    }


def write_summary(folder: Path, run: str, config: RunConfig, summary: dict[str, Any], final: bool) -> None:
    """Add one step's summary. `summary.json` exists only once the final one is in; until then it is `partial.json`."""
    before = read_json(folder / "summary.json") or read_json(folder / "partial.json") or {}
    by_step = {**before.get("by_step", {}), str(summary["step"]): summary}
    content = {
        "evaluation": evaluation_name(config),
        "key": evaluation_key(config),
        "dataset": config.dataset.name,
        "identity": evaluation_identity(config),
        "run": run,
        "by_step": by_step,
        "final": summary if final else None,
    }
    if final:
        write_json(folder / "summary.json", content)
        (folder / "partial.json").unlink(missing_ok=True)
    else:
        write_json(folder / "partial.json", content)


def _ask(
    model: Any,
    tokenizer: Any,
    questions: list[Question],
    config: RunConfig,
    say: Say,
) -> list[dict[str, Any]]:
    evaluation = config.evaluation
    ends = _end_tokens(model, tokenizer)
    sampling = (
        {"do_sample": False}
        if evaluation.greedy
        else {"do_sample": True, "temperature": evaluation.temperature, "top_k": 0, "top_p": 1.0}
    )
    generation = GenerationConfig(
        max_new_tokens=evaluation.completion_limit or config.completion_limit,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0],
        bos_token_id=None,
        **sampling,
    )
    samples = 1 if evaluation.greedy else evaluation.samples
    asked = [(question, sample) for question in questions for sample in range(samples)]
    tokens = {q.id: _prompt_tokens(tokenizer, q, config) for q in questions}
    # Prompts of like length share a batch, so that little is padded; the rows go back into the questions' order.
    order = sorted(range(len(asked)), key=lambda i: (len(tokens[asked[i][0].id]), i))
    rows: dict[int, dict[str, Any]] = {}
    last_said = time.monotonic()
    for start in range(0, len(order), evaluation.batch_size):
        batch = order[start : start + evaluation.batch_size]
        padded = tokenizer.pad({"input_ids": [tokens[asked[i][0].id] for i in batch]}, return_tensors="pt")
        inputs = {key: padded[key].to(model.device) for key in ("input_ids", "attention_mask")}
        output = model.generate(**inputs, generation_config=generation)
        for i, ids in zip(batch, output[:, inputs["input_ids"].shape[1] :].tolist(), strict=True):
            question, sample = asked[i]
            end = next((place for place, token in enumerate(ids) if token in ends), None)
            kept = ids if end is None else ids[: end + 1]
            rows[i] = {
                "question_id": question.id,
                "sample": sample,
                "question": question.text,
                "gold": question.gold,
                "completion": tokenizer.decode(kept, skip_special_tokens=True),
                "truncated": end is None,
                "length": len(kept),
            }
        if time.monotonic() - last_said > 10:
            last_said = time.monotonic()
            say(f"evaluating: {len(rows)} of {len(asked)} completions")
    return [rows[i] for i in range(len(asked))]


def _prompt_tokens(tokenizer: Any, question: Question, config: RunConfig) -> list[int]:
    """The same tokens that training puts before a completion."""
    if isinstance(question.prompt, str):
        return list(tokenizer(question.prompt)["input_ids"])
    thinking = config.dataset.prompt.thinking if config.dataset.source == "questions" else False
    return list(
        tokenizer.apply_chat_template(
            question.prompt, add_generation_prompt=True, tokenize=True, return_dict=True, enable_thinking=thinking
        )["input_ids"]
    )


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a completion, as TRL's trainer counts them."""
    declared = model.generation_config.eos_token_id
    ends = [declared] if isinstance(declared, int) else list(declared or [])
    return ends if tokenizer.eos_token_id in ends else [tokenizer.eos_token_id, *ends]


def _grade(rows: list[dict[str, Any]], task: Task) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    for name, grade in task.graders.items():
        grades = grade(list(frame["completion"]), list(frame["gold"]), list(frame["truncated"]))
        columns: dict[str, list[str | None]] = {
            "extracted": [g.extracted for g in grades],
            "verdict": [g.verdict for g in grades],
            "rule": [g.rule for g in grades],
        }
        for column, values in columns.items():
            if len(task.graders) > 1:
                frame[f"{name}_{column}"] = values
            if name == task.rule:
                frame[column] = values
    return frame
