"""How figures look (a paper column wide, colours that colour-blind readers can tell apart) and how they are saved."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from gradstarve.estimators import ADVANTAGES
from gradstarve.runs.files import write_with

COLUMN_INCHES = 3.4
# Okabe and Ito (2008), and a marker for each, so that colour is never all that tells two arms apart.
_ARM_STYLES = {
    "base": ("#000000", "s"),
    "sign": ("#0072B2", "o"),
    "sign_ce": ("#56B4E9", "^"),
    "tasa": ("#009E73", "D"),
    "tasa_ce": ("#B8A800", "v"),
    "contrastive_pair": ("#CC79A7", "P"),
    "drgrpo": ("#D55E00", "X"),
}
_OTHER_COLOURS = ("#E69F00", "#7A4EAB", "#5D5D5D", "#8C564B", "#1B7F8C")
_OTHER_MARKERS = ("h", "<", ">", "*", "p", "d", "H")
# All-fail, mixed, all-pass; light enough for a black outline to show over them.
SHARE_COLOURS = {"all_fail": "#D55E00", "mixed": "#F0E442", "all_pass": "#56B4E9"}

_SETTINGS: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 8,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # TrueType: editable, and what venues ask for
}


def arm_style(label: str) -> tuple[str, str]:
    """(colour, marker) of an arm, the same in every figure."""
    name = label.split(" ")[0]
    if label in _ARM_STYLES:
        return _ARM_STYLES[name]
    others = sorted(set(ADVANTAGES) - set(_ARM_STYLES))
    number = others.index(name) if name in others else len(others)
    # The same arm with other parameters has the same name: its label tells it apart, and so does its marker.
    twin = sum(label.removeprefix(name).encode())
    return _OTHER_COLOURS[number % len(_OTHER_COLOURS)], _OTHER_MARKERS[(number + twin) % len(_OTHER_MARKERS)]


def blank(width: float = COLUMN_INCHES, height: float = 2.4, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of its own, without pyplot's global state."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, columns, squeeze=False)[0]
    return figure, list(axes)


def key_above(figure: Figure, title: str) -> Legend:
    """The legend above the axes, where it hides nothing."""
    entries = len(figure.axes[0].get_legend_handles_labels()[1])
    columns = entries if entries <= 3 else -(-entries // 2) if entries <= 8 else 3
    with matplotlib.rc_context(_SETTINGS):
        return figure.legend(
            loc="outside upper center", ncols=columns, frameon=False, title=title, title_fontsize=6.5, fontsize=6.5,
            handlelength=1.8, columnspacing=1.0,
        )  # fmt: skip


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """`name`.png and `name`.pdf; the same numbers give the same bytes.

    Embedding a font takes most of the time, so a .pdf whose .png would not change is left as it is.
    """
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    drawn = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(drawn, format="png", dpi=220, metadata={"Software": None})
        if not (pdf.is_file() and png.is_file() and png.read_bytes() == drawn.getvalue()):
            write_with(pdf, lambda path: figure.savefig(path, format="pdf", metadata={"CreationDate": None}))
            write_with(png, lambda path: _write_bytes(path, drawn.getvalue()))
    return [png, pdf]


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
