"""`python run.py` without -m: one run, on this machine, in the same way as each run of a multirun."""

from __future__ import annotations

import sys
import time
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from gradstarve.launching import local
from gradstarve.launching.command_line import MISTAKE, mistakes_in_one_line
from gradstarve.launching.dry_run import print_plan
from gradstarve.launching.fetching import check_asked
from gradstarve.launching.jobs import jobs_of, make_room
from gradstarve.launching.launchers import positive
from gradstarve.runs.config import read_config
from gradstarve.runs.status import read_status


def run_one(config: DictConfig) -> None:
    """Do the run that Hydra composed, and end the program with its exit code."""
    with mistakes_in_one_line():
        sys.exit(_run_one(cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))))


def _run_one(plain: dict[str, Any]) -> int:
    config = read_config(plain)
    jobs = jobs_of([config])
    if config.dry_run:
        print_plan(jobs, 1)
        return 0
    launcher = HydraConfig.get().launcher
    threads, processes = (positive(launcher.get(key), f"hydra.launcher.{key}") for key in ("threads", "processes"))
    make_room(jobs)
    check_asked(jobs)
    began = time.time()
    code = local.launch(jobs, local.How(1, threads, processes))
    status = read_status(jobs[0].folder.path) or {}
    if code != 1 or not status.get("traceback") or status.get("ended", 0) < began:
        return code
    if str(status.get("error")).startswith("UserError: "):
        return MISTAKE
    print(status["traceback"], file=sys.stderr)
    return code
