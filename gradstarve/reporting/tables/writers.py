"""A table as Markdown, csv, LaTeX (booktabs) and as text for a terminal."""

from __future__ import annotations

import csv
import io
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from gradstarve.reporting.tables.table import Column, Row, Table

_TEXT_KINDS = {"text"}


def put_text(path: Path, text: str) -> None:
    """Write a file that can be made again, whole or not at all.

    It is not flushed to the disk, and not touched where it is the same already: thousands of tables take seconds.
    """
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def markdown(table: Table) -> str:
    columns = table.readable()
    lines = [f"## {_md(table.title)}", "", _md(f"{table.caption} {table.legend}".strip()), ""]
    lines.append("| " + " | ".join(_md(c.head) for c in columns) + " |")
    lines.append("|" + "|".join(" :--- " if c.kind in _TEXT_KINDS else " ---: " for c in columns) + "|")
    lines += ["| " + " | ".join(_md(table.shown(row, c)) for c in columns) + " |" for row in table.rows]
    if table.notes:
        lines += ["", *(f"- {_md(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    """Text that means nothing to Markdown or HTML."""
    return (
        re.sub(r"([\\`*_\[\]|~])", r"\\\1", _printable(text))
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )


def comma_separated(table: Table) -> str:
    """Machine values: fractions, not percent; an interval is two columns; what is absent is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = [column for column in table.columns if column.machine]
    writer.writerow([name for column in columns for name in _csv_names(column)])
    for row in table.rows:
        writer.writerow([cell for column in columns for cell in _csv_cells(row, column)])
    return stream.getvalue()


def _csv_names(column: Column) -> list[str]:
    interval = column.kind in {"interval", "points_interval"}
    return [f"{column.key}_low", f"{column.key}_high"] if interval else [column.key]


def _csv_cells(row: Row, column: Column) -> list[Any]:
    value = row.values.get(column.key)
    if column.kind in {"interval", "points_interval"}:
        return ["", ""] if value is None else [repr(float(value[0])), repr(float(value[1]))]
    if value is None:
        return [""]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, float):
        return [repr(float(value))]
    # A text that a spreadsheet would run as a formula is kept a text.
    return [f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "@", "\t"} else value]


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "−": r"$-$",
    "–": r"--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
}


def latex(table: Table) -> str:
    """A booktabs table, to be read with `\\input`; needs `\\usepackage{booktabs,graphicx}`."""
    columns = table.readable()
    # LaTeX numbers its tables itself.
    title = re.sub(r"^Table \d+\. ", "", table.title)
    text = f"{table.caption} {table.legend}".strip()
    layout = "".join("l" if c.kind in _TEXT_KINDS else "r" for c in columns)
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table*}",
        r"\centering",
        r"\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{\textbf{{{_tex(title)}.}} {_tex(text)}}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', table.name)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{layout}@{{}}}}",
        r"\toprule",
        " & ".join(_tex(c.head) for c in columns) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(_tex(table.shown(row, c)) for c in columns) + r" \\" for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}}"]
    if table.notes:
        notes = r" \\ ".join(_tex(note) for note in table.notes)
        lines += [r"\par\smallskip", rf"\parbox{{\textwidth}}{{\footnotesize {notes}}}"]
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in _printable(text))


def terminal(table: Table, width: int = 110, most_notes: int = 12) -> str:
    """The columns that matter most, aligned, with caption and notes wrapped to `width`."""
    readable = {c.key for c in table.readable()}
    columns = [c for c in table.columns if c.place == "terminal" and c.key in readable]
    grid = [[c.head for c in columns], *[[table.shown(row, c) for c in columns] for row in table.rows]]
    grid = [[_printable(cell) for cell in line] for line in grid]
    widths = [max(len(line[i]) for line in grid) for i in range(len(columns))]
    lines = [_printable(table.title), *textwrap.wrap(_printable(table.caption), width)]
    for number, line in enumerate(grid):
        cells = [
            cell.ljust(w) if c.kind in _TEXT_KINDS else cell.rjust(w)
            for cell, w, c in zip(line, widths, columns, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("─" * (sum(widths) + 2 * (len(widths) - 1)))
    for note in table.notes[:most_notes]:
        lines += textwrap.wrap(_printable(note), width, subsequent_indent="  ")
    if len(table.notes) > most_notes:
        lines.append(f"... and {len(table.notes) - most_notes} more notes in {table.name}.md")
    return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    """One line without control characters, which could steer a terminal, or reorder what is read."""
    return "".join(c if c.isprintable() else "?" for c in re.sub(r"\s+", " ", text))
