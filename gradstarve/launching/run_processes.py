"""The near side of the fork server: start it, ask for processes, hear what became of them, leave none behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import TracebackType
from typing import Any, Self

import yaml

from gradstarve.launching.fork_server import GRACE_SECONDS, STOPPING
from gradstarve.runs.claim import LAUNCHER_VARIABLE, launcher_name
from gradstarve.runs.config import RunConfig, plain_config

# One thread for the server itself, so that nothing it imports starts a pool before it forks; CUDA is looked for
# without being started, since a process forked after that could not use it.
# cuBLAS repeats its results only with a workspace of fixed size.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def gpus() -> list[str]:
    """The GPUs that runs may use, as CUDA_VISIBLE_DEVICES names them, found without starting CUDA."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        # CUDA counts from 0 whatever the devices are called that a container was given.
        return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    # As CUDA reads it: what follows a name that is no device does not count.
    named = itertools.takewhile(lambda name: name not in {"", "-1", "NoDevFiles"}, chosen.split(","))
    return [name.strip() for name in named]


@dataclass(frozen=True)
class Ended:
    """A run's process has ended; `code` is its exit code, or minus the signal that ended it."""

    number: int
    code: int


class RunProcesses:
    """One process for each run, forked from a server that is started at once and imports while we go on."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        # The server unblocks the signals once it can take them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        # -P: a file in the current folder must not take the place of a library's module.
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-m", "gradstarve.launching.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={
                **os.environ,
                **_ENVIRONMENT,
                LAUNCHER_VARIABLE: launcher_name(),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
            # A session of its own: Ctrl-C reaches us alone, and we say once to each run that it is to stop.
            start_new_session=True,
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._server.stdout is not None
        self._selector = DefaultSelector()
        self._selector.register(self._server.stdout, EVENT_READ)
        self._unread = b""
        self.ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the server and, with time to write their status, whatever runs are left."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._selector.close()
        self._server.stdout.close()
        self._server.stdin.close()
        try:
            if not self.ready:
                self._server.kill()
            self._server.wait(GRACE_SECONDS + 10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        # Whatever a run itself has started; mostly nobody is left of the server's session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._errors.close()

    def start(
        self,
        number: int,
        configs: Sequence[RunConfig],
        log: Path,
        threads: int,
        processes: int = 1,
        gpus: Sequence[str] | None = None,
        patient: bool = False,
    ) -> None:
        """Ask for processes that execute `configs` (fork_server.Request); `number` comes back with their end."""
        self._say(
            number=number,
            log=str(log.absolute()),
            threads=threads,
            configs=yaml.safe_dump([plain_config(config) for config in configs], allow_unicode=True),
            processes=processes,
            gpus=None if gpus is None else list(gpus),
            patient=patient,
        )

    def signal_all(self, number: int) -> None:
        self._say(signal=number)

    def hear(self, timeout: float) -> list[Ended]:
        """What has ended, after at most `timeout` seconds. Raises RuntimeError where the server itself is gone."""
        assert self._server.stdout is not None
        if not self._selector.select(timeout):
            return []
        chunk = os.read(self._server.stdout.fileno(), 1 << 20)
        if not chunk:
            self._server.wait()
            raise RuntimeError(f"the process that starts the runs has ended:\n{self.errors()}")
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        ended = []
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "ready" in message:
                self.ready = True
            elif "ended" in message:
                ended.append(Ended(message["ended"], message["code"]))
        return ended

    def errors(self) -> str:
        """What the server has printed: warnings of imports, and why it could not go on."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def _say(self, **message: Any) -> None:
        assert self._server.stdin is not None
        data = memoryview((json.dumps(message) + "\n").encode())
        try:
            while data:
                data = data[os.write(self._server.stdin.fileno(), data) :]
        except BrokenPipeError:
            # The server is gone; `hear` says why.
            return
