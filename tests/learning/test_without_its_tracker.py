"""A tracker that is missing where a run is, and not where it was asked for: said once, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gradstarve.learning.tracking import tracked
from gradstarve.runs.folder import RunFolder


def test_a_node_without_the_package_says_so_once_and_runs(
    compose_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose_config("tracker=wandb", f"outputs={tmp_path}")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    said: list[str] = []
    reached = False
    with tracked(config, RunFolder.of(config), said.append) as track:
        track()
        track()
        reached = True
    assert reached
    assert len(said) == 1
    assert said[0].startswith("the run goes on without its tracker: tracker=wandb: the package wandb is not installed")
    assert list(tmp_path.iterdir()) == []


def test_without_a_tracker_nothing_is_said(compose_config: Any, tmp_path: Path) -> None:
    config = compose_config(f"outputs={tmp_path}")
    said: list[str] = []
    with tracked(config, RunFolder.of(config), said.append) as track:
        track()
    assert said == []
