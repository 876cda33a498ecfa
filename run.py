"""One run, or with -m a sweep of runs: `python run.py --help`."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from gradstarve.launching import command_line, single


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def run(config: DictConfig) -> None:
    single.run_one(config)


if __name__ == "__main__":
    sys.exit(command_line.main(run))
