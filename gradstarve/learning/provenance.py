"""With what a run was run: code, versions, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("gradstarve", "torch", "transformers", "trl", "peft", "accelerate", "vllm", "math-verify", "hydra-core")


def provenance() -> dict[str, Any]:
    """Commit and state of the code, versions of what decides a result, and the hardware."""
    return {"code": code_version(), "versions": versions(), "hardware": hardware()}


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


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "command": sys.argv[0],
    }
