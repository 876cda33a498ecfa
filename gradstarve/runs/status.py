"""status.json: where a run stands. One writer, the job itself."""

from __future__ import annotations

import os
import socket
import time
import traceback
from pathlib import Path
from typing import Any, Literal

from gradstarve.runs.files import read_json, write_json
from gradstarve.runs.scheduler import own_job_id

# Names the submission that a job belongs to, in the environment of the job.
BATCH_VARIABLE = "GRADSTARVE_BATCH"

State = Literal["queued", "running", "done", "failed", "interrupted"]


def read_status(folder: Path) -> dict[str, Any] | None:
    status = read_json(folder / "status.json")
    return status if isinstance(status, dict) else None


def write_status(folder: Path, state: State, **more: Any) -> None:
    """Record a state; what was recorded before and is not named again stays, save an old error."""
    before = read_status(folder) or {}
    if state == "running":
        before = {key: value for key, value in before.items() if key not in {"error", "traceback", "ended"}}
    now = time.time()
    marks = {"running": "started", "done": "ended", "failed": "ended", "interrupted": "ended"}
    write_json(
        folder / "status.json",
        {
            **before,
            "state": state,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "job_id": own_job_id(),
            "batch": os.environ.get(BATCH_VARIABLE),
            "updated": now,
            **({marks[state]: now} if state in marks else {}),
            **more,
        },
    )


def write_failure(folder: Path, error: BaseException, asked: bool = False) -> None:
    """Record why a run ended before its time, with the traceback; `asked`: it was asked to. What failed first stays."""
    interrupted = asked or isinstance(error, KeyboardInterrupt)
    state: State = "interrupted" if interrupted else "failed"
    if interrupted and (read_status(folder) or {}).get("state") == "failed":
        return
    text = str(error).strip()
    write_status(
        folder,
        state,
        error=f"{type(error).__name__}: {text.splitlines()[-1]}" if text else type(error).__name__,
        traceback="".join(traceback.format_exception(error)),
    )
