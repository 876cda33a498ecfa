"""How far each run is: what its folder says, and what SLURM says of the job that it was submitted in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from gradstarve.launching.jobs import Job
from gradstarve.runs.claim import holder_of
from gradstarve.runs.code_version import code_in_words
from gradstarve.runs.folder import RunFolder, runs_root
from gradstarve.runs.rows import RunRow, identify, read_row, read_rows
from gradstarve.runs.scheduler import ClusterJob, NoAnswer, tasks_of
from gradstarve.runs.signature import evaluation_name, identity
from gradstarve.runs.status import read_status
from gradstarve.runs.sweeps import read_sweep, read_sweeps

# The reward of one step is that of a few prompts; this many steps are averaged.
_RECENT_STEPS = 10


@dataclass(frozen=True)
class Wanted:
    """A run that is looked for, and where it stands in a table.

    `evaluation` None: any. `asked` is the data set that the evaluation asks.
    """

    run: str
    folder: Path
    advantage: str
    group_size: int | None
    seed: int | None
    model: str
    dataset: str
    setting: str | None
    evaluation: str | None = None
    asked: str | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Standing:
    """Where a run stands. Rewards and shares are fractions; what is not known (yet) is None.

    `reward` is the mean of the last 10 steps, `dead` and `truncated` those of all steps so far; `accuracy` is the final
    evaluation's. `remaining` is in seconds, for the training steps that are left. `phase` is what a running run said
    last, where it does no step. `why` is one line for a run that is not done. A run without a folder is "missing";
    "lost" was running in a process that is gone, or was queued in a job that is. `job` is the SLURM job it was last
    submitted in, as scancel takes it, while that is queued or running; `note` is what should be known of any run.
    """

    wanted: Wanted
    state: str
    step: int | None = None
    steps: int | None = None
    reward: float | None = None
    dead: float | None = None
    truncated: float | None = None
    accuracy: float | None = None
    remaining: float | None = None
    seconds: float | None = None
    phase: str | None = None
    why: str | None = None
    job: str | None = None
    note: str | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        standing = asdict(self)
        wanted = standing.pop("wanted")
        wanted.pop("steps")
        return {**wanted, "folder": str(self.wanted.folder), **standing}


def wanted_by(jobs: Iterable[Job]) -> list[Wanted]:
    """The runs of a command."""
    found = []
    for job in jobs:
        config = job.configs[0]
        wanted = _wanted({**identity(config), "evaluation": None}, Path(config.outputs))
        steps = config.steps if config.advantage.trains else None
        found.append(replace(wanted, evaluation=evaluation_name(job.configs[-1]), steps=steps))
    return found


def wanted_in(outputs: Path, sweep: str | None) -> list[Wanted]:
    """The runs of a declared sweep; without one, those of all sweeps and every other run folder."""
    sweeps = read_sweeps(outputs) if sweep is None else [read_sweep(outputs, sweep)]
    entries: dict[tuple[str, str | None], Mapping[str, Any]] = {}
    for declared in sweeps:
        for entry in declared["runs"]:
            entries.setdefault((entry["run"], entry["evaluation"]), entry)
    found = [_wanted(entry, outputs) for entry in entries.values()]
    if sweep is None:
        known = {wanted.run for wanted in found}
        for row in read_rows(outputs):
            if row.run not in known:
                found.append(_undeclared(row))
    return found


def standing_of(wanted: Wanted) -> Standing:
    """Reads the run's folder."""
    row = read_row(wanted.folder.name, str(wanted.folder))
    if row is None:
        return Standing(wanted, "missing", steps=wanted.steps)
    note = _other_code(wanted.folder)
    if row.state == "done":
        return replace(_finished(wanted, row), note=note)
    status = read_status(wanted.folder) or {}
    steps = wanted.steps or _steps_asked(wanted.folder)
    frame = _rows(wanted.folder)
    standing: dict[str, Any] = {"steps": steps, "why": row.why, "note": note}
    if row.state == "running":
        standing["why"] = None
    if isinstance(status.get("started"), int | float):
        standing["seconds"] = (status.get("ended") or time.time()) - status["started"]
    if len(frame):
        recent = frame.tail(_RECENT_STEPS)
        standing["step"] = int(frame["step"].iloc[-1])
        standing["reward"] = float(recent["reward"].mean())
        standing["dead"] = float(frame["dead"].mean())
        standing["truncated"] = float(frame["truncated"].mean())
        if row.state == "running" and steps is not None:
            a_step = float(recent[["seconds_rollout", "seconds_loss", "seconds_rest"]].sum(axis=1).mean())
            standing["remaining"] = a_step * max(steps - standing["step"], 0)
    elif row.state == "running":
        standing["step"] = 0
    if row.state == "running" and standing["step"] in (0, steps):
        standing["phase"] = _last_words(RunFolder(wanted.folder).log)
    return Standing(wanted, row.state, **{key: _known(value) for key, value in standing.items()})


