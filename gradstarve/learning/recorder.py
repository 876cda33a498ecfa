"""What a run writes as it goes: a row a step, a row a group, a row a completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradstarve.grading import Grade
from gradstarve.learning.tasks import Question
from gradstarve.runs.config import RunConfig
from gradstarve.runs.folder import RunFolder


@dataclass(frozen=True)
class Completion:
    """One sampled completion. `rewarded` is what training saw: the grade's reward, 0 for a penalised truncation, or
    what a control said (`loss.reward`)."""

    question: Question
    text: str
    grade: Grade
    rewarded: float | None
    token_ids: tuple[int, ...]
    truncated: bool

    @property
    def tokens(self) -> int:
        return len(self.token_ids)


class Recorder:
    """Rows go to the folder at once; a step's summary waits for the optimizer's numbers, which come later."""

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self.folder = folder
        self.config = config
        self._summary: dict[str, Any] = {}

    def record_groups(self, step: int, completions: Sequence[Completion], advantages_PG: np.ndarray) -> None:
        """The groups of a step, in order: completions[p * G + g] belongs to advantages_PG[p, g]."""
        group_size = self.config.group_size
        groups, rows = [], []
        for p in range(advantages_PG.shape[0]):
            members = completions[p * group_size : (p + 1) * group_size]
            rewards = [c.rewarded for c in members if c.rewarded is not None]
            groups.append(
                {
                    "step": step,
                    "group": p,
                    "prompt_id": members[0].question.id,
                    "group_size": len(rewards),
                    "n_plus": int(sum(rewards)),
                    "unverifiable": group_size - len(rewards),
                    "truncated": sum(c.truncated for c in members),
                    "tokens": sum(c.tokens for c in members),
                }
            )
            for g, c in enumerate(members):
                rows.append(
                    {
                        "step": step,
                        "group": p,
                        "prompt_id": c.question.id,
                        "prompt": c.question.text,
                        "completion": c.text,
                        "extracted": c.grade.extracted,
                        "verdict": c.grade.verdict,
                        "rule": c.grade.rule,
                        "reward": c.rewarded,
                        "advantage": float(advantages_PG[p, g]),
                        "length": c.tokens,
                        "truncated": c.truncated,
                    }
                )
        self.folder.append("groups", groups)
        self.folder.append("completions", rows)
        self._summary = summarise_groups(groups, rows)
        self._summary["loss_denominator"] = self._denominator(completions)

    def record_step(self, step: int, logs: Mapping[str, float], seconds: Mapping[str, float]) -> dict[str, Any]:
        """The row of a step whose groups were recorded before, written down and returned."""
        row = {
            "step": step,
            **self._summary,
            "loss": logs.get("loss"),
            "grad_norm": logs.get("grad_norm"),
            "learning_rate": logs.get("learning_rate"),
            "entropy": logs.get("entropy"),
            "kl": logs.get("kl"),
            "replay_loss": logs.get("replay_loss"),
            "replay_rows": logs.get("replay_rows", 0),
            "clip_low": logs.get("clip_ratio/low_mean"),
            "clip_high": logs.get("clip_ratio/high_mean"),
            **(_sampling(logs) if self.config.rollout.vllm is not None else {}),
            **{f"seconds_{key}": value for key, value in seconds.items()},
        }
        self.folder.append("steps", [row])
        return row

    def _denominator(self, completions: Sequence[Completion]) -> int:
        """What the sum over a step's tokens is divided by (grpo: the completions, after each one's own length)."""
        masked = self.config.loss.truncated == "mask"
        tokens = sum(c.tokens for c in completions if not (masked and c.truncated))
        return {
            "grpo": len(completions),
            "bnpo": tokens,
            "dapo": tokens,
            "dr_grpo": len(completions) * self.config.completion_limit,
        }[self.config.loss.aggregation]


def _sampling(logs: Mapping[str, float]) -> dict[str, float | None]:
    """How far the engine's log-probabilities of its own tokens are from the trainer's (nats, absolute), and the weights
    that correct for it; None where nothing is corrected."""
    ratio = "sampling/importance_sampling_ratio"
    return {
        "sampling_difference_mean": logs.get("sampling/sampling_logp_difference/mean"),
        "sampling_difference_max": logs.get("sampling/sampling_logp_difference/max"),
        **{f"sampling_ratio_{key}": logs.get(f"{ratio}/{key}") for key in ("min", "mean", "max")},
    }


def summarise_groups(groups: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares over the groups with at least two verdicts, and over all completions; None where there is nothing."""
    decided = [g for g in groups if g["group_size"] >= 2]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    verdicts = [row["verdict"] for row in rows if row["verdict"] != "unverifiable"]
    all_fail = sum(g["n_plus"] == 0 for g in decided)
    all_pass = sum(g["n_plus"] == g["group_size"] for g in decided)

    def share(count: float) -> float | None:
        return count / len(decided) if decided else None

    return {
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "right": verdicts.count("right") / len(verdicts) if verdicts else None,
        "all_fail": share(all_fail),
        "mixed": share(len(decided) - all_fail - all_pass),
        "all_pass": share(all_pass),
        "dead": share(all_fail + all_pass),
        "zero_advantage": sum(row["advantage"] == 0 for row in rows) / len(rows),
        "truncated": sum(row["truncated"] for row in rows) / len(rows),
        "unverifiable": sum(g["unverifiable"] for g in groups),
        "length": sum(row["length"] for row in rows) / len(rows),
        "tokens": sum(g["tokens"] for g in groups),
    }
