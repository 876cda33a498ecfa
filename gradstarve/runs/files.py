"""Files that are whole or absent: written to a temporary name, flushed, then renamed."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradstarve.errors import UserError

if TYPE_CHECKING:  # the commands that write no table start without pandas
    import pandas as pd


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder that becomes `path` when the block ends well, and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:6]}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock on the file `path`, made if need be; `waiting` is called once where somebody else holds it.

    Raises UserError where the file system has no locks.
    """
    with path.open("a") as stream:
        try:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}:
                raise UserError(
                    f"{path.parent}: this file system has no locks (flock: {error.strerror}); choose another place "
                    "with outputs=, or have it mounted with locks"
                ) from None
            raise
        yield


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        # Texts of models hold half characters, which UTF-8 has no place for; in JSON the escape is that character.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any | None:
    """The file's value, or None where it is absent or was not written by `write_json` to its end."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, UnicodeDecodeError):
        return None


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    with whole_file(path) as temporary:
        frame.to_parquet(temporary, index=False)


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """For writers that want a path, such as a figure's."""
    with whole_file(path) as temporary:
        write(temporary)


def finite(value: Any) -> Any:
    """NaN and infinities as None: JSON has neither, and a reader must not meet a word it cannot parse."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
