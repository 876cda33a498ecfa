"""One run, one process: a claim on a run folder.

A claim is stale only where its process is provably gone: on this host, no process with that pid and start time; on
another, SLURM says that the job it belongs to has ended, or it is this very job, started anew elsewhere. A claim that
cannot be judged is refused, with the line that frees it.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from gradstarve.errors import UserError
from gradstarve.runs.files import locked, read_json
from gradstarve.runs.scheduler import is_there, own_job_id

# Names, in the environment of a run, the process of the command that started it.
LAUNCHER_VARIABLE = "GRADSTARVE_LAUNCHER"


class Claimed(UserError):  # noqa: N818 - a state of the run, and no error of the one who meets it
    """Somebody else runs this run, or may."""


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold the claim on `folder` while the block runs. Raises Claimed where it is held or cannot be judged."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".claim.lock").touch()
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}; choose another place with outputs=") from None
    file = folder / "claim.json"
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    mine = {**process_identity(os.getpid()), "id": uuid.uuid4().hex, "job_id": own_job_id(), "launcher": launcher}
    with locked(folder / ".claim.lock"):
        other = read_json(file)
        if other is not None:
            holder = judge(other, ask_slurm=True)
            if holder == "alive":
                raise Claimed(f"{folder.name} is being run by process {other.get('pid')} on {other.get('host')}")
            if holder == "unknown":
                raise Claimed(
                    f"{folder.name} is claimed by process {other.get('pid')} on {other.get('host')}"
                    f"{' (job ' + str(other['job_id']) + ')' if other.get('job_id') else ''}, which cannot be checked "
                    f"from {socket.gethostname()}; if it is gone, free the run with: rm {file}"
                )
        temporary = folder / f".claim.{mine['id']}.tmp"
        temporary.write_text(json.dumps(mine), encoding="utf-8")
        temporary.replace(file)
    try:
        yield
    finally:
        with locked(folder / ".claim.lock"):
            held = read_json(file)
            if isinstance(held, dict) and held.get("id") == mine["id"]:
                file.unlink(missing_ok=True)


def holder_of(folder: Path, ask_slurm: bool = False) -> tuple[dict[str, Any], str] | None:
    """The claim on a folder and how it is judged ("alive", "gone", "unknown"), or None where there is none."""
    content = read_json(folder / "claim.json")
    return (content, judge(content, ask_slurm)) if isinstance(content, dict) else None


def launcher_name() -> str:
    """This process, as the runs that it starts name it in their claims."""
    me = process_identity(os.getpid())
    return f"{me['pid']}:{me['start']}"


def launcher_of(claimed: dict[str, Any]) -> int | None:
    """The pid of the command that started the process of a claim, where that still runs on this host."""
    pid, _, start = str(claimed.get("launcher")).partition(":")
    if claimed.get("host") != socket.gethostname() or not pid.isdigit() or not psutil.pid_exists(int(pid)):
        return None
    return int(pid) if str(process_identity(int(pid))["start"]) == start else None


def held_by_a_sibling(folder: Path) -> bool:
    """Whether the claim is held by a process with the same parent as this one: another of the same run."""
    holder = holder_of(folder)
    return holder is not None and holder[1] == "alive" and psutil.Process(holder[0]["pid"]).ppid() == os.getppid()


def judge(content: Any, ask_slurm: bool = False) -> str:
    """Whether the process of a claim is alive, gone, or cannot be known from here."""
    if not isinstance(content, dict) or not isinstance(content.get("pid"), int):
        return "gone"
    if content.get("host") != socket.gethostname():
        return _judge_job(content.get("job_id"), ask_slurm)
    if not psutil.pid_exists(content["pid"]):
        return "gone"
    now = process_identity(content["pid"])
    return "alive" if all(now.get(key) == content.get(key) for key in ("boot", "start")) else "gone"


def _judge_job(job_id: Any, ask_slurm: bool) -> str:
    if not isinstance(job_id, str):
        return "unknown"
    if job_id == own_job_id():
        # SLURM runs a job once at a time: what claimed the run elsewhere was stopped before this was started.
        return "gone"
    there = is_there(job_id) if ask_slurm else None
    return {True: "alive", False: "gone", None: "unknown"}[there]


def process_identity(pid: int) -> dict[str, Any]:
    """Host, boot, pid and start of a process. `start` does not move when the clock is set."""
    boot_file, stat_file = Path("/proc/sys/kernel/random/boot_id"), Path(f"/proc/{pid}/stat")
    try:
        boot: str | None = boot_file.read_text().strip()
        # The command's name stands in parentheses and may hold spaces; the start time is the 20th field after it.
        start: float = int(stat_file.read_text().rsplit(")", 1)[1].split()[19])
    except FileNotFoundError:
        boot = None
        try:
            start = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            start = -1
    return {"host": socket.gethostname(), "boot": boot, "pid": pid, "start": start}
