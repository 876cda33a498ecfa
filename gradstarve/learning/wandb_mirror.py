"""A run folder as a run of Weights & Biases: the same id, config, rows, tables and final numbers.

The run's files are the truth and wandb holds a copy, which can be made again at any time. A row's step is wandb's step,
so whatever is told twice counts once: where a run is resumed online, wandb's server says which step it has last, and
the rows up to it are not sent again. An offline run of wandb cannot be resumed (wandb#4624): it is written anew from
the run's files, and what an earlier session left of the same id is removed once the new one holds as much. `wandb sync`
appends rows without asking, so those that an earlier session's folder has brought to the server are not written again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from gradstarve.errors import UserError
from gradstarve.runs.files import finite, read_json, write_json
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.sweeps import read_sweeps

Say = Callable[[str], None]
End = Literal["done", "stopped"]

# Completions and answers are sampled for the eye; the run folder has them all.
MOST_ROWS = 200

MARK = "gradstarve.json"

POLL_SECONDS = 1.0
INIT_SECONDS = 30.0
# What of a run folder is small, and is uploaded as it is.
FILES = ("config.yaml", "provenance.json", "result.json", "steps.parquet", "groups.parquet")


@dataclass(frozen=True)
class Place:
    """Where a mirror goes. `folder` holds wandb's own folder `wandb`; with `group` None it is chosen."""

    project: str
    entity: str | None
    mode: Literal["offline", "online"]
    group: str | None
    tags: Sequence[str]
    folder: Path
    finish_seconds: float


def mirror_run(folder: RunFolder, place: Place, outputs: Path, ended: Callable[[float], End | None], say: Say) -> None:
    """Mirror a run until `ended(seconds)`, which waits that long, says how it ended.

    Raises whatever wandb raises, and OSError where its folder cannot be written.
    """
    plain = folder.read_config()
    group = place.group or sweep_of(folder.name, outputs) or f"{plain['model']['name']}-{plain['dataset']['name']}"
    run = start(folder.name, plain, place, group, "run", say)
    with finished_anyway(run):
        before, last, end = follow(run, folder, place, ended)
        if end == "done":
            tell_result(run, folder)
        finish(run, 0 if end == "done" else 1, say)
    mark(run, place, before, last, there=not run.offline)


def follow(run: Any, folder: RunFolder, place: Place, ended: Callable[[float], End | None]) -> tuple[int, int, End]:
    """Send the run's rows as they come, until it ends: which steps were sent (after the first number, up to the
    second), and how it ended."""
    before = run.starting_step - 1 if not run.offline else synced_to(older(run, place), place)
    last, replayed = before, False
    while True:
        # First how it ended, then the rows: nothing is written in between that would be missed.
        end = ended(POLL_SECONDS if replayed else 0.0)
        # What was stopped may be resumed, and the evaluation after its newest row be still to come.
        rows = new_rows(folder, last, whole=end == "done", live=end is None)
        for row in rows:
            last = row["step"]
            run.log(row, step=last, commit=True)
        if rows or not replayed:
            mark(run, place, before, last, there=False)
        if not replayed:
            remove_older(run, place)
            replayed = True
        if end is not None:
            return before, last, end


def tell_result(run: Any, folder: RunFolder) -> None:
    """The final numbers, the tables and the small files of a finished run."""
    result = folder.result()
    assert result is not None, "a run is done with its result"
    finals = {name: summary["final"] for name, summary in folder.evaluations().items()}
    run.summary.update({"result": finite(result), "evaluations": finite(finals)})
    for name, frame in tables(folder).items():
        run.summary[name] = as_table(frame)
    save(run, folder.path, [*FILES, "evaluations/*/summary.json"])


def start(name: str, config: Mapping[str, Any], place: Place, group: str, job_type: str, say: Say) -> Any:
    """A run of wandb with the id `name`; offline where online cannot be had, since it can be synced later."""
    import wandb

    # What a failed session wrote can be a file by the name of the folder, or a disk without room: told here, since
    # wandb itself would write to the temporary folder.
    home = place.folder / "wandb"
    staging = home / "staging" / name
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    os.environ["WANDB_DATA_DIR"] = str(staging)
    settings = wandb.Settings(
        # Together they leave something of the time that a run waits at its end.
        init_timeout=min(INIT_SECONDS, place.finish_seconds / 3),
        finish_timeout=place.finish_seconds / 2,
        finish_timeout_raises=True,
        console="off",
        silent=True,
        symlink=False,
        save_code=False,
        disable_code=True,
        disable_git=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )

    def init(mode: Literal["offline", "online"]) -> Any:
        return wandb.init(
            dir=str(place.folder.absolute()),
            project=place.project,
            entity=place.entity,
            id=name,
            name=name,
            group=group,
            job_type=job_type,
            tags=list(place.tags),
            config=dict(config),
            resume="allow" if mode == "online" else None,
            mode=mode,
            allow_val_change=True,
            settings=settings,
        )

    if place.mode == "online":
        try:
            run = init("online")
        except (wandb.Error, TimeoutError) as error:
            # The failed attempt keeps the id until its service is gone.
            wandb.teardown()
            say(f"online is not to be had ({one_line(error)}); mirrored offline instead, for `wandb sync` later")
            run = init("offline")
    else:
        run = init("offline")
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    return run


@contextmanager
def finished_anyway(run: Any) -> Iterator[None]:
    """Whatever goes wrong in the block, the run does not stay open."""
    try:
        yield
    except BaseException:
        # What went wrong first is what is told.
        with contextlib.suppress(Exception):
            run.finish(exit_code=1)
        raise


