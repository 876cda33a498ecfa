"""`gradstarve coefficients`: the expected gradient of each advantage at one success probability; a figure over all."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from gradstarve.analysis.advantages import add_advantage_option, check_group_size, check_p, parse_advantages
from gradstarve.analysis.output_file import check_output
from gradstarve.analysis.text import table
from gradstarve.errors import UserError
from gradstarve.estimators.advantages import Advantage
from gradstarve.estimators.coefficients import coefficients
from gradstarve.runs.files import whole_file

FIGURE_KINDS = (".pdf", ".png", ".svg")


def rows(advantages: dict[str, Advantage], p: float, group_size: int) -> list[dict[str, str | float | None]]:
    """kappa in the mean convention, its parts by kind of group, and the one-group snr (null where it has none)."""
    found = {label: coefficients(advantage, p, group_size) for label, advantage in advantages.items()}
    return [
        {
            "advantage": label,
            "kappa": c.kappa,
            "all_fail": c.all_fail,
            "mixed": c.mixed,
            "all_pass": c.all_pass,
            "snr": c.snr,
        }
        for label, c in found.items()
    ]


def figure(advantages: dict[str, Advantage], group_size: int, path: Path) -> None:
    """kappa and snr over p, one line for each advantage, written as pdf, png or svg."""
    if path.suffix not in FIGURE_KINDS:
        raise UserError(f"--figure {path}: the name must end in {', '.join(FIGURE_KINDS)}")
    check_output(path, "--figure")
    from matplotlib.figure import Figure

    p_N = np.linspace(0.005, 0.995, 199)
    drawing = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = drawing.subplots(1, 2, sharex=True)
    styles = ["-", "--", "-.", ":"]
    for index, (label, advantage) in enumerate(advantages.items()):
        found = [coefficients(advantage, float(p), group_size) for p in p_N]
        style = {"linestyle": styles[index % len(styles)], "linewidth": 1.4}
        left.plot(p_N, [c.kappa for c in found], label=label, **style)
        right.plot(p_N, [np.nan if c.snr is None else c.snr for c in found], label=label, **style)
    left.set(ylabel="kappa: E[g] / grad p, mean over the group", ylim=(0, None))
    right.set(ylabel="snr of one group, one-parameter policy", yscale="log")
    for axes in (left, right):
        axes.set(xlabel="success probability p", xlim=(0, 1))
        axes.grid(alpha=0.25)
    drawing.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    drawing.suptitle(f"Expected gradient coefficient and signal to noise, group size {group_size}", fontsize=11)
    with whole_file(path) as temporary:
        drawing.savefig(temporary, format=path.suffix[1:])


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--p", type=float, metavar="P", help="success probability of the prompt")
    parser.add_argument("--group-size", type=int, default=4, metavar="G", help="completions in a group (default 4)")
    add_advantage_option(parser, "default: all")
    parser.add_argument("--figure", type=Path, metavar="OUT", help="draw kappa and snr over p (pdf, png or svg)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.p is None and arguments.figure is None:
        raise UserError("give a success probability (--p .25) or a figure to draw (--figure kappa.pdf)")
    advantages = parse_advantages(arguments.advantage)
    check_group_size(arguments.group_size)
    if arguments.p is not None:
        check_p(arguments.p, "--p")
    if arguments.figure is not None:
        figure(advantages, arguments.group_size, arguments.figure)
    if arguments.p is None:
        return 0
    listed = rows(advantages, arguments.p, arguments.group_size)
    if arguments.json:
        print(json.dumps(listed, indent=2, allow_nan=False))
        return 0
    cells = [
        [str(row["advantage"]), *("-" if row[key] is None else f"{row[key]:.4f}" for key in list(row)[1:])]
        for row in listed
    ]
    print(
        f"E[g] = kappa grad p at p = {arguments.p:g}, group size {arguments.group_size}; mean over the group, ascent."
    )
    print("kappa is the sum of its parts from all-fail, mixed and all-pass groups; snr is that of one group for the")
    print("one-parameter policy. In the sum convention multiply kappa by the group size (pkpo is meant so).\n")
    print(table(["advantage", "kappa", "all-fail", "mixed", "all-pass", "snr"], cells))
    return 0
