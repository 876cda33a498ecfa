"""The process that has paid for the imports: it forks one process for each run.

    python -m gradstarve.launching.fork_server

One JSON object a line. In: {"number", "log", "threads", "configs", ...} (see `Request`) starts the processes that
execute the configs (YAML), {"signal"} sends a signal to all of them. Out: {"ready"}, then {"ended", "code"} for each
number. The end of the input, which is also the death of whoever started it, stops every run and then the server.

SIGINT and SIGTERM stop a run at once; SIGUSR2 stops it after its step, with a checkpoint, and so does SIGTERM where the
request is `patient`.

It runs no thread and forks from a process that has only imported, so what a run does cannot depend on another's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from gradstarve.runs.config import RunConfig

# How a run's process says that somebody else has the run, and that it was told to stop.
CLAIMED, STOPPED = 75, 130

# How long a run may take to write down that it was stopped.
GRACE_SECONDS = 30.0

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)

# How long the other processes of a run may take to end once one of them has.
_LEFT_BEHIND_SECONDS = 10.0


@dataclass(frozen=True)
class Request:
    """One run to be executed, in `processes` processes that see the GPUs named (None: those that the server sees)."""

    number: int
    log: Path
    threads: int
    configs: list[dict[str, Any]]
    processes: int
    gpus: list[str] | None
    patient: bool


@dataclass
class _Group:
    """The processes of one run, by pid; the first to end decides its exit code."""

    number: int
    ranks: dict[int, int]
    code: int | None = None
    patience: float | None = None


@dataclass
class _Asked:
    """Whether this process was told to stop after its step."""

    to_stop: bool = field(default=False)

    def __call__(self) -> bool:
        return self.to_stop


def main() -> None:
    # Replies go out through the original standard output alone; whatever an import prints goes to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A signal to everything that belongs to a job is meant for the runs. Whoever started the server has blocked them.
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    importlib.import_module("gradstarve.learning.run")
    # What was imported stays; a garbage collection in a forked run need not look through it (half a second each).
    gc.collect()
    gc.freeze()
    request = serve(replies)
    if request is not None:
        sys.exit(execute_in_this_process(request))


def serve(replies: IO[str]) -> Request | None:
    """Returns in each forked process, with its request, and in the server itself at the end, with None."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    groups: list[_Group] = []
    _reply(replies, ready=True)
    unread, deadline = b"", None
    while deadline is None or groups:
        readable, _, _ = select.select([requests] if deadline is None else [], [], [], 0.05)
        if readable:
            chunk = os.read(requests.fileno(), 1 << 20)
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "signal" in message:
                    _send(message["signal"], groups)
                    continue
                request = _request(message)
                group = _Group(request.number, {})
                port = _free_port() if request.processes > 1 else None
                for rank in range(request.processes):
                    pid = _fork()
                    if pid == 0:
                        requests.close()
                        replies.close()
                        _set_environment(request, rank, port)
                        return request
                    group.ranks[pid] = rank
                groups.append(group)
            if not chunk:
                _send(signal.SIGINT, groups)
                deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            _send(signal.SIGKILL, groups)
        for group in list(groups):
            _bury(group)
            if not group.ranks:
                groups.remove(group)
                _reply(replies, ended=group.number, code=group.code)
    return None


def _bury(group: _Group) -> None:
    """Take note of the processes that have ended. Where one has failed or the first has ended, the others are ended."""
    for pid in list(group.ranks):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            continue
        rank, code = group.ranks.pop(pid), os.waitstatus_to_exitcode(status)
        if group.code is None and (code != 0 or rank == 0):
            group.code = code
            group.patience = time.monotonic() + _LEFT_BEHIND_SECONDS
            if code not in (0, STOPPED):
                _send(signal.SIGINT, [group])
    if group.patience is not None and time.monotonic() > group.patience:
        _send(signal.SIGKILL, [group])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _set_environment(request: Request, rank: int, port: int | None) -> None:
    """What accelerate reads to find the other processes of the run, as torchrun sets it; and which GPUs it may use."""
    if request.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(request.gpus)
    if port is not None:
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": request.processes, "MASTER_PORT": port}
        os.environ.update({key: str(value) for key, value in ranks.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", LOCAL_WORLD_SIZE=str(request.processes))


def execute_in_this_process(request: Request) -> int:
    """Executes the configs that are not done; returns the exit code. What goes wrong ends up in the log, as printed."""
    from gradstarve.learning.run import execute
    from gradstarve.learning.stopping import Stopped
    from gradstarve.runs.claim import Claimed
    from gradstarve.runs.config import read_config
    from gradstarve.runs.folder import RunFolder

    try:
        _redirect(request.log)
        asked = _stop_after_the_step(request.patient)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        if request.threads != 1:
            import torch

            torch.set_num_threads(request.threads)
        for plain in request.configs:
            config = read_config(plain)
            folder = RunFolder.of(config)
            if folder.result() is None and request.processes == 1:
                _warn_of_memory(config)
            if not folder.is_done(config):
                execute(config, progress=print, stopping=asked)
    except Claimed:
        return CLAIMED
    except Stopped as stopped:
        print(stopped)
        return STOPPED
    except KeyboardInterrupt:
        return STOPPED
    return 0


def _warn_of_memory(config: RunConfig) -> None:
    """In the log before the model is loaded, so that what runs out of memory has said by how much."""
    import torch

    from gradstarve.launching.fitting import memory_warning

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        warning = memory_warning(config, total, free)
        if warning is not None:
            print(warning)


def _stop_after_the_step(patient: bool) -> _Asked:
    """From here on SIGUSR2, and SIGTERM for a patient run, is a question that is answered between two steps."""
    asked = _Asked()

    def come(number: int, frame: FrameType | None) -> None:
        asked.to_stop = True

    signal.signal(signal.SIGUSR2, come)
    if patient:
        signal.signal(signal.SIGTERM, come)
    return asked


def _fork() -> int:
    """Forks; the new process raises KeyboardInterrupt on its first stop signal, once it lets signals through.

    The server itself goes on ignoring them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    pid = os.fork()
    if pid == 0:
        for number in STOPPING:
            signal.signal(number, _stop)
    else:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    return pid


def _stop(number: int, frame: FrameType | None) -> None:
    # Only once: a second signal must not interrupt the writing down of the first.
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _request(message: dict[str, Any]) -> Request:
    return Request(**{**message, "log": Path(message["log"]), "configs": yaml.safe_load(message["configs"])})


def _redirect(log: Path) -> None:
    """Everything that this process prints from here on goes to the run's log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _send(number: int, groups: list[_Group]) -> None:
    for group in groups:
        for pid in group.ranks:
            os.kill(pid, number)


def _reply(replies: IO[str], **message: Any) -> None:
    try:
        replies.write(json.dumps(message) + "\n")
        replies.flush()
    except BrokenPipeError:
        # Whoever asked is gone; the end of the input says so too, and what follows from it is done there.
        return


if __name__ == "__main__":
    main()
