"""hydra/launcher=slurm: the runs of a command as a job array, submitted through submitit.

Submitting returns at once. What travels is a config and a folder: each run's config lies in its run folder
(submission.json), the list of the array's tasks in `outputs/slurm/<batch>/batch.json`, and every task of the array runs
`python -m gradstarve.launching.slurm_task outputs/slurm/<batch>`. The batch's name is the job's name in SLURM, so what
was submitted is found again from the folders alone, whatever became of the command that submitted it.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError
from gradstarve.launching import fetching
from gradstarve.launching.jobs import Job
from gradstarve.launching.slurm_options import SlurmOptions
from gradstarve.launching.slurm_watch import watch
from gradstarve.runs import scheduler
from gradstarve.runs.claim import holder_of
from gradstarve.runs.code_version import code_version
from gradstarve.runs.config import plain_config
from gradstarve.runs.files import locked, write_json, write_text

BATCH_FILE = "batch.json"


@dataclass(frozen=True)
class Batch:
    """One job array."""

    folder: Path
    job_id: str
    jobs: list[Job]
    tasks: int


def launch(jobs: Sequence[Job], options: SlurmOptions) -> int:
    """Submit what is missing or failed and neither queued nor running; returns the exit code.

    Raises UserError before anything is fetched or written where SLURM or submitit is not to be had.
    """
    largest = _check_here(jobs, options)
    fetching.fetch([config for job in jobs if not job.is_done() for config in job.configs], say)
    by_outputs: dict[Path, list[Job]] = {}
    for job in jobs:
        by_outputs.setdefault(job.folder.path.parent.parent, []).append(job)
    in_hand = False
    for outputs, members in by_outputs.items():
        in_hand |= _submit_missing(members, options, outputs, largest * options.runs_per_job)
    if in_hand and options.wait:
        return watch(jobs, options.on_interrupt)
    if in_hand:
        said = [f" --outputs {shlex.quote(str(o))}" if o != Path("outputs") else "" for o in by_outputs]
        say("\n".join(f"follow them with: gradstarve status --watch{where}" for where in said))
    return 0


def _submit_missing(jobs: Sequence[Job], options: SlurmOptions, outputs: Path, most: int) -> bool:
    """Submit what nobody has in hand, at most so many runs an array; returns whether anything is queued or running."""
    with alone(outputs):
        todo, done, underway = _choose(jobs)
        for start in range(0, len(todo), most):
            batch = _submit(todo[start : start + most], options, outputs)
            say(f"job {batch.job_id}: {batch.tasks} tasks, logs in {batch.folder}")
    counts = [f"{len(todo)} submitted", f"{done} done already", f"{len(underway)} queued or running already"]
    say(f"{len(jobs)} run{'s' if len(jobs) > 1 else ''}: " + ", ".join(c for c in counts if not c.startswith("0 ")))
    return bool(todo or underway)


def script(options: SlurmOptions, tasks: int, folder: Path = Path("outputs/slurm/BATCH"), name: str = "BATCH") -> str:
    """The batch script of an array. Raises UserError where submitit is missing."""
    return str(_executor(options, tasks, folder, name)._make_submission_file_text(_command(options, folder), name))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_here(jobs: Sequence[Job], options: SlurmOptions) -> int:
    """How many tasks an array can have here. Raises UserError where nothing could be submitted."""
    if shutil.which("sbatch") is None:
        raise UserError("hydra/launcher=slurm: no sbatch here; give the command on a login node of the cluster")
    for job in jobs:
        if "%" in str(job.folder.path.absolute()):
            raise UserError(
                f"outputs: SLURM reads a % in a path as the name of something else: {job.folder.path.absolute()}"
            )
        for config in job.configs:
            per_pass = config.completions_per_pass or config.completions_per_step
            if config.advantage.trains and per_pass % options.processes:
                raise UserError(
                    f"hydra.launcher.gpus_per_run: {options.processes} processes cannot share the {per_pass} "
                    f"completions of a pass of {job.name}"
                )

    script(options, tasks=1)
    try:
        return scheduler.largest_array()
    except scheduler.NoAnswer as none:
        raise UserError(f"hydra/launcher=slurm: {none}; nothing was submitted") from None


def _choose(jobs: Sequence[Job]) -> tuple[list[Job], int, list[Job]]:
    """Jobs to be submitted, how many are done, and those that somebody has in hand."""
    missing = [job for job in jobs if not job.is_done()]
    submissions = {job.name: submission for job in missing if (submission := job.folder.submission()) is not None}
    try:
        tasks = scheduler.tasks_of(
            {(s["batch"], s["task"]) for s in submissions.values()},
            min((s["submitted"] for s in submissions.values()), default=0),
        )
    except scheduler.NoAnswer as none:
        raise UserError(f"hydra/launcher=slurm: {none}; nothing was submitted") from None
    todo: list[Job] = []
    underway: list[Job] = []
    for job in missing:
        submission = submissions.get(job.name)
        task = None if submission is None else tasks.get((submission["batch"], submission["task"]))
        holder = holder_of(job.folder.path, ask_slurm=True)
        if holder is not None and holder[1] == "unknown":
            raise UserError(
                f"{job.name} is claimed by process {holder[0].get('pid')} on {holder[0].get('host')}, which cannot be "
                f"checked from here; if it is gone: rm {job.folder.path / 'claim.json'}"
            )
        in_hand = (task is not None and not task.ended) or (holder is not None and holder[1] == "alive")
        (underway if in_hand else todo).append(job)
    return todo, len(jobs) - len(missing), underway


def _submit(jobs: list[Job], options: SlurmOptions, outputs: Path) -> Batch:
    name = f"gs-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    folder = outputs / "slurm" / name
    folder.mkdir(parents=True)
    tasks = [jobs[i : i + options.runs_per_job] for i in range(0, len(jobs), options.runs_per_job)]
    now = time.time()
    submitted = {
        "batch": name,
        "submitted": now,
        "code": code_version(),
        "options": options.plain(),
        "command": sys.argv,
        "folder": str(Path.cwd()),
    }
    # Written before sbatch is called: should we die right after it, the tasks have all that they need.
    write_json(folder / BATCH_FILE, {**submitted, "tasks": [[job.name for job in members] for members in tasks]})
    before = {job.name: job.folder.submission() for job in jobs}
    for number, members in enumerate(tasks):
        for job in members:
            configs = [plain_config(config) for config in job.configs]
            job.folder.write_submission({**submitted, "task": number, "configs": configs})
    file = folder / "submission.sh"
    write_text(file, script(options, len(tasks), folder, name))
    done = subprocess.run(["sbatch", "--parsable", str(file)], capture_output=True, text=True, check=False)
    # sbatch can lose its connection after SLURM has taken the job.
    taken = {} if done.returncode == 0 else _taken(name, now)
    if done.returncode != 0 and not taken:
        shutil.rmtree(folder)
        for job in jobs:
            job.folder.restore_submission(before[job.name])
        last = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        raise UserError(f"sbatch refuses the job: {last.removeprefix('sbatch: ').removeprefix('error: ')}")
    job_id = done.stdout.strip().split(";")[0] or next(iter(taken.values())).id.partition("_")[0]
    write_text(folder / "job_id", job_id + "\n")
    return Batch(folder, job_id, jobs, len(tasks))


def _taken(name: str, since: float) -> dict[tuple[str, int], scheduler.ClusterJob]:
    try:
        return scheduler.tasks_of({(name, 0)}, since)
    except scheduler.NoAnswer:
        return {}


def _executor(options: SlurmOptions, tasks: int, folder: Path, name: str) -> Any:
    """submitit's executor, which writes the batch script."""
    try:
        import submitit
    except ModuleNotFoundError:
        raise UserError(
            "hydra/launcher=slurm: submitit is missing: pip install -c constraints.txt -e '.[slurm]'"
        ) from None
    executor = submitit.SlurmExecutor(folder)
    at_once = options.runs_at_once
    signal = f"USR2@{options.signal_seconds}"
    parameters = {
        "job_name": name,
        "time": options.minutes,
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": options.cpus_per_run * at_once,
        "gpus_per_node": options.gpus_per_run * at_once or None,
        "mem": None if options.memory_per_run is None else _times(options.memory_per_run, at_once),
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "array_parallelism": options.array_parallelism,
        "signal_delay_s": options.signal_seconds,
        "stderr_to_stdout": True,
        "setup": _setup(options, name),
        "use_srun": options.use_srun,
        # srun does not take the number of cores from sbatch.
        "srun_args": [f"--cpus-per-task={options.cpus_per_run * at_once}", *options.srun_args],
        # Without srun the signal must be sent to the batch shell, whose place python has taken.
        "additional_parameters": {
            "requeue": True,
            **({} if options.use_srun else {"signal": f"B:{signal}"}),
            **options.sbatch,
        },
    }
    if "gres" in options.sbatch or "gpus" in options.sbatch:
        parameters["gpus_per_node"] = None
    said = {key: value for key, value in parameters.items() if value is not None}
    # submitit's own default for this one is not the cluster's.
    executor.update_parameters(**said, wckey=None)
    executor.parameters["map_count"] = tasks
    return executor


