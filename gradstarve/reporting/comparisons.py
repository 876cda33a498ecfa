"""Summaries and comparisons of cells, each made once: several tables, notes and readings ask for the same."""

from __future__ import annotations

import functools

from gradstarve.reporting.cells import Cell
from gradstarve.reporting.statistics import Comparison, Summary, compare, holm, summarise


def compare_cells(a: Cell, b: Cell) -> Comparison:
    """Accuracies of a against those of b."""
    return _compare(tuple(a.accuracies), tuple(b.accuracies))


def summary_of(cell: Cell) -> Summary:
    """The accuracies of a cell with at least one run."""
    return _summarise(tuple(cell.accuracies))


@functools.lru_cache(maxsize=50_000)
def _summarise(values: tuple[float, ...]) -> Summary:
    return summarise(values)


@functools.lru_cache(maxsize=50_000)
def _compare(a: tuple[float, ...], b: tuple[float, ...]) -> Comparison:
    return compare(a, b)


@functools.lru_cache(maxsize=10_000)
def holm_family(p_values: tuple[float, ...]) -> tuple[float | None, ...]:
    """Holm's adjusted p values of a family."""
    return tuple(holm(p_values)) if len(p_values) > 1 else p_values
