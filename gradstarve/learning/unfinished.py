"""The completions of an evaluation that has not ended: kept batch by batch, so that a kill loses one batch at most.

A line of JSON a batch, after a first line that says which weights were asked and how. A line counts once its line break
is written; a file of other weights or of other stop tokens counts for nothing and is begun anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Key = tuple[str, int]  # question id, sample


@dataclass
class Unfinished:
    """What is there already: the rows by question and sample, and the seconds that they took."""

    file: Path
    head: Mapping[str, Any]
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def open(cls, file: Path, head: Mapping[str, Any]) -> Unfinished:
        """Read the whole batches of `file` and cut off what a kill left behind them."""
        found = cls(file, head)
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        whole = 0
        for place, line in enumerate(lines[:-1]):
            try:
                content = json.loads(line)
            except ValueError:  # the disk kept a length, not what was written
                break
            if place == 0 and content != json.loads(json.dumps(head)):
                break
            if place > 0:
                found._count(content)
            whole += len(line) + 1
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("r+b" if file.exists() else "wb") as stream:
            stream.truncate(whole)
        if not whole:
            found._append(dict(head))
        return found

    def add(self, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Keep one batch: on the disk when this returns."""
        batch = {"seconds": seconds, "rows": [dict(row) for row in rows]}
        self._append(batch)
        self._count(batch)

    def _count(self, batch: Mapping[str, Any]) -> None:
        self.rows |= {(row["question_id"], row["sample"]): row for row in batch["rows"]}
        self.seconds += batch["seconds"]

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.file.open("ab") as stream:
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def fingerprint(model: torch.nn.Module, values: int = 256) -> str:
    """Names the weights, exactly and quickly: some values of every parameter, spread over it, whatever the device.

    Two trainings of one model differ in nearly all values, so it need not read all of them.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // values)].to("cpu", torch.float32)
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(some.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
