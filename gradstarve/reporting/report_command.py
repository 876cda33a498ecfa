"""`gradstarve report`: tables, figures and what they say, as one HTML file that opens offline."""

from __future__ import annotations

import argparse

from gradstarve.reporting.build import build_tables, write_figures, write_provenance, write_tables
from gradstarve.reporting.claims import read_claims, tally
from gradstarve.reporting.progress import to_stderr
from gradstarve.reporting.report import report_html
from gradstarve.reporting.study_arguments import configure_study, study_of
from gradstarve.runs.files import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    configure_study(parser)


def run(arguments: argparse.Namespace) -> int:
    study = study_of(arguments)
    tables = build_tables(study)
    files = write_tables(study, tables)
    drawings = write_figures(study, to_stderr)
    write_provenance(study, tables, [*files, *(file for drawing in drawings for file in drawing.files)])
    readings = read_claims(study.settings)
    page = study.folder("report") / "index.html"
    write_text(page, report_html(study, tables, drawings, readings))
    print(f"{tally(readings)}\nWritten: {page}")
    return 0
