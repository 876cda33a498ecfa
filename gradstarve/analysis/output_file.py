"""Where a command was told to write a file: refused before any work is done, where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

from gradstarve.errors import UserError


def check_output(path: Path, option: str) -> None:
    """Before any work is done: a place that can't be written. Raises UserError.

    A device is refused: a rename would put the file in its place.
    """
    if path.is_dir():
        raise UserError(f"{option} {path}: is a folder; name a file in a folder that exists")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.parent}; name a file in a folder that exists")
    if path.exists() and not path.is_file():
        raise UserError(f"{option} {path}: is a device or a pipe; name a file")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{option} {path}: {path.parent} may not be written to; name a file in another folder")
