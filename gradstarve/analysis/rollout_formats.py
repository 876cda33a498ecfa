"""Readers of rollout logs: which one a path needs, and each format's way to `Rollouts`.

Understood: JSONL with a list of rewards a line; JSONL, csv or parquet with a row for each completion (prompt_id,
reward); TRL's completions parquet (a file or the folder); verl's rollout JSONL (a file or the folder); csv of training
metrics; our own run folders.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from gradstarve.analysis.rollouts import (
    PROMPT_COLUMNS,
    REWARD_COLUMNS,
    TEXT_COLUMNS,
    TOKEN_COLUMNS,
    Completion,
    Group,
    Rollouts,
    first_column,
    group_completions,
    parse_length,
    parse_reward,
    parse_step,
    parse_truncated,
    recode,
    with_progress,
)
from gradstarve.analysis.text import printable
from gradstarve.analysis.training_metrics import is_training_metrics, read_training_metrics
from gradstarve.errors import UserError, nearest

Rows = Iterator[tuple[str, dict[str, Any]]]

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True)
class Reading:
    """How to read: the reward's column (None: the usual names), the threshold of right, the group size of metrics."""

    reward: str | None = None
    threshold: float | None = None
    group_size: int | None = None


def read_rollouts(path: Path, reading: Reading) -> Rollouts:
    """The groups of a rollout log. Raises UserError, with the row named, for what can't be read as one."""
    if reading.threshold is not None and not math.isfinite(reading.threshold):
        raise UserError(f"--threshold {reading.threshold}: should be a number")
    if not path.exists():
        raise UserError(
            f"{path}: no such file or folder{'; standard input is not read here' if str(path) == '-' else ''}"
        )
    rollouts = _read_folder(path, reading) if path.is_dir() else _read_file(path, reading)
    if not rollouts.groups:
        raise UserError(f"{path}: no completions in it")
    if all(group.step is not None for group in rollouts.groups):
        rollouts.groups.sort(key=lambda group: group.step or 0)
    return rollouts


def _read_folder(path: Path, reading: Reading) -> Rollouts:
    stems = {file.name.split(".")[0] for file in path.iterdir() if file.suffix in (".parquet", ".jsonl")}
    if {"completions", "groups"} & stems:
        return _read_run_folder(path)
    for folder in (path, path / "completions"):
        parquets = sorted(folder.glob("completions_*.parquet")) if folder.is_dir() else []
        if parquets:
            return _from_rows(path, _chain(parquets), "TRL completions", reading)
    lines = sorted(path.glob("*.jsonl"), key=lambda file: (len(file.stem), file.stem))
    if lines:
        return _from_rows(path, _chain(lines), "rollout JSONL", reading)
    raise UserError(f"{path}: neither a run folder nor one with completions_*.parquet (TRL) or *.jsonl (verl)")


def _read_run_folder(path: Path) -> Rollouts:
    # Here and nowhere else: run folders are the runs room's, and its import is not cheap.
    from gradstarve.runs.folder import RunFolder

    folder = RunFolder(path)
    completions = folder.read("completions")
    if len(completions):
        rows = ((f"{path.name}, completion {i}", row) for i, row in enumerate(completions.to_dict("records"), start=1))
        named = ((where, _strings(row)) for where, row in rows)
        return _from_completion_rows(named, "run folder", Reading("reward"), group="group")
    groups = []
    for i, row in enumerate(folder.read("groups").to_dict("records"), start=1):
        right, verdicts, unverifiable = int(row["n_plus"]), int(row["group_size"]), int(row["unverifiable"])
        rewards = (1,) * right + (0,) * (verdicts - right) + (None,) * unverifiable
        size, cut = len(rewards), int(row["truncated"])
        groups.append(
            Group(
                where=f"{path.name}, group {i}",
                prompt=str(row["prompt_id"]),
                step=int(row["step"]),
                rewards=rewards,
                lengths=(float(row["tokens"]) / size,) * size if size else (),
                truncated=(True,) * size if cut == size else (False,) * size if cut == 0 else None,
            )
        )
    return Rollouts("run folder", groups, "tokens")


def _strings(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in row.items()}


def _chain(paths: list[Path]) -> Rows:
    for path in paths:
        yield from _parquet_rows(path) if path.suffix == ".parquet" else _json_lines(path, [])


def _read_file(path: Path, reading: Reading) -> Rollouts:
    name = path.name.removesuffix(".gz").lower()
    if name.endswith(".parquet"):
        return _from_rows(path, _parquet_rows(path), "parquet", reading)
    if name.endswith(".csv"):
        return _read_csv(path, reading)
    if name.endswith((".jsonl", ".json", ".ndjson")):
        notes: list[tuple[str, str]] = []
        rollouts = _from_rows(path, _json_lines(path, notes), "rollout JSONL", reading)
        rollouts.notes.extend(notes)
        return rollouts
    raise UserError(f"{path}: not a .jsonl, .csv or .parquet file, nor a folder of them")


