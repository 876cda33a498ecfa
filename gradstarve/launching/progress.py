"""What is shown while runs run: a live table on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live

from gradstarve.launching.jobs import Job
from gradstarve.launching.standing import Standing, Wanted, standing_of, wanted_by
from gradstarve.launching.table import progress_of, summary, table

_PLAIN_SECONDS = 10.0


class Progress(Protocol):
    """Where a launcher tells what happens."""

    def line(self, text: str) -> None:
        """Something has happened: shown at once, and stays on the screen."""

    def refresh(self) -> None:
        """Time has passed; the run folders may have news."""


@contextmanager
def showing(jobs: Sequence[Job]) -> Iterator[Progress]:
    """The progress of `jobs` on standard error: live on a terminal, plain elsewhere."""
    standings = _Standings(wanted_by(jobs))
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Plain(standings)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        progress = _Live(standings, live)
        yield progress
        progress.refresh()


class _Standings:
    """Reads the folders again and again, save those of runs that are done: they do not change."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted
        self._done: dict[str, Standing] = {}

    def read(self) -> list[Standing]:
        found = []
        for wanted in self._wanted:
            standing = self._done.get(wanted.run) or standing_of(wanted)
            if standing.state == "done":
                self._done[wanted.run] = standing
            found.append(standing)
        return found


class _Live:
    def __init__(self, standings: _Standings, live: Live) -> None:
        self._standings, self._live = standings, live

    def line(self, text: str) -> None:
        # The table shows what is started and done; what stays to be read is trouble.
        if not text.startswith(("started ", "done ")):
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def refresh(self) -> None:
        self._live.update(table(self._standings.read(), self._live.console.width), refresh=True)


class _Plain:
    def __init__(self, standings: _Standings) -> None:
        self._standings = standings
        self._shown = time.monotonic()
        self._said = [summary(standings.read())]

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def refresh(self) -> None:
        if time.monotonic() - self._shown < _PLAIN_SECONDS:
            return
        self._shown = time.monotonic()
        standings = self._standings.read()
        running = [standing for standing in standings if standing.state == "running"]
        said = [summary(standings), *(f"  {standing.wanted.run}: {progress_of(standing)}" for standing in running)]
        if said != self._said:
            self._said = said
            self.line("\n".join(said))
