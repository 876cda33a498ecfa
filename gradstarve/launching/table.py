"""The table that the live view and `gradstarve status` share: a grid of advantage by seed, and what is not done."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradstarve.launching.standing import Standing

_STYLES = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "lost": "red",
    "unreadable": "red",
    "interrupted": "yellow",
}
_TROUBLE = ("failed", "lost", "unreadable", "interrupted")
_MOST_TROUBLE_ROWS = 20
_MOST_NOTES = 3


def table(standings: Sequence[Standing], width: int) -> RenderableType:
    """What a person watches. `width` is the terminal's, in columns."""
    parts: list[RenderableType] = []
    settings: dict[tuple[str, str, str | None, str], list[Standing]] = {}
    base: dict[tuple[str, str, str], list[Standing]] = {}
    # Two sweeps may want the same runs, evaluated otherwise. A run that no sweep wants stands with the first.
    evaluations = _evaluations(standings)
    for standing in standings:
        model, dataset, setting = standing.wanted.model, standing.wanted.dataset, standing.wanted.setting
        evaluation = evaluations[standing.wanted.evaluation]
        if setting is None:
            base.setdefault((model, dataset, evaluation), []).append(standing)
        else:
            settings.setdefault((model, dataset, setting, evaluation), []).append(standing)
    for (model, dataset, setting, evaluation), members in settings.items():
        # Not as the grid's own title, which is broken to the width of the grid.
        parts.append(Text(f"{model} on {dataset}, setting {setting}{evaluation}", "italic"))
        parts.append(_grid(members + base.pop((model, dataset, evaluation), []), width))
    for (model, dataset, evaluation), members in base.items():
        parts += [Text(f"{model} on {dataset}, untrained{evaluation}", "italic"), _grid(members, width)]
    running = [standing for standing in standings if standing.state == "running"]
    if running:
        parts.append(_running(running))
    trouble = [standing for standing in standings if standing.state in _TROUBLE]
    parts.extend(_trouble(standing) for standing in trouble[:_MOST_TROUBLE_ROWS])
    if len(trouble) > _MOST_TROUBLE_ROWS:
        parts.append(Text(f"and {len(trouble) - _MOST_TROUBLE_ROWS} more that are not well"))
    notes = [standing for standing in standings if standing.note is not None]
    parts.extend(Text(f"note: {standing.wanted.run}: {standing.note}", "yellow") for standing in notes[:_MOST_NOTES])
    if len(notes) > _MOST_NOTES:
        parts.append(Text(f"note: the same of {len(notes) - _MOST_NOTES} more runs", "yellow"))
    waiting = [standing for standing in standings if standing.state == "queued" and standing.why is not None]
    parts.extend(_reasons(waiting))
    parts.append(Text(summary(standings)))
    return Group(*parts)


def _evaluations(standings: Sequence[Standing]) -> dict[str | None, str]:
    """What a grid's title says of each evaluation, which is nothing where there is one."""
    declared = dict.fromkeys(s.wanted.evaluation for s in standings if s.wanted.evaluation is not None)
    asked = {s.wanted.evaluation: s.wanted.asked for s in standings if s.wanted.asked not in {None, s.wanted.dataset}}
    several = len(declared) > 1
    told: dict[str | None, str] = {
        name: (f", asked {asked[name]}" if name in asked else "") + (f", evaluation {name}" if several else "")
        for name in declared
    }
    return {None: next(iter(told.values()), ""), **told}


def summary(standings: Sequence[Standing]) -> str:
    """One line: how many are in which state, and about how long the rest may take where that can be told."""
    counts: dict[str, int] = {}
    for standing in standings:
        counts[standing.state] = counts.get(standing.state, 0) + 1
    order = ["done", "running", "queued", *_TROUBLE, "missing"]
    runs, wanted = len({standing.wanted.run for standing in standings}), len(standings)
    count = f"{runs} run{'s' if runs != 1 else ''}" + (f", {wanted} evaluations" if wanted != runs else "")
    return f"{count}: " + ", ".join(f"{counts[state]} {state}" for state in order if state in counts)