def _open_text(path: Path) -> io.TextIOBase:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None


def _json_lines(path: Path, notes: list[tuple[str, str]]) -> Rows:
    with _open_text(path) as stream:
        number = 0
        try:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                where = f"{path.name} line {number}"
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    if not line.endswith("\n"):
                        notes.append(("unfinished-line", f"{where} was cut off while it was written; it is left out"))
                        continue
                    told = (
                        f"{error.msg} at column {error.colno}"
                        if isinstance(error, json.JSONDecodeError)
                        else str(error)
                    )
                    raise UserError(f"{where}: not JSON ({printable(told, 60)}); mend the line, or delete it") from None
                if not isinstance(row, dict):
                    raise UserError(f"{where}: expected one JSON object a line, got {printable(line.strip(), 40)}")
                yield where, row
        except UnicodeDecodeError:
            raise UserError(f"{path.name} line {number + 1}: not UTF-8 text; is it a .jsonl file?") from None
        except DAMAGED as error:
            raise _damaged(path, number + 1, error) from None


def _damaged(path: Path, line: int, error: Exception) -> UserError:
    return UserError(f"{path.name} line {line}: the compressed data is damaged ({error}); write or copy the file again")


def _parquet_rows(path: Path) -> Rows:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                number += 1
                yield f"{path.name} row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        # A damaged file is an OSError or an ArrowException, as the place of the damage has it.
        after = f" after row {number}" if number else ""
        raise UserError(f"{path}: not a parquet file, or a damaged one{after} ({printable(str(error), 60)})") from None


def _read_csv(path: Path, reading: Reading) -> Rollouts:
    csv.field_size_limit(sys.maxsize)
    with _open_text(path) as stream:
        reader = csv.DictReader(stream)
        try:
            columns = reader.fieldnames or []
            rows = [(f"{path.name} line {reader.line_num}", row) for row in reader]
        except UnicodeDecodeError:
            raise UserError(f"{path.name}: not UTF-8 text; is it a .csv file?") from None
        except csv.Error as error:
            raise UserError(f"{path.name} line {reader.line_num}: not a csv ({error})") from None
        except DAMAGED as error:
            raise _damaged(path, reader.line_num + 1, error) from None
    twice = next((name for name, count in Counter(columns).items() if name and count > 1), None)
    if twice is not None:
        raise UserError(f"{path.name}: more than one column {printable(twice, 40)!r}; rename all but one")
    for where, row in rows:
        if None in row or None in row.values():
            raise UserError(f"{where}: not as many fields as the header has ({len(columns)}); mend or delete the line")
    if is_training_metrics(columns, reading.reward):
        return read_training_metrics(path, columns, rows, reading.reward, reading.group_size)
    return _from_completion_rows(iter(rows), "csv", reading)


def _from_rows(path: Path, rows: Rows, kind: str, reading: Reading) -> Rollouts:
    """A row for each group where the first row's rewards are a list, else a row for each completion."""
    first = next(rows, None)
    if first is None:
        raise UserError(f"{path}: empty")
    chosen = reading.reward or ("rewards" if "rewards" in first[1] else None)
    every_row = chain([first], rows)
    if chosen is not None and isinstance(first[1].get(chosen), list):
        return _from_reward_lists(every_row, chosen, reading)
    return _from_completion_rows(every_row, kind, reading)


def _from_reward_lists(rows: Rows, column: str, reading: Reading) -> Rollouts:
    raw: list[Group] = []
    units: set[str | None] = set()
    for where, row in with_progress(rows, "groups read"):
        values = row.get(column)
        if not isinstance(values, list):
            raise UserError(f"{where}: no list of rewards under {column!r}")
        rewards = tuple(
            parse_reward(value, f"{where}, sample {i}", reading.threshold) for i, value in enumerate(values, start=1)
        )
        lengths, unit = _list_lengths(row, len(values), where)
        units.add(unit)
        truncated = row.get("truncated")
        if truncated is not None and (not isinstance(truncated, list) or len(truncated) != len(values)):
            raise UserError(f"{where}: `truncated` is not a list of {len(values)}, one for each reward")
        flags = None if truncated is None else _flags(truncated, where)
        prompt = first_column(row, PROMPT_COLUMNS)
        key = _prompt_key(row[prompt]) if prompt else where
        raw.append(Group(where, key, parse_step(row, where), rewards, lengths, flags))
    notes = []
    if recode((reward, group.where) for group in raw for reward in group.rewards):
        notes.append(("rewards-recoded", "rewards are 1 and -1; -1 is counted as wrong"))
        raw = [
            Group(g.where, g.prompt, g.step, tuple(0 if r == -1 else r for r in g.rewards), g.lengths, g.truncated)
            for g in raw
        ]
    unit = next(iter(units)) if len(units) == 1 else None
    return Rollouts("lists of rewards", raw, unit, notes=notes)


