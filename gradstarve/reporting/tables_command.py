"""`gradstarve tables`: the paper's tables from the runs that are there, with what is missing."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import textwrap
from collections.abc import Sequence

from gradstarve.reporting.build import build_tables, write_figures, write_provenance, write_tables
from gradstarve.reporting.cells import Setting
from gradstarve.reporting.claims import read_claims, tally
from gradstarve.reporting.progress import to_stderr
from gradstarve.reporting.provenance import explain
from gradstarve.reporting.study_arguments import configure_study, study_of
from gradstarve.reporting.tables.table import Table
from gradstarve.reporting.tables.writers import terminal

MOST_SHOWN = 6  # tables on the screen
MOST_READ = 12  # settings whose claims are read on the screen


def configure(parser: argparse.ArgumentParser) -> None:
    configure_study(parser)
    parser.add_argument(
        "--explain", metavar="TABLE/ROW/COLUMN", help="print the run folders behind a number, write nothing"
    )
    parser.add_argument("--no-figures", action="store_true", help="tables only")


def run(arguments: argparse.Namespace) -> int:
    study = study_of(arguments)
    tables = build_tables(study)
    if arguments.explain is not None:
        print(explain(tables, arguments.explain, arguments.outputs))
        return 0
    files = write_tables(study, tables)
    if not arguments.no_figures:
        files += [file for drawing in write_figures(study, to_stderr) for file in drawing.files]
    files.append(write_provenance(study, tables, files))
    width = min(max(shutil.get_terminal_size((110, 24)).columns, 80), 120)
    _print_tables(_most_telling(tables, study.settings[0].name), width)
    _print_readings(study.settings, width)
    for row in study.loose:
        print(f"In no table: {row.run}: {row.state} ({row.why}); its config cannot be read.", file=sys.stderr)
    folders = dict.fromkeys(file.parent for file in files)
    print("Written:")
    for folder in folders:
        stems = dict.fromkeys(file.stem for file in files if file.parent == folder)
        suffixes = dict.fromkeys(file.suffix for file in files if file.parent == folder and file.suffix != ".json")
        print(f"  {folder}/  {' '.join(suffixes)}")
        for stem in list(stems)[:20]:
            print(f"    {stem}")
        if len(stems) > 20:
            print(f"    ... and {len(stems) - 20} more")
    return 0


def _print_tables(tables: Sequence[Table], width: int) -> None:
    said: set[str] = set()
    for table in tables[:MOST_SHOWN]:
        # What an earlier table has said is not said again.
        fresh = [note for note in table.notes if note not in said]
        print(terminal(dataclasses.replace(table, notes=fresh), width))
        said.update(table.notes)
    if len(tables) > MOST_SHOWN:
        print(f"{len(tables) - MOST_SHOWN} more such tables are in the files.\n")
    if tables:
        print(textwrap.fill(tables[0].legend, width) + "\n")


def _print_readings(settings: Sequence[Setting], width: int) -> None:
    """Of very many settings the largest only, but for what is said of several models; the report reads them all."""
    readings = read_claims(settings, MOST_READ)
    more = f"the {MOST_READ} largest of {len(settings)} settings" if len(settings) > MOST_READ else "these runs"
    print(f"The paper's claims, read against {more} (each in its own setting; `gradstarve report` has the evidence):")
    for reading in readings:
        if reading.verdict != "not tested":
            where = f" [{reading.setting}]" if len(settings) > 1 and reading.setting else ""
            told = f"{reading.verdict}: {reading.claim}{where}"
            print(textwrap.fill(told, width, initial_indent="  ", subsequent_indent="    "))
    print(f"  {tally(readings)}\n")


def _most_telling(tables: Sequence[Table], setting: str) -> list[Table]:
    """What a terminal shows, in this order: the largest setting's tables, what sets settings beside each other, then
    the tables of other settings."""
    own = [table for table in tables if table.kind in {"table1", "table2"} and table.name == f"{table.kind}-{setting}"]
    across = [table for table in tables if table.kind in {"transfer", "matched", "settings", "table3"}]
    rest = [table for table in tables if table.kind in {"table1", "table2"} and table not in own]
    return [*own, *across, *rest] or list(tables[:1])
