"""What of a run folder does not go together, one line each: files that are gone, files that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig, read_config
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.rows import RunRow
from gradstarve.runs.signature import evaluation_name, run_name, signature

# What both result.json and config.yaml say.
SAID_TWICE = ("steps", "prompts_per_step", "learning_rate", "completion_limit")
OF_TRAINING = ("group_size", "seed")
SHOWN = ("shares", "finished", "evaluation")
SHOWN_OF_TRAINING = ("reward_first", "reward_last", "tokens", "seconds")


def problems_of(folder: RunFolder, plain: Mapping[str, Any], row: RunRow) -> list[str]:
    """What a reader of this run should know before believing it; empty for a sound one."""
    try:
        config = read_config(dict(plain))
    except UserError as error:
        # Of another version, perhaps: what it asked for can't be held against its result.
        return [f"its config.yaml can't be read by this version: {error}"]
    found = []
    if run_name(config) != folder.name:
        found.append(f"its config.yaml is that of {run_name(config)}: edited after the run, or a renamed folder")
    if row.result is not None:
        found += _of_result(row.result, config)
        found += _of_evaluations(folder, row, config)
    return found


def _of_result(result: Mapping[str, Any], config: RunConfig) -> list[str]:
    found = []
    trains = config.advantage.trains
    said = {key: getattr(config, key) for key in (*SAID_TWICE, *(OF_TRAINING if trains else ()))}
    said |= {
        "advantage": config.advantage.name,
        "model": config.model.name,
        "dataset": config.dataset.name,
        "signature": signature(config),
    }
    differing = [key for key, value in said.items() if key in result and result[key] != value]
    if differing:
        told = "; ".join(f"{key} {result[key]!r} there, {said[key]!r} here" for key in differing)
        found.append(f"its result.json contradicts its config.yaml: {told}")
    lacking = [key for key in (*SHOWN, *(SHOWN_OF_TRAINING if trains else ())) if key not in result]
    if lacking:
        found.append(f"its result.json lacks {', '.join(lacking)}: not written by a run to its end")
    return found


def _of_evaluations(folder: RunFolder, row: RunRow, config: RunConfig) -> list[str]:
    found = []
    wanted = evaluation_name(config)
    again = "give the run's command again to evaluate anew" if folder.weights.is_dir() else "its weights are gone too"
    if wanted not in row.evaluations:
        found.append(f"evaluations/{wanted} is gone or has no summary, so no table counts its accuracy; {again}")
    for name, summary in row.evaluations.items():
        final = summary.get("final")
        if not isinstance(final, dict) or not {"step", "n", "right", "accuracy"} <= final.keys():
            found.append(f"evaluations/{name}/summary.json has no final result")
            continue
        told = (row.result or {}).get("evaluation")
        if isinstance(told, dict) and told.get("name") == name:
            differing = [key for key in ("step", "n", "right") if told.get(key) != final[key]]
            if differing:
                values = "; ".join(f"{key} {told.get(key)!r} there, {final[key]!r} here" for key in differing)
                found.append(f"its result.json contradicts evaluations/{name}: {values}")
        answers = folder.path / "evaluations" / name / f"step-{final['step']:06d}.parquet"
        if not answers.is_file():
            found.append(f"evaluations/{name}/{answers.name} is gone: its answers can't be read or graded again")
    return found
