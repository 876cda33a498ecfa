"""Accuracy against group size, at equal steps and at equal generated tokens."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gradstarve.reporting.arms import sorted_arms
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.comparisons import summary_of
from gradstarve.reporting.paper import Paper
from gradstarve.reporting.statistics import summarise
from gradstarve.reporting.tables.notes import cell_notes, describe, seeds_told
from gradstarve.reporting.tables.table import Column, Row, Table
from gradstarve.reporting.trajectories import accuracy_at_tokens

COLUMNS = [
    Column("arm", "advantage", "text", "terminal"),
    Column("group_size", "G", "count", "terminal"),
    Column("n", "n", "count", "terminal"),
    Column("mean", "equal steps", "percent", "terminal"),
    Column("ci95", "95 % CI", "interval", "terminal"),
    Column("tokens", "tokens a run", "count", "terminal"),
    Column("budget", "token budget", "count", "terminal"),
    Column("equal_tokens", "equal tokens", "percent", "terminal"),
    Column("equal_tokens_ci95", "95 % CI", "interval", "terminal"),
    Column("equal_tokens_n", "n", "count", "csv"),
    Column("dead", "dead", "percent", "terminal"),
    Column("truncated_evaluation", "trunc. eval", "percent"),
    Column("paper_mean", "paper", "percent", "terminal"),
]
LEGEND = (
    "Equal steps: the final accuracy. Equal tokens: accuracy when a run had generated the token budget, which is "
    "what the "
    "smallest group size of the same arm generated in its shortest run; linear between the evaluated steps, from the "
    "untrained model on. A larger group generates more tokens a step, so that it has taken fewer steps by then."
)


def group_size_table(setting: Setting, paper: Paper, more_notes: Sequence[str] = ()) -> Table | None:
    """All arms that were run at two group sizes or more; None where there is none."""
    arms: dict[str, list[int]] = {}
    for cell in setting.cells:
        if cell.points and cell.group_size is not None:
            arms.setdefault(cell.label, []).append(cell.group_size)
    chosen = [arm for arm in sorted_arms(arms) if len(arms[arm]) > 1]
    if not chosen:
        return None
    base = fmean(setting.base.accuracies) if setting.base and setting.base.points else None
    like = not paper.unlike(setting)
    rows, cells, notes = [], list[Cell](), list(more_notes)
    for arm in chosen:
        of_arm = [cell for cell in setting.cells if cell.label == arm and cell.points]
        budget = min((p.tokens for p in of_arm[0].points if p.tokens is not None), default=None)
        for cell in of_arm:
            group_size = cell.group_size
            cells.append(cell)
            summary = summary_of(cell)
            known = [p.tokens for p in cell.points if p.tokens is not None]
            reached = [accuracy_at_tokens(p, budget, base) for p in cell.points] if budget is not None else []
            at_budget = [accuracy for accuracy in reached if accuracy is not None]
            equal = summarise(at_budget) if at_budget else None
            rows.append(
                Row(
                    f"{arm}-g{group_size}",
                    {
                        "arm": arm,
                        "group_size": group_size,
                        "n": summary.n,
                        "mean": summary.mean,
                        "ci95": summary.ci95,
                        "tokens": round(fmean(known)) if known else None,
                        "budget": budget,
                        "equal_tokens": equal.mean if equal else None,
                        "equal_tokens_ci95": equal.ci95 if equal else None,
                        "equal_tokens_n": len(at_budget),
                        "dead": fmean(s)
                        if (s := [d for p in cell.points if (d := p.share("dead")) is not None])
                        else None,
                        "truncated_evaluation": cell.truncated,
                        "paper_mean": paper.mean_of(setting, cell) if like else None,
                        "by_run": {point.run: point.accuracy for point in cell.points},
                    },
                    {},
                    {"": cell.runs},
                )
            )
            if budget is not None and len(at_budget) < len(cell.points):
                notes.append(
                    f"{arm}, G = {group_size}: {len(cell.points) - len(at_budget)} runs generated fewer tokens "
                    "than the budget."
                )
    notes += cell_notes([cell for cell in setting.cells if cell.label in chosen])
    notes.append(paper.explain(setting))
    caption = f"{describe(setting, None)} {seeds_told(cells)}"
    name = f"group-size-{setting.name}"
    return Table("group-size", name, f"Group size · {setting.name}", caption, COLUMNS, rows, notes, LEGEND)
