"""The process beside a run that mirrors it: started by `tracking`, once for each session of a run.

    python -m gradstarve.learning.wandb_process RUN_FOLDER '{"tracker": ..., "outputs": ...}'

Its standard input says how the run ended; an end of it without a word means that the run was killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
from pathlib import Path

from gradstarve.learning.wandb_mirror import End, Place, mirror_run, one_line
from gradstarve.runs.folder import RunFolder


def main(folder: str, asked: str) -> int:
    # A job that is cancelled is sent these in all of its processes; the run itself says when it is over.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    request = json.loads(asked)
    tracker, outputs = request["tracker"], Path(request["outputs"])
    place = Place(
        project=tracker["project"],
        entity=tracker["entity"],
        mode=tracker["mode"],
        group=tracker["group"],
        tags=tracker["tags"],
        folder=Path(tracker["folder"] or outputs),
        finish_seconds=tracker["finish_seconds"],
    )
    with tempfile.TemporaryDirectory() as cache:
        quiet_environment(Path(cache))
        try:
            mirror_run(RunFolder(Path(folder)), place, outputs, _Ended(), _say)
        except Exception as error:
            # The one place where everything is caught: whatever it is, it ends the mirror, and the run hears of it.
            _say(f"{one_line(error)}; the run goes on without it")
            return 1
    return 0


def quiet_environment(cache: Path) -> None:
    """Nothing in the home folder, no reports to wandb's makers; what the user has set stays."""
    os.environ.setdefault("WANDB_CACHE_DIR", str(cache))
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    # Those of a parent that uses wandb for itself.
    for name in ("WANDB_SERVICE", "WANDB_DISABLED"):
        os.environ.pop(name, None)


class _Ended:
    """Waits for the word that the run has ended."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def __call__(self, seconds: float) -> End | None:
        readable, _, _ = select.select([0], [], [], seconds)
        if readable:
            return "done" if os.read(0, 16).startswith(b"done") else "stopped"
        # A killed run's end of the pipe may live on in a process that it has forked.
        return "stopped" if os.getppid() != self._parent else None


def _say(text: str) -> None:
    print(f"tracker: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # wandb's own handlers at exit wait for its service, however it stands; all is said and done before.
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
