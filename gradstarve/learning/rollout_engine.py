"""What a vLLM engine for training needs, asked before any model is loaded."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import time
from collections.abc import Callable
from typing import Any

import httpx
from packaging.version import Version

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig, VllmConfig
from gradstarve.runs.model_config import HubModelConfig

Say = Callable[[str], None]

# What trl 1.16 supports; it only warns of others.
OLDEST, NEWEST = Version("0.22.0"), Version("0.31.0")


def require_engine(config: RunConfig, say: Say = lambda _: None, patience: float | None = None) -> None:
    """Raises UserError, one line, where this process cannot sample as `config.rollout` asks.

    `patience` is how many seconds to wait for a server, None as the config says.
    """
    vllm, named = config.rollout.vllm, f"rollout={config.rollout.engine}"
    if vllm is None or not config.advantage.trains:
        return
    require_installed(named, "rollout=hf")
    version = _vllm_version()
    if not OLDEST <= Version(Version(version).base_version) <= NEWEST:
        raise UserError(
            f"{named}: vllm {version} is installed, and trl {importlib.metadata.version('trl')} works with {OLDEST} to "
            f"{NEWEST}; pip install 'vllm=={NEWEST}', or choose rollout=hf"
        )
    if vllm.server is not None:
        _check_server(config, vllm, vllm.server.timeout if patience is None else patience, say)
    if not _has_gpu():
        raise UserError(f"{named}: needs a CUDA GPU, and this process sees none; choose rollout=hf")


def require_installed(asked: str, instead: str) -> None:
    """Raises UserError without vLLM: what `asked` for it, and what to choose `instead`."""
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            f"{asked}: vllm is not installed; pip install -c constraints.txt -e '.[vllm]', or choose {instead}"
        )


def _vllm_version() -> str:
    """The installed version, whichever distribution it came in."""
    distributions = importlib.metadata.packages_distributions().get("vllm", ["vllm"])
    return importlib.metadata.version("vllm" if "vllm" in distributions else distributions[0])


def server_url(vllm: VllmConfig) -> str:
    assert vllm.server is not None
    return f"http://{vllm.server.host}:{vllm.server.port}"


def serve_command(config: RunConfig) -> str:
    """The command that starts a server for this run, on the machine with its GPUs."""
    vllm, model = config.rollout.vllm, config.model
    assert vllm is not None and vllm.server is not None
    # A model that is made here lies where the first run of it puts it.
    served = [model.id] if isinstance(model, HubModelConfig) else [f"{config.outputs}/models/{model.source}-<digest>"]
    if isinstance(model, HubModelConfig) and model.revision is not None:
        served += ["--revision", model.revision]
    words = [
        "vllm", "serve", *served, "--dtype", model.dtype,
        "--port", str(vllm.server.port),
        "--tensor-parallel-size", str(vllm.tensor_parallel),
        "--gpu-memory-utilization", f"{vllm.memory_share:g}",
        "--max-model-len", str(vllm.max_model_length or "auto"),
        "--weight-transfer-config", '{"backend": "nccl"}',
        "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(words)}"


def check_server_settings(config: RunConfig, settings: dict[str, Any]) -> None:
    """What a server says of itself (`/server_info`) against what training needs. Raises UserError."""
    vllm = config.rollout.vllm
    assert vllm is not None
    problem = None
    if settings["weight_transfer_config"] is None:
        problem = "cannot take weights"
    elif settings["model_config"]["logprobs_mode"] != "processed_logprobs":
        # Log-probabilities before temperature and top_p: what they are compared with comes after.
        problem = f"reports {settings['model_config']['logprobs_mode']}, not processed_logprobs"
    if problem is not None:
        raise UserError(
            f"rollout=vllm_server: the server at {server_url(vllm)} {problem}; start it with `{serve_command(config)}`"
        )


def _check_server(config: RunConfig, vllm: VllmConfig, patience: float, say: Say) -> None:
    url = server_url(vllm)
    if not _answers(url, patience, say):
        waited = f" (waited {patience:g} s)" if patience else ""
        raise UserError(
            f"rollout=vllm_server: no server answers at {url}{waited}; start one with `{serve_command(config)}`, or "
            "set rollout.vllm.server.host and rollout.vllm.server.port"
        )
    response = httpx.get(f"{url}/server_info", params={"config_format": "json"}, timeout=60)
    if response.status_code != 200:
        raise UserError(
            f"rollout=vllm_server: the server at {url} does not say what it serves (status {response.status_code}); "
            f"start it with `{serve_command(config)}`"
        )
    check_server_settings(config, response.json()["vllm_config"])


def _answers(url: str, patience: float, say: Say) -> bool:
    """Whether a server is up within `patience` seconds; asked once at least."""
    end = time.monotonic() + patience
    told = False
    while True:
        try:
            if httpx.get(f"{url}/health", timeout=10).status_code == 200:
                return True
        except httpx.TransportError:
            pass
        if time.monotonic() >= end:
            return False
        if not told:
            say(f"waiting for the vLLM server at {url}, {patience:g} s at most")
            told = True
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))


def _has_gpu() -> bool:
    import torch  # seconds, and only where vLLM is chosen and there

    return torch.cuda.is_available()
