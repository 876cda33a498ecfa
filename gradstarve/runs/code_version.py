"""Which code this is: recorded when a run is submitted, and again by every process that runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


def code_version() -> dict[str, Any]:
    """The commit this package is run from, and whether its files differ from it; None where it is no checkout."""
    here = Path(__file__).resolve().parent.parent.parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "gradstarve", "conf", "sweeps", "run.py")
    return {"commit": commit, "dirty": bool(changed) if commit is not None else None}


def code_in_words(code: dict[str, Any]) -> str:
    """For people: `1a2b3c4d`, `1a2b3c4d with changes`, `unknown code`."""
    if code.get("commit") is None:
        return "unknown code"
    return str(code["commit"])[:8] + (" with changes" if code.get("dirty") else "")
