"""The runs of a command as an array of a real SLURM: whatever happens on the way, every result equals the local one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import QUICK
from tests.slurm.conftest import STEPS, Cluster, Desk, last_word

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]

LONG = ("steps=300", "checkpoint_every=100", "eval_every=0")

# Jobs are told to stop so long before their time limit that a limit of a minute is announced at once.
SOON = "hydra.launcher.signal_seconds=50"


def result(folder: Path) -> dict[str, Any]:
    """The summary row less what a clock has measured."""
    row = json.loads((folder / "result.json").read_text())
    evaluation = {key: value for key, value in row["evaluation"].items() if key != "seconds"}
    return {**{k: v for k, v in row.items() if k not in {"seconds", "finished", "code"}}, "evaluation": evaluation}


def same(folder: Path, other: Path) -> None:
    """Two run folders with the same result, rows and weights."""
    assert result(folder) == result(other)
    for table in ("groups", "completions"):
        pd.testing.assert_frame_equal(
            pd.read_parquet(folder / f"{table}.parquet"), pd.read_parquet(other / f"{table}.parquet")
        )
    steps, others = (pd.read_parquet(path / "steps.parquet").filter(regex="^(?!seconds)") for path in (folder, other))
    pd.testing.assert_frame_equal(steps, others)
    weights = [path / "weights" / "model.safetensors" for path in (folder, other)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_users_line_as_an_array_of_fourteen(desk: Desk, tmp_path: Path) -> None:
    line = ("advantage=sign,drgrpo", "seed=42..48")
    answer = desk.submit(*line)
    (batch,) = desk.batches()
    job = (batch / "job_id").read_text().strip()
    assert "14 runs: 14 submitted" in answer.err
    assert f"job {job}: 14 tasks" in answer.err and "gradstarve status --watch" in answer.err
    assert "#SBATCH --array=0-13%14" in (batch / "submission.sh").read_text()
    # While they are in hand, the same command submits nothing, and neither does another that asks for some of them.
    assert "14 queued or running already" in desk.submit(*line).err
    assert "2 queued or running already" in desk.submit("advantage=sign", "seed=42,43").err
    runs = desk.runs()
    assert len(runs) == 14 and {run["state"] for run in runs.values()} <= {"queued", "running", "done"}
    assert any("waits" in (run["why"] or "") for run in runs.values())

    desk.wait_done(1500)
    assert set(desk.final_states(batch).values()) == {"COMPLETED"}
    assert len(desk.batches()) == 1
    assert "14 done already" in desk.submit(*line).err

    elsewhere = tmp_path / "local"
    elsewhere.mkdir()
    (elsewhere / "models").symlink_to(desk.outputs / "models")
    desk.run_py("-m", *QUICK, *STEPS, *line, f"outputs={elsewhere}")
    for folder in sorted((desk.outputs / "runs").iterdir()):
        same(folder, elsewhere / "runs" / folder.name)

    # What was submitted and what ran is told.
    provenance = json.loads((folder / "provenance.json").read_text())
    submission = json.loads((folder / "submission.json").read_text())
    assert submission["code"] == provenance["sessions"][-1]["code"]
    assert provenance["sessions"][-1]["hardware"]["job"] == f"{job}_{submission['task']}"


def test_a_failing_run_fails_its_job_and_no_other_and_is_retried(desk: Desk) -> None:
    line = ("advantage=sign", "seed=42..44")
    names = sorted(desk_names(desk, *line))
    # A checkpoint that says more of the tables than there is.
    broken = desk.outputs / "runs" / names[1] / "checkpoints" / "checkpoint-2"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text(json.dumps({"step": 2, "offsets": {"steps": 999}, "files": {}}))
    desk.submit(*line)
    runs = desk.wait(lambda now: all(r["state"] in {"done", "failed"} for r in now.values()), "all over")
    assert [runs[name]["state"] for name in names] == ["done", "failed", "done"]
    assert "fewer than the 999" in runs[names[1]]["why"]
    (batch,) = desk.batches()
    assert desk.final_states(batch) == {0: "COMPLETED", 1: "FAILED", 2: "COMPLETED"}
    assert "Traceback" in (desk.outputs / "runs" / names[1] / "log.txt").read_text()

    shutil.rmtree(broken)
    answer = desk.gradstarve("retry", names[1])
    assert "1 run: 1 submitted" in answer.err
    desk.wait_done()
    assert "nothing has failed" in desk.gradstarve("retry", "--all").err


def desk_names(desk: Desk, *line: str) -> list[str]:
    """The names of the runs that a line asks for."""
    out = desk.run_py("-m", *last_word(*QUICK, *STEPS, *line), "dry_run=true").out
    return [text.split()[0] for text in out.partition("# runs\n")[2].splitlines() if not text.startswith("#")]


def uninterrupted(desk: Desk, tmp_path: Path, *line: str) -> Path:
    """The runs folder of the same line, run here."""
    elsewhere = tmp_path / "uninterrupted"
    elsewhere.mkdir()
    (elsewhere / "models").symlink_to(desk.outputs / "models")
    desk.run_py("-m", *last_word(*QUICK, *STEPS, *LONG, *line), f"outputs={elsewhere}")
    return elsewhere / "runs"


def fill(cluster: Cluster, partition: str = "high") -> str:
    """A job of another user that wants every core; returns its id."""
    said = cluster.ask(
        "sbatch", "--parsable", f"--partition={partition}", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    )
    return said.strip()


def soon(cluster: Cluster, job: str) -> int:
    """A limit in minutes that the job reaches soon, but not before SLURM, which looks every half minute, has told it.

    A job whose limit is already over when SLURM looks is ended without the signal that it asked for.
    """
    elapsed = [text.split(":") for text in cluster.ask("squeue", "-h", "-j", job, "-o", "%M").split()]
    seconds = max(60 * int(minutes) + int(rest) for minutes, rest in elapsed)
    return (seconds + 30) // 60 + 1


def test_preemption_and_time_limit_change_no_number(desk: Desk, tmp_path: Path) -> None:
    line = ("seed=42,43", *LONG)
    desk.submit(*line, SOON)
    desk.wait_step(5)
    other = fill(desk.cluster)
    runs = desk.wait(lambda now: all(" waits" in str(r["why"]) for r in now.values()), "preempted")
    for run in runs.values():
        # More than the checkpoint of every 100 steps: one was taken when the signal came.
        kept = max(
            int(p.name.partition("-")[2]) for p in (desk.outputs / "runs" / run["run"] / "checkpoints").iterdir()
        )
        assert kept % 100 and f"go on after step {kept}" in run["why"], run
    assert "preemption: putting job" in desk.logs()
    desk.cluster.ask("scancel", other)
    desk.wait(lambda now: all(r["state"] == "running" for r in now.values()), "going on")
    desk.wait(lambda now: all(r["step"] > 5 for r in now.values()), "stepping")
    (batch,) = desk.batches()
    job = (batch / "job_id").read_text().strip()
    desk.cluster.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={soon(desk.cluster, job)}")
    desk.wait(lambda _: desk.logs().count("time limit: putting job") == 2, "the limit")
    desk.cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=60", check=False)
    desk.wait_done(400)
    wanted = uninterrupted(desk, tmp_path, "seed=42,43")
    for folder in sorted((desk.outputs / "runs").iterdir()):
        same(folder, wanted / folder.name)


def test_a_time_limit_requeues_only_so_often(desk: Desk) -> None:
    desk.submit("seed=42", "steps=4000", "eval_every=0", "checkpoint_every=0", "hydra.launcher.requeues=1", SOON)
    desk.wait_step(3)
    (batch,) = desk.batches()
    job = (batch / "job_id").read_text().strip()
    desk.cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    desk.wait(lambda _: "was requeued 1 times already" in desk.logs(), "the second limit", 400)
    runs = desk.wait(lambda now: all(r["state"] == "interrupted" for r in now.values()), "over")
    (run,) = runs.values()
    assert f"job {job}_0 ended as" in run["why"]
    assert desk.logs().count("time limit: putting job") == 1
    assert list((desk.outputs / "runs" / run["run"] / "checkpoints").iterdir())


def test_one_task_is_cancelled_and_the_others_go_on(desk: Desk, tmp_path: Path) -> None:
    line = ("seed=42,43", *LONG)
    desk.submit(*line)
    desk.wait_step(3)
    (batch,) = desk.batches()
    job = (batch / "job_id").read_text().strip()
    names = sorted(desk_names(desk, *line))
    desk.cluster.ask("scancel", f"{job}_0")
    runs = desk.wait(lambda now: now[names[0]]["state"] not in {"running", "queued"}, "cancelled")
    assert runs[names[0]]["state"] in {"interrupted", "lost"}
    runs = desk.wait(lambda now: "CANCELLED" in str(now[names[0]]["why"]), "said so")
    assert runs[names[1]]["state"] in {"running", "done"}
    answer = desk.submit(*line)
    assert "1 submitted" in answer.err
    desk.wait_done()
    wanted = uninterrupted(desk, tmp_path, "seed=42,43")
    for name in names:
        same(desk.outputs / "runs" / name, wanted / name)


def test_a_killed_submitter_loses_nothing_and_two_commands_submit_once(desk: Desk) -> None:
    first = desk.start("advantage=sign,drgrpo", "seed=42,43", "hydra.launcher.wait=true")
    second = desk.start("advantage=sign,grpo", "seed=42,43")
    desk.wait(lambda now: len(now) == 6 and all(r["state"] != "missing" for r in now.values()), "both submitted")
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert second.wait(60) == 0
    # As after a reboot of the login node: nothing but the folders is left.
    for batch in desk.batches():
        (batch / "job_id").unlink()
    desk.wait_done()
    submitted = [json.loads((batch / "batch.json").read_text())["tasks"] for batch in desk.batches()]
    assert sorted(name for tasks in submitted for task in tasks for name in task) == sorted(desk.runs())


def test_waiting_and_ctrl_c(desk: Desk) -> None:
    waiting = desk.start(
        "seed=42", "steps=4000", "eval_every=0", "hydra.launcher.wait=true", "hydra.launcher.on_interrupt=leave"
    )
    desk.wait_step(1)
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(30) == 130
    assert waiting.stderr is not None and "the jobs go on" in waiting.stderr.read()
    assert {run["state"] for run in desk.runs().values()} == {"running"}
    again = desk.start(
        "seed=42", "steps=4000", "eval_every=0", "hydra.launcher.wait=true", "hydra.launcher.on_interrupt=cancel"
    )
    time.sleep(8)
    again.send_signal(signal.SIGINT)
    assert again.wait(60) == 130
    assert again.stderr is not None and "cancelled 1 SLURM job" in again.stderr.read()
    desk.wait(lambda now: all(r["state"] in {"interrupted", "lost"} for r in now.values()), "cancelled")
    ended = desk.start("seed=43", "hydra.launcher.wait=true")
    _, err = ended.communicate(timeout=200)
    assert ended.returncode == 0, err
    assert "1 run: 1 done" in err


def test_a_drained_node_a_lost_node_and_one_that_comes_back(desk: Desk, tmp_path: Path) -> None:
    node = desk.cluster.ask("sinfo", "-h", "-o", "%n").split()[0]
    desk.cluster.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    desk.submit("seed=42", *LONG)
    runs = desk.wait(
        lambda now: all("Resources" in str(r["why"]) or "Nodes" in str(r["why"]) for r in now.values()), "waits"
    )
    assert {run["state"] for run in runs.values()} == {"queued"}
    desk.cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    desk.wait_step(3)
    desk.cluster.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    desk.wait(lambda now: all(r["state"] == "queued" for r in now.values()), "requeued by SLURM")
    time.sleep(3)
    # A node that registers again comes back by itself here; then there is nothing to resume.
    desk.cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    desk.wait_done(400)
    wanted = uninterrupted(desk, tmp_path, "seed=42")
    for folder in sorted((desk.outputs / "runs").iterdir()):
        same(folder, wanted / folder.name)


def test_gpus_several_processes_and_packed_jobs(desk: Desk) -> None:
    # Two runs side by side in one job, each with a GPU of its own.
    desk.submit(
        "seed=42,43", "hydra.launcher.runs_per_job=2", "hydra.launcher.runs_at_once=2", "hydra.launcher.gpus_per_run=1"
    )
    (batch,) = desk.batches()
    script = (batch / "submission.sh").read_text()
    assert "--gpus-per-node=2" in script and "--array=0-0%1" in script
    desk.wait_done()
    seen = [session["hardware"]["visible_gpus"] for session in sessions(desk)]
    assert sorted(seen) == ["0", "1"]

    # One run in two processes.
    desk.submit("seed=44", "hydra.launcher.gpus_per_run=2", "hydra.launcher.cpus_per_run=2")
    desk.wait_done()
    session = [s for s in sessions(desk) if s["hardware"]["processes"] == 2]
    assert [s["hardware"]["visible_gpus"] for s in session] == ["0,1"]
    refused = desk.submit("seed=45", "prompts_per_step=3", "group_size=3", "hydra.launcher.gpus_per_run=2", code=2)
    assert "2 processes cannot share the 9 completions" in refused.err


def sessions(desk: Desk) -> list[dict[str, Any]]:
    return [
        session
        for file in sorted(desk.outputs.glob("runs/*/provenance.json"))
        for session in json.loads(file.read_text())["sessions"]
    ]


def test_without_accounting(plain_desk: Desk, tmp_path: Path) -> None:
    """sacct fails there, and squeue forgets a job after seconds; preemption sends SIGTERM alone, then SIGKILL."""
    desk = plain_desk
    assert subprocess.run(["sacct"], env=desk.cluster.environment, capture_output=True, check=False).returncode != 0
    line = ("seed=42,43", *LONG)
    desk.submit(*line)
    desk.wait_step(3)
    other = fill(desk.cluster)
    desk.wait(lambda now: all(" waits" in str(r["why"]) for r in now.values()), "preempted")
    desk.cluster.ask("scancel", other)
    desk.wait(lambda now: all(r["state"] == "running" for r in now.values()), "going on")
    (batch,) = desk.batches()
    job = (batch / "job_id").read_text().strip()
    names = sorted(desk_names(desk, *line))
    # A killed process of a run is what an OOM kill leaves.
    claimed = json.loads((desk.outputs / "runs" / names[0] / "claim.json").read_text())
    os.kill(claimed["pid"], signal.SIGKILL)
    # At once, while it runs: until SLURM has forgotten the other one's job takes longer than a run.
    desk.gradstarve("cancel", names[1])
    runs = desk.wait(lambda now: now[names[0]]["state"] == "lost" and not desk.cluster.states(batch).get(0), "lost")
    assert "SLURM no longer knows" in runs[names[0]]["why"] or "process is gone" in runs[names[0]]["why"]
    assert "SIGKILL (out of memory?)" in desk.logs()
    desk.wait(lambda now: now[names[1]]["state"] in {"interrupted", "lost"}, "cancelled")
    # A claim from a node that cannot be looked at, of a job that is over.
    folder = desk.outputs / "runs" / names[1]
    (folder / "claim.json").write_text(json.dumps({**claimed, "host": "gone-node", "job_id": f"{job}_1"}))
    assert "2 submitted" in desk.submit(*line).err
    desk.wait_done()
    wanted = uninterrupted(desk, tmp_path, "seed=42,43")
    for name in names:
        same(desk.outputs / "runs" / name, wanted / name)


def test_what_is_asked_wrong_is_one_line(desk: Desk) -> None:
    for arguments, said in (
        (("hydra.launcher.partition=nowhere",), "sbatch refuses the job: "),
        (("hydra.launcher.time=soon",), "hydra.launcher.time: minutes, or a time such as"),
        (("hydra.launcher.gpus_per_run=-1",), "hydra.launcher.gpus_per_run: "),
        (("hydra.launcher.runs_at_once=2",), "hydra.launcher.runs_at_once: 2 of only 1 runs_per_job"),
        (("hydra.launcher.sbatch={array: 3}",), "hydra.launcher.sbatch: array is set by the launcher"),
        (("outputs=50%",), "outputs: SLURM reads a % in a path"),
    ):
        answer = desk.submit("seed=42", *arguments, code=2)
        assert answer.err.count("\n") == 1 and answer.err.startswith(f"run.py: {said}"), answer.err
    assert desk.batches() == [] and not list(desk.outputs.glob("runs/*/submission.json"))


def test_cleaning_asks_and_deletes_what_it_lists(desk: Desk) -> None:
    desk.submit("seed=42")
    desk.wait_done()
    (batch,) = desk.batches()
    assert "add --yes" in desk.gradstarve("clean", "--all", code=2).err
    assert batch.is_dir()
    said = desk.gradstarve("clean", "--all", "--weights", "--yes").err
    assert batch.name in said and "weights" in said
    assert not batch.exists()
    (run,) = desk.runs().values()
    assert run["state"] == "done" and not (desk.outputs / "runs" / run["run"] / "weights").exists()
    assert "nothing to clean" in desk.gradstarve("clean", "--all", "--weights", "--yes").err


HELD = "hydra.launcher.sbatch={hold: true}"


def test_what_is_queued_is_kept_and_a_silent_slurm_is_not_taken_for_an_empty_one(desk: Desk, tmp_path: Path) -> None:
    desk.submit("seed=42")
    desk.wait_done()
    (run,) = desk.runs()
    # The finished run is queued again, for another evaluation.
    answer = desk.submit("seed=42", "evaluation.limit=3", HELD, "hydra.launcher.environment={A: b c}")
    assert "1 submitted" in answer.err
    batch = desk.batches()[-1]
    script = (batch / "submission.sh").read_text()
    assert "#SBATCH --hold" in script and "export A='b c'" in script
    kept = desk.outputs / "runs" / run / "weights"
    desk.gradstarve("clean", "--all", "--weights", "--failed", "--yes")
    assert kept.is_dir() and (batch / "batch.json").is_file()

    desk.submit("seed=43", HELD)
    environment = desk.cluster.environment
    silent = Desk(Cluster({**environment, "SLURM_CONF": str(tmp_path / "none")}), desk.folder)
    assert "nothing was cancelled" in silent.gradstarve("cancel", "--all", code=2).err
    assert "nothing was submitted" in silent.submit("seed=43", code=2).err
    assert {each["state"] for each in silent.runs().values()} <= {"done", "queued"}
    assert "cancelled 2 SLURM jobs" in desk.gradstarve("cancel", "--all").err
    desk.wait(lambda now: not any(r["state"] in {"queued", "running"} for r in now.values()), "cancelled")

    # A refused submission leaves what was known before, so that a retry still knows how.
    lost = next(each["run"] for each in desk.runs().values() if each["state"] == "lost")
    before = (desk.outputs / "runs" / lost / "submission.json").read_text()
    assert "sbatch refuses" in desk.submit("seed=43", "hydra.launcher.partition=nowhere", code=2).err
    assert (desk.outputs / "runs" / lost / "submission.json").read_text() == before

    # One array for each outputs folder.
    answer = desk.submit("seed=45,46", "outputs=one,two", HELD)
    assert answer.err.count("2 submitted") == 2
    listed = [json.loads(file.read_text())["tasks"] for file in sorted(desk.folder.glob("*/slurm/*/batch.json"))]
    assert sum(len(tasks) == 2 for tasks in listed) == 2
    assert "cancelled 2 SLURM jobs" in desk.gradstarve("cancel", "--all", "--outputs", "two").err
