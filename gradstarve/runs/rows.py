"""Every run as one row: what result.json and the evaluations' summaries say, and how far the others got.

Reads small files only, two or three a run, so that ten thousand folders take seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow.parquet as pq

from gradstarve.errors import UserError
from gradstarve.runs.claim import holder_of
from gradstarve.runs.config import read_config
from gradstarve.runs.folder import LAYOUT, RunFolder, Table, runs_root
from gradstarve.runs.signature import identity
from gradstarve.runs.status import read_status

State = Literal["done", "running", "queued", "failed", "interrupted", "lost", "unreadable"]

MUCH_TRUNCATED = 0.2  # share of completions without an end above which a completion limit may decide what is measured


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run folder.

    `result` is result.json, None unless the run is done. `evaluations` maps a folder name to its summary.
    `why` is one line for a run that is not done. "lost": said to be running, by a process that is gone. "unreadable": a
    result.json that is not one of this layout, or not this folder's.
    """

    run: str
    folder: Path
    state: State
    why: str | None = None
    result: dict[str, Any] | None = None
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)


def read_rows(outputs: Path, progress: Callable[[str], None] | None = None) -> list[RunRow]:
    """All run folders below `outputs`, by name. A folder without any of a run's files is left out."""
    try:
        with os.scandir(runs_root(outputs)) as entries:
            folders = sorted((entry.name, entry.path) for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise UserError(f"{outputs}: not a folder with runs") from None
    rows: list[RunRow] = []
    shown = time.monotonic()
    for number, (name, path) in enumerate(folders):
        row = read_row(name, path)
        if row is not None:
            rows.append(row)
        if progress is not None and time.monotonic() - shown > 2:
            shown = time.monotonic()
            progress(f"read {number + 1} of {len(folders)} run folders")
    return rows


def identify(row: RunRow) -> dict[str, Any] | None:
    """What a run's config.yaml asks for, with the keys of a sweep declaration; None where the config cannot be read."""
    try:
        config = read_config(RunFolder(row.folder).read_config())
        asked = identity(config)
    except UserError:
        return None
    return asked if asked["run"] == row.run else None


def read_columns(folder: Path, table: Table, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of a run's table, and no more read than these; those that it does not have are left out."""
    file = folder / f"{table}.parquet"
    if not file.exists():
        frame = RunFolder(folder).read(table)
        return frame[[column for column in columns if column in frame]]
    with pq.ParquetFile(file) as parquet:
        return parquet.read([column for column in columns if column in parquet.schema_arrow.names]).to_pandas()


def read_row(name: str, path: str) -> RunRow | None:
    """One run folder, by its name and path; None where it has none of a run's files."""
    result, problem = _read_object(f"{path}/result.json")
    if result is not None and (result.get("layout") != LAYOUT or result.get("run") != name):
        problem = (
            f"its result.json is of layout {result.get('layout')!r}, this version reads {LAYOUT}"
            if result.get("layout") != LAYOUT
            else f"its result.json is that of {result.get('run')!r}: a copied folder?"
        )
        result = None
    evaluations = _read_evaluations(f"{path}/evaluations")
    if result is not None and not os.path.exists(f"{path}/config.yaml"):  # noqa: PTH110
        problem, result = "its config.yaml is missing: a folder copied in part?", None
    if result is not None:
        return RunRow(name, Path(path), "done", None, result, evaluations)
    if problem is not None:
        return RunRow(name, Path(path), "unreadable", problem, None, evaluations)
    state, why = _state(Path(path))
    if state is None:
        return None
    return RunRow(name, Path(path), state, why, None, evaluations)


def _read_object(path: str) -> tuple[dict[str, Any] | None, str | None]:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib costs as much as the read itself
            content = json.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except ValueError:
        return None, f"{os.path.basename(path)} is not JSON"  # noqa: PTH119
    return (content, None) if isinstance(content, dict) else (None, f"{os.path.basename(path)} is no object")  # noqa: PTH119


def _read_evaluations(path: str) -> dict[str, dict[str, Any]]:
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {}
    for name in names:
        # A summary is written last and whole; without one the evaluation has not ended.
        summary, _ = _read_object(f"{path}/{name}/summary.json")
        if summary is not None:
            found[name] = summary
    return found


def _state(folder: Path) -> tuple[State | None, str | None]:
    status = read_status(folder)
    if status is None:
        return (
            ("interrupted", "never finished, and left no status") if (folder / "config.yaml").exists() else (None, None)
        )
    state = status.get("state")
    if state == "failed":
        return "failed", str(status.get("error") or "no error recorded")
    if state == "interrupted":
        return "interrupted", str(status.get("error") or "stopped before its end")
    if state == "queued":
        return "queued", "queued"
    if state == "running":
        holder = holder_of(folder)
        if holder is None or holder[1] == "gone":
            return "lost", f"its process is gone (host {status.get('host')}, pid {status.get('pid')})"
        return "running", f"still running (host {status.get('host')}, pid {status.get('pid')})"
    return "interrupted", f"its status says {state!r}, but there is no result.json"
