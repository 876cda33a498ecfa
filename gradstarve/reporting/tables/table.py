"""A table before it is written: columns with kinds, rows of machine values, and the runs behind every number.

Rows hold fractions; percent and points appear only where people read (`shown`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gradstarve.errors import UserError, nearest

Kind = Literal["text", "count", "percent", "points", "p", "number", "interval", "points_interval", "yes_no"]
NONE = "–"


@dataclass(frozen=True)
class Column:
    """`key` names it in the csv and in --explain, `head` where people read.

    `place`: "terminal" (everywhere), "read" (.md, .tex, the report and the csv), "csv" (there only). `machine` is False
    for a column that only combines others to be read.
    """

    key: str
    head: str
    kind: Kind
    place: Literal["terminal", "read", "csv"] = "read"
    machine: bool = True


@dataclass(frozen=True)
class Row:
    """`values` by column key. `shown` overrides how a value reads. `sources` maps a column's key to the runs behind it;
    the key "" holds for all other columns."""

    key: str
    values: Mapping[str, Any]
    shown: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def runs_behind(self, column: str) -> tuple[str, ...]:
        return self.sources.get(column, self.sources.get("", ()))


@dataclass(frozen=True)
class Table:
    """`kind` is the table's short name ("table1"), `name` its file's ("table1-tiny-sums").

    `caption` states the setting, `legend` how the columns read (the same for all of a kind); `notes` stand below.
    """

    kind: str
    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    legend: str = ""

    def row(self, key: str) -> Row:
        for row in self.rows:
            if row.key == key:
                return row
        raise UserError(f"{self.name} has no row {key!r}. {nearest(key, [r.key for r in self.rows])}")

    def column(self, key: str) -> Column:
        for column in self.columns:
            if column.key == key:
                return column
        raise UserError(f"{self.name} has no column {key!r}. {nearest(key, [c.key for c in self.columns])}")

    def shown(self, row: Row, column: Column) -> str:
        """One cell as people read it."""
        return row.shown.get(column.key) or shown_value(row.values.get(column.key), column.kind)

    def readable(self) -> list[Column]:
        """Columns for people, less those that are empty throughout."""
        used = {c.key for c in self.columns if any(self.shown(row, c) != NONE for row in self.rows)}
        return [c for c in self.columns if c.place != "csv" and c.key in used]


def shown_value(value: Any, kind: Kind) -> str:
    """A machine value as people read it: fractions as percent, differences of fractions as signed points."""
    if value is None:
        return NONE
    if kind == "percent":
        return f"{100 * value:.1f}"
    if kind == "points":
        return signed(100 * value)
    if kind == "p":
        return shown_p(value)
    if kind == "interval":
        return f"[{100 * value[0]:.1f}, {100 * value[1]:.1f}]".replace("-", "−")
    if kind == "points_interval":
        return f"[{signed(100 * value[0])}, {signed(100 * value[1])}]"
    if kind == "yes_no":
        return "yes" if value else "no"
    if kind == "count":
        return f"{value:,}"
    if kind == "number":
        return f"{value:.3g}".replace("-", "−")
    return str(value)


def signed(points: float) -> str:
    """+1.2, −1.2 or 0.0: no sign on what rounds to nothing."""
    text = f"{points:+.1f}"
    return "0.0" if text in {"+0.0", "-0.0"} else text.replace("-", "−")


def shown_p(p: float) -> str:
    if p < 0.0001:
        return "<0.0001"
    return f"{p:.3f}" if p >= 0.01 else f"{p:.4f}"
