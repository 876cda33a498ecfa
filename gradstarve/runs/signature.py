"""Which run a config asks for: its signature, name, cell and setting.

The signature hashes what changes the training result: the resolved config less where and how it is run, less what
cannot matter. Asking twice for the same thing gives the same name, whoever asks; a changed default gives another.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gradstarve.errors import UserError
from gradstarve.grading import EXTRACTOR_VERSION
from gradstarve.grading.integers import FIRST_LINE_VERSION, INTEGER_VERSION
from gradstarve.runs.config import RunConfig, plain_config
from gradstarve.runs.dataset_config import QuestionsConfig, SumsConfig, WordProblemsConfig
from gradstarve.runs.model_config import TinyModelConfig

# Where and how a run is run, what it is called, and how it is evaluated: none changes the trained weights.
LEFT_OUT = (
    "dry_run",
    "outputs",
    "eval_every",
    "checkpoint_every",
    "completions_per_pass",
    "evaluation",
    "tracker",
    "model.name",
    "model.gradient_checkpointing",
    "model.attention",
    "dataset.name",
    "dataset.eval_size",
    "dataset.eval_path",
    "dataset.eval_split",
    "rollout.vllm.memory_share",
    "rollout.vllm.sleep",
    "rollout.vllm.tensor_parallel",
    "rollout.vllm.max_model_length",
    "rollout.vllm.server",
)

# A key that is added after runs were named: its value that means "as before", at which it is left out.
AS_BEFORE: dict[str, Any] = {
    "evaluation.engine": "hf",
    "loss.reward": "verified",
    "loss.random_rate": None,
    "loss.length_limit": None,
    "rollout.vllm": None,
    "evaluation.dataset": None,
}

# Raised whenever the same config would draw other samples in an evaluation. 2: each batch from a seed of its own.
SAMPLE_DRAWING = 2


def signature(config: RunConfig) -> str:
    """Eight hex digits that name what the run trains."""
    return _digest(training_identity(config))


def run_name(config: RunConfig) -> str:
    """The run folder's name. `base` has no seed and no group."""
    if not config.advantage.trains:
        return f"{config.advantage.name}-{signature(config)}"
    return f"{config.advantage.name}-g{config.group_size}-s{config.seed}-{signature(config)}"


def cell_key(config: RunConfig) -> str:
    """A signature without its seed: all seeds of one arm in one setting."""
    return _digest({key: value for key, value in training_identity(config).items() if key != "seed"})


def setting_key(config: RunConfig) -> str:
    """What the arms of one table share: a signature without seed, advantage and group size."""
    identity = training_identity(config)
    return _digest({key: value for key, value in identity.items() if key not in {"seed", "advantage", "group_size"}})


def model_key(config: RunConfig) -> str:
    """The untrained model; joins `base` to the settings that start from it."""
    return _digest(_model_identity(config))


def evaluation_key(config: RunConfig) -> str:
    """Which questions are asked, how they are put, decoded and graded. Cells of different keys never mix."""
    return _digest(evaluation_identity(config))


def evaluation_name(config: RunConfig) -> str:
    """The name of the folder under `evaluations/`."""
    return f"{config.evaluation.name}-{evaluation_key(config)}"


def identity(config: RunConfig) -> dict[str, Any]:
    """What a sweep's declaration says of a run that it wants, and what a run folder says that it is."""
    trains = config.advantage.trains
    return {
        "run": run_name(config),
        "advantage": config.advantage.name,
        "group_size": config.group_size if trains else None,
        "seed": config.seed if trains else None,
        "model": config.model.name,
        "dataset": config.dataset.name,
        "cell": cell_key(config),
        "setting": setting_key(config) if trains else None,
        "model_key": model_key(config),
        "evaluation": evaluation_name(config),
        "asked": config.asked_dataset.name,
    }


def training_identity(config: RunConfig) -> dict[str, Any]:
    """What `signature` hashes, readable."""
    if not config.advantage.trains:
        return {"advantage": {"name": config.advantage.name, "formula": "base"}, "model": _model_identity(config)}
    plain = _as_before(config)
    plain["dataset"] = _training_data(config, plain["dataset"])
    plain["advantage"] = {"formula": config.advantage.formula, **plain["advantage"]}
    for key in LEFT_OUT:
        _drop(plain, key)
    return plain


def _as_before(config: RunConfig) -> dict[str, Any]:
    """The plain config less every later key that has its "as before" value; all three identities start from it."""
    plain = plain_config(config)
    for key, value in AS_BEFORE.items():
        if _get(plain, key) == value:
            _drop(plain, key)
    return plain


