"""Stopping runs that are queued or running, wherever they are."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

from gradstarve.errors import UserError
from gradstarve.launching.standing import Standing, is_of
from gradstarve.runs import scheduler
from gradstarve.runs.claim import holder_of, launcher_of
from gradstarve.runs.folder import RunFolder


def cancel(standings: Sequence[Standing], whole: bool = True) -> str:
    """Cancel what is queued or running; says what was done.

    Of a job that packs several runs, all are cancelled. `whole`: of local runs the command that started them is
    stopped, with all that it runs; else the runs alone, and the command goes on. Raises UserError where SLURM does not
    answer.
    """
    jobs = sorted({s.job for s in standings if s.job is not None and s.state in {"queued", "running"}})
    local = [s for s in standings if s.job is None and s.state == "running"]
    for standing in standings:
        submission = RunFolder(standing.wanted.folder).submission()
        if submission is None or standing.job is not None:
            continue
        if standing.state == "queued" or (standing.state == "running" and is_of(standing, submission)):
            raise UserError(f"{standing.wanted.run}: {standing.why}; nothing was cancelled")
    if jobs:
        try:
            scheduler.cancel(jobs)
        except scheduler.NoAnswer as none:
            raise UserError(f"SLURM does not cancel: {none}") from None
    pids, commands = set(), 0
    for standing in local:
        holder = holder_of(standing.wanted.folder)
        if holder is None or holder[1] == "gone":
            continue
        if holder[1] == "unknown":
            raise UserError(
                f"{standing.wanted.run} runs on {holder[0].get('host')}, where nothing here can stop it; give the "
                "command there"
            )
        launcher = launcher_of(holder[0]) if whole else None
        commands += launcher is not None
        pids.add(launcher or holder[0]["pid"])
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    said = []
    if jobs:
        said.append(f"cancelled {len(jobs)} SLURM job{'s' if len(jobs) > 1 else ''}: {', '.join(jobs)}")
    if pids:
        and_command = " and the command that ran them" if commands else ""
        said.append(f"stopped {len(local)} local run{'s' if len(local) > 1 else ''}{and_command}")
    return "; ".join(said) or "nothing is queued or running"
