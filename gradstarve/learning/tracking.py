"""A run's tracker: a process beside the run that mirrors the run's own files to Weights & Biases.

The run never imports or calls the tracker, so nothing that goes wrong there (no network, a full disk, a dead service,
a bug) can reach it: not its random state, its signals or its exit code. All they share is the run folder, which the
mirror reads, and a pipe that says how the run ended.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig, WandbConfig, plain_config
from gradstarve.runs.folder import RunFolder

Say = Callable[[str], None]

# Called once the run's tables hold nothing that the run will take back; what is called again does nothing.
Track = Callable[[], None]

# A run that was told to stop has little time; see launching.fork_server.GRACE_SECONDS.
STOPPED_SECONDS = 10.0


def require_tracker(config: RunConfig) -> None:
    """Raises UserError where the tracker that `config` asks for is not installed."""
    if isinstance(config.tracker, WandbConfig):
        require_wandb("tracker=wandb")


def require_wandb(what: str) -> None:
    try:
        importlib.metadata.version("wandb")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"{what}: the package wandb is not installed; pip install -c constraints.txt -e '.[wandb]'"
        ) from None


@contextmanager
def tracked(config: RunConfig, folder: RunFolder, say: Say) -> Iterator[Track]:
    """Gives the function that begins to mirror the run. At the block's end the mirror has its time to finish, and is
    then ended. Where the tracker is missing, here and not where the run was asked for, that is said, once."""
    started: list[subprocess.Popen[bytes]] = []
    wanted = isinstance(config.tracker, WandbConfig)

    def begin() -> None:
        if wanted and not started:
            try:
                started.append(_start(config, folder))
            except OSError as error:
                say(f"tracker: cannot be started ({error}); the run goes on without it")

    try:
        require_tracker(config)
    except UserError as error:
        say(f"the run goes on without its tracker: {error}")
        wanted = False
    done = False
    try:
        yield begin
        done = True
    finally:
        for process in started:
            _end(process, config, done, say)


def _start(config: RunConfig, folder: RunFolder) -> subprocess.Popen[bytes]:
    asked = json.dumps({"tracker": plain_config(config)["tracker"], "outputs": config.outputs})
    return subprocess.Popen(
        # -P: a file in the current folder must not take the place of a library's module.
        [sys.executable, "-P", "-m", "gradstarve.learning.wandb_process", str(folder.path), asked],
        stdin=subprocess.PIPE,
        bufsize=0,
        # A session of its own: Ctrl-C reaches the run alone, and the mirror hears of it from the run.
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path)},
    )


def _end(process: subprocess.Popen[bytes], config: RunConfig, done: bool, say: Say) -> None:
    assert process.stdin is not None and isinstance(config.tracker, WandbConfig)
    seconds = config.tracker.finish_seconds if done else min(config.tracker.finish_seconds, STOPPED_SECONDS)
    later = "; `gradstarve mirror` does it from the run's files" if done else ""
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"done\n" if done else b"stopped\n")
        process.stdin.close()
        if process.wait(seconds):
            say(f"tracker: the mirror is not complete{later}")
    except subprocess.TimeoutExpired:
        say(f"tracker: the mirror was not complete after {seconds:.0f} seconds and was ended{later}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
