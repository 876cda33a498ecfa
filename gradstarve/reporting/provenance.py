"""Which run folders stand behind each number: outputs/tables/provenance.json, and --explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError, nearest
from gradstarve.reporting.tables.table import Row, Table


def provenance(tables: Sequence[Table], files: Sequence[Path], outputs: Path) -> dict[str, Any]:
    """table -> row -> {"runs": behind the whole row, "columns": {column: runs, where they are not those}}."""
    return {
        "files": sorted(str(file.relative_to(outputs)) for file in files),
        "tables": {
            table.name: {
                "title": table.title,
                "rows": {
                    row.key: {
                        "runs": list(row.runs_behind("")),
                        "columns": {key: list(runs) for key, runs in row.sources.items() if key},
                    }
                    for row in table.rows
                },
            }
            for table in tables
        },
    }


def explain(tables: Sequence[Table], path: str, outputs: Path) -> str:
    """The run folders behind `table/row/column`. `table` is a table's kind ("table1") or its whole name.

    Raises UserError, naming the nearest, for a table, row or column that isn't there.
    """
    parts = path.split("/")
    if len(parts) < 3:
        raise UserError(f"--explain {path}: say TABLE/ROW/COLUMN, for example table1/sign/mean")
    name, row_key, column_key = parts[0], "/".join(parts[1:-1]), parts[-1]
    chosen = [table for table in tables if name in {table.kind, table.name}]
    if not chosen:
        raise UserError(
            f"--explain: no table {name!r}. {nearest(name, {t.kind for t in tables} | {t.name for t in tables})}"
        )
    holding = [table for table in chosen if any(row.key == row_key for row in table.rows)]
    if not holding:
        chosen[0].row(row_key)
    return "\n\n".join(_told(table, table.row(row_key), column_key, outputs) for table in holding)


def _told(table: Table, row: Row, column_key: str, outputs: Path) -> str:
    column = table.column(column_key)
    runs = row.runs_behind(column_key)
    lines = [f"{table.name}/{row.key}/{column_key} = {table.shown(row, column)}  (from {len(runs)} runs)"]
    by_run: Mapping[str, float] = row.values.get("by_run") or {}
    for run in runs:
        value = f"  {100 * by_run[run]:.2f} %" if run in by_run else ""
        lines.append(f"  {outputs / 'runs' / run}{value}")
    return "\n".join(lines)
