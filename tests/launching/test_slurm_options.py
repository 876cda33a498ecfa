"""The options of hydra/launcher=slurm, and the batch script that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from gradstarve.errors import UserError
from gradstarve.launching.slurm_options import SlurmOptions, minutes, read_options
from tests.conftest import REPOSITORY


def options(preset: str = "slurm", **changes: Any) -> SlurmOptions:
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        config = compose("config", overrides=[f"hydra/launcher={preset}"], return_hydra_config=True)
    plain: dict[str, Any] = OmegaConf.to_container(config.hydra.launcher, resolve=True)  # type: ignore[assignment]
    plain.pop("_target_")
    return read_options({**plain, **changes})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (90, 90),
        ("90", 90),
        ("1:30", 2),
        ("1:30:00", 90),
        ("0:00:59", 1),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("1-0:0:1", 1441),
    ],
)
def test_time_limits_as_sbatch_reads_them(text: int | str, expected: int) -> None:
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1-", "1.5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UserError, match=r"hydra\.launcher\.time"):
        minutes(text)


@pytest.mark.parametrize("preset", ["slurm", "slurm_h100", "slurm_node", "slurm_cpu"])
def test_presets_are_whole_and_survive_their_file(preset: str) -> None:
    assert read_options(options(preset).plain()) == options(preset)


def test_mistakes_are_named_with_their_key() -> None:
    for change, said in (
        ({"time": 2}, "leave nothing to run in"),
        ({"time": True}, r"hydra\.launcher\.time"),
        ({"runs_per_job": 0}, r"hydra\.launcher\.runs_per_job: .*greater than or equal to 1"),
        ({"runs_at_once": 3}, "3 of only 1 runs_per_job"),
        ({"environment": {"A B": "1"}}, "cannot name a variable"),
        ({"on_interrupt": "stay"}, r"hydra\.launcher\.on_interrupt"),
        ({"partitoin": "gpu"}, "Did you mean 'partition'"),
    ):
        with pytest.raises(UserError, match=said):
            options(**change)


def test_the_batch_script_says_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    from gradstarve.launching.slurm import script

    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = script(
        options(
            partition="gpu", account="me", qos="long", constraint="h100", gpus_per_run=2, cpus_per_run=6,
            memory_per_run="40GB", runs_per_job=4, runs_at_once=2, array_parallelism=8, time="1-0",
            sbatch={"exclude": "node7", "mail-type": "END"}, environment={"NCCL_DEBUG": "IN FO"},
            setup=["module load cuda"], srun_args=["--mpi=none"],
        ),
        tasks=20,
    )  # fmt: skip
    for line in (
        "#SBATCH --array=0-19%8", "#SBATCH --partition=gpu", "#SBATCH --account=me", "#SBATCH --qos=long",
        "#SBATCH --constraint=h100", "#SBATCH --gpus-per-node=4", "#SBATCH --cpus-per-task=12", "#SBATCH --mem=80GB",
        "#SBATCH --time=1440", "#SBATCH --signal=USR2@120", "#SBATCH --requeue", "#SBATCH --exclude=node7",
        "#SBATCH --mail-type=END", "module load cuda", "export NCCL_DEBUG='IN FO'", "export HF_HUB_OFFLINE=1",
    ):  # fmt: skip
        assert line in text.splitlines(), line
    assert "--wckey" not in text
    assert "srun --unbuffered" in text and "--cpus-per-task=12 --mpi=none" in text

    bare = script(
        options(use_srun=False, gpus_per_run=0, sbatch={"gres": "gpu:a100:1"}, python="apptainer exec i python"), 1
    )
    assert "srun --unbuffered" not in bare and "--gpus-per-node" not in bare
    # Python takes the place of the batch shell, which is then the one to be signalled.
    assert "exec apptainer exec i python -u -m gradstarve.launching.slurm_task" in bare
    assert "#SBATCH --signal=B:USR2@120" in bare and "#SBATCH --gres=gpu:a100:1" in bare
