"""Running jobs on this machine: one process a run, so many at a time, each only if nobody else has it.

Two commands that ask for the same runs at once share the work. Each takes what nobody holds; when nothing is left but
runs that the other holds, it waits for them, and takes over any whose process dies.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from gradstarve.launching.fork_server import CLAIMED, GRACE_SECONDS
from gradstarve.launching.jobs import Job
from gradstarve.launching.progress import Progress, showing
from gradstarve.launching.run_processes import RunProcesses, gpus
from gradstarve.runs.claim import holder_of
from gradstarve.runs.status import read_status

INTERRUPTED = 130
_LOOK_SECONDS = 1.0


def launch(jobs: Sequence[Job], at_once: int | None, threads: int) -> int:
    """Run what is missing or failed; returns the exit code: 0, 1 where a run failed, 130 where it was stopped.

    `at_once` None means one a core. Progress and every failure go to standard error as they come.
    """
    todo = [job for job in jobs if not job.is_done()]
    already = len(jobs) - len(todo)
    if not todo:
        _say(f"{_runs(len(jobs))}, all done already")
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    with _stop_signals() as asked_to_stop, showing(jobs) as progress, RunProcesses() as processes:
        local = _Local(todo, at_once or (1 if gpus() else cores), threads, progress, processes, asked_to_stop)
        stopped = local.run()
    failed = local.failed
    done = sum(job.is_done() for job in jobs)
    _say(
        f"{_runs(len(jobs))}: {done} done{f' ({already} before)' if already else ''}, {len(failed)} failed"
        + (f", {len(jobs) - done - len(failed)} left; the same command goes on" if stopped else "")
    )
    for job, why in failed:
        _say(f"  failed: {job.name}: {why}  ({job.folder.log})")
    if stopped:
        return INTERRUPTED
    return 1 if failed else 0


class _Local:
    """The state of one command: what waits, what runs here, what somebody else runs."""

    def __init__(
        self,
        todo: Sequence[Job],
        at_once: int,
        threads: int,
        progress: Progress,
        processes: RunProcesses,
        asked_to_stop: Callable[[], int],
    ) -> None:
        self._began = time.time()
        self._waiting = deque(todo)
        self._running: dict[int, Job] = {}
        self._elsewhere: list[Job] = []
        self._started = 0
        self._at_once, self._threads = at_once, threads
        self._progress, self._processes, self._asked_to_stop = progress, processes, asked_to_stop
        self.failed: list[tuple[Job, str]] = []

    def run(self) -> bool:
        """Returns whether it was stopped before its end."""
        looked = 0.0
        self._progress.line("loading the trainer, once for all runs")
        while self._waiting or self._running or self._elsewhere:
            if self._asked_to_stop():
                self._stop()
                return True
            if self._processes.ready:
                self._fill()
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                self._look_elsewhere()
                self._progress.refresh()
            self._hear(0.2)
        return False

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._at_once:
            job = self._waiting.popleft()
            if job.is_done():
                continue
            if self._held(job):
                continue
            self._started += 1
            self._running[self._started] = job
            self._processes.start(self._started, job.configs, job.folder.log, self._threads)
            self._progress.line(f"started {job.name}")

    def _held(self, job: Job) -> bool:
        """Whether somebody else has the job, or may have it; then it is put where it belongs."""
        holder = holder_of(job.folder.path)
        if holder is None or holder[1] == "gone":
            return False
        content, judged = holder
        if judged == "alive":
            self._progress.line(f"{job.name} is being run by process {content.get('pid')}; waiting for it")
            self._elsewhere.append(job)
        else:
            self._fail(
                job,
                f"claimed by process {content.get('pid')} on {content.get('host')}, which cannot be checked from here; "
                f"if it is gone: rm {job.folder.path / 'claim.json'}",
            )
        return True

    def _look_elsewhere(self) -> None:
        """What others have finished, given up, or left behind by dying."""
        for job in list(self._elsewhere):
            holder = holder_of(job.folder.path)
            if holder is not None and holder[1] != "gone":
                continue
            self._elsewhere.remove(job)
            status = read_status(job.folder.path) or {}
            if job.is_done():
                self._progress.line(f"done {job.name} (by another process)")
            elif status.get("state") == "failed" and status.get("ended", 0) >= self._began:
                self._fail(job, f"{status.get('error')} (in another process)")
            else:
                self._progress.line(f"{job.name} was left by the process that ran it; taking it over")
                self._waiting.append(job)

    def _hear(self, timeout: float) -> None:
        for ended in self._processes.hear(timeout):
            job = self._running.pop(ended.number)
            if job.is_done():
                self._progress.line(f"done {job.name}")
            elif ended.code == CLAIMED:
                # Somebody was faster.
                if not self._held(job):
                    self._waiting.append(job)
            else:
                self._fail(job, self._why(job, ended.code))

    def _why(self, job: Job, code: int) -> str:
        status = read_status(job.folder.path) or {}
        if code < 0:
            name = signal.Signals(-code).name
            return f"its process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        if status.get("error") and status.get("ended", 0) >= self._began:
            return str(status["error"])
        printed = (
            job.folder.log.read_text(errors="replace").strip() if job.folder.log.exists() else self._processes.errors()
        )
        return printed.splitlines()[-1] if printed else f"its process ended with code {code}"

    def _fail(self, job: Job, why: str) -> None:
        self.failed.append((job, why))
        self._progress.line(f"failed {job.name}: {why}")

    def _stop(self) -> None:
        """Tell every run to stop, give it time to write that down, and see them all end."""
        if not self._running:
            return
        self._progress.line(f"stopping {_runs(len(self._running))} (once more: at once)")
        asked = self._asked_to_stop()
        self._processes.signal_all(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while self._running:
            if time.monotonic() > deadline or self._asked_to_stop() > asked:
                self._processes.signal_all(signal.SIGKILL)
            for ended in self._processes.hear(0.2):
                self._running.pop(ended.number)


@contextmanager
def _stop_signals() -> Iterator[Callable[[], int]]:
    """While the block runs, SIGINT and SIGTERM are only counted; yields how many have come."""
    count = 0

    def come(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1

    before = {number: signal.signal(number, come) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: count
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
