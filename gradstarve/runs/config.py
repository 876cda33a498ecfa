"""What a run is asked to be: the typed config, checked once at the edge.

Hydra composes plain YAML; `read_config` turns the result into these dataclasses or raises UserError with one line. Past
it, code trusts them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, TypeAdapter, ValidationError

from gradstarve.errors import UserError
from gradstarve.estimators import get_advantage
from gradstarve.runs.config_keys import explain
from gradstarve.runs.config_types import Fraction, NonNegative, Positive, Seed, strict
from gradstarve.runs.dataset_config import DatasetConfig, QuestionsConfig, SumsConfig
from gradstarve.runs.model_config import HubModelConfig, ModelConfig, TinyModelConfig


@strict
@dataclass(frozen=True)
class ReplayConfig:
    """What is replayed beside the on-policy loss, and how (arXiv 2605.07689; see docs/replay.md).

    `full_count` and `weight_floor` are read by contrastive_pair only.
    """

    loss: Literal["cross_entropy", "contrastive_pair"]
    weight: Annotated[float, Field(ge=0)]
    warm_up_steps: NonNegative
    completions_per_prompt: Positive
    rows_per_step: Positive
    full_count: Positive = 5
    weight_floor: Fraction = 0.05


@dataclass(frozen=True)
class AdvantageConfig:
    """`name` is the arm as tables show it; `formula` the function in `estimators`; `parameters` its options.

    The arm `base` trains nothing.
    """

    name: str
    formula: str
    parameters: Mapping[str, float]
    replay: ReplayConfig | None = None

    @property
    def trains(self) -> bool:
        return self.formula != "base"


Port = Annotated[int, Field(ge=1, le=65535)]


@strict
@dataclass(frozen=True)
class ServerConfig:
    """Where a vLLM server answers (`port`) and takes weights (`group_port`), and the seconds to wait for it."""

    host: str
    port: Port
    group_port: Port
    timeout: Annotated[float, Field(ge=0)]


@strict
@dataclass(frozen=True)
class VllmConfig:
    """A vLLM engine that samples for training.

    `correction` weighs a token (or a whole completion) by the trainer's probability over the engine's: cut at
    `correction_cap` (truncate), or left out above it (mask).
    `memory_share` is of the GPU's memory; with `sleep` it is given back between rollouts. `max_model_length` counts a
    prompt and its completion; null means the longest prompt + completion_limit, of a server what fits.
    """

    correction: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "none"]
    correction_cap: Annotated[float, Field(ge=1)] | None
    memory_share: Annotated[float, Field(gt=0, lt=1)]
    sleep: bool
    tensor_parallel: Positive
    max_model_length: Positive | None
    server: ServerConfig | None


@strict
@dataclass(frozen=True)
class RolloutConfig:
    """How completions are sampled for training: by transformers (hf) or by vLLM, in this process or on a server."""

    engine: Literal["hf", "vllm_colocate", "vllm_server"]
    temperature: Annotated[float, Field(gt=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    vllm: VllmConfig | None = None


@strict
@dataclass(frozen=True)
class LossConfig:
    """The policy loss around the advantage: equal across the arms of a table.

    `aggregation` is TRL's `loss_type`: grpo (mean over each completion's tokens, then over completions), bnpo (mean
    over the tokens of a pass), dapo (mean over the tokens of the step), dr_grpo (sum over completions x
    completion_limit).
    `truncated`: grade (as it stands), mask (out of the loss) or penalise (always wrong).
    `reward`: verified (the grader's verdict), or a control: random (a seeded coin, right with probability
    `random_rate`) or length (right where a completion ends within the completion limit, and within `length_limit`
    tokens where that is given). Verdicts are recorded whatever the reward.
    """

    aggregation: Literal["grpo", "bnpo", "dapo", "dr_grpo"]
    clip_low: Annotated[float, Field(ge=0)]
    clip_high: Annotated[float, Field(ge=0)]
    kl: Annotated[float, Field(ge=0)]
    truncated: Literal["grade", "mask", "penalise"]
    reward: Literal["verified", "random", "length"] = "verified"
    random_rate: Fraction | None = None
    length_limit: Positive | None = None


@strict
@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW."""

    schedule: Literal["linear", "constant", "cosine"]
    warmup_steps: NonNegative
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: Annotated[float, Field(gt=0)]
    beta1: Fraction
    beta2: Fraction
    epsilon: Annotated[float, Field(gt=0)]


