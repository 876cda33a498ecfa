"""The options of hydra/launcher=slurm: what conf/hydra/launcher/slurm*.yaml can say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, ListConfig, OmegaConf
from pydantic import Field, TypeAdapter, ValidationError

from gradstarve.errors import UserError
from gradstarve.runs.config_keys import explain
from gradstarve.runs.config_types import strict

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


@strict
@dataclass(frozen=True)
class SlurmOptions:
    """What a job asks for, and how its runs are run. What is left null, the cluster decides.

    `time` is the limit of a job, in minutes or as SLURM writes it. `cpus_per_run`, `gpus_per_run` and `memory_per_run`
    count for each of `runs_at_once`.
    """

    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    time: Positive | str
    gpus_per_run: NonNegative
    cpus_per_run: Positive
    memory_per_run: str | None
    runs_per_job: Positive
    runs_at_once: Positive
    array_parallelism: Positive
    threads: Positive
    sbatch: dict[str, Any]
    environment: dict[str, str | int | float]
    setup: list[str]
    python: str | None
    use_srun: bool
    srun_args: list[str]
    signal_seconds: Annotated[int, Field(ge=20)]
    requeues: NonNegative
    offline: bool
    wait: bool
    on_interrupt: Literal["ask", "leave", "cancel"]

    @property
    def minutes(self) -> int:
        return minutes(self.time)

    @property
    def processes(self) -> int:
        """Of each run."""
        return max(1, self.gpus_per_run)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


# What the launcher sets itself, or would lose track of its jobs without.
_OURS = {
    "array",
    "job-name",
    "output",
    "error",
    "signal",
    "requeue",
    "no-requeue",
    "open-mode",
    "time",
    "nodes",
    "ntasks-per-node",
}

_ADAPTER: TypeAdapter[SlurmOptions] = TypeAdapter(SlurmOptions)


def read_options(given: Mapping[str, Any]) -> SlurmOptions:
    """Raises UserError: one line that names the key."""
    plain = {
        key: OmegaConf.to_container(value, resolve=True) if isinstance(value, DictConfig | ListConfig) else value
        for key, value in given.items()
    }
    try:
        options = _ADAPTER.validate_json(json.dumps(plain))
    except ValidationError as error:
        raise UserError(f"hydra.launcher.{explain(error, SlurmOptions)}") from None
    if options.runs_at_once > options.runs_per_job:
        raise UserError(
            f"hydra.launcher.runs_at_once: {options.runs_at_once} of only {options.runs_per_job} runs_per_job"
        )
    for name in options.sbatch:
        if name.replace("_", "-") in _OURS:
            raise UserError(f"hydra.launcher.sbatch: {name} is set by the launcher (see its other options)")
    for name in options.environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UserError(f"hydra.launcher.environment: {name!r} cannot name a variable")
    if options.minutes * 60 <= options.signal_seconds + 60:
        raise UserError(
            f"hydra.launcher.time: {options.minutes} min leave nothing to run in: jobs are told to stop "
            f"{options.signal_seconds} s before their end (hydra.launcher.signal_seconds), by SLURM up to 60 s more"
        )
    return options


def minutes(time: int | str) -> int:
    """A time limit in minutes, rounded up: `90`, `"90"`, `"1:30:00"`, `"2-12"`, `"2-12:30:00"`, as sbatch reads them.

    Raises UserError.
    """
    if isinstance(time, int):
        return time
    found = re.fullmatch(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(?:(\d+):)?(\d+)(?::(\d+))?)", time.strip())
    if found is None:
        raise UserError(f"hydra.launcher.time: minutes, or a time such as '1-12:00:00', got {time!r}")
    days, hours, day_minutes, day_seconds, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1] is not None:
        seconds = ((days * 24 + hours) * 60 + day_minutes) * 60 + day_seconds
    elif found[7] is not None:
        seconds = (first * 60 + second) * 60 + third
    elif found[5] is not None:
        seconds = first * 60 + second
    else:
        seconds = second * 60
    return max(1, -(-seconds // 60))
