"""One run, from config to result, in this process."""

from __future__ import annotations

import contextlib
import gc
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import TrainerCallback

from gradstarve.estimators import get_advantage
from gradstarve.learning import processes
from gradstarve.learning.evaluation import evaluate, write_summary
from gradstarve.learning.policy import Policy, load_policy, load_trained
from gradstarve.learning.provenance import provenance
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.rewards import told
from gradstarve.learning.rollout_engine import require_engine
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.stopping import Stopped, Stopping, never
from gradstarve.learning.tasks import Task, load_task, task_asked
from gradstarve.learning.tracking import Track, tracked
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.learning.vllm_evaluation import require_vllm
from gradstarve.runs import checkpoints
from gradstarve.runs.claim import claim, held_by_a_sibling
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.model_config import GgufModelConfig, HubModelConfig
from gradstarve.runs.rows import MUCH_TRUNCATED
from gradstarve.runs.signature import (
    cell_key,
    evaluation_name,
    model_key,
    run_name,
    setting_key,
    signature,
)
from gradstarve.runs.status import write_failure, write_status

Say = Callable[[str], None]


def execute(config: RunConfig, progress: Say = lambda _: None, stopping: Stopping = never) -> None:
    """Bring a run to its end: train what is not trained, evaluate what is not evaluated, then write its result.

    `stopping` is asked between steps and batches: where it says yes, a checkpoint is taken and Stopped raised. Raises
    Claimed where another process runs it; anything else that goes wrong is written to status.json and raised. In every
    process of a run but the first it only trains.
    """
    folder = RunFolder.of(config)
    if processes.rank() > 0:
        _follow(config, folder, stopping)
        return
    with claim(folder.path), tracked(config, folder, progress) as track:
        if folder.is_done(config):
            return
        try:
            write_status(folder.path, "running", steps=config.steps if config.advantage.trains else 0)
            _execute(config, folder, progress, stopping, track)
            write_status(folder.path, "done")
        except BaseException as error:
            try:
                write_failure(folder.path, error, asked=isinstance(error, Stopped))
            except OSError as unwritten:
                # A full disk: what went wrong first is what must be known.
                error.add_note(f"and {folder.path / 'status.json'} could not be written: {unwritten}")
            raise


def _follow(config: RunConfig, folder: RunFolder, stopping: Stopping) -> None:
    """The part of a run's second and further processes: training, where there is still some to do."""
    if folder.result() is not None or folder.weights.is_dir():
        return
    try:
        seed_everything(config.seed)
        task = load_task(config.dataset)
        # Only the first process asks what the evaluation asks.
        _train_to_the_end(config, folder, task, task, lambda _: None, stopping, lambda: None)
    except Exception as error:
        # Where the first process still trains, all that it will know is that one of the others is gone.
        if not isinstance(error, Stopped) and held_by_a_sibling(folder.path):
            write_failure(folder.path, error)
        raise


def _execute(config: RunConfig, folder: RunFolder, say: Say, stopping: Stopping, track: Track) -> None:
    if folder.result() is None:
        folder.write_config(config)
        _record_session(folder)
    if config.evaluation.engine == "vllm":
        require_vllm()
    if folder.result() is not None:
        say("trained already; evaluating the kept weights")
        track()
        _evaluate_kept(config, folder, say, stopping)
        return
    seed_everything(config.seed)
    task = load_task(config.dataset)
    asked_task = task_asked(config, task)
    if config.advantage.trains:
        say(f"advantage {config.advantage.name}: {_formula(config)}; reward: {told(config.loss)}")
        summary = _train(config, folder, task, asked_task, say, stopping, track)
    else:
        track()
        summary = _final_evaluation(load_policy(config, say), asked_task, config, folder, 0, say, stopping)
    folder.write_result(_result(config, folder, summary, len(task.train)))
    shutil.rmtree(folder.checkpoints, ignore_errors=True)


def _record_session(folder: RunFolder) -> None:
    """With what the run is run. A run that was interrupted has several sessions; the first names its code."""
    now = provenance()
    before = folder.provenance()
    sessions = [*before.get("sessions", []), {**now, "started": time.time()}]
    mixed = len({str((s["code"], s["versions"])) for s in sessions}) > 1
    folder.write_provenance({**(before or now), "sessions": sessions, "mixed": mixed})


def _train(
    config: RunConfig, folder: RunFolder, task: Task, asked_task: Task, say: Say, stopping: Stopping, track: Track
) -> dict[str, Any]:
    """Train, from the newest whole checkpoint where there is one, and evaluate.

    The final weights appear whole once training has ended, so where they are, only the steps after them are left to do.
    """
    if not folder.weights.is_dir():
        _train_to_the_end(config, folder, task, asked_task, say, stopping, track)
        gc.collect()  # the trainer and its model, before the kept weights are loaded beside them
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    track()
    folder.close_tables()
    policy = load_trained(config, folder.weights, say)
    return _final_evaluation(policy, asked_task, config, folder, config.steps, say, stopping)


