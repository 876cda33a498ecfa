"""Rows of a file that someone else wrote: JSONL, gzipped or not, parquet, or standard input. Bad rows are named."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gradstarve.analysis.text import printable
from gradstarve.errors import UserError

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"


@dataclass(frozen=True)
class Unreadable:
    """A row that can't be used: its line (of text) or its row (of parquet), counted from 1, and why."""

    row: int
    why: str
    parsed: bool = True  # False: not even a JSON object

    def __str__(self) -> str:
        return f"line {self.row}: {self.why}"


def read_rows(name: str) -> Iterator[tuple[int, dict[str, Any] | Unreadable]]:
    """(line counted from 1, row) of a .jsonl, .jsonl.gz or .parquet file, or of standard input where `name` is "-".

    The kind is told from the first bytes, so a wrong ending does no harm. Raises UserError where there is no such file.
    """
    if name == "-":
        yield from _read(sys.stdin.buffer, "standard input")
        return
    path = Path(name)
    if not path.exists():
        raise UserError(f"there is no file {name}")
    if path.is_dir():
        raise UserError(f"{name} is a folder; name a .jsonl, .jsonl.gz or .parquet file")
    try:
        with path.open("rb") as file:
            yield from _read(file, name)
    except OSError as error:
        raise UserError(f"{name} can't be read: {error.strerror or error}") from error


def _read(file: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any] | Unreadable]]:
    head = file.read(4)
    rest = _Joined(head, file)
    if head == _PARQUET:
        yield from _parquet(rest.read(), name)
    elif head[:2] == _GZIP:
        with gzip.GzipFile(fileobj=rest) as lines:  # type: ignore[call-overload]
            yield from _lines(lines, name)
    else:
        yield from _lines(rest, name)


class _Joined:
    """The bytes that were read to tell the kind, and the rest of the file after them."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            head, self._head = self._head, b""
            return head + self._file.read()
        head, self._head = self._head[:size], self._head[size:]
        return head + (self._file.read(size - len(head)) if len(head) < size else b"")

    def __iter__(self) -> Iterator[bytes]:
        if b"\n" in self._head:
            *whole, last = self._head.split(b"\n")
            yield from (line + b"\n" for line in whole)
            self._head = last
        first = self._head + self._file.readline()
        self._head = b""
        if first:
            yield first
        yield from self._file


def _lines(lines: Any, name: str) -> Iterator[tuple[int, dict[str, Any] | Unreadable]]:
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except UnicodeDecodeError as error:
                yield number, Unreadable(number, f"is not UTF-8 ({error.reason})", parsed=False)
            except json.JSONDecodeError as error:
                yield number, Unreadable(number, f"is not JSON ({error.msg} at column {error.colno})", parsed=False)
            except (RecursionError, ValueError) as error:
                yield number, Unreadable(number, f"is not JSON ({error})", parsed=False)
            else:
                if isinstance(row, dict):
                    yield number, row
                else:
                    yield number, Unreadable(number, f"is a JSON {type(row).__name__}, not an object", parsed=False)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        why = f"{name} ends here: the compressed data is damaged ({error})"
        yield number + 1, Unreadable(number + 1, why, parsed=False)


def _parquet(content: bytes, name: str) -> Iterator[tuple[int, dict[str, Any] | Unreadable]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        yield from enumerate((row for batch in table.iter_batches() for row in batch.to_pylist()), 1)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{name} is not a readable parquet file: {printable(str(error))}") from error
