"""The door that users use, and run folders to put behind it."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import synthetic

from gradstarve import cli
from gradstarve.runs.config import RunConfig
from gradstarve.runs.sweeps import declare


class Outputs:
    """An outputs folder being filled, and the commands that read it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self, advantage: str, group_size: int = 4, seed: int = 42, **keys: Any) -> RunConfig:
        return synthetic.config(self.path, advantage, group_size, seed, **({"steps": 20} | keys))

    def cell(
        self, advantage: str, rights: Sequence[int], group_size: int = 4, n: int = 100, **keys: Any
    ) -> list[RunConfig]:
        """Finished runs of seeds 42, 43, ... that got `rights` of `n` questions."""
        options = {"commit", "dirty", "versions", "tables", "by_step", "strict_right", "flexible_right"}
        write = {key: keys.pop(key) for key in list(keys) if key in options}
        configs = [self.config(advantage, group_size, 42 + i, **keys) for i in range(len(rights))]
        for config, right in zip(configs, rights, strict=True):
            synthetic.write_run(config, right, n, **write)
        return configs

    def base(self, right: int = 25, n: int = 100, **keys: Any) -> RunConfig:
        config = self.config("base", **keys)
        synthetic.write_run(config, right, n)
        return config

    def declare(self, configs: Sequence[RunConfig], name: str = "wanted") -> None:
        declare(self.path, name, None, ["python", "run.py", "-m", f"+sweep={name}"], configs)

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error of a command on this folder."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([arguments[0], "--outputs", str(self.path), *arguments[1:]])
        return code, out.getvalue(), err.getvalue()

    def tables(self, *arguments: str) -> str:
        """Standard output of `gradstarve tables` without figures, which must succeed."""
        code, out, err = self.call("tables", "--no-figures", *arguments)
        assert code == 0, err
        return out

    def csv(self, name: str) -> dict[str, dict[str, str]]:
        """A table's csv: rows by their first column."""
        with (self.path / "tables" / f"{name}.csv").open(newline="") as stream:
            return {next(iter(row.values())): row for row in csv.DictReader(stream)}

    def text(self, name: str, suffix: str = ".md") -> str:
        return (self.path / "tables" / f"{name}{suffix}").read_text()


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    return Outputs(tmp_path / "outputs")


@pytest.fixture(scope="module")
def module_outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """One folder for all tests of a file that only read it."""
    return Outputs(tmp_path_factory.mktemp("module") / "outputs")
