"""Training over its steps: reward by arm, and the shares all-fail / mixed / all-pass with truncation on top."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.figures.style import SHARE_COLOURS, arm_style, blank, key_above
from gradstarve.reporting.trajectories import steps_of

MOST_ARMS = 4  # panels of the shares figure in one row


def reward_curves(setting: Setting, group_size: int) -> Figure | None:
    """Mean over seeds, with the range of the seeds; None where no steps were kept."""
    cells = [cell for cell in setting.at(group_size) if _frame(cell, "reward") is not None]
    if not cells:
        return None
    figure, (axes,) = blank(height=2.3)
    for cell in cells:
        frame = _frame(cell, "reward")
        assert frame is not None
        colour, marker = arm_style(cell.label)
        axes.plot(
            frame.index,
            100 * frame.mean(axis=1),
            color=colour,
            marker=marker,
            markersize=3.5,
            markevery=max(1, len(frame) // 8),
            linewidth=1.3,
            label=f"{cell.label} ({frame.shape[1]})",
        )
        if frame.shape[1] > 1:
            axes.fill_between(
                frame.index, 100 * frame.min(axis=1), 100 * frame.max(axis=1), color=colour, alpha=0.15, linewidth=0
            )
    axes.set_xlabel("step")
    axes.set_ylabel(f"training reward, % (G = {group_size})")
    axes.set_ylim(0, 100)
    axes.grid(color="#DDDDDD", linewidth=0.5)
    key_above(figure, "arm (seeds); band: range of the seeds")
    return figure


def share_curves(setting: Setting, group_size: int) -> Figure | None:
    """One panel an arm: shares of groups stacked, and the share of truncated completions as a line."""
    cells = [cell for cell in setting.at(group_size) if _frame(cell, "all_fail") is not None][:MOST_ARMS]
    if not cells:
        return None
    figure, panels = blank(width=3.4 if len(cells) < 3 else 6.9, height=2.2, columns=len(cells))
    for place, (axes, cell) in enumerate(zip(panels, cells, strict=True)):
        shares = {name: frame.mean(axis=1) for name in SHARE_COLOURS if (frame := _frame(cell, name)) is not None}
        steps = next(iter(shares.values())).index
        axes.stackplot(
            steps,
            *(100 * share for share in shares.values()),
            colors=[SHARE_COLOURS[name] for name in shares],
            labels=[name.replace("_", "-") if place == 0 else "_" for name in shares],  # one key for all panels
            linewidth=0,
        )
        truncated = _frame(cell, "truncated")
        if truncated is not None:
            axes.plot(
                steps,
                100 * truncated.mean(axis=1),
                color="#000000",
                linewidth=1,
                linestyle=(0, (3, 1.5)),
                label="truncated" if place == 0 else "_",
            )
        axes.set_title(cell.label, fontsize=8)
        axes.set_xlim(float(steps[0]), float(steps[-1]))
        axes.set_ylim(0, 100)
        axes.set_xlabel("step")
        if place == 0:
            axes.set_ylabel(f"share, % (G = {group_size})")
        else:
            axes.set_yticklabels([])
    key_above(figure, "groups, bottom to top; dashed: share of completions")
    return figure


def _frame(cell: Cell, column: str) -> pd.DataFrame | None:
    """steps x seeds, each a moving average over a twentieth of the training; None where no run kept its steps."""
    series = {}
    for point in cell.points:
        steps = steps_of(point.folder)
        if column in steps and len(steps):
            window = max(1, len(steps) // 20)
            smooth = steps.set_index("step")[column].astype(float).rolling(window, min_periods=1, center=True).mean()
            series[point.run] = smooth
    return pd.DataFrame(series) if series else None
