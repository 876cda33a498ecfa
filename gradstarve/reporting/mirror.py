"""`gradstarve mirror [SWEEP]`: finished runs, tables and figures, copied to Weights & Biases after the fact.

It needs only what lies in outputs/, and can be given again: a run that is there already is brought up to date.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gradstarve.errors import UserError
from gradstarve.learning.tracking import require_wandb
from gradstarve.learning.wandb_mirror import (
    Place,
    as_table,
    finish,
    finished_anyway,
    mirror_run,
    one_line,
    remove_older,
    save,
    start,
)
from gradstarve.learning.wandb_process import quiet_environment
from gradstarve.reporting.progress import to_stderr
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.rows import read_rows
from gradstarve.runs.sweeps import read_sweep


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", nargs="?", metavar="SWEEP", help="only the runs and tables of this declared sweep")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="where the runs lie (default: outputs)")
    parser.add_argument("--project", default="gradstarve", help="default: gradstarve")
    parser.add_argument("--entity", help="default: the account's own")
    parser.add_argument("--mode", choices=["offline", "online"], default="offline", help="default: offline")
    parser.add_argument("--group", help="default: SWEEP, else the newest sweep that wants a run")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="can be given several times")
    parser.add_argument("--folder", type=Path, help="the mirror's files go to FOLDER/wandb (default: outputs)")


def run(arguments: argparse.Namespace) -> int:
    require_wandb("gradstarve mirror")
    outputs, sweep = arguments.outputs, arguments.sweep
    folders = finished(outputs, sweep)
    place = Place(
        project=arguments.project,
        entity=arguments.entity,
        mode=arguments.mode,
        group=arguments.group or sweep,
        tags=arguments.tag,
        folder=arguments.folder or outputs,
        finish_seconds=600,
    )
    with tempfile.TemporaryDirectory() as cache:
        quiet_environment(Path(cache))
        import wandb

        for number, folder in enumerate(folders, 1):
            to_stderr(f"{number} of {len(folders)}: {folder.name}")
            try:
                mirror_run(folder, place, outputs, lambda _: "done", to_stderr)
            except (wandb.Error, OSError) as error:
                raise UserError(f"{folder.name}: {one_line(error)}") from error
        if mirror_tables(outputs, sweep, place):
            to_stderr("tables and figures: mirrored")
        else:
            to_stderr(f"no tables yet; make them with: gradstarve tables{f' --sweep {sweep}' if sweep else ''}")
        wandb.teardown()
    return 0


def finished(outputs: Path, sweep: str | None) -> list[RunFolder]:
    """The folders of the finished runs, of a sweep where one is named. Raises UserError where there are none."""
    done = [row for row in read_rows(outputs, to_stderr) if row.state == "done"]
    if sweep is not None:
        wanted = {run["run"] for run in read_sweep(outputs, sweep)["runs"]}
        done = [row for row in done if row.run in wanted]
        if len(done) < len(wanted):
            to_stderr(f"sweep {sweep}: {len(wanted) - len(done)} of {len(wanted)} runs are not finished and left out")
    if not done:
        raise UserError(f"no finished run{f' of sweep {sweep}' if sweep else ''} in {outputs / 'runs'}")
    return [RunFolder(row.folder) for row in done]


def mirror_tables(outputs: Path, sweep: str | None, place: Place) -> bool:
    """One run of wandb with the tables, and the files of tables and figures; False where there are none."""
    files = _files(outputs, sweep)
    if not files:
        return False
    name = f"tables-{sweep}" if sweep else "tables"
    run = start(name, {"sweep": sweep}, place, place.group or "tables", "tables", to_stderr)
    with finished_anyway(run):
        for file in files:
            if file.suffix == ".csv":
                run.summary[f"table_{file.stem}"] = as_table(pd.read_csv(file))
            save(run, outputs, [str(file.relative_to(outputs))])
        remove_older(run, place)
        finish(run, 0, to_stderr)
    return True


def _files(outputs: Path, sweep: str | None) -> Sequence[Path]:
    """What `gradstarve tables` wrote: of all of outputs, or in the folders of a sweep."""
    folders = [outputs / kind / sweep if sweep else outputs / kind for kind in ("tables", "figures")]
    found = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]
    return [file for file in found if file.is_file() and not file.name.startswith(".")]