def standings(wanted: Sequence[Wanted]) -> list[Standing]:
    """Reads the runs' folders, and asks SLURM once about all that were submitted and are not done."""
    found = [standing_of(each) for each in wanted]
    submissions: dict[int, dict[str, Any]] = {}
    for number, standing in enumerate(found):
        submission = None if standing.state == "done" else RunFolder(standing.wanted.folder).submission()
        if submission is not None:
            submissions[number] = submission
    if not submissions:
        return found
    tasks: dict[tuple[str, int], ClusterJob] | None
    try:
        tasks = tasks_of(
            {(s["batch"], s["task"]) for s in submissions.values()}, min(s["submitted"] for s in submissions.values())
        )
    except NoAnswer as none:
        tasks, silence = None, str(none)
    for number, submission in submissions.items():
        if tasks is None:
            found[number] = _without_an_answer(found[number], submission, silence)
        else:
            found[number] = _with_job(found[number], submission, tasks.get((submission["batch"], submission["task"])))
    return found


def _with_job(standing: Standing, submission: Mapping[str, Any], job: ClusterJob | None) -> Standing:
    """What the folder says, put right by what SLURM says of the job."""
    began = is_of(standing, submission)
    state, why = standing.state, standing.why
    if job is None:
        if state == "running":
            state, why = "lost", "SLURM no longer knows its job"
        elif not began:
            state, why = "lost", f"submitted as {submission['batch']}, but SLURM knows no such job any more"
        return replace(standing, state=state, why=why)
    if job.ended:
        ended = f"job {job.id} ended as {job.state}" + (f" on {job.nodes}" if job.nodes else "")
        if state == "running":
            state, why = "lost", f"{ended}; it goes on from its checkpoint when it is asked for again"
        elif state in {"interrupted", "lost"} and began:
            why = f"{why}; {ended}"
        elif not began:
            state, why = "lost", f"{ended} before the run began"
        return replace(standing, state=state, why=why)
    again = f", to go on after step {standing.step}" if standing.step else ""
    if job.waits:
        why = f"job {job.id} waits{_because(job)}{again}"
        return replace(standing, state="queued", why=why, job=job.id, phase=None)
    if state == "interrupted" and began:
        # Not over yet: it is about to be put back into the queue, or to end.
        return replace(standing, state="queued", why=f"job {job.id} is stopping{again}", job=job.id, phase=None)
    if state in {"running", "failed"} and began:
        return replace(standing, job=job.id)
    if state == "lost" and began:
        return replace(standing, why=f"{why}, though job {job.id} goes on", job=job.id)
    return replace(standing, state="queued", why=f"job {job.id} has begun; the run's turn will come", job=job.id)


def _without_an_answer(standing: Standing, submission: Mapping[str, Any], silence: str) -> Standing:
    if standing.state != "failed" or not is_of(standing, submission):
        state = "running" if standing.state == "running" else "queued"
        why = f"as far as its folder says, submitted as {submission['batch']} ({silence})"
        return replace(standing, state=state, why=why)
    return standing