def progress_of(standing: Standing) -> str:
    """One line on a run that is running: step, what it says, reward, dead and truncated shares, time left."""
    parts = [_step(standing)]
    if standing.phase is not None:
        parts.append(standing.phase)
    if standing.reward is not None:
        parts.append(f"reward {standing.reward:.2f}")
    if standing.dead is not None:
        parts.append(f"dead {_percent(standing.dead)}")
    if standing.truncated is not None:
        parts.append(f"truncated {_percent(standing.truncated)}")
    if standing.remaining is not None:
        parts.append(f"{duration(standing.remaining)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """`8 s`, `3 min`, `2 h 05 min`, `1 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _grid(standings: Sequence[Standing], width: int) -> Table:
    """One row an arm, one column a seed; where the terminal is too narrow for that, the counts of each arm's states."""
    arms: dict[tuple[str, int | None], dict[int | None, Standing]] = {}
    for standing in standings:
        wanted = standing.wanted
        arms.setdefault((wanted.advantage, wanted.group_size), {})[wanted.seed] = standing
    seeds = sorted({seed for arm in arms.values() for seed in arm if seed is not None})
    grid = Table(pad_edge=False)
    grid.add_column("advantage")
    grid.add_column("G", justify="right")
    # The untrained model has no seed: it stands in the first column.
    columns: list[int | None] = [*seeds] or [None]
    wide = len(columns) * 10 + 24 <= width
    for heading in columns if wide else ["seeds"]:
        grid.add_column("" if heading is None else str(heading), justify="right" if wide else "left")
    for (advantage, group_size), members in arms.items():
        arm = {columns[0]: members[None]} if None in members else members
        cells = [_cell(arm.get(seed)) for seed in columns]
        counts = Text(summary(list(arm.values())).partition(": ")[2])
        grid.add_row(advantage, "" if group_size is None else str(group_size), *(cells if wide else [counts]))
    return grid


def _cell(standing: Standing | None) -> Text:
    if standing is None:
        return Text("")
    style = _STYLES.get(standing.state, "dim")
    if standing.state == "done":
        return Text("done" if standing.accuracy is None else _percent(standing.accuracy), style)
    if standing.state == "running":
        return Text(_step(standing).removeprefix("step "), style)
    return Text("." if standing.state == "missing" else standing.state, style)


def _running(standings: Sequence[Standing]) -> Table:
    rows = Table(pad_edge=False, box=None)
    for name in ("running", "step", "reward", "dead", "truncated", "left", ""):
        rows.add_column(name, justify="left" if name in ("running", "") else "right")
    for standing in standings:
        rows.add_row(
            standing.wanted.run,
            _step(standing).removeprefix("step "),
            "" if standing.reward is None else f"{standing.reward:.2f}",
            "" if standing.dead is None else _percent(standing.dead),
            "" if standing.truncated is None else _percent(standing.truncated),
            "" if standing.remaining is None else duration(standing.remaining),
            standing.phase or "",
        )
    return rows


def _reasons(waiting: Sequence[Standing]) -> list[Text]:
    """One line for each reason why runs wait, less the job's own number."""
    counts: dict[str, int] = {}
    for standing in waiting:
        reason = re.sub(r"^job \d+(_\d+)? ", "", str(standing.why))
        counts[reason] = counts.get(reason, 0) + 1
    return [Text(f"queued: {count} of which the job {reason}", "dim") for reason, count in sorted(counts.items())[:5]]


def _trouble(standing: Standing) -> Text:
    return Text(f"{standing.state}: {standing.wanted.run}: {standing.why}", _STYLES[standing.state])


def _step(standing: Standing) -> str:
    if standing.steps is None:
        return "running" if standing.step is None else f"step {standing.step}"
    return f"step {standing.step or 0}/{standing.steps}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 1 else "100 %"
