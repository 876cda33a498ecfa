"""Stopping runs that are queued or running, wherever they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from gradstarve.errors import UserError
from gradstarve.launching.standing import Standing
from gradstarve.runs import scheduler
from gradstarve.runs.claim import holder_of, launcher_of


def cancel(standings: Sequence[Standing]) -> str:
    """Cancel what is queued or running; says what was done.

    Of a job that packs several runs, all are cancelled. A local run is stopped together with the command that
    started it where all that command runs is to be stopped, else alone. Raises UserError where SLURM does not answer.
    """
    jobs = sorted({s.job for s in standings if s.job is not None and s.state in {"queued", "running"}})
    local = [s for s in standings if s.job is None and s.state == "running"]
    if jobs:
        try:
            scheduler.cancel(jobs)
        except scheduler.NoAnswer as none:
            raise UserError(f"SLURM does not cancel: {none}") from None
    pids = set()
    for standing in local:
        holder = holder_of(standing.wanted.folder)
        if holder is None or holder[1] == "gone":
            continue
        if holder[1] == "unknown":
            raise UserError(
                f"{standing.wanted.run} runs on {holder[0].get('host')}, where nothing here can stop it; give the "
                "command there"
            )
        pids.add(launcher_of(holder[0]) or holder[0]["pid"])
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    said = []
    if jobs:
        said.append(f"cancelled {len(jobs)} SLURM job{'s' if len(jobs) > 1 else ''}: {', '.join(jobs)}")
    if pids:
        said.append(f"stopped {len(local)} local run{'s' if len(local) > 1 else ''} and the command that ran them")
    return "; ".join(said) or "nothing is queued or running"
