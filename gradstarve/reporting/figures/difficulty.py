"""The paper's Figure 2: how prompts' success rates are spread, and what that does to dead groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from gradstarve.reporting.difficulty import Difficulty, dead_of
from gradstarve.reporting.figures.style import blank


def difficulty_figure(difficulty: Difficulty, group_sizes: Sequence[int]) -> Figure:
    """Left: histogram of success rates. Right: D_real against D_iid at each group size that the samples allow."""
    figure, (left, right) = blank(width=3.4, height=2.0, columns=2)
    rates, most = difficulty.rates_P, int(difficulty.samples_P.max())
    bins = min(most + 1, 11)
    edges = np.linspace(-0.5 / max(bins - 1, 1), 1 + 0.5 / max(bins - 1, 1), bins + 1)
    shares, _ = np.histogram(rates, edges)
    centres = (edges[:-1] + edges[1:]) / 2
    left.bar(centres, 100 * shares / len(rates), width=0.9 * (edges[1] - edges[0]), color="#0072B2")
    never, always = 100 * float((rates == 0).mean()), 100 * float((rates == 1).mean())
    left.set_title(f"0 exactly: {never:.1f} %, 1: {always:.1f} %", fontsize=6.5)
    left.set_xlabel("success rate $p_x$")
    left.set_ylabel("prompts, %")
    found = [(size, dead) for size in sorted({2, *group_sizes}) if (dead := dead_of(difficulty, size)) is not None]
    for place, (_, dead) in enumerate(found):
        low, high = dead.d_real_ci95
        right.bar(
            place - 0.2, 100 * dead.d_real, width=0.38, color="#D55E00", label="$D_{real}$" if place == 0 else None
        )
        right.plot([place - 0.2] * 2, [100 * low, 100 * high], color="#000000", linewidth=0.9)
        right.bar(place + 0.2, 100 * dead.d_iid, width=0.38, color="#FFFFFF", edgecolor="#000000", hatch="////",
                  linewidth=0.6, label="$D_{iid}$" if place == 0 else None)  # fmt: skip
    right.set_xticks(range(len(found)), [str(size) for size, _ in found])
    right.set_xlabel("group size G")
    right.set_ylabel("dead groups, %")
    right.set_ylim(0, 118)
    right.set_yticks([0, 25, 50, 75, 100])
    right.legend(frameon=False, ncols=2, loc="upper center", fontsize=6.5, handlelength=1.2, columnspacing=0.8)
    return figure
