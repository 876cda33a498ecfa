"""`-m`: from overrides and sweep files to jobs, all composed and checked before anything runs."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from gradstarve.errors import UserError
from gradstarve.launching.combinations import combinations, key_of, parse_overrides
from gradstarve.launching.compose import Composer
from gradstarve.launching.dry_run import print_plan
from gradstarve.launching.fetching import check_asked
from gradstarve.launching.hydra_errors import one_line
from gradstarve.launching.jobs import Job, jobs_of, make_room
from gradstarve.launching.sweep_file import SweepFile, find_sweep, read_sweep_file
from gradstarve.runs.config import RunConfig, read_config
from gradstarve.runs.signature import evaluation_name, run_name
from gradstarve.runs.sweeps import declare

# What a launcher is: it takes the jobs of a command and returns the command's exit code.
Launch = Callable[[Sequence[Job]], int]

SWEEP = "sweep"


@dataclass(frozen=True)
class Asked:
    """The runs that one command asks for, or one of its sweep files: a name and a title where there are any."""

    name: str | None
    title: str | None
    configs: list[RunConfig]


def multirun(typed: Sequence[str], composer: Composer, sweeps: Path, launch: Launch, here: bool = True) -> int:
    """Do what `python run.py -m TYPED` asks for; returns the exit code.

    `typed` are the overrides without Hydra's own; `sweeps` is the folder of sweep files; `here`: whether `launch` runs
    on this machine. Raises UserError,
    and what Hydra raises, before anything is written or run.
    """
    asked = ask(typed, composer, sweeps)
    configs = [config for each in asked for config in each.configs]
    jobs = jobs_of(configs)
    if any(config.dry_run for config in configs):
        print_plan(jobs, len(configs), here)
        return 0
    make_room(jobs)
    if here:
        check_asked(jobs)
    for each in asked:
        _declare(each)
    return launch(jobs)


def ask(typed: Sequence[str], composer: Composer, sweeps: Path) -> list[Asked]:
    """The configs that the overrides ask for, composed and checked: of each sweep file, or of the overrides alone."""
    overrides = parse_overrides(typed, composer.loader)
    own = [override for override in overrides if key_of(override) != SWEEP]
    named = [override for override in overrides if key_of(override) == SWEEP]
    if not named:
        return [Asked(None, None, _configs(combinations(own), composer))]
    sweep = named[0]
    names = list(sweep.sweep_iterator()) if sweep.is_sweep_override() else [sweep.value()]
    files = [read_sweep_file(find_sweep(str(name), sweeps)) for name in names]
    return [_of_file(file, [str(override.input_line) for override in own], composer) for file in files]


def _of_file(file: SweepFile, typed: Sequence[str], composer: Composer) -> Asked:
    """A sweep file with what was typed beside it: that holds for every grid, whatever the grid says of the same key."""
    configs = _configs_of_file(file, typed, composer)
    name, title = file.name, file.title
    if typed and _runs_of(configs) != _runs_of(_configs_of_file(file, [], composer)):
        # Not the runs that the file stands for, so not under its name.
        name = f"{name}-{_digest(_runs_of(configs))}"
        title = f"{title or file.name} ({' '.join(typed)})"
    return Asked(name, title, configs)


def _configs_of_file(file: SweepFile, typed: Sequence[str], composer: Composer) -> list[RunConfig]:
    configs: list[RunConfig] = []
    typed_keys = {key_of(override) for override in parse_overrides(typed, composer.loader)}
    for number, grid in enumerate(file.grids, 1):
        try:
            kept = [o for o in parse_overrides(grid, composer.loader) if key_of(o) not in typed_keys]
            texts = [*(str(o.input_line) for o in kept), *typed]
            configs.extend(_configs(combinations(parse_overrides(texts, composer.loader)), composer))
        except (UserError, HydraException, OmegaConfBaseException) as error:
            raise UserError(f"{file.path}: grid {number}: {one_line(error)}") from error
    return configs


def _configs(wanted: Sequence[Sequence[str]], composer: Composer) -> list[RunConfig]:
    return [read_config(composer.compose(overrides)) for overrides in wanted]


def _declare(asked: Asked) -> None:
    outputs = {config.outputs for config in asked.configs}
    for folder in sorted(outputs):
        unique = {
            (run_name(config), evaluation_name(config)): config for config in asked.configs if config.outputs == folder
        }
        declare(Path(folder), asked.name, asked.title, ["python", *sys.argv], list(unique.values()))


def _runs_of(configs: Sequence[RunConfig]) -> list[str]:
    return sorted({f"{run_name(config)} {evaluation_name(config)}" for config in configs})


def _digest(runs: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(runs).encode()).hexdigest()[:8]
