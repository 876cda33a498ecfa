"""What the command of one run says where no terminal is attached: each thing once, and 2 for a user's mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradstarve.launching import progress
from gradstarve.launching.jobs import jobs_of
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.status import write_status
from tests.conftest import ComposeConfig

from .conftest import Door


def test_progress_is_told_when_it_changes(
    compose_config: ComposeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.0)
    config = compose_config(f"outputs={tmp_path}")
    with progress.showing(jobs_of([config])) as shown:
        for state in (None, None, "failed", "failed", None):
            if state == "failed":
                folder = RunFolder.of(config)
                folder.path.mkdir(parents=True, exist_ok=True)
                write_status(folder.path, "failed", error="UserError: no")
            shown.refresh()
            shown.refresh()
    assert capsys.readouterr().err == "1 run: 1 failed\n"


@pytest.mark.slow
def test_a_model_that_cannot_be_had_is_a_mistake_and_told_once(door: Door, tmp_path: Path) -> None:
    """Slow: the trainer is loaded. The tests run with HF_HUB_OFFLINE set."""
    for side in ("train", "eval"):
        (tmp_path / f"{side}.jsonl").write_text(f'{{"question": "{side}?", "answer": "#### 2"}}\n')
    paths = [f"dataset.{side}_path={tmp_path / side}.jsonl" for side in ("train", "eval")]
    answer = door("model=qwen3_8b", "model.id=some/none", "dataset=gsm8k", *paths)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("some/none is not in the local cache, and HF_HUB_OFFLINE is set") == 1
    assert "Traceback" not in answer.err
    assert answer.err.count("1 run: 1 missing") == 0
