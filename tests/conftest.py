"""What every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# Before torch is imported: tests run beside each other, and one thread a process keeps numbers the same everywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from gradstarve.runs.config import RunConfig, read_config

REPOSITORY = Path(__file__).resolve().parent.parent

# The embedded default with a warm start of seconds: what is tested is not what the model knows.
QUICK = (
    "model.warm_start.steps=60",
    "model.warm_start.practice_steps=0",
    "model.warm_start.concise_shares=[0.5,0.5,0.5,0.5]",
    "dataset.largest_operand=3",
    "dataset.operand_shares={2: 0.6, 3: 0.4, 4: 0.0, 5: 0.0}",
    "dataset.train_size=20",
    "dataset.eval_size=6",
)

ComposeConfig = Callable[..., RunConfig]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with GSM8K, MATH-500, graded outputs and rollouts; GRADSTARVE_TEST_DATA names another place."""
    folder = Path(os.environ.get("GRADSTARVE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"test data not found at {folder}; set GRADSTARVE_TEST_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def compose_config() -> ComposeConfig:
    """`compose_config("seed=43", ...)`: what `python run.py` would run with these overrides."""

    def composed(*overrides: str) -> RunConfig:
        with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
            return read_config(OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True))

    return composed


@pytest.fixture(scope="session")
def quick_models(tmp_path_factory: pytest.TempPathFactory, compose_config: ComposeConfig) -> Path:
    """A folder with the warm start that QUICK asks for, made once a session."""
    from gradstarve.learning.policy import load_policy

    outputs = tmp_path_factory.mktemp("quick")
    load_policy(compose_config(*QUICK, f"outputs={outputs}"))
    return outputs / "models"


@pytest.fixture
def quick(tmp_path: Path, quick_models: Path) -> tuple[str, ...]:
    """Overrides for real training runs of seconds, into this test's own outputs folder (`tmp_path / "outputs"`)."""
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "models").symlink_to(quick_models)
    return (*QUICK, f"outputs={outputs}", "steps=6", "eval_every=3", "checkpoint_every=2", "prompts_per_step=4")
