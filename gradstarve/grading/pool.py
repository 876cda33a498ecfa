"""A small pool of warm worker processes that decide pairs of expressions within hard limits."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gradstarve.grading.verdict import Verdict

# Importing sympy on a busy machine; not counted against a pair.
START_SECONDS = 120.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Pair:
    """A question for a worker: is `answer` equal to `gold`? Without an answer: can `gold` be read?"""

    gold: str
    answer: str | None = None
    tolerance: Fraction | None = None

    def line(self) -> bytes:
        task: dict[str, str | None] = {"gold": self.gold}
        if self.answer is not None:
            task |= {"answer": self.answer, "tolerance": None if self.tolerance is None else str(self.tolerance)}
        return json.dumps(task).encode() + b"\n"


class _Worker:
    """One process and the pair it works on. Plain pipes and JSON: nothing is forked, imported again or unpickled."""

    def __init__(self, seconds: float, memory_bytes: int) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if p),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [
            sys.executable,
            "-P",
            "-m",
            "gradstarve.grading.worker",
            str(memory_bytes),
            str(seconds),
            str(os.getpid()),
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        self.received = b""
        self.child = 0
        self.deadline = time.monotonic() + START_SECONDS
        self.key: Hashable = None

    def send(self, key: Hashable, pair: Pair, seconds: float) -> bool:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(pair.line())
        except BrokenPipeError:
            return False
        self.key, self.deadline = key, time.monotonic() + seconds
        return True

    @property
    def ready(self) -> bool:
        return self.child != 0

    def restart(self) -> None:
        """End the child that works; the process has the next one ready in a moment."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        self.child, self.key, self.received = 0, None, b""
        self.deadline = time.monotonic() + START_SECONDS

    def receive(self) -> list[dict[str, Any]] | None:
        """The lines that have come, or None where the process has ended."""
        chunk = os.read(self.output, 65_536)
        if not chunk:
            return None
        *lines, self.received = (self.received + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class WorkerPool:
    """Decides pairs in parallel. Safe to use from any thread, one call at a time; start and end it with `with`."""

    def __init__(self, workers: int, seconds: float, memory_bytes: int) -> None:
        self.seconds, self.memory_bytes, self.count = seconds, memory_bytes, workers
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        """Start the workers; they warm up while the caller goes on."""
        self._workers = [self._start() for _ in range(self.count)]
        self._owner = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._owner == os.getpid():
            for worker in self._workers:
                worker.end()
        self._workers = []

    def _start(self) -> _Worker:
        return _Worker(self.seconds, self.memory_bytes)

    def _replace(self, worker: _Worker) -> None:
        worker.end()
        self._workers[self._workers.index(worker)] = self._start()

    def decide(
        self, pairs: dict[Hashable, Pair], decided: Callable[[Hashable, Verdict, str], dict[Hashable, Pair]]
    ) -> None:
        """Decide all pairs; each verdict goes to `decided(key, verdict, why)`, which may return further pairs."""
        if not pairs:
            return
        with self._lock:
            if not self._workers or self._owner != os.getpid():
                raise RuntimeError("the workers are not running in this process: use `with`")
            for worker in self._workers:
                # Left from a call that was interrupted.
                if worker.key is not None:
                    worker.restart()
            waiting = deque(pairs.items())
            failed_starts = 0
            while waiting or any(worker.key is not None for worker in self._workers):
                for worker in list(self._workers):
                    if waiting and worker.ready and worker.key is None and not worker.send(*waiting[0], self.seconds):
                        self._replace(worker)
                    elif waiting and worker.key == waiting[0][0]:
                        waiting.popleft()
                failed_starts += self._wait(lambda *result: waiting.extend(decided(*result).items()))
                if failed_starts > 3 * self.count:
                    raise RuntimeError("worker processes end before they are ready: is math-verify installed?")

    def _wait(self, decided: Callable[[Hashable, Verdict, str], None]) -> int:
        """Wait for the next thing to happen. Returns how many workers ended before they were ready."""
        awaited = [worker for worker in self._workers if worker.key is not None or not worker.ready]
        first = min(worker.deadline for worker in awaited)
        readable, _, _ = select.select([w.output for w in awaited], [], [], max(0.0, first - time.monotonic()))
        failed = 0
        for worker in awaited:
            replies = worker.receive() if worker.output in readable else []
            late = not replies and time.monotonic() >= worker.deadline
            if replies is None or (late and not worker.ready):
                key, failed = worker.key, failed + (not worker.ready)
                self._replace(worker)
                if key is not None:
                    decided(key, "unverifiable", "ended")
            elif late:
                key = worker.key
                worker.restart()
                decided(key, "unverifiable", "time")
            for reply in replies or []:
                self._take(worker, reply, decided)
        return failed

    def _take(self, worker: _Worker, reply: dict[str, Any], decided: Callable[[Hashable, Verdict, str], None]) -> None:
        key = worker.key
        if "verdict" in reply:
            worker.key = None
            if reply.get("why") == "memory":
                worker.child, worker.deadline = 0, time.monotonic() + START_SECONDS
            decided(key, reply["verdict"], reply.get("why", ""))
        else:
            # A new child while a pair was out: the kernel ended the old one, for its memory or its processor time.
            worker.child, worker.key = reply["ready"], None
            if key is not None:
                decided(key, "unverifiable", "ended")
