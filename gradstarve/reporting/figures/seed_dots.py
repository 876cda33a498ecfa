"""Accuracy by arm: every seed a dot, with mean and 95 % interval."""

from __future__ import annotations

from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradstarve.reporting.cells import Setting
from gradstarve.reporting.comparisons import summary_of
from gradstarve.reporting.figures.style import arm_style, blank
from gradstarve.reporting.paper import Paper


def seed_dots(setting: Setting, group_size: int, paper: Paper) -> Figure:
    """One row for each arm of the setting at `group_size`; the untrained model is a dashed line."""
    cells = [cell for cell in setting.at(group_size) if cell.points]
    figure, (axes,) = blank(height=0.75 + 0.32 * max(len(cells), 2))
    like = not paper.unlike(setting)
    for place, cell in enumerate(reversed(cells)):
        colour, marker = arm_style(cell.label)
        values = [100 * value for value in cell.accuracies]
        # Equal values would hide each other: the n-th of equals is moved up by n steps.
        heights = [place + 0.10 * values[:i].count(value) for i, value in enumerate(values)]
        axes.plot(values, heights, marker, color=colour, markersize=4, alpha=0.75, markeredgewidth=0, linestyle="")
        summary = summary_of(cell)
        if summary.ci95 is not None:
            axes.plot([100 * end for end in summary.ci95], [place - 0.22] * 2, color=colour, linewidth=1.4)
        axes.plot([100 * summary.mean], [place - 0.22], "|", color=colour, markersize=8, markeredgewidth=2)
        theirs = paper.mean_of(setting, cell) if like else None
        if theirs is not None:
            axes.plot([100 * theirs], [place], "d", markerfacecolor="none", markeredgecolor="#000000", markersize=6)
    if setting.base is not None and setting.base.points:
        _draw_base(axes, 100 * fmean(setting.base.accuracies), [100 * a for cell in cells for a in cell.accuracies])
    axes.set_yticks(range(len(cells)), [f"{cell.label} ({len(cell.points)})" for cell in reversed(cells)])
    axes.set_ylim(-0.6, len(cells) - 0.4)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"accuracy, %, at G = {group_size}", fontsize=7.5)
    return figure


def _draw_base(axes: Axes, base: float, accuracies: list[float]) -> None:
    """A dashed line, or a pointer to it where it would press the seeds together."""
    low, high = min(accuracies, default=base), max(accuracies, default=base)
    room = max(high - low, 5.0)
    if low - room <= base <= high + room:
        axes.axvline(base, color="#555555", linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
        place, text, side = (base, 1.0), "base", "left"
    else:
        place, side = ((0.0, 1.0), "left") if base < low else ((1.0, 1.0), "right")
        text = f"◂ base {base:.1f}" if base < low else f"base {base:.1f} ▸"
    across = "data" if text == "base" else "axes fraction"
    axes.annotate(text, place, xycoords=(across, "axes fraction"), xytext=(2 if side == "left" else -2, -1),
                  textcoords="offset points", fontsize=6.5, color="#555555", va="top", ha=side)  # fmt: skip
