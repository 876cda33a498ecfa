"""With what a run was run: code, versions, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

import torch

from gradstarve.runs.code_version import code_version
from gradstarve.runs.scheduler import own_job_id

PACKAGES = ("gradstarve", "torch", "transformers", "trl", "peft", "accelerate", "vllm", "math-verify", "hydra-core")


def provenance() -> dict[str, Any]:
    """Commit and state of the code, versions of what decides a result, and the hardware."""
    return {"code": code_version(), "versions": versions(), "hardware": hardware()}


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
        "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "job": own_job_id(),
        "command": sys.argv[0],
    }