def finish(run: Any, exit_code: int, say: Say) -> None:
    where = run.url or run.settings.sync_dir
    run.finish(exit_code=exit_code)
    say(f"mirrored to {where}")


def new_rows(folder: RunFolder, last: int, whole: bool, live: bool) -> list[dict[str, Any]]:
    """The rows of history after step `last`."""
    try:
        if live:
            newest = folder.last_step()
            if newest is None or newest["step"] <= last + 1:
                return []
        return [row for row in history(folder, whole) if row["step"] > last]
    except FileNotFoundError:
        # A table of a running run becomes a parquet between one look and the next.
        if not live:
            raise
        return []


def history(folder: RunFolder, whole: bool) -> list[dict[str, Any]]:
    """A row for each step, with the evaluations after it, by step; what is unknown is left out of a row.

    The newest step is left out unless `whole`: its evaluation may be still to come, and a row is sent once. A run that
    does not train has one row, of step 0, with its evaluation.
    """
    steps = folder.read("steps")
    rows = {int(row["step"]): row for row in steps.to_dict("records")}
    for evaluation, by_step in folder.evaluation_points().items():
        for step, summary in by_step.items():
            if step == 0 and len(steps) == 0:
                rows.setdefault(0, {"step": 0})
            if step in rows:
                numbers = {k: v for k, v in summary.items() if isinstance(v, int | float) and k != "step"}
                rows[step].update({f"{evaluation}/{key}": value for key, value in numbers.items()})
    if not whole and rows:
        rows.pop(max(rows))
    known = [finite(rows[step]) for step in sorted(rows)]
    return [{str(key): value for key, value in row.items() if value is not None} for row in known]


def tables(folder: RunFolder) -> dict[str, pd.DataFrame]:
    """What a finished run shows as tables: every evaluation's summary, and samples of what the model wrote."""
    points = [
        {"evaluation": name, **{key: value for key, value in summary.items() if not isinstance(value, dict | list)}}
        for name, by_step in folder.evaluation_points().items()
        for _, summary in sorted(by_step.items())
    ]
    found = {"evaluation_table": pd.DataFrame(points)}
    completions = folder.read("completions")
    if len(completions):
        groups = completions[["step", "group"]].drop_duplicates()
        size = max(1, round(len(completions) / len(groups)))
        found["completions_sample"] = completions.merge(evenly(groups, MOST_ROWS // size))
    for name in folder.evaluations():
        answers = folder.final_answers(name)
        if answers is not None:
            found[f"answers_sample_{name}"] = evenly(answers, MOST_ROWS)
    return found


def evenly(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most `most` rows, from first to last at even distances."""
    if len(frame) <= most:
        return frame
    return frame.iloc[[round(i * (len(frame) - 1) / max(1, most - 1)) for i in range(max(1, most))]]


def as_table(frame: pd.DataFrame) -> Any:
    import wandb

    rows: list[Iterable[Any]] = [[finite(v) for v in row.values()] for row in frame.to_dict("records")]
    return wandb.Table(columns=[str(column) for column in frame.columns], data=rows, allow_mixed_types=True)


def save(run: Any, root: Path, patterns: Sequence[str]) -> None:
    """Upload copies of the files below `root` that are there, under `gradstarve/`.

    wandb by itself would make hard links, and later write its own config.yaml through the one to ours.
    """
    home = Path(run.dir)
    for pattern in patterns:
        for file in sorted(root.glob(pattern)):
            copy = home / "gradstarve" / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            run.save(str(copy), base_path=str(home), policy="now")


def sweep_of(run: str, outputs: Path) -> str | None:
    """The newest sweep that wants a run: a run lives once, whoever asks, and does not know for whom it is done."""
    try:
        sweeps = read_sweeps(outputs)
    except UserError:
        # A broken declaration is told where sweeps are read for their own sake.
        return None
    wanting = [sweep["name"] for sweep in sweeps if any(wanted["run"] == run for wanted in sweep["runs"])]
    return wanting[-1] if wanting else None


def older(run: Any, place: Place) -> list[Path]:
    """The folders that earlier sessions of the same id left on this disk."""
    own = Path(run.settings.sync_dir).name
    pattern = re.compile(rf"(offline-)?run-\d{{8}}_\d{{6}}-{re.escape(run.id)}")
    found = (place.folder / "wandb").glob(f"*run-*-{run.id}")
    return [path for path in found if path.name != own and pattern.fullmatch(path.name)]


def remove_older(run: Any, place: Place) -> None:
    for path in older(run, place):
        shutil.rmtree(path, ignore_errors=True)


def mark(run: Any, place: Place, before: int, last: int, there: bool) -> None:
    """Write down, beside what wandb wrote, which steps it holds: those after `before`, up to `last`."""
    content = {"project": place.project, "entity": place.entity, "before": before, "last": last, "there": there}
    write_json(Path(run.settings.sync_dir) / MARK, content)


def synced_to(folders: Sequence[Path], place: Place) -> int:
    """The last step that earlier sessions' folders are known to have brought to the server; -1: none."""
    steps = [-1]
    for folder in folders:
        content = read_json(folder / MARK) or {}
        if (content.get("project"), content.get("entity")) == (place.project, place.entity):
            # `wandb sync` leaves this file.
            there = content["there"] or any(folder.glob("*.wandb.synced"))
            steps.append(content["last"] if there else content["before"])
    return max(steps)


def one_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
