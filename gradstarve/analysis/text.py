"""Numbers and tables as people read them in a terminal."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Sequence


def percent(fraction: float, digits: int = 1) -> str:
    return f"{100 * fraction:.{digits}f} %"


def percent_interval(interval: tuple[float, float], digits: int = 1) -> str:
    return f"[{100 * interval[0]:.{digits}f}, {100 * interval[1]:.{digits}f}] %"


def printable(text: str, most: int = 120) -> str:
    """Text from data, safe for a terminal: no control or bidirectional characters, cut to `most` characters."""
    shown = "".join(" " if c in "\n\t\r" else c if unicodedata.category(c)[0] != "C" else "?" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def shortened(number: int) -> str:
    """An integer for a message, cut where it is absurdly long."""
    if abs(number) < 10**20:
        return str(number)
    return f"{'-' if number < 0 else ''}a number of more than 20 digits"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        return "  ".join([row[0].ljust(widths[0]) if first else first, *others]).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *(line(row) for row in rows)])


def show_progress(began: float, text: str, last: bool = False) -> None:
    """One line on standard error that is written over, once two seconds have passed since `began` (time.monotonic)."""
    if time.monotonic() - began > 2:
        print(f"\r{text}", end="\n" if last else "", file=sys.stderr, flush=True)
