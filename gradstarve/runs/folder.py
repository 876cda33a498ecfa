"""A run folder: what a run leaves behind, read and written here only.

outputs/runs/<advantage>-g<G>-s<seed>-<8 hex>/
    config.yaml, provenance.json, submission.json, status.json, claim.json
    steps.jsonl, groups.jsonl, completions.jsonl     while it runs; one parquet each when training has ended
    checkpoints/checkpoint-50/                       while it runs
    weights/                                         the final weights, or the adapter
    evaluations/<name>-<8 hex>/                      summary.json and one parquet a checkpointed step
    result.json                                      last and whole: only it makes a run done
    log.txt                                          what the run's process printed
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig, plain_config
from gradstarve.runs.files import finite, read_json, write_json, write_parquet, write_text
from gradstarve.runs.signature import evaluation_name, run_name

# The same safe loader, in C where libyaml is there: reading thousands of runs is mostly this.
_SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Table = Literal["steps", "groups", "completions"]
TABLES: tuple[Table, ...] = ("steps", "groups", "completions")

# The layout of result.json and of the tables; raised when a reader of today would misread what an older one wrote.
LAYOUT = 1


def runs_root(outputs: Path) -> Path:
    return outputs / "runs"


class RunFolder:
    """The folder of one run; nothing is created before something is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, config: RunConfig) -> RunFolder:
        return cls(runs_root(Path(config.outputs)) / run_name(config))

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def weights(self) -> Path:
        return self.path / "weights"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_config(self, config: RunConfig) -> None:
        write_text(self.path / "config.yaml", yaml.safe_dump(plain_config(config), sort_keys=False, allow_unicode=True))

    def read_config(self) -> dict[str, Any]:
        """The config as it was written, plain."""
        file = self.path / "config.yaml"
        if not file.is_file():
            raise UserError(f"{self.path}: not a run folder (no config.yaml)")
        try:
            plain = yaml.load(file.read_text(encoding="utf-8"), _SAFE_LOADER)
        except (yaml.YAMLError, UnicodeDecodeError):
            raise UserError(f"{file}: is not YAML; it was damaged or edited after the run") from None
        if not isinstance(plain, dict):
            raise UserError(f"{file}: is not a run's config; it was damaged or edited after the run")
        return plain

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        write_json(self.path / "provenance.json", provenance)

    def provenance(self) -> dict[str, Any]:
        return read_json(self.path / "provenance.json") or {}

    def write_submission(self, submission: Mapping[str, Any]) -> None:
        write_json(self.path / "submission.json", submission)

    def restore_submission(self, before: Mapping[str, Any] | None) -> None:
        """Put back what was there before a submission that came to nothing."""
        if before is None:
            (self.path / "submission.json").unlink(missing_ok=True)
        else:
            self.write_submission(before)

    def submission(self) -> dict[str, Any] | None:
        """What was last submitted for this run: batch, task, configs, options, code and time; None if nothing was."""
        content = read_json(self.path / "submission.json")
        return content if isinstance(content, dict) else None

    def append(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table of a running run, flushed: a watcher sees them, and a kill loses none before it."""
        lines = "".join(json.dumps(finite(dict(row)), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        self.path.mkdir(parents=True, exist_ok=True)
        with self._jsonl(table).open("ab") as stream:
            stream.write(lines.encode("utf-8", errors="backslashreplace"))

    def flush_tables(self) -> None:
        """Bring the tables to the disk, as a checkpoint does its files: one must not outlive the other."""
        for table in TABLES:
            if self._jsonl(table).exists():
                with self._jsonl(table).open("rb") as stream:
                    os.fsync(stream.fileno())

    def offsets(self) -> dict[str, int]:
        """How many bytes of each table are written; a checkpoint records them."""
        return {table: self._jsonl(table).stat().st_size if self._jsonl(table).exists() else 0 for table in TABLES}

    def cut(self, offsets: Mapping[str, int]) -> None:
        """Cut the tables back to a checkpoint's offsets (0 for a table it does not name)."""
        for table in TABLES:
            file, offset = self._jsonl(table), offsets.get(table, 0)
            size = file.stat().st_size if file.exists() else 0
            if size < offset:
                raise ValueError(f"{file} has {size} bytes, fewer than the {offset} that the checkpoint recorded")
            if size > offset:
                with file.open("r+b") as stream:
                    stream.truncate(offset)

    def read(self, table: Table) -> pd.DataFrame:
        """A table, of a finished or of a running run. A last line that is still being written is left out."""
        parquet = self.path / f"{table}.parquet"
        if parquet.exists():
            return pd.read_parquet(parquet)
        return pd.DataFrame(self._rows(table))

    def last_step(self) -> dict[str, Any] | None:
        """The newest row of `steps`, read from the file's end."""
        rows = self._rows("steps", tail_bytes=65536)
        if rows:
            return rows[-1]
        parquet = self.path / "steps.parquet"
        if parquet.exists():
            frame = pd.read_parquet(parquet)
            return {str(k): v for k, v in frame.iloc[-1].items()} if len(frame) else None
        return None

    def close_tables(self) -> None:
        """Turn each .jsonl into a parquet. Can be repeated: a .jsonl is removed only once its parquet is whole."""
        for table in TABLES:
            file = self._jsonl(table)
            if file.exists():
                write_parquet(self.path / f"{table}.parquet", pd.DataFrame(self._rows(table)))
                file.unlink()

    def evaluation(self, config: RunConfig) -> Path:
        """The folder of the evaluation that `config` asks for."""
        return self.path / "evaluations" / evaluation_name(config)

    def evaluated_steps(self, config: RunConfig) -> set[int]:
        """The steps at which a running run has been evaluated so far."""
        content = read_json(self.evaluation(config) / "partial.json")
        return {int(step) for step in content["by_step"]} if isinstance(content, dict) else set()

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """The summaries of all whole evaluations, by folder name."""
        found = {}
        for summary in sorted(self.path.glob("evaluations/*/summary.json")):
            content = read_json(summary)
            if isinstance(content, dict):
                found[summary.parent.name] = content
        return found

    def evaluation_points(self) -> dict[str, dict[int, dict[str, Any]]]:
        """The summaries of all evaluations, whole or not, by folder name and step."""
        found = {}
        for place in sorted(self.path.glob("evaluations/*")):
            content = read_json(place / "summary.json") or read_json(place / "partial.json")
            if isinstance(content, dict):
                found[place.name] = {int(step): summary for step, summary in content["by_step"].items()}
        return found

    def final_answers(self, evaluation: str) -> pd.DataFrame | None:
        """What the final policy answered in the evaluation of that folder name; None where the file is gone."""
        step = self.evaluations()[evaluation]["final"]["step"]
        file = self.path / "evaluations" / evaluation / f"step-{step:06d}.parquet"
        return pd.read_parquet(file) if file.is_file() else None

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_json(self.path / "result.json", {"layout": LAYOUT, **result})

    def result(self) -> dict[str, Any] | None:
        """The summary row of a finished run, or None. A file that is not a result of this layout counts as none."""
        content = read_json(self.path / "result.json")
        if isinstance(content, dict) and content.get("layout") == LAYOUT and content.get("run") == self.name:
            return content
        return None

    def is_done(self, config: RunConfig) -> bool:
        """Trained, and evaluated as `config` asks."""
        return self.result() is not None and evaluation_name(config) in self.evaluations()

    def _jsonl(self, table: Table) -> Path:
        return self.path / f"{table}.jsonl"

    def _rows(self, table: Table, tail_bytes: int | None = None) -> list[dict[str, Any]]:
        file = self._jsonl(table)
        if not file.exists():
            return []
        with file.open("rb") as stream:
            if tail_bytes is not None:
                size = stream.seek(0, 2)
                stream.seek(max(0, size - tail_bytes))
                if size > tail_bytes:
                    stream.readline()
            lines = stream.read().split(b"\n")
        return [json.loads(line) for line in lines[:-1] if line]