@strict
@dataclass(frozen=True)
class EvaluationConfig:
    """How the trained policy is evaluated: greedy, or `samples` completions a question at `temperature`.

    `split: train` asks training questions, for measuring how hard they are. `limit` takes the first questions only;
    `completion_limit` null means the one used in training. `engine` answers at the end of a run; what `eval_every` asks
    in between is answered by transformers. `dataset` is asked instead of the data set trained on, which null asks.
    """

    name: str
    split: Literal["eval", "train"]
    greedy: bool
    samples: Positive
    temperature: Annotated[float, Field(gt=0)]
    seed: int
    limit: Positive | None
    completion_limit: Positive | None
    batch_size: Positive
    engine: Literal["hf", "vllm"] = "hf"
    dataset: Annotated[SumsConfig | QuestionsConfig, Discriminator("source")] | None = None


@strict
@dataclass(frozen=True)
class NoTrackerConfig:
    """The run's own files only."""

    name: Literal["none"]


@strict
@dataclass(frozen=True)
class WandbConfig:
    """Where a run is mirrored to in Weights & Biases. The run's own files are the truth.

    `group` null: the sweep that wants the run. `folder` null: outputs. The end of a run waits at most `finish_seconds`.
    """

    name: Literal["wandb"]
    project: Annotated[str, Field(min_length=1)]
    entity: str | None
    mode: Literal["offline", "online"]
    group: str | None
    tags: list[str]
    folder: str | None
    finish_seconds: Positive


TrackerConfig = Annotated[NoTrackerConfig | WandbConfig, Discriminator("name")]


@strict
@dataclass(frozen=True)
class RunConfig:
    """One run, resolved. The keys people change most come first."""

    seed: Seed
    group_size: int
    steps: Positive
    prompts_per_step: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    completion_limit: Positive
    eval_every: NonNegative
    dry_run: bool
    checkpoint_every: NonNegative
    completions_per_pass: Positive | None
    outputs: str
    model: ModelConfig
    advantage: AdvantageConfig
    dataset: DatasetConfig
    rollout: RolloutConfig
    loss: LossConfig
    optimizer: OptimizerConfig
    evaluation: EvaluationConfig
    tracker: TrackerConfig

    @property
    def completions_per_step(self) -> int:
        return self.prompts_per_step * self.group_size

    @property
    def asked_dataset(self) -> DatasetConfig:
        """The data set that the evaluation asks."""
        return self.dataset if self.evaluation.dataset is None else self.evaluation.dataset


_ADAPTER: TypeAdapter[RunConfig] = TypeAdapter(RunConfig)


def read_config(plain: Mapping[str, Any]) -> RunConfig:
    """The typed config of a composed, resolved, plain one. Raises UserError: one line that names the key."""
    plain = dict(plain)
    for group in ("model", "advantage", "dataset", "rollout", "tracker"):
        if not isinstance(plain.get(group), Mapping):
            raise UserError(f"{group}: choose an option of conf/{group}/, for example {group}=NAME")
    advantage = _read_advantage(dict(plain["advantage"]))
    plain["advantage"] = dataclasses.asdict(advantage)
    try:
        # As JSON: strict about every value's type, and dataclasses are built from mappings.
        config = _ADAPTER.validate_json(json.dumps(plain))
    except ValidationError as error:
        raise UserError(explain(error, RunConfig)) from None
    _check(config)
    return config