def with_later_keys(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A run folder's config with the keys that it is too old to have, at the values that mean "as before"."""
    filled = copy.deepcopy(dict(plain))
    for key, value in AS_BEFORE.items():
        *parents, last = key.split(".")
        node: Any = filled
        for part in parents:
            node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.setdefault(last, value)
    return filled


def evaluation_identity(config: RunConfig) -> dict[str, Any]:
    """What `evaluation_key` hashes, readable."""
    evaluation = _as_before(config)["evaluation"]
    evaluation.pop("name")
    evaluation.pop("dataset", None)  # hashed below, wherever it stands in the config
    if config.evaluation.greedy:
        # Sampled completions depend on the batches that they are drawn in; greedy ones do not.
        for key in ("samples", "temperature", "seed", "batch_size"):
            evaluation.pop(key, None)
    else:
        evaluation["drawing"] = SAMPLE_DRAWING
    evaluation["completion_limit"] = config.evaluation.completion_limit or config.completion_limit
    dataset, side = config.asked_dataset, config.evaluation.split
    if isinstance(dataset, SumsConfig):
        data = {
            "operand_shares": dataset.operand_shares,
            "largest_operand": dataset.largest_operand,
            "seed": dataset.seed,
            "size": dataset.eval_size if side == "eval" else dataset.train_size,
            "extractor": INTEGER_VERSION,
        }
    elif isinstance(dataset, WordProblemsConfig):
        data = _word_problems_identity(dataset)
        data["size"] = dataset.eval_size if side == "eval" else dataset.train_size
    else:
        key = "dataset" if config.evaluation.dataset is None else "evaluation.dataset"
        data = _training_questions(dataset, key) if side == "train" else _evaluation_questions(dataset, key)
    return {"evaluation": evaluation, "dataset": data}


def _training_data(config: RunConfig, plain: dict[str, Any]) -> dict[str, Any]:
    dataset = config.dataset
    if isinstance(dataset, SumsConfig):
        return {**plain, "extractor": INTEGER_VERSION}
    if isinstance(dataset, WordProblemsConfig):
        return {**_word_problems_identity(dataset), "train_size": dataset.train_size}
    return _training_questions(dataset, "dataset")


def _word_problems_identity(dataset: WordProblemsConfig) -> dict[str, Any]:
    """Which problems, how they are put, what ends an answer and how it is graded."""
    fields = dataclasses.asdict(dataset)
    for key in ("name", "train_size", "eval_size"):
        del fields[key]
    return {**fields, "extractor": FIRST_LINE_VERSION}


def _evaluation_questions(dataset: QuestionsConfig, key: str) -> dict[str, Any]:
    return {
        **_questions_identity(dataset),
        "answer": dataset.answer,
        "data": _source_identity(dataset, "eval", key),
    }


def _training_questions(dataset: QuestionsConfig, key: str) -> dict[str, Any]:
    # Where overlapping questions are dropped, the evaluation questions decide what is trained on.
    dropping = dataset.overlap == "drop_from_training"
    return {
        **_questions_identity(dataset),
        "answer": dataset.train_answer or dataset.answer,
        "data": _source_identity(dataset, "train", key),
        "train_limit": dataset.train_limit,
        **({"dropped": _source_identity(dataset, "eval", key)} if dropping else {}),
    }


def _questions_identity(dataset: QuestionsConfig) -> dict[str, Any]:
    return {
        "source": "questions",
        "grader": dataset.grader,
        "rule": dataset.rule,
        "question": dataset.question,
        "prompt": {key: getattr(dataset.prompt, key) for key in dataset.prompt.__dataclass_fields__},
        "extractor": INTEGER_VERSION if dataset.grader == "integer" else EXTRACTOR_VERSION[dataset.grader],
    }


def _source_identity(dataset: QuestionsConfig, side: Literal["train", "eval"], key: str) -> dict[str, Any]:
    """A local file is what it contains, wherever it lies; a hub data set is its id and revision. `key`: for errors."""
    path = dataset.path(side)
    if path is not None:
        return {"sha256": file_digest(path, f"{key}.{side}_path")}
    return dataclasses.asdict(dataset.hub_source(side))


def _model_identity(config: RunConfig) -> dict[str, Any]:
    model = _as_before(config)["model"]
    for key in ("name", "gradient_checkpointing", "attention", "lora"):
        model.pop(key, None)
    if isinstance(config.model, TinyModelConfig) and isinstance(config.dataset, SumsConfig):
        # The warm start is trained on the sums' training questions.
        dataset = config.dataset
        model["sums"] = {
            "operand_shares": dataset.operand_shares,
            "largest_operand": dataset.largest_operand,
            "seed": dataset.seed,
        }
    return model


def file_digest(path: str, key: str) -> str:
    """sha256 of a local file's bytes. Raises UserError, naming the config key, where there is no such file."""
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{key}: no such file: {path}")
    stat = file.stat()
    return _file_digest(str(file.resolve()), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=64)
def _file_digest(path: str, mtime_ns: int, size: int) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest(identity: Mapping[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _get(plain: Mapping[str, Any], dotted: str) -> Any:
    node: Any = plain
    for part in dotted.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def _drop(plain: dict[str, Any], dotted: str) -> None:
    *parents, last = dotted.split(".")
    node: Any = plain
    for part in parents:
        node = node.get(part)
        if not isinstance(node, dict):
            return
    node.pop(last, None)
