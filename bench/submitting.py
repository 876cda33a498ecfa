"""Submitting 500 runs, and recognising 500 finished ones: ours against Hydra's own way with hydra-submitit-launcher.

    python bench/submitting.py [RUNS]

Starts the tests' SLURM (tests/slurm/start_slurm.sh; needs root), and makes a venv of its own for
hydra-submitit-launcher below the temporary folder. All jobs are held, so nothing is run; both are timed from the
command's start until SLURM has the whole array. hydra-submitit-launcher then blocks until the jobs have ended, so it is
stopped there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
THEIRS = """
import sys
import hydra

@hydra.main(version_base="1.3", config_path=CONF, config_name="config")
def app(config):
    print(config.seed)

app()
"""


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory(prefix="gradstarve-bench-") as scratch:
        folder = Path(scratch)
        environment = {
            **os.environ,
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
            "SLURM_TEST_DIR": str(folder / "slurm"),
            "SLURM_TEST_PORT": "27017",
            "SLURM_TEST_ACCT": "none",
            "SLURM_CONF": str(folder / "slurm" / "slurm.conf"),
            "OMP_NUM_THREADS": "1",
        }
        scripts = REPOSITORY / "tests" / "slurm"
        subprocess.run(
            ["bash", str(scripts / "start_slurm.sh")], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        try:
            ours, again = time_ours(runs, folder / "ours", environment)
            theirs = time_theirs(runs, folder / "theirs", environment)
        finally:
            subprocess.run(["bash", str(scripts / "stop_slurm.sh"), "--purge"], env=environment, check=True)
    print(f"submitting {runs} runs: {ours:.1f} s; hydra-submitit-launcher: {theirs:.1f} s; ratio {theirs / ours:.1f}")
    print(f"recognising that {runs} runs are done already: {again:.1f} s (hydra-submitit-launcher runs them again)")


def time_ours(runs: int, folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    folder.mkdir()
    line = [
        sys.executable, str(REPOSITORY / "run.py"), "-m", f"seed=1..{runs}", "hydra/launcher=slurm_cpu",
        "hydra.launcher.runs_per_job=1", "hydra.launcher.sbatch={hold: true}",
    ]  # fmt: skip
    started = time.perf_counter()
    subprocess.run(line, cwd=folder, env=environment, check=True, stderr=subprocess.DEVNULL)
    ours = time.perf_counter() - started
    pretend_done(folder, environment)
    subprocess.run(["scancel", "-u", "root"], env=environment, check=True)
    started = time.perf_counter()
    said = subprocess.run(line, cwd=folder, env=environment, check=True, capture_output=True, text=True).stderr
    assert f"{runs} done already" in said, said
    return ours, time.perf_counter() - started


def pretend_done(folder: Path, environment: dict[str, str]) -> None:
    """Give every run folder what the launcher looks for: a result and its evaluation's summary."""
    sweeps = [json.loads(file.read_text()) for file in (folder / "outputs" / "sweeps").glob("*.json")]
    for run in sweeps[0]["runs"]:
        place = folder / "outputs" / "runs" / run["run"]
        (place / "evaluations" / run["evaluation"]).mkdir(parents=True)
        (place / "evaluations" / run["evaluation"] / "summary.json").write_text("{}")
        (place / "result.json").write_text(json.dumps({"layout": 1, "run": run["run"]}))


def time_theirs(runs: int, folder: Path, environment: dict[str, str]) -> float:
    folder.mkdir()
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "hydra-core==1.3.8", "omegaconf==2.3.1", "hydra-submitit-launcher==1.2.0"], check=True)
    shutil.copytree(REPOSITORY / "conf", folder / "conf")
    (folder / "app.py").write_text(THEIRS.replace("CONF", repr(str(folder / "conf"))))
    line = [
        str(venv / "bin" / "python"), "app.py", "-m", f"seed=range(1,{runs + 1})", "hydra/sweeper=basic",
        "hydra/launcher=submitit_slurm", "+hydra.launcher.additional_parameters={hold: true}",
    ]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(
        line, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while True:
        waiting = subprocess.run(["squeue", "-h", "-r"], env=environment, check=True, capture_output=True, text=True)
        if len(waiting.stdout.splitlines()) >= runs:
            break
        if process.poll() is not None:
            assert process.stderr is not None
            raise SystemExit(f"hydra-submitit-launcher ended early:\n{process.stderr.read()}")
        time.sleep(0.2)
    theirs = time.perf_counter() - started
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(["scancel", "-u", "root"], env=environment, check=True)
    return theirs


if __name__ == "__main__":
    main()
