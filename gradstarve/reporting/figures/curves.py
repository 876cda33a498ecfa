"""pass@k on a logarithmic axis, and accuracy against generated tokens."""

from __future__ import annotations

from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator

from gradstarve.reporting.cells import Setting
from gradstarve.reporting.figures.style import arm_style, blank, key_above
from gradstarve.reporting.tables.pass_at_k import pass_at_k_of
from gradstarve.reporting.trajectories import accuracy_by_tokens

_LINES = ["-", (0, (5, 1.5)), (0, (2, 1)), (0, (5, 1, 1, 1))]


def pass_at_k_figure(setting: Setting) -> Figure | None:
    """Bands: 95 % over questions."""
    cells = [*([setting.base] if setting.base else []), *setting.cells]
    found = [r for cell in cells if (r := pass_at_k_of(cell, setting.evaluation)) is not None and len(r.by_k) > 1]
    if not found:
        return None
    figure, (axes,) = blank(height=2.4)
    several = len({r.group_size for r in found if r.group_size is not None}) > 1
    for result in found:
        colour, marker = arm_style(result.label)
        ks = list(result.by_k)
        mean, low, high = ([100 * result.by_k[k][i] for k in ks] for i in range(3))
        label = f"{result.label}, G = {result.group_size}" if several and result.group_size else result.label
        axes.plot(ks, mean, color=colour, marker=marker, markersize=3, linewidth=1.2, label=label)
        axes.fill_between(ks, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    ticks = sorted({k for result in found for k in result.by_k if k & (k - 1) == 0})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("k (log scale)")
    axes.set_ylabel("pass@k, %")
    axes.grid(color="#DDDDDD", linewidth=0.5)
    key_above(figure, "band: 95 % over questions")
    return figure


def tokens_figure(setting: Setting) -> Figure | None:
    """Every run's evaluations against the tokens it had generated; None where runs were evaluated at their end only."""
    base = fmean(setting.base.accuracies) if setting.base and setting.base.points else None
    paths = {
        (cell.label, cell.group_size): found
        for cell in setting.cells
        if (found := [path for point in cell.points if len(path := accuracy_by_tokens(point, base)) > 1])
    }
    if not paths:
        return None
    figure, (axes,) = blank(height=2.4)
    sizes = setting.group_sizes
    for (label, group_size), of_cell in paths.items():
        colour, marker = arm_style(label)
        line = _LINES[sizes.index(group_size or 0) % len(_LINES)]
        for number, path in enumerate(of_cell):
            tokens, accuracies = zip(*path, strict=True)
            shown = f"{label}, G = {group_size}" if number == 0 else None
            axes.plot(
                tokens,
                [100 * a for a in accuracies],
                color=colour,
                linewidth=0.7,
                alpha=0.55,
                linestyle=line,
                label=shown,
            )
            axes.plot(tokens[-1:], [100 * accuracies[-1]], marker, color=colour, markersize=3.5, markeredgewidth=0)
    axes.set_xlabel("tokens generated in training")
    axes.set_ylabel(f"accuracy on {setting.asked}, %")
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for handle in key_above(figure, "lines: runs; marker: end of training").get_lines():
        handle.set(alpha=1, linewidth=1.3)
    return figure
