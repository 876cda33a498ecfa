"""Runs sorted into settings and cells, each with what it is missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

from gradstarve.reporting.arms import UNTRAINED, arm_order, distinct_labels
from gradstarve.reporting.cells import Absent, Cell, Point, Setting
from gradstarve.reporting.setting_names import name_settings
from gradstarve.runs.rows import RunRow, identify


def read_settings(
    rows: Sequence[RunRow], sweeps: Iterable[dict[str, Any]], evaluations: Container[str] | None = None
) -> list[Setting]:
    """All settings with at least one finished run, those with most runs first; each knows what it is missing.

    With `evaluations`, trained runs count as they were evaluated in these ways. The untrained model counts in all: it
    belongs to every setting that starts from it, and its samples say how hard the questions are.
    """
    wanted = {(run["run"], run["evaluation"]): run for sweep in sweeps for run in sweep["runs"]}
    by_name = {row.run: row for row in rows}
    settings: dict[tuple[str, str], Setting] = {}
    cells: dict[tuple[str, str, str], Cell] = {}
    bases: dict[tuple[str, str], Cell] = {}

    def cell_of(identity: dict[str, Any], evaluation: str) -> Cell:
        if identity["setting"] is None:
            place = (identity["model_key"], evaluation)
            return bases.setdefault(place, Cell(identity["cell"], identity["advantage"], None, UNTRAINED))
        key = (identity["setting"], evaluation)
        if key not in settings:
            settings[key] = Setting(*key, identity["model_key"], identity["model"], identity["dataset"])
        place3 = (*key, identity["cell"])
        if place3 not in cells:
            cells[place3] = Cell(identity["cell"], identity["advantage"], identity["group_size"])
            settings[key].cells.append(cells[place3])
        return cells[place3]

    for row in rows:
        if row.result is not None:
            for evaluation, final in finals_of(row).items():
                trained = row.result["setting"] is not None
                if trained and evaluations is not None and evaluation not in evaluations:
                    continue
                point = Point(row.run, row.folder, row.result["seed"], row.result, final)
                cell_of(row.result, evaluation).points.append(point)
    for (name, evaluation), identity in wanted.items():
        found = by_name.get(name)
        if found is None or found.result is None:
            state, why = (found.state, found.why or found.state) if found else ("missing", "never started")
            cell_of(identity, evaluation).absent.append(Absent(name, identity["seed"], state, why))
        elif evaluation not in finals_of(found):
            others = ", ".join(finals_of(found)) or "nothing"
            why = f"finished, but evaluated as {others} only"
            cell_of(identity, evaluation).absent.append(Absent(name, identity["seed"], "not evaluated", why))
    declared = {name for name, _ in wanted}
    for row in rows:
        if row.result is None and row.run not in declared:
            undeclared = identify(row)
            if undeclared is not None:
                absent = Absent(row.run, undeclared["seed"], row.state, row.why or row.state)
                cell_of(undeclared, undeclared["evaluation"]).absent.append(absent)
    return _finish(settings, bases)


def unplaced(rows: Sequence[RunRow], sweeps: Iterable[dict[str, Any]]) -> list[RunRow]:
    """Unfinished folders that no declaration names and whose config cannot be read: they belong to no table."""
    wanted = {run["run"] for sweep in sweeps for run in sweep["runs"]}
    return [row for row in rows if row.result is None and row.run not in wanted and identify(row) is None]


def finals_of(row: RunRow) -> dict[str, dict[str, Any]]:
    """The final result of each whole evaluation of a finished run, by the evaluation's folder name."""
    assert row.result is not None
    found = {}
    for name, summary in row.evaluations.items():
        final = summary.get("final")
        if isinstance(final, dict) and final.get("n"):
            found[name] = {
                **final,
                **{key: summary[key] for key in ("identity", "dataset", "key", "by_step") if key in summary},
            }
    recorded = row.result.get("evaluation")
    if isinstance(recorded, dict) and recorded.get("n") and recorded["name"] not in found:
        found[recorded["name"]] = recorded
    return found


def _finish(settings: dict[tuple[str, str], Setting], bases: dict[tuple[str, str], Cell]) -> list[Setting]:
    for setting in settings.values():
        setting.base = bases.get((setting.model_key, setting.evaluation))
        by_size: dict[int | None, dict[str, Cell]] = defaultdict(dict)
        for cell in setting.cells:
            cell.points.sort(key=lambda point: (point.seed is None, point.seed))
            cell.absent.sort(key=lambda absent: (absent.seed is None, absent.seed, absent.run))
            by_size[cell.group_size][cell.key] = cell
        for of_size in by_size.values():
            twice = Counter(cell.advantage for cell in of_size.values())
            for cell in of_size.values():
                cell.label = cell.advantage
            clash = {k: c.config["advantage"] for k, c in of_size.items() if twice[c.advantage] > 1}
            for key, label in distinct_labels(clash).items():
                of_size[key].label = label
        setting.cells.sort(key=lambda cell: (cell.group_size or 0, arm_order(cell.label)))
    trained = {setting.model_key for setting in settings.values()}
    joined = {(setting.model_key, setting.evaluation) for setting in settings.values()}
    for (model, evaluation), cell in bases.items():
        if not cell.points or (model, evaluation) in joined:
            continue
        first = cell.points[0].result
        alone = Setting("", evaluation, model, first["model"], first["dataset"], base=cell)
        # Where something was trained from it, the untrained model has tables of its own only of what no other shows.
        if model not in trained or alone.samples > 1:
            settings[model, evaluation] = alone
    kept = [s for s in settings.values() if s.points or (s.base is not None and s.base.points)]
    kept.sort(
        key=lambda s: (
            -len(s.points),
            s.on_training,
            s.transfer,
            not _own_evaluation(s),
            s.model,
            s.dataset,
            s.evaluation,
            s.key,
        )
    )
    kept = [setting for number, setting in enumerate(kept) if not any(_repeats(setting, s) for s in kept[:number])]
    name_settings(kept)
    return kept


def _own_evaluation(setting: Setting) -> bool:
    """Whether the runs were evaluated in this way when they ended, not later."""
    point = (setting.points or (setting.base.points if setting.base else []))[0]
    return (point.result.get("evaluation") or {}).get("name") == setting.evaluation


def _repeats(setting: Setting, other: Setting) -> bool:
    """Whether all runs of a setting were only evaluated again, in the way of the other: same key, another name."""
    same = (setting.key, setting.model_key) == (other.key, other.model_key)
    same = same and setting.evaluation.rsplit("-", 1)[-1] == other.evaluation.rsplit("-", 1)[-1]
    return same and {point.run for point in setting.points} <= {point.run for point in other.points}
