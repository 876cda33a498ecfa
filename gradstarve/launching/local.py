"""Running jobs on this machine: each in processes of its own, so many at a time, each only if nobody else has it.

Where there are GPUs every process gets one of its own. Two commands that ask for the same runs at once share the work.
Each takes what nobody holds; when nothing is left but runs that the other holds, it waits for them, and takes over any
whose process dies.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from gradstarve.errors import UserError
from gradstarve.launching.fork_server import CLAIMED, GRACE_SECONDS
from gradstarve.launching.jobs import Job
from gradstarve.launching.progress import Progress, showing
from gradstarve.launching.run_processes import RunProcesses, gpus
from gradstarve.runs.claim import holder_of
from gradstarve.runs.status import read_status

INTERRUPTED = 130
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class How:
    """How jobs are run here.

    `at_once` None: as many as there are GPUs for, or one a core. `threads` and `processes` are each run's. `patient`: a
    run that is to stop first ends its step and writes a checkpoint. `wait_for_others`: whether runs that somebody else
    holds are waited for, or left to him.
    """

    at_once: int | None = None
    threads: int = 1
    processes: int = 1
    patient: bool = False
    wait_for_others: bool = True


@dataclass
class StopSignals:
    """The signals that have asked us to stop, in their order; `grace`: for how long each lets runs go on, seconds."""

    grace: dict[int, float]
    come: list[int] = field(default_factory=list)


def launch(jobs: Sequence[Job], how: How, asked: StopSignals | None = None) -> int:
    """Run what is missing or failed; returns the exit code: 0, 1 where a run failed, 130 where it was stopped.

    Progress and every failure go to standard error as they come. `asked` is given by who listens to signals already.
    """
    todo = [job for job in jobs if not job.is_done()]
    already = len(jobs) - len(todo)
    if not todo:
        say(f"{_runs(len(jobs))}, all done already")
        return 0
    with _listening(asked) as signals, showing(jobs) as progress, RunProcesses() as processes:
        local = _Local(todo, how, progress, processes, signals)
        stopped = local.run()
    failed = local.failed
    done = sum(job.is_done() for job in jobs)
    say(
        f"{_runs(len(jobs))}: {done} done{f' ({already} before)' if already else ''}, {len(failed)} failed"
        + (f", {len(jobs) - done - len(failed)} left; the same command goes on" if stopped else "")
    )
    for job, why in failed:
        # Of the only run, why stands right above.
        say(f"  failed: {job.name}: {why}  ({job.folder.log})" if len(jobs) > 1 else f"  its log: {job.folder.log}")
    if stopped:
        return INTERRUPTED
    return 1 if failed else 0


class _Local:
    """The state of one command: what waits, what runs here, what somebody else runs."""

    def __init__(
        self, todo: Sequence[Job], how: How, progress: Progress, processes: RunProcesses, asked: StopSignals
    ) -> None:
        self._began = time.time()
        self._waiting = deque(todo)
        self._running: dict[int, Job] = {}
        self._elsewhere: list[Job] = []
        self._started = 0
        found = gpus()
        self._shares = [found[i : i + how.processes] for i in range(0, len(found), how.processes)]
        self._shares = [share for share in self._shares if len(share) == how.processes]
        if found and not self._shares:
            raise UserError(f"{how.processes} processes a run need as many GPUs; there are {len(found)} here")
        self._share_of: dict[int, list[str]] = {}
        self._at_once = how.at_once or len(self._shares) or _cores()
        if self._shares:
            self._at_once = min(self._at_once, len(self._shares))
        self._how, self._progress, self._processes, self._asked = how, progress, processes, asked
        self.failed: list[tuple[Job, str]] = []

    def run(self) -> bool:
        """Returns whether it was stopped before its end."""
        looked = 0.0
        self._progress.line("loading the trainer, once for all runs")
        while self._waiting or self._running or self._elsewhere:
            if self._asked.come:
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
            if self._shares:
                self._share_of[self._started] = self._shares.pop(0)
            self._processes.start(
                self._started,
                job.configs,
                job.folder.log,
                self._how.threads,
                self._how.processes,
                self._share_of.get(self._started),
                self._how.patient,
            )
            self._progress.line(f"started {job.name}")

    def _held(self, job: Job) -> bool:
        """Whether somebody else has the job, or may have it; then it is put where it belongs."""
        holder = holder_of(job.folder.path, ask_slurm=True)
        if holder is None or holder[1] == "gone":
            return False
        content, judged = holder
        if judged == "alive" and not self._how.wait_for_others:
            self._progress.line(f"{job.name} is being run by process {content.get('pid')} on {content.get('host')}")
        elif judged == "alive":
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
            holder = holder_of(job.folder.path, ask_slurm=True)
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
            if ended.number in self._share_of:
                self._shares.append(self._share_of.pop(ended.number))
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
        seen = len(self._asked.come)
        self._processes.signal_all(signal.SIGUSR2 if self._how.patient else signal.SIGTERM)
        patience = time.monotonic() + self._asked.grace[self._asked.come[-1]]
        hurried = not self._how.patient
        while self._running:
            if len(self._asked.come) > seen:
                seen, patience = len(self._asked.come), min(patience, time.monotonic())
            if time.monotonic() > patience:
                self._processes.signal_all(signal.SIGKILL if hurried else signal.SIGINT)
                hurried, patience = True, time.monotonic() + GRACE_SECONDS
            for ended in self._processes.hear(0.2):
                self._running.pop(ended.number)


@contextmanager
def listening_to(grace: dict[int, float]) -> Iterator[StopSignals]:
    """While the block runs, the signals in `grace` are only taken note of."""
    asked = StopSignals(grace)

    def come(number: int, frame: FrameType | None) -> None:
        asked.come.append(number)

    before = {number: signal.signal(number, come) for number in grace}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _listening(asked: StopSignals | None) -> Iterator[StopSignals]:
    if asked is not None:
        yield asked
        return
    with listening_to({signal.SIGINT: GRACE_SECONDS, signal.SIGTERM: GRACE_SECONDS}) as own:
        yield own


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