def is_of(standing: Standing, submission: Mapping[str, Any]) -> bool:
    """Whether what the folder says is of this submission, and not of an earlier one."""
    status = read_status(standing.wanted.folder) or {}
    return status.get("batch") == submission["batch"]


def _because(job: ClusterJob) -> str:
    return "" if job.reason is None else f" ({job.reason})"


def _finished(wanted: Wanted, row: RunRow) -> Standing:
    result = row.result or {}
    shares = result.get("shares") or {}
    evaluation = result.get("evaluation") or {}
    state, why = "done", None
    if wanted.evaluation is not None and wanted.evaluation != evaluation.get("name"):
        summary = row.evaluations.get(wanted.evaluation)
        if summary is None:
            state, why = _unevaluated(wanted)
        evaluation = (summary or {}).get("final") or {}
    steps = result.get("steps") if wanted.setting is not None else None
    return Standing(
        wanted,
        state,
        step=steps,
        steps=steps,
        reward=result.get("reward_last"),
        dead=shares.get("dead"),
        truncated=shares.get("truncated"),
        accuracy=evaluation.get("accuracy"),
        seconds=(result.get("seconds") or {}).get("total"),
        why=why,
    )


def _unevaluated(wanted: Wanted) -> tuple[str, str]:
    """The state of a trained run whose evaluation is not there: what its process said last, where that was of it."""
    status, without = read_status(wanted.folder) or {}, f"trained, but without the evaluation {wanted.evaluation}"
    holder = holder_of(wanted.folder)
    if status.get("state") == "running" and holder is not None and holder[1] != "gone":
        return "running", without
    if status.get("state") in {"failed", "interrupted"}:
        return status["state"], f"{without}: {status.get('error')}"
    return "missing", without


def _wanted(entry: Mapping[str, Any], outputs: Path) -> Wanted:
    return Wanted(
        run=entry["run"],
        folder=runs_root(outputs) / entry["run"],
        advantage=entry["advantage"],
        group_size=entry["group_size"],
        seed=entry["seed"],
        model=entry["model"],
        dataset=entry["dataset"],
        setting=entry["setting"],
        evaluation=entry["evaluation"],
        asked=entry.get("asked"),
    )


def _other_code(folder: Path) -> str | None:
    """Where the code that ran a run is not the code that it was submitted with."""
    submission = RunFolder(folder).submission()
    if submission is None:
        return None
    submitted = submission["code"]
    sessions = RunFolder(folder).provenance().get("sessions", [])
    ran = [session["code"] for session in sessions if session["hardware"].get("job")]
    if not ran or ran[-1] == submitted:
        return None
    return f"submitted with {code_in_words(submitted)}, run with {code_in_words(ran[-1])}"


def _undeclared(row: RunRow) -> Wanted:
    """A run folder that no sweep asked for. Where even its config cannot be read, its name is all there is."""
    entry = identify(row)
    if entry is None:
        return Wanted(row.run, row.folder, row.run, None, None, "?", "?", None)
    return _wanted({**entry, "evaluation": None}, row.folder.parent.parent)


def _steps_asked(folder: Path) -> int | None:
    if not (folder / "config.yaml").is_file():
        return None
    config = RunFolder(folder).read_config()
    return None if (config.get("advantage") or {}).get("name") == "base" else config.get("steps")


def _rows(folder: Path) -> pd.DataFrame:
    """The steps so far; none where they cannot be read: looking at a broken folder must not end those who look."""
    try:
        return RunFolder(folder).read("steps")
    except (OSError, ValueError):
        return pd.DataFrame()


def _last_words(log: Path) -> str | None:
    """What a run said last: before its first step and after its last one, that is what it is doing."""
    if not log.is_file():
        return None
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - 1000))
        lines = stream.read().decode(errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    return "".join(letter for letter in said[-1].strip() if letter.isprintable())[:60] if said else None


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value
