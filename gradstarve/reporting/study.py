"""What lies in an outputs folder, read once for tables, figures and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError
from gradstarve.reporting.cells import Setting
from gradstarve.reporting.settings import finals_of, read_settings, unplaced
from gradstarve.runs.rows import RunRow, read_rows
from gradstarve.runs.sweeps import read_sweep, read_sweeps


@dataclass(frozen=True)
class Study:
    """`sweep` is the declaration that everything is restricted to, if any: its runs, in the evaluations that it
    declares. `loose` are folders that fit no table."""

    outputs: Path
    rows: Sequence[RunRow]
    sweeps: Sequence[dict[str, Any]]
    sweep: dict[str, Any] | None
    settings: Sequence[Setting]
    loose: Sequence[RunRow]

    @property
    def label(self) -> str:
        """The sub-folder that a sweep's own tables go to; empty for all that lies in outputs."""
        return str(self.sweep["name"]) if self.sweep is not None else ""

    def folder(self, kind: str) -> Path:
        return self.outputs / kind / self.label if self.label else self.outputs / kind

    def partial_note(self) -> list[str]:
        """Said in every table of a declared sweep that is not complete."""
        lacking = self.lacking()
        if self.sweep is None or not lacking:
            return []
        return [
            f"PARTIAL: {len(lacking)} of the {len(self.sweep['runs'])} runs of sweep {self.label} have no result yet."
        ]

    def lacking(self) -> list[str]:
        """Declared runs that have no result, or not the evaluation that was declared."""
        done = {row.run: finals_of(row) for row in self.rows if row.result is not None}
        wanted = [run for sweep in ([self.sweep] if self.sweep else self.sweeps) for run in sweep["runs"]]
        return sorted({run["run"] for run in wanted if run["evaluation"] not in done.get(run["run"], {})})


def read_study(
    outputs: Path,
    sweep_name: str | None = None,
    allow_partial: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Study:
    """Read it all. Raises UserError where nothing is finished, and for a declared sweep that is not complete unless
    `allow_partial`."""
    sweeps = read_sweeps(outputs)
    sweep = read_sweep(outputs, sweep_name) if sweep_name is not None else None
    rows = read_rows(outputs, progress)
    evaluations: set[str] | None = None
    if sweep is not None:
        names = {run["run"] for run in sweep["runs"]}
        # The untrained model belongs to every sweep that starts from it.
        bases = {run["model_key"] for run in sweep["runs"]}
        evaluations = {run["evaluation"] for run in sweep["runs"]}
        rows = [row for row in rows if row.run in names or (_is_base(row) and row.result["model_key"] in bases)]  # type: ignore[index]
    study = Study(
        outputs,
        rows,
        sweeps,
        sweep,
        read_settings(rows, [sweep] if sweep is not None else sweeps, evaluations),
        unplaced(rows, sweeps),
    )
    lacking = study.lacking()
    if sweep is not None and lacking and not allow_partial:
        shown = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        raise UserError(
            f"sweep {study.label}: {len(lacking)} of {len(sweep['runs'])} runs have no result: {shown}. Run them with: "
            f"{' '.join(sweep['command'])}   or add --allow-partial"
        )
    if not study.settings:
        raise UserError(_nothing(study))
    return study


def _is_base(row: RunRow) -> bool:
    return row.result is not None and row.result["setting"] is None


def _nothing(study: Study) -> str:
    if study.sweep is not None and any(row.result is not None for row in study.rows):
        again = " ".join(study.sweep["command"])
        return f"no run of sweep {study.label} has been evaluated as it says; evaluate them with: {again}"
    states: dict[str, int] = {}
    for row in study.rows:
        states[row.state] = states.get(row.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    where = f"no finished run in {study.outputs / 'runs'}" + (f" ({told})" if told else "")
    return f"{where}; make some first, for example: python run.py -m advantage=sign,drgrpo seed=42..48"
