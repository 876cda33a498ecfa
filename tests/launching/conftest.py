"""The doors that users use: run.py and `gradstarve status`."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
RUN_PY = REPOSITORY / "run.py"


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of a user's mistake; more than that, or none, is a failure."""
        assert self.code == 2, self
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("run.py: ")
        return self.err.removeprefix("run.py: ").strip()


Door = Callable[..., Answer]


def changed(overrides: Sequence[str], **values: object) -> tuple[str, ...]:
    """The overrides with other values for these keys: a key may be given once."""
    kept = (text for text in overrides if text.split("=")[0] not in values)
    return (*kept, *(f"{key}={value}" for key, value in values.items()))


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Door:
    """`door("seed=43", ...)`: `python run.py seed=43 ...` in an empty folder, without the cost of a new process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")

    def typed(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", [str(RUN_PY), *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(RUN_PY), run_name="__main__")
        printed = capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, printed.out, printed.err)

    return typed


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """`start("-m", ...)`: run.py in a process of its own, in this test's folder."""

    def started(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(RUN_PY), *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HYDRA_FULL_ERROR": "0"},
        )

    return started
