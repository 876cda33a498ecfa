"""Evaluation of a policy on held-out questions: one row a completion, and a summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import GenerationConfig

from gradstarve.errors import UserError
from gradstarve.learning.decoding import TOP_K, TOP_P, Asked, Decoding, Engine, Generate, ask, batches
from gradstarve.learning.stopping import Stopped, Stopping, never
from gradstarve.learning.tasks import Task
from gradstarve.learning.unfinished import Unfinished, fingerprint
from gradstarve.learning.vllm_evaluation import vllm_engine
from gradstarve.runs.config import RunConfig
from gradstarve.runs.files import read_json, write_json, write_parquet
from gradstarve.runs.signature import evaluation_identity, evaluation_key, evaluation_name

Say = Callable[[str], None]

SAY_EVERY_SECONDS = 10.0


def evaluate(
    model: Any,
    tokenizer: Any,
    task: Task,
    config: RunConfig,
    step: int,
    folder: Path,
    say: Say = lambda _: None,
    stopping: Stopping = never,
    engine: Engine = "hf",
) -> dict[str, Any]:
    """Ask the evaluation questions, grade by every rule, write `folder/step-<step>.parquet`, return its summary.

    Batches are kept as they come, and what an interrupted evaluation of the same weights has kept is not asked again.
    Training is not disturbed: the model's mode and torch's random state are as before. Raises Stopped between two
    batches, where `stopping` says so.
    """
    questions = (task.train if config.evaluation.split == "train" else task.evaluation)[: config.evaluation.limit]
    decoding = Decoding.of(config, model, tokenizer, engine)
    asked = ask(tokenizer, questions, config)
    head = {"key": evaluation_key(config), "weights": fingerprint(model), "ends": list(decoding.ends)}
    unfinished = Unfinished.open(_unfinished_file(folder, step), head)
    left = [
        batch for batch in batches(asked, decoding.batch_size) if not all(one.key in unfinished.rows for one in batch)
    ]
    if left:
        if unfinished.rows:
            say(f"evaluating: {len(unfinished.rows)} of {len(asked)} completions are there from before")
        with _engine(model, tokenizer, decoding, asked, folder, say) as generate:
            _answer(left, len(asked), generate, tokenizer, decoding, unfinished, say, stopping)
    grading = time.perf_counter()
    frame = _grade([_row(one, unfinished.rows[one.key]) for one in asked], task)
    write_parquet(folder / f"step-{step:06d}.parquet", frame)
    seconds = unfinished.seconds + time.perf_counter() - grading
    samples = len(asked) // len(questions)
    return {
        **summarise(frame, task.rule, step, seconds),
        "decoding": decoding.described(tokenizer, samples),
    }


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
    """Add one step's summary. `summary.json` exists only once the final one is in; until then it is `partial.json`.

    What the evaluation kept while it ran goes only now: until here a kill costs no completion.
    """
    before = read_json(folder / "summary.json") or read_json(folder / "partial.json") or {}
    by_step = {**before.get("by_step", {}), str(summary["step"]): summary}
    content = {
        "evaluation": evaluation_name(config),
        "key": evaluation_key(config),
        "dataset": config.asked_dataset.name,
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
    for file in folder.glob("step-*.jsonl") if final else [_unfinished_file(folder, summary["step"])]:
        file.unlink(missing_ok=True)


def _unfinished_file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}.jsonl"


def _engine(
    model: Any, tokenizer: Any, decoding: Decoding, asked: Sequence[Asked], folder: Path, say: Say
) -> AbstractContextManager[Generate]:
    if decoding.engine == "vllm":
        longest = max(len(one.tokens) for one in asked)
        return vllm_engine(model, tokenizer, decoding, longest, folder / "weights.tmp", say)
    return hf_engine(model, tokenizer, decoding)


def _answer(
    left: Sequence[Sequence[Asked]],
    total: int,
    generate: Generate,
    tokenizer: Any,
    decoding: Decoding,
    unfinished: Unfinished,
    say: Say,
    stopping: Stopping,
) -> None:
    started = last_said = time.monotonic()
    before = len(unfinished.rows)
    for batch in left:
        if stopping():
            raise Stopped("stopped as asked, while evaluating")
        asking = time.perf_counter()
        rows = []
        for one, ids in zip(batch, generate(batch), strict=True):
            kept, truncated = decoding.cut(ids)
            rows.append(
                {
                    "question_id": one.question.id,
                    "sample": one.sample,
                    "completion": tokenizer.decode(kept, skip_special_tokens=True),
                    "truncated": truncated,
                    "length": len(kept),
                }
            )
        unfinished.add(rows, time.perf_counter() - asking)
        now = time.monotonic()
        if now - last_said > SAY_EVERY_SECONDS:
            last_said = now
            done = len(unfinished.rows)
            rate = (done - before) / (now - started)
            say(
                f"evaluating: {done} of {total} completions, {rate:.1f} a second, "
                f"about {_duration((total - done) / rate)} left"
            )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@contextmanager
def hf_engine(model: Any, tokenizer: Any, decoding: Decoding) -> Iterator[Generate]:
    """transformers' own generation, with the model where it is.

    A question's samples each have the prompt computed: transformers repeats prompts before it computes them.
    """
    sampling = (
        {"do_sample": False}
        if decoding.greedy
        else {"do_sample": True, "temperature": decoding.temperature, "top_k": TOP_K, "top_p": TOP_P}
    )
    generation = GenerationConfig(
        max_new_tokens=decoding.completion_limit,
        eos_token_id=list(decoding.ends),
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else decoding.ends[0],
        bos_token_id=None,
        **sampling,
    )

    def generate(batch: Sequence[Asked]) -> list[list[int]]:
        torch.manual_seed(decoding.seed_of(batch[0]))
        padded = tokenizer.pad({"input_ids": [list(one.tokens) for one in batch]}, return_tensors="pt")
        inputs = {key: padded[key].to(model.device) for key in ("input_ids", "attention_mask")}
        try:
            output = model.generate(**inputs, generation_config=generation)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"evaluation.batch_size: {len(batch)} completions at a time do not fit into memory; choose fewer"
            ) from error
        return output[:, inputs["input_ids"].shape[1] :].tolist()

    was_training = model.training
    model.eval()
    try:
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []), torch.no_grad():
            yield generate
    finally:
        model.train(was_training)


def _row(one: Asked, answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "question_id": one.question.id,
        "sample": one.sample,
        "question": one.question.text,
        "gold": one.question.gold,
        **{key: answer[key] for key in ("completion", "truncated", "length")},
    }


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
