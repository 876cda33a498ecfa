"""Replay beside the on-policy loss: a bank of verified completions, and the two losses on it.

arXiv 2605.07689 names the variants (sign_ce, tasa_ce, contrastive_pair) and lambda = 0.05, and leaves the rest open.
The rest is our reading, stated in docs/replay.md, and every number of it is an option of the config.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from gradstarve.runs.config import ReplayConfig


@dataclass(frozen=True)
class Kept:
    """A completion in the bank: its tokens, end token included, and the step that sampled it."""

    tokens: tuple[int, ...]
    step: int


@dataclass
class PromptHistory:
    """What the bank knows of one prompt: kept completions, newest last, and how often it was answered and solved."""

    right: list[Kept] = field(default_factory=list)
    wrong: list[Kept] = field(default_factory=list)
    answered: int = 0
    solved: int = 0


class ReplayBank:
    """Verified completions by prompt: the newest few that differ. A completion that was cut off is not kept."""

    def __init__(self, per_prompt: int) -> None:
        self.per_prompt = per_prompt
        self.prompts: dict[str, PromptHistory] = {}

    def add(self, prompt_id: str, tokens: Sequence[int], right: bool | None, truncated: bool, step: int) -> None:
        """Take note of one completion. An undecided one (`right` None) leaves no trace."""
        if right is None:
            return
        history = self.prompts.setdefault(prompt_id, PromptHistory())
        history.answered += 1
        history.solved += int(right)
        if truncated:
            return
        side = history.right if right else history.wrong
        side[:] = [kept for kept in side if kept.tokens != tuple(tokens)]
        side.append(Kept(tuple(tokens), step))
        del side[: -self.per_prompt]

    def right_completions(self) -> list[tuple[str, Kept]]:
        """Every kept right completion, in an order that depends on nothing but what was added."""
        return [(prompt_id, kept) for prompt_id in sorted(self.prompts) for kept in self.prompts[prompt_id].right]

    def pairs(self) -> list[tuple[str, Kept, Kept]]:
        """The newest right and the newest wrong completion of every prompt that has both."""
        return [
            (prompt_id, history.right[-1], history.wrong[-1])
            for prompt_id, history in sorted(self.prompts.items())
            if history.right and history.wrong
        ]

    def state(self) -> dict[str, Any]:
        """Plain containers, for a checkpoint."""
        return {
            prompt_id: {
                "right": [[list(kept.tokens), kept.step] for kept in history.right],
                "wrong": [[list(kept.tokens), kept.step] for kept in history.wrong],
                "answered": history.answered,
                "solved": history.solved,
            }
            for prompt_id, history in self.prompts.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.prompts = {
            prompt_id: PromptHistory(
                right=[Kept(tuple(tokens), step) for tokens, step in row["right"]],
                wrong=[Kept(tuple(tokens), step) for tokens, step in row["wrong"]],
                answered=row["answered"],
                solved=row["solved"],
            )
            for prompt_id, row in state.items()
        }


def sample(rows: Sequence[Any], count: int, seed: int, step: int) -> list[Any]:
    """`count` of `rows` without repeats, as a function of seed and step; all of them where there are no more."""
    if len(rows) <= count:
        return list(rows)
    return random.Random(f"replay-{seed}-{step}").sample(list(rows), count)


def pair_weight(history: PromptHistory, right: Kept, wrong: Kept, step: int, steps: int, config: ReplayConfig) -> float:
    """clip(frontier x age decay, floor, 1): fresh pairs of prompts that are neither hopeless nor solved count most.

    frontier = 4 p (1 - p) min(1, n / full_count), with p the mean of a Beta(1, 1) prior updated by n answers;
    age decay = exp(-(age of right + age of wrong) / (2 steps)), ages in steps of a run of `steps`.
    """
    p = (history.solved + 1) / (history.answered + 2)
    frontier = 4 * p * (1 - p) * min(1.0, history.answered / config.full_count)
    decay = math.exp(-((step - right.step) + (step - wrong.step)) / (2 * steps))
    return min(1.0, max(config.weight_floor, frontier * decay))


def cross_entropy(log_probs_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Mean over the completions' tokens of -log pi; the mask leaves prompts and padding out."""
    return -(log_probs_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1)


def contrastive(
    right_B: torch.Tensor,
    wrong_B: torch.Tensor,
    reference_right_B: torch.Tensor,
    reference_wrong_B: torch.Tensor,
    weights_B: torch.Tensor,
) -> torch.Tensor:
    """Mean over pairs of weight x -log sigmoid([log pi(y+) - log pi(y-)] - the same under the reference).

    Each argument holds the log-probability of a whole completion.
    """
    margin_B = (right_B - wrong_B) - (reference_right_B - reference_wrong_B)
    return (weights_B * -logsigmoid(margin_B)).mean()