def _train_to_the_end(
    config: RunConfig, folder: RunFolder, task: Task, asked_task: Task, say: Say, stopping: Stopping, track: Track
) -> None:
    """Raises Stopped after the step in which `stopping` said yes, with a checkpoint of that step."""
    require_engine(config, say)
    leads = processes.rank() == 0
    if leads:
        kept = checkpoints.newest_whole(folder.checkpoints)
        checkpoints.keep_only(folder.checkpoints, kept.path if kept else None)
        folder.cut(kept.offsets if kept else {})
        track()
    processes.wait_for_everyone()
    checkpoint = checkpoints.newest_whole(folder.checkpoints)
    policy = load_policy(config, say)
    recorder = Recorder(folder, config) if leads else None
    trainer = BinaryRewardTrainer(
        config, policy, task.train, task.grade, recorder, folder.checkpoints, processes.count(), say=say
    )
    if leads:
        trainer.add_callback(_Evaluator(trainer, policy, asked_task, config, folder, say, stopping))
        trainer.add_callback(_Progress(config, say))
    trainer.add_callback(_Stop(config, stopping))
    if checkpoint is None:
        trainer.train()
    else:
        say(f"resuming after step {checkpoint.step}")
        trainer.resume(checkpoint.path)
    if trainer.state.global_step < config.steps:
        raise Stopped(f"stopped as asked, with a checkpoint of step {trainer.state.global_step}")
    if leads:
        _save_weights(trainer, policy.tokenizer, folder)


def _final_evaluation(
    policy: Policy, asked_task: Task, config: RunConfig, folder: RunFolder, step: int, say: Say, stopping: Stopping
) -> dict[str, Any]:
    say("evaluating")
    place = folder.evaluation(config)
    model: Any = policy.model
    engine = config.evaluation.engine
    if engine == "hf":  # vLLM takes the weights from a folder, and wants the whole GPU
        model.to("cuda" if torch.cuda.is_available() else "cpu")
    summary = evaluate(model, policy.tokenizer, asked_task, config, step, place, say, stopping, engine)
    summary["tokens"] = _generated_tokens(folder, step)
    write_summary(place, folder.name, config, summary, final=True)
    if summary["truncated"] > MUCH_TRUNCATED:
        say(
            f"warning: {summary['truncated']:.0%} of the evaluated completions were cut off at "
            f"{config.evaluation.completion_limit or config.completion_limit} tokens; what looks like wrong answers "
            "may be a completion limit that is too short"
        )
    return summary


def _evaluate_kept(config: RunConfig, folder: RunFolder, say: Say, stopping: Stopping) -> None:
    trained = config.advantage.trains
    asked_task = task_asked(config, load_task(config.dataset))
    policy = load_trained(config, folder.weights, say) if trained else load_policy(config, say)
    _final_evaluation(policy, asked_task, config, folder, config.steps if trained else 0, say, stopping)


def _save_weights(trainer: BinaryRewardTrainer, tokenizer: Any, folder: RunFolder) -> None:
    """The final weights, or the adapter alone, whole or not at all."""
    building = folder.path / ".weights.tmp"
    shutil.rmtree(building, ignore_errors=True)
    trainer.accelerator.unwrap_model(trainer.model).save_pretrained(building)
    tokenizer.save_pretrained(building)
    shutil.rmtree(folder.weights, ignore_errors=True)
    building.replace(folder.weights)


def _generated_tokens(folder: RunFolder, step: int) -> int:
    """Tokens generated in training up to and with a step: what an accuracy was paid with."""
    groups = folder.read("groups")
    return int(groups.loc[groups["step"] <= step, "tokens"].sum()) if len(groups) else 0


def _formula(config: RunConfig) -> str:
    return get_advantage(config.advantage.formula, config.advantage.parameters).resolved_formula()