def plain_config(config: RunConfig) -> dict[str, Any]:
    """Plain containers, as `read_config` takes them (round trip)."""
    plain = dataclasses.asdict(config)
    advantage = plain["advantage"]
    plain["advantage"] = {
        "name": advantage["name"],
        **({"formula": advantage["formula"]} if advantage["formula"] != advantage["name"] else {}),
        **advantage["parameters"],
        **({"replay": advantage["replay"]} if advantage["replay"] is not None else {}),
    }
    return plain


def _read_advantage(plain: dict[str, Any]) -> AdvantageConfig:
    name = plain.pop("name", None)
    if not isinstance(name, str):
        raise UserError("advantage.name: a name is needed, for example advantage=sign")
    formula = plain.pop("formula", name)
    replay = plain.pop("replay", None)
    if formula == "base":
        if plain:
            raise UserError(f"advantage.{next(iter(plain))}: the arm 'base' trains nothing and has no parameters")
        return AdvantageConfig(name, formula, {})
    for key, value in plain.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"advantage.{key}: should be a number, got {value!r}")
    try:
        # 1 and 1.0 are one value, so they must be one signature.
        bound = get_advantage(formula, {k: int(v) if float(v).is_integer() else v for k, v in plain.items()})
    except UserError as error:
        raise UserError(f"advantage: {error}") from None
    if replay is not None:
        try:
            replay = TypeAdapter(ReplayConfig).validate_json(json.dumps(replay))
        except ValidationError as error:
            raise UserError(explain(error, RunConfig, prefix=("advantage", "replay"))) from None
    return AdvantageConfig(name, formula, dict(bound.parameters), replay)


def _check(config: RunConfig) -> None:
    """What no single key can be blamed for."""
    if config.group_size < 2:
        raise UserError(f"group_size: a group needs at least 2 completions to be compared, got {config.group_size}")
    per_pass = config.completions_per_pass
    if per_pass is not None and config.completions_per_step % per_pass:
        raise UserError(
            f"completions_per_pass: {per_pass} does not divide the {config.completions_per_step} completions of a step "
            f"(prompts_per_step {config.prompts_per_step} x group_size {config.group_size})"
        )
    if config.advantage.trains:
        bound = get_advantage(config.advantage.formula, config.advantage.parameters)
        try:
            for n_plus in range(config.group_size + 1):
                bound(n_plus, config.group_size)
        except UserError as error:
            raise UserError(f"advantage: {error}") from None
    if isinstance(config.model, TinyModelConfig) != isinstance(config.dataset, SumsConfig):
        raise UserError(
            f"model={config.model.name} and dataset={config.dataset.name} do not go together: the tiny model reads "
            "sums only, and sums are read by it only"
        )
    _check_data(config.dataset, "dataset", ("train", "eval"))
    other = config.evaluation.dataset
    if other is not None:
        if type(other) is not type(config.dataset):
            raise UserError(
                f"evaluation.dataset: a run that is trained on {config.dataset.name} (source {config.dataset.source}) "
                f"cannot be asked {other.name} (source {other.source}): choose one of the same source"
            )
        # Which training questions there are may depend on the evaluation's.
        _check_data(other, "evaluation.dataset", ("train", "eval") if config.evaluation.split == "train" else ("eval",))
    _check_reward(config.loss)
    _check_rollout(config.rollout)
    if config.loss.aggregation == "bnpo" and per_pass is not None:
        raise UserError(
            "completions_per_pass: with loss.aggregation=bnpo each pass has a denominator of its own, so passes would "
            "change the result; leave it null, or choose dapo"
        )
    for key, name in (
        ("advantage.name", config.advantage.name),
        ("evaluation.name", config.evaluation.name),
    ):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UserError(f"{key}: letters, digits, '.', '_' and '-' only, got {name!r}: it names a folder")
    if isinstance(config.model, TinyModelConfig) and isinstance(config.dataset, SumsConfig):
        if len(config.model.warm_start.concise_shares) != len(config.dataset.operand_shares):
            raise UserError("model.warm_start.concise_shares: should have one share for each of dataset.operand_shares")
        if config.model.hidden_size % config.model.heads:
            raise UserError(f"model.heads: {config.model.heads} does not divide hidden_size {config.model.hidden_size}")
    if isinstance(config.model, HubModelConfig) and not Path(config.model.id).is_dir():
        look = f"model_info('{config.model.id}')"
        _check_pinned("model.revision", config.model.revision, "which weights it starts from", look)
        if config.loss.kl > 0 and config.model.lora is None:
            raise UserError("loss.kl: with all weights trained, the reference needs a local folder in model.id")


