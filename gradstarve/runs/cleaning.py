"""What can be taken out of an outputs folder, and taking it out."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from gradstarve.runs.claim import claim


def leftovers_of_done(folder: Path) -> list[Path]:
    """What a finished run does not need: checkpoints, and files that were being written when something was killed."""
    return [path for path in folder.iterdir() if path.name == "checkpoints" or _is_temporary(path)]


def temporary_models(outputs: Path) -> list[Path]:
    """Models whose making was killed."""
    return [path for path in (outputs / "models").glob(".*.tmp") if path.is_dir()]


def size(path: Path) -> int:
    """Bytes."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def remove_run(folder: Path) -> None:
    """Remove a run folder, unless somebody runs it: raises Claimed."""
    with claim(folder):
        for path in folder.iterdir():
            if not path.name.startswith((".claim", "claim.")):
                remove([path])
    shutil.rmtree(folder)


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")
