"""`gradstarve report`: tables, figures and what they say, as one HTML file that opens offline."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from gradstarve.reporting.build import build_tables, write_figures, write_provenance, write_tables
from gradstarve.reporting.claims import read_claims, tally
from gradstarve.reporting.progress import to_stderr
from gradstarve.reporting.report import report_html
from gradstarve.reporting.study import read_study
from gradstarve.runs.files import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="where the runs lie (default: outputs)")
    parser.add_argument(
        "--sweep", metavar="NAME", help="only the runs of this declared sweep, which should be complete"
    )
    parser.add_argument("--allow-partial", action="store_true", help="with --sweep: go on although runs are missing")


def run(arguments: argparse.Namespace) -> int:
    study = read_study(arguments.outputs, arguments.sweep, arguments.allow_partial, to_stderr)
    # What was read stays to the end: no use in looking through it again for garbage.
    gc.freeze()
    tables = build_tables(study)
    files = write_tables(study, tables)
    drawings = write_figures(study, to_stderr)
    write_provenance(study, tables, [*files, *(file for drawing in drawings for file in drawing.files)])
    readings = read_claims(study.settings)
    page = study.folder("report") / "index.html"
    write_text(page, report_html(study, tables, drawings, readings))
    print(f"{tally(readings)}\nWritten: {page}")
    return 0
