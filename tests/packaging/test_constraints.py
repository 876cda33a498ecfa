"""constraints.txt holds for every extra, the one with vLLM among them. Metadata is fetched, no package."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXTRAS = ("slurm", "wandb", "vllm", "dev")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="uv is not installed"),
]


def test_every_extra_is_resolved_here() -> None:
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(declared["project"]["optional-dependencies"]) == set(EXTRAS)


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_the_constraints_resolve_with_every_extra(python: str) -> None:
    finished = subprocess.run(
        [
            sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate",
            "--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "-c", "constraints.txt",
            *(word for extra in EXTRAS for word in ("--extra", extra)), "pyproject.toml",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    resolved = dict(line.split("==") for line in finished.stdout.split() if "==" in line)
    wanted = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = dict(word.split("==") for word in wanted if "==" in word)
    assert {name: resolved.get(name) for name in pinned} == pinned
