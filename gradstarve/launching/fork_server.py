"""The process that has paid for the imports: it forks one process for each run.

    python -m gradstarve.launching.fork_server

One JSON object a line. In: {"number", "log", "threads", "configs"} starts a process that executes the configs (YAML),
{"signal"} sends a signal to all of them. Out: {"ready"}, then {"started", "pid"} and {"ended", "code"} for each number.
The end of the input, which is also the death of whoever started it, stops every run and then the server.

It runs no thread and forks from a process that has only imported, so what a run does cannot depend on another's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

import yaml

# How a run's process says that somebody else has the run, and that it was told to stop.
CLAIMED, STOPPED = 75, 130

# How long a run may take to write down that it was stopped.
GRACE_SECONDS = 30.0

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Request:
    """One run to be executed in a process of its own."""

    number: int
    log: Path
    threads: int
    configs: list[dict[str, Any]]


def main() -> None:
    # Replies go out through the original standard output alone; whatever an import prints goes to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
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
    numbers: dict[int, int] = {}  # by pid
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _reply(replies, ready=True)
    unread, deadline = b"", None
    while deadline is None or numbers:
        readable, _, _ = select.select([requests] if deadline is None else [], [], [], 0.05)
        if readable:
            chunk = os.read(requests.fileno(), 1 << 20)
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "signal" in message:
                    _send(message["signal"], numbers)
                    continue
                pid = _fork()
                if pid == 0:
                    requests.close()
                    replies.close()
                    return _request(message)
                numbers[pid] = message["number"]
                _reply(replies, started=message["number"], pid=pid)
            if not chunk:
                _send(signal.SIGTERM, numbers)
                deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            _send(signal.SIGKILL, numbers)
        for pid in list(numbers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _reply(replies, ended=numbers.pop(pid), code=os.waitstatus_to_exitcode(status))
    return None


def execute_in_this_process(request: Request) -> int:
    """Executes the configs that are not done; returns the exit code. What goes wrong ends up in the log, as printed."""
    from gradstarve.learning.run import execute
    from gradstarve.runs.claim import Claimed
    from gradstarve.runs.config import read_config
    from gradstarve.runs.folder import RunFolder

    try:
        _redirect(request.log)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
        if request.threads != 1:
            import torch

            torch.set_num_threads(request.threads)
        for plain in request.configs:
            config = read_config(plain)
            if not RunFolder.of(config).is_done(config):
                execute(config, progress=print)
    except Claimed:
        return CLAIMED
    except KeyboardInterrupt:
        return STOPPED
    return 0


def _fork() -> int:
    """Forks; the new process raises KeyboardInterrupt on its first stop signal, once it lets signals through."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    pid = os.fork()
    if pid == 0:
        for number in _STOPPING:
            signal.signal(number, _stop)
    else:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    return pid


def _stop(number: int, frame: FrameType | None) -> None:
    # Only once: a second signal must not interrupt the writing down of the first.
    for each in _STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _request(message: dict[str, Any]) -> Request:
    return Request(message["number"], Path(message["log"]), message["threads"], yaml.safe_load(message["configs"]))


def _redirect(log: Path) -> None:
    """Everything that this process prints from here on goes to the run's log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _send(number: int, pids: dict[int, int]) -> None:
    for pid in pids:
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