def _flags(values: list[Any], where: str) -> tuple[bool, ...] | None:
    flags = [parse_truncated(value, where) for value in values]
    known = [flag for flag in flags if flag is not None]
    return tuple(known) if len(known) == len(flags) else None


def _list_lengths(row: dict[str, Any], size: int, where: str) -> tuple[tuple[float, ...] | None, str | None]:
    for names, unit in ((TOKEN_COLUMNS, "tokens"), (TEXT_COLUMNS, "characters")):
        column = first_column(row, names)
        values = row.get(column) if column else None
        if isinstance(values, list) and len(values) == size:
            if unit == "tokens":
                numbers = [parse_length(value, where, column or "") for value in values]
                known = [number for number in numbers if number is not None]
                return (tuple(known), unit) if len(known) == size else (None, None)
            if all(isinstance(value, str) for value in values):
                return tuple(float(len(value)) for value in values), unit
    return None, None


def _prompt_key(value: Any) -> str:
    """A prompt as text; a conversation (TRL) by its JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _reward_column(row: dict[str, Any], where: str, reading: Reading) -> str:
    if reading.reward is not None:
        if reading.reward not in row:
            raise UserError(f"{where}: no column {reading.reward!r}. {nearest(reading.reward, row)}")
        return reading.reward
    usual = first_column(row, REWARD_COLUMNS)
    if usual is not None:
        return usual
    # TRL names a reward column after its reward function and puts it between `completion` and `advantage`.
    if {"step", "prompt", "completion", "advantage"} <= row.keys():
        numbers = [
            name
            for name, value in row.items()
            if name not in ("step", "prompt", "completion", "advantage")
            and (value is None or type(value) in (int, float))
        ]
        if len(numbers) == 1:
            return numbers[0]
        if numbers:
            raise UserError(f"{where}: several columns could be the reward; choose with --reward: {_named(numbers)}")
    raise UserError(f"{where}: no reward among the columns {_named(row)}; name it with --reward")


def _named(columns: Iterable[str]) -> str:
    return printable(", ".join(columns), 100)


def _from_completion_rows(rows: Rows, kind: str, reading: Reading, group: str | None = None) -> Rollouts:
    """`group` names a column that tells two groups of one prompt in one step apart."""
    completions: list[Completion] = []
    reward = prompt = tokens = text = None
    for where, row in with_progress(rows, "completions read"):
        if reward is None:
            reward = _reward_column(row, where, reading)
            prompt = first_column(row, PROMPT_COLUMNS)
            if prompt is None:
                raise UserError(f"{where}: no prompt column ({', '.join(PROMPT_COLUMNS)}), so no groups can be told")
            tokens, text = first_column(row, TOKEN_COLUMNS), first_column(row, TEXT_COLUMNS)
        if reward not in row or prompt not in row:
            raise UserError(f"{where}: no {reward if reward not in row else prompt!r}")
        if row[prompt] is None or row[prompt] == "":
            raise UserError(f"{where}: empty {prompt!r}")
        written = row.get(text) if text else None
        written = None if written is None else _prompt_key(written)
        length = parse_length(row.get(tokens), where, tokens) if tokens else None if written is None else len(written)
        completions.append(
            Completion(
                where=where,
                prompt=_prompt_key(row[prompt]),
                step=parse_step(row, where),
                reward=parse_reward(row[reward], where, reading.threshold),
                length=length,
                truncated=parse_truncated(row.get("truncated"), where),
                text=None if written is None else hash(written),
                group=row.get(group) if group else None,
            )
        )
    completions, repeated = _without_repeated_steps(completions)
    groups, notes = group_completions(completions)
    if repeated:
        text_note = f"{repeated} steps logged the completions of the step before again; they are counted once"
        notes.append(("repeated-steps", text_note))
    return Rollouts(kind, groups, "tokens" if tokens else "characters" if text else None, notes=notes)


def _without_repeated_steps(completions: list[Completion]) -> tuple[list[Completion], int]:
    """TRL logs the same completions once for each optimizer step that uses them; keep the first."""
    blocks: list[list[Completion]] = []
    for row in completions:
        if not blocks or row.step is None or blocks[-1][0].step != row.step:
            blocks.append([])
        blocks[-1].append(row)

    def content(block: list[Completion]) -> list[tuple[str, int | None, int | None]]:
        return [(row.prompt, row.text, row.reward) for row in block]

    kept = [
        block
        for before, block in zip([[], *blocks], blocks, strict=False)
        if not before or block[0].text is None or block[0].step is None or content(before) != content(block)
    ]
    return [row for block in kept for row in block], len(blocks) - len(kept)