class _Evaluator(TrainerCallback):
    """Evaluates every `eval_every` steps, but not at the last: the final evaluation comes after training.

    One that is stopped half-way is done when the run is resumed, from the checkpoint of its step.
    """

    def __init__(
        self,
        trainer: BinaryRewardTrainer,
        policy: Policy,
        asked_task: Task,
        config: RunConfig,
        folder: RunFolder,
        say: Say,
        stopping: Stopping,
    ) -> None:
        self.trainer, self.policy, self.asked_task = trainer, policy, asked_task
        self.config, self.folder, self.say, self.stopping = config, folder, say, stopping

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step not in self.folder.evaluated_steps(self.config):
            self._evaluate(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._evaluate(state)

    def _evaluate(self, state: Any) -> None:
        every = self.config.eval_every
        if not every or not state.global_step or state.global_step % every or state.global_step >= self.config.steps:
            return
        with contextlib.suppress(Stopped):
            self._ask(state)

    def _ask(self, state: Any) -> None:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        place = self.folder.evaluation(self.config)
        summary = evaluate(
            model,
            self.policy.tokenizer,
            self.asked_task,
            self.config,
            state.global_step,
            place,
            self.say,
            self.stopping,
        )
        summary["tokens"] = _generated_tokens(self.folder, state.global_step)
        write_summary(place, self.folder.name, self.config, summary, final=False)
        self.say(f"step {state.global_step}: {summary['accuracy']:.1%} right on {summary['n']} questions")


class _Stop(TrainerCallback):
    """Ends training with a checkpoint where somebody has asked for it: in every process after the same step."""

    def __init__(self, config: RunConfig, stopping: Stopping) -> None:
        self.config, self.stopping = config, stopping

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step < self.config.steps and processes.any_of_them(self.stopping()):
            control.should_save = True
            control.should_training_stop = True


class _Progress(TrainerCallback):
    def __init__(self, config: RunConfig, say: Say) -> None:
        self.config, self.say = config, say
        self._said = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if time.monotonic() - self._said > 5:
            self._said = time.monotonic()
            self.say(f"step {state.global_step} of {self.config.steps}")


def _result(config: RunConfig, folder: RunFolder, evaluation: dict[str, Any], train_questions: int) -> dict[str, Any]:
    """The summary row. What training left is read back from its tables, so that a resumed run counts all of it."""
    trained = config.advantage.trains
    seen = folder.provenance()
    model = config.model
    model_id = model.id if isinstance(model, HubModelConfig) else model.name
    if isinstance(model, GgufModelConfig):
        model_id = Path(model.file).name
    return {
        "run": run_name(config),
        "advantage": config.advantage.name,
        "formula": config.advantage.formula,
        "resolved_formula": _formula(config) if trained else "untrained",
        "training_reward": config.loss.reward if trained else None,
        "group_size": config.group_size if trained else None,
        "seed": config.seed if trained else None,
        "steps": config.steps if trained else None,
        "prompts_per_step": config.prompts_per_step if trained else None,
        "learning_rate": config.learning_rate if trained else None,
        "completion_limit": config.completion_limit,
        "model": model.name,
        "model_id": model_id,
        "dataset": config.dataset.name,
        "cell": cell_key(config),
        "setting": setting_key(config) if trained else None,
        "model_key": model_key(config),
        "signature": signature(config),
        "evaluation": {"name": evaluation_name(config), "dataset": config.asked_dataset.name, **evaluation},
        **(_training_summary(folder) if trained else _NO_TRAINING),
        "train_questions": train_questions if trained else None,
        "code": {**seen["code"], "dirty": bool(seen["code"]["dirty"] or seen["mixed"])},
        "versions": seen["versions"],
        "finished": time.time(),
    }


_NO_TRAINING: dict[str, Any] = {
    "shares": None,
    "reward_mean": None,
    "reward_first": None,
    "reward_last": None,
    "tokens": None,
    "groups": None,
    "unverifiable": None,
    "seconds": None,
}


def _training_summary(folder: RunFolder) -> dict[str, Any]:
    steps, groups = folder.read("steps"), folder.read("groups")
    decided = groups[groups["group_size"] >= 2]
    all_fail, all_pass = decided["n_plus"] == 0, decided["n_plus"] == decided["group_size"]
    shares = {"all_fail": all_fail, "mixed": ~(all_fail | all_pass), "all_pass": all_pass, "dead": all_fail | all_pass}
    seconds = {key: float(steps[f"seconds_{key}"].sum()) for key in ("rollout", "loss", "rest")}

    def mean(values: pd.Series) -> float | None:
        known = values.dropna()
        return float(known.mean()) if len(known) else None

    return {
        "shares": {**{key: mean(share) for key, share in shares.items()}, "truncated": mean(steps["truncated"])},
        "reward_mean": mean(steps["reward"]),
        "reward_first": mean(steps["reward"].head(10)),
        "reward_last": mean(steps["reward"].tail(10)),
        "tokens": int(steps["tokens"].sum()),
        "groups": len(groups),
        "unverifiable": int(steps["unverifiable"].sum()),
        "seconds": {"total": sum(seconds.values()), **seconds},
    }
