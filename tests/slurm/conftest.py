"""A real one-node SLURM for the tests, with fake GPUs; and the doors that its users use."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import QUICK, REPOSITORY

HERE = Path(__file__).resolve().parent
COMMANDS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "mariadbd", "slurmdbd")

# What the runs of these tests ask for, unless they say otherwise: a core each, no GPU.
LAUNCHER = (
    "hydra/launcher=slurm_cpu",
    "hydra.launcher.runs_per_job=1",
    "hydra.launcher.memory_per_run=null",
    "hydra.launcher.signal_seconds=20",
)


@dataclass
class Cluster:
    """A SLURM, and commands given on it. `environment` is what its users have set."""

    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def ask(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, (command, done.stderr)
        return done.stdout

    def states(self, batch: Path) -> dict[int, str]:
        """SLURM's words for the tasks of a submission, by number."""
        lines = self.ask("squeue", "-h", "-r", "-t", "all", f"--name={batch.name}", "-o", "%K|%T").splitlines()
        return {int(task): state for task, _, state in (line.partition("|") for line in lines)}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass
class Desk:
    """One user's folder on the cluster's file system."""

    cluster: Cluster
    folder: Path

    @property
    def outputs(self) -> Path:
        return self.folder / "outputs"

    def run_py(self, *arguments: str, code: int = 0) -> Answer:
        """`python run.py ...`, with tiny runs of seconds."""
        return self._answer([str(REPOSITORY / "run.py"), *arguments], code)

    def submit(self, *arguments: str, code: int = 0) -> Answer:
        """`python run.py -m ... hydra/launcher=slurm`."""
        return self.run_py("-m", *last_word(*QUICK, *STEPS, *LAUNCHER, *arguments), code=code)

    def gradstarve(self, *arguments: str, code: int = 0) -> Answer:
        return self._answer(["-m", "gradstarve", *arguments], code)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """`submit` in a process that is not waited for."""
        process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "run.py"), "-m", *last_word(*QUICK, *STEPS, *LAUNCHER, *arguments)],
            cwd=self.folder, env=self.cluster.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # Tests that are started in the background of a shell inherit that SIGINT is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self.cluster.started.append(process)
        return process

    def batches(self) -> list[Path]:
        return sorted(
            (path.parent for path in self.outputs.glob("slurm/*/batch.json")), key=lambda p: p.stat().st_ctime
        )

    def final_states(self, batch: Path) -> dict[int, str]:
        """SLURM's words once the jobs are over, which is a moment after their runs."""
        deadline = time.monotonic() + 60
        while set(states := self.cluster.states(batch).values()) & {"RUNNING", "COMPLETING"}:
            assert time.monotonic() < deadline, states
            time.sleep(0.5)
        return self.cluster.states(batch)

    def runs(self) -> dict[str, dict[str, Any]]:
        """`gradstarve status --json`, by run."""
        return {each["run"]: each for each in json.loads(self.gradstarve("status", "--json").out)}

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.outputs.glob("slurm/*/*_log.out")))

    def wait(
        self, until: Callable[[dict[str, dict[str, Any]]], bool], what: str, seconds: float = 240
    ) -> dict[str, Any]:
        """Look at the status until it is as wanted. Requeued jobs are hurried: SLURM lets them wait for two minutes."""
        deadline = time.monotonic() + seconds
        while True:
            runs = self.runs()
            if until(runs):
                return runs
            assert time.monotonic() < deadline, (what, runs, self.logs()[-4000:], self.cluster.ask("squeue"))
            time.sleep(1)
            self.hurry()

    def wait_done(self, seconds: float = 240) -> dict[str, Any]:
        return self.wait(
            lambda runs: bool(runs) and all(r["state"] == "done" for r in runs.values()), "all done", seconds
        )

    def wait_step(self, step: int, run: str | None = None) -> None:
        """Until a run (or each one) has done a step."""

        def there(runs: dict[str, dict[str, Any]]) -> bool:
            chosen = [runs[run]] if run is not None else list(runs.values())
            return bool(chosen) and all((each["step"] or 0) >= step for each in chosen)

        self.wait(there, f"step {step}")

    def hurry(self) -> None:
        for job in self.cluster.ask("squeue", "-h", "-r", "-t", "PENDING", "-o", "%i|%r").splitlines():
            number, _, reason = job.partition("|")
            if reason == "BeginTime":
                self.cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)

    def _answer(self, arguments: Sequence[str], code: int) -> Answer:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=self.cluster.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-3000:])
        return Answer(done.returncode, done.stdout, done.stderr)


def last_word(*overrides: str) -> list[str]:
    """Each key once, as it was given last."""
    return list({text.partition("=")[0]: text for text in overrides}.values())


STEPS = ("steps=6", "eval_every=3", "checkpoint_every=2", "prompts_per_step=4")


def start_cluster(folder: Path, port: int, **options: str) -> Cluster:
    """Raises or skips where SLURM is not installed: with GRADSTARVE_SLURM=required it is a failure."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [name for name in COMMANDS if shutil.which(name, path=path) is None]
    why = f"not installed: {', '.join(missing)}" if missing else "needs root" if os.geteuid() != 0 else None
    if why is not None:
        if os.environ.get("GRADSTARVE_SLURM") == "required":
            pytest.fail(f"SLURM: {why}; see `make test-slurm`")
        pytest.skip(f"SLURM: {why}; `make test-slurm` installs it")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))},
        "PATH": path,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
        "SLURM_TEST_DIR": str(folder),
        "SLURM_TEST_PORT": str(port),
        # nproc, which the script would ask, listens to OMP_NUM_THREADS.
        "SLURM_TEST_CPUS": str(os.cpu_count()),
        **{f"SLURM_TEST_{key.upper()}": value for key, value in options.items()},
    }
    done = subprocess.run(
        ["bash", str(HERE / "start_slurm.sh")], env=environment, stdin=subprocess.DEVNULL,
        timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Cluster({**environment, "SLURM_CONF": str(folder / "slurm.conf")})


def stop_cluster(cluster: Cluster) -> None:
    for process in cluster.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
    subprocess.run(
        ["bash", str(HERE / "stop_slurm.sh"), "--purge"],
        env=cluster.environment,
        capture_output=True,
        timeout=180,
        check=True,
    )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with accounting. A preempted job gets the signal that it asked for."""
    cluster = start_cluster(tmp_path_factory.mktemp("slurm"), 26817)
    yield cluster
    stop_cluster(cluster)


@pytest.fixture(scope="session")
def plain_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without accounting, which forgets jobs after seconds and preempts with SIGTERM alone."""
    cluster = start_cluster(
        tmp_path_factory.mktemp("plain"), 26917, acct="none", user_signal="no", min_job_age="10"
    )  # fmt: skip
    yield cluster
    stop_cluster(cluster)


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path, quick_models: Path) -> Iterator[Desk]:
    yield from _desk(cluster, tmp_path, quick_models)


@pytest.fixture
def plain_desk(plain_cluster: Cluster, tmp_path: Path, quick_models: Path) -> Iterator[Desk]:
    yield from _desk(plain_cluster, tmp_path, quick_models)


def _desk(cluster: Cluster, folder: Path, models: Path) -> Iterator[Desk]:
    desk = Desk(cluster, folder)
    desk.outputs.mkdir()
    (desk.outputs / "models").symlink_to(models)
    yield desk
    cluster.ask("scancel", f"--user={getpass.getuser()}", check=False)
