"""Checkpoints of a running run: whole or not there.

A trainer writes a checkpoint's files in place, so a kill can leave half of one. The manifest is written last and names
every file with its size; only a checkpoint whose manifest agrees with its files is resumed from. The older whole one
stays until the newer is sealed, so at most two lie on the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradstarve.runs.files import read_json, write_json

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: where it lies, the step after which it was taken, and the tables' sizes at that moment."""

    path: Path
    step: int
    offsets: Mapping[str, int]


def seal(path: Path, step: int, offsets: Mapping[str, int]) -> None:
    """Make the checkpoint at `path` whole: its files reach the disk, then the manifest does."""
    sizes = {}
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
        sizes[str(file.relative_to(path))] = file.stat().st_size
    write_json(path / MANIFEST, {"step": step, "offsets": dict(offsets), "files": sizes})


def newest_whole(folder: Path) -> Checkpoint | None:
    """The newest checkpoint under `folder` that can be resumed from."""
    whole = [checkpoint for path in folder.glob("checkpoint-*") if (checkpoint := _read(path)) is not None]
    return max(whole, key=lambda checkpoint: checkpoint.step, default=None)


def keep_only(folder: Path, kept: Path | None) -> None:
    """Remove every checkpoint but `kept`, torn ones included."""
    for path in folder.glob("checkpoint-*"):
        if path != kept:
            # Without its manifest it is not whole, whatever a kill leaves of the rest.
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path)


def _read(path: Path) -> Checkpoint | None:
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict):
        return None
    for name, size in manifest["files"].items():
        file = path / name
        if not file.is_file() or file.stat().st_size != size:
            return None
    return Checkpoint(path, manifest["step"], manifest["offsets"])