def _setup(options: SlurmOptions, name: str) -> list[str]:
    code = Path(__file__).resolve().parent.parent.parent
    variables = {
        **({"HF_HUB_OFFLINE": 1, "HF_DATASETS_OFFLINE": 1, "TRANSFORMERS_OFFLINE": 1} if options.offline else {}),
        **options.environment,
        "GRADSTARVE_BATCH": name,
    }
    return [
        # Until python listens, a signal to stop must not be the end of the job.
        "trap '' USR2",
        *options.setup,
        f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}",
        *(f"export {key}={shlex.quote(str(value))}" for key, value in variables.items()),
    ]


def _command(options: SlurmOptions, folder: Path) -> str:
    python = options.python or shlex.quote(sys.executable)
    command = f"{python} -u -m gradstarve.launching.slurm_task {shlex.quote(str(folder))}"
    return command if options.use_srun else f"exec {command}"


def _times(memory: str, count: int) -> str:
    """`64GB` for `count` runs at once."""
    digits = memory.rstrip("KMGTBkmgtb")
    if not digits.isdigit():
        raise UserError(f"hydra.launcher.memory_per_run: a size such as 64GB, got {memory!r}")
    return f"{int(digits) * count}{memory[len(digits) :]}"


@contextmanager
def alone(outputs: Path) -> Iterator[None]:
    """One command submits at a time, so that two do not submit the same run."""
    folder = outputs / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", lambda: say("waiting for another command that is submitting")):
        yield
