"""How hard the prompts are for the untrained model: counts by prompt, and the dead groups that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradstarve.estimators.degeneracy import Degeneracy, estimate_degeneracy
from gradstarve.reporting.cells import Setting
from gradstarve.reporting.tables.pass_at_k import right_and_samples
from gradstarve.reporting.trajectories import groups_of

EARLY = 0.1  # share of the training's groups that stands for its start


@dataclass(frozen=True)
class Difficulty:
    """Counts by prompt, and where they come from, in words."""

    samples_P: NDArray[np.int64]  # noqa: N815 - arrays carry their axes
    successes_P: NDArray[np.int64]  # noqa: N815
    source: str
    runs: tuple[str, ...]

    @property
    def rates_P(self) -> NDArray[np.float64]:  # noqa: N802
        return self.successes_P / self.samples_P


def difficulty_of(setting: Setting, settings: Sequence[Setting]) -> Difficulty | None:
    """The untrained model's samples of the same questions where there are any, those of training questions first; else
    the first tenth of the rollouts."""
    for other in sorted(settings, key=lambda other: not other.on_training):
        if _same_task(setting, other) and (sampled := sampled_difficulty(other)) is not None:
            return sampled
    if setting.reward != "verified":
        return None  # n_plus counts what a control rewarded
    samples: list[int] = []
    successes: list[int] = []
    runs = []
    smallest = min(setting.group_sizes, default=0)
    for cell in setting.at(smallest):
        for point in cell.points:
            groups = groups_of(point.folder)
            if "n_plus" in groups and len(groups):
                early = groups[(groups["step"] <= max(1, EARLY * groups["step"].max())) & (groups["group_size"] >= 2)]
                samples += early["group_size"].astype(int).tolist()
                successes += early["n_plus"].astype(int).tolist()
                runs.append(point.run)
    if not samples:
        return None
    source = f"groups of {smallest} in the first tenth of {len(runs)} trainings"
    return Difficulty(np.array(samples), np.array(successes), source, tuple(runs))


def sampled_difficulty(setting: Setting) -> Difficulty | None:
    """From the untrained model's samples under the setting's evaluation; None where it has one sample a question, or
    none were kept."""
    if setting.samples < 2 or setting.base is None:
        return None
    for point in setting.base.points:
        counts = right_and_samples(point, setting.evaluation)
        if counts is not None:
            kind = "training question" if setting.on_training else "question"
            source = f"{setting.samples} samples a {kind} of {setting.asked} from the untrained model"
            return Difficulty(counts["samples"].to_numpy(), counts["right"].to_numpy(), source, (point.run,))
    return None


def _same_task(setting: Setting, other: Setting) -> bool:
    """Whether the samples of `other` say how hard the training of `setting` is: the same model, data set, prompt,
    grader and completion limit. Training questions have another source than those that `setting` is evaluated on."""
    limit = other.decoding.get("completion_limit") or other.config["completion_limit"]
    same = (other.model_key, other.asked, limit) == (
        setting.model_key,
        setting.asked,
        setting.config["completion_limit"],
    )
    of_side = {"data", "size", "answer"} if other.on_training else set()
    ours, theirs = (
        {key: value for key, value in (one.identity.get("dataset") or {}).items() if key not in of_side}
        for one in (setting, other)
    )
    return same and ours == theirs


def dead_of(difficulty: Difficulty, group_size: int) -> Degeneracy | None:
    """Dead groups at a group size from the counts; None where a prompt has fewer samples than that."""
    if int(difficulty.samples_P.min()) < group_size:
        return None
    return estimate_degeneracy(difficulty.samples_P.tolist(), difficulty.successes_P.tolist(), group_size)
