"""What SLURM says of jobs, asked through its own commands.

squeue knows a job until some minutes after its end; what became of it later only accounting (sacct) knows, where that
is on. A SLURM that does not answer is told apart from one that does not know a job: NoAnswer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# Any other state is that of a job that waits, runs or is about to end.
_ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
_SECONDS = 60


class NoAnswer(Exception):  # noqa: N818 - a state of the world
    """SLURM cannot be asked from here, or does not answer."""


@dataclass(frozen=True)
class ClusterJob:
    """A job, or one task of an array. `id` is what scancel takes; `state` and `reason` are SLURM's own words."""

    id: str
    state: str
    reason: str | None = None
    nodes: str | None = None

    @property
    def waits(self) -> bool:
        return self.state in _WAITING

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


def own_job_id(environment: Mapping[str, str] = os.environ) -> str | None:
    """The id of the job that this process belongs to, with the number of its array task."""
    array = environment.get("SLURM_ARRAY_JOB_ID")
    if array is not None:
        return f"{array}_{environment.get('SLURM_ARRAY_TASK_ID')}"
    return environment.get("SLURM_JOB_ID")


def tasks_of(wanted: Collection[tuple[str, int]], since: float) -> dict[tuple[str, int], ClusterJob]:
    """The array tasks with these job names and numbers, those that SLURM knows. `since`: when the first was submitted.

    Raises NoAnswer.
    """
    if not wanted:
        return {}
    found = {}
    names = ",".join(sorted({name for name, _ in wanted}))
    for line in _ask("squeue", "-h", "-r", "-t", "all", f"--name={names}", "-o", "%j|%F|%K|%T|%r|%N").splitlines():
        name, array, task, state, reason, nodes = line.split("|")
        if task.isdigit():
            found[name, int(task)] = ClusterJob(f"{array}_{task}", state, _said(reason), _said(nodes))
    forgotten = sorted({name for name, task in wanted if (name, task) not in found})
    return {**_from_accounting(forgotten, since), **found} if forgotten else found


def is_there(job_id: str) -> bool | None:
    """Whether a job waits or runs; None where SLURM does not answer."""
    try:
        states = _ask("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").split()
    except NoAnswer as none:
        return False if "Invalid job id" in str(none) else None
    return any(state not in _ENDED for state in states)


def state(job_id: str) -> str:
    """SLURM's word for a job that it knows. Raises NoAnswer."""
    return _ask("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").strip()


def seconds_left(job_id: str) -> float | None:
    """Until the job's time limit; None where it has none. Raises NoAnswer."""
    said = _ask("squeue", "-h", "-j", job_id, "-o", "%L").strip()
    days, _, clock = said.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
    except ValueError:
        return None
    return float((int(days) if days else 0) * 86400 + sum(n * 60**i for i, n in enumerate(reversed(parts))))


def requeue(job_id: str) -> None:
    """Put the job back into the queue, under the same id. Raises NoAnswer, with what SLURM says."""
    _ask("scontrol", "requeue", job_id)


def cancel(job_ids: Sequence[str]) -> None:
    """Raises NoAnswer, with what SLURM says."""
    for start in range(0, len(job_ids), 200):
        _ask("scancel", *job_ids[start : start + 200])


def largest_array() -> int:
    """How many tasks an array can have. Raises NoAnswer."""
    for line in _ask("scontrol", "show", "config").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "MaxArraySize":
            return max(1, int(value) - 1)
    return 1000


def _from_accounting(names: Sequence[str], since: float) -> dict[tuple[str, int], ClusterJob]:
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 60))
    fields = "JobName,JobID,State,Reason,NodeList"
    try:
        said = _ask("sacct", "-n", "-P", "-X", "-a", "-S", start, f"--name={','.join(names)}", "-o", fields)
    except NoAnswer:
        # Accounting is off, or down: then nobody knows what became of a job that squeue has forgotten.
        return {}
    found = {}
    for line in said.splitlines():
        name, job_id, state, reason, nodes = line.split("|")
        task = job_id.rpartition("_")[2]
        if task.isdigit():
            found[name, int(task)] = ClusterJob(job_id, state.split()[0], _said(reason), _said(nodes))
    return found


def _said(text: str) -> str | None:
    return None if text in {"", "None", "None assigned", "(null)"} else text


def _ask(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise NoAnswer(f"no {command[0]} here")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{command[0]} does not answer") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise NoAnswer(said[-1] if said else f"{command[0]} ended with code {done.returncode}")
    return done.stdout