def _check_data(dataset: DatasetConfig, key: str, sides: Sequence[Literal["train", "eval"]]) -> None:
    """`key` is where the data set stands in the config; `sides` are those that the run reads."""
    if isinstance(dataset, SumsConfig):
        total = sum(dataset.operand_shares.values())
        if abs(total - 1) > 1e-9:
            raise UserError(f"{key}.operand_shares: shares should add up to 1, got {total:g}")
        if min(dataset.operand_shares) < 2:
            raise UserError(f"{key}.operand_shares: a sum has at least 2 operands")
    if isinstance(dataset, QuestionsConfig):
        if "{question}" not in dataset.prompt.user:
            raise UserError(f"{key}.prompt.user: should contain {{question}}")
        if dataset.prompt.chat and dataset.prompt.answer_prefix:
            raise UserError(f"{key}.prompt.answer_prefix: read only where {key}.prompt.chat is false")
        for side in sides:
            _check_source(dataset, key, side)


def _check_source(dataset: QuestionsConfig, key: str, side: Literal["train", "eval"]) -> None:
    if dataset.path(side) is not None:
        return
    source = dataset.hub_source(side)
    if source.hub_id is None:
        raise UserError(f"{key}.{side}_path: name a local file, or set {key}.hub_id")
    own = side == "train" and dataset.train_hub_id is not None
    revision = f"{key}.train_revision" if own else f"{key}.revision"
    _check_pinned(revision, source.revision, "which questions it asks", f"dataset_info('{source.hub_id}')")


def _check_pinned(key: str, revision: str | None, what: str, look: str) -> None:
    """A branch or a tag may move, and two runs of one name would then differ."""
    if revision is None or not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise UserError(
            f"{key}: {revision or 'null'} may move; pin a commit of 40 hex digits, so that the run's name says {what}; "
            f'today\'s: python -c "import huggingface_hub as h; print(h.{look}.sha)"'
        )


def _check_reward(loss: LossConfig) -> None:
    if loss.reward == "random" and loss.random_rate is None:
        raise UserError("loss.random_rate: loss.reward=random needs the coin's share of right, for example 0.25")
    if loss.reward != "random" and loss.random_rate is not None:
        raise UserError(f"loss.random_rate: read only with loss.reward=random, and loss.reward is {loss.reward}")
    if loss.reward != "length" and loss.length_limit is not None:
        raise UserError(f"loss.length_limit: read only with loss.reward=length, and loss.reward is {loss.reward}")
    if loss.reward == "random" and loss.truncated == "penalise":
        raise UserError("loss.truncated: penalise would overrule the coin of loss.reward=random; choose grade or mask")


def _check_rollout(rollout: RolloutConfig) -> None:
    engine, vllm = rollout.engine, rollout.vllm
    if vllm is None:
        if engine != "hf":
            raise UserError(f"rollout.vllm: missing; choose rollout={engine}, which sets it")
        return
    if engine == "hf":
        raise UserError("rollout.vllm: read only with rollout=vllm_colocate and rollout=vllm_server, not with hf")
    if (vllm.server is not None) != (engine == "vllm_server"):
        raise UserError(f"rollout.vllm.server: {engine} has {'one' if vllm.server is None else 'none'}")
    if (vllm.correction == "none") != (vllm.correction_cap is None):
        raise UserError(
            f"rollout.vllm.correction_cap: null with rollout.vllm.correction=none and a number otherwise, got "
            f"{vllm.correction_cap} with {vllm.correction}"
        )
    if engine == "vllm_server" and vllm.sleep:
        raise UserError("rollout.vllm.sleep: a server has its GPUs to itself; only vllm_colocate can sleep")
