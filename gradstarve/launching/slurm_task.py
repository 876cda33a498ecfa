"""One task of a job array, on its node: its runs, as the local launcher would run them, then requeued or ended.

    python -m gradstarve.launching.slurm_task outputs/slurm/<batch>

SIGUSR2 announces the time limit or a preemption, and so does SIGTERM where a cluster sends no other signal: every run
ends its step and writes a checkpoint, then the job is put back into the queue and goes on where it stopped. SLURM does
not do that for a job that has ended by itself. A cancelled job is not put back.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError
from gradstarve.launching import local
from gradstarve.launching.jobs import Job
from gradstarve.launching.slurm_options import SlurmOptions, read_options
from gradstarve.runs import scheduler
from gradstarve.runs.code_version import code_in_words, code_version
from gradstarve.runs.config import read_config
from gradstarve.runs.files import read_json, write_json
from gradstarve.runs.folder import RunFolder, runs_root

# SLURM kills a job some time after SIGTERM (KillWait, 30 s unless a cluster says otherwise): a run that has not ended
# its step after these seconds is told to stop at once.
_TERM_GRACE = 15.0


def main(batch_folder: Path) -> int:
    """Returns the exit code, which SLURM shows: non-zero where a run failed or was not brought to its end."""
    batch = _read(batch_folder)
    options = read_options(batch["options"])
    # Left for the runs to stop in by the time SLURM ends the job.
    grace = options.signal_seconds * 0.6
    number = int(os.environ["SLURM_ARRAY_TASK_ID"])
    with local.listening_to({signal.SIGINT: 0, signal.SIGTERM: _TERM_GRACE, signal.SIGUSR2: grace}) as asked:
        if options.gpus_per_run == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        jobs, unreadable = [], 0
        for run in batch["tasks"][number]:
            try:
                jobs.append(_job(batch_folder, run))
            except UserError as error:
                # The other runs of the job need not suffer for it.
                unreadable += 1
                local.say(f"slurm_task: {error}")
        _say_what_code(batch["code"])
        how = local.How(
            at_once=options.runs_at_once,
            threads=options.threads,
            processes=options.processes,
            patient=True,
            wait_for_others=False,
        )
        code = local.launch(jobs, how, asked)
        if code == local.INTERRUPTED and {signal.SIGUSR2, signal.SIGTERM} & set(asked.come):
            return _requeue(batch_folder, number, options)
    return code or int(unreadable > 0 or not all(job.is_done() for job in jobs))


def _read(batch_folder: Path) -> dict[str, Any]:
    batch = read_json(batch_folder / "batch.json")
    if not isinstance(batch, dict):
        raise UserError(f"{batch_folder}: no batch.json of a submission")
    return batch


def _job(batch_folder: Path, run: str) -> Job:
    folder = RunFolder(runs_root(batch_folder.parent.parent) / run)
    submission = folder.submission()
    if submission is None:
        raise UserError(f"{folder.path}: its submission.json is gone, so there is no config to run")
    configs = tuple(read_config(plain) for plain in submission["configs"])
    for config in configs:
        if RunFolder.of(config).name != run:
            raise UserError(
                f"{run}: today's code calls the run of this config {RunFolder.of(config).name}; submit it again, or "
                f"check out {code_in_words(submission['code'])}"
            )
    return Job(folder, configs)


def _say_what_code(submitted: dict[str, Any]) -> None:
    now = code_version()
    if now != submitted:
        local.say(f"warning: submitted with {code_in_words(submitted)}, run with {code_in_words(now)}")


def _requeue(batch_folder: Path, number: int, options: SlurmOptions) -> int:
    """Back into the queue, under the same id; after time limits only so many times."""
    job = scheduler.own_job_id()
    assert job is not None
    counted = batch_folder / f"requeues-{number}.json"
    before = read_json(counted) or []
    try:
        if scheduler.state(job) != "RUNNING":
            # Cancelled, or ended by a time limit of which there was no warning.
            return 1
        left = scheduler.seconds_left(job)
        out_of_time = left is not None and left <= options.signal_seconds + 90
        why = "time limit" if out_of_time else "preemption"
        if out_of_time and sum(each["why"] == "time limit" for each in before) >= options.requeues:
            local.say(
                f"job {job} has reached its time limit, and was requeued {options.requeues} times already "
                "(hydra.launcher.requeues); the same command goes on from its checkpoints"
            )
            return 1
        write_json(counted, [*before, {"why": why, "at": time.time()}])
        local.say(f"{why}: putting job {job} back into the queue")
        scheduler.requeue(job)
    except scheduler.NoAnswer as none:
        local.say(f"job {job} could not be requeued: {none}; the same command goes on from its checkpoints")
        return 1
    # SLURM ends this process now.
    time.sleep(60)
    return 1


if __name__ == "__main__":
    try:
        code = main(Path(sys.argv[1]))
    except UserError as error:
        print(f"slurm_task: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)
