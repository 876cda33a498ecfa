"""The paper's Figure 2: how prompts' success rates are spread, and what that does to dead groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gradstarve.estimators.degeneracy import Degeneracy, estimate_degeneracy
from gradstarve.reporting.cells import Setting
from gradstarve.reporting.figures.style import blank
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
        if other.samples > 1 and other.base is not None and _same_task(setting, other):
            for point in other.base.points:
                counts = right_and_samples(point, other.evaluation)
                if counts is not None:
                    kind = "training question" if other.on_training else "question"
                    source = f"{other.samples} samples a {kind} of {other.asked} from the untrained model"
                    return Difficulty(counts["samples"].to_numpy(), counts["right"].to_numpy(), source, (point.run,))
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


def difficulty_figure(difficulty: Difficulty, group_sizes: Sequence[int]) -> Figure:
    """Left: histogram of success rates. Right: D_real against D_iid at each group size that the samples allow."""
    figure, (left, right) = blank(width=3.4, height=2.0, columns=2)
    rates, most = difficulty.rates_P, int(difficulty.samples_P.max())
    bins = min(most + 1, 11)
    edges = np.linspace(-0.5 / max(bins - 1, 1), 1 + 0.5 / max(bins - 1, 1), bins + 1)
    shares, _ = np.histogram(rates, edges)
    centres = (edges[:-1] + edges[1:]) / 2
    left.bar(centres, 100 * shares / len(rates), width=0.9 * (edges[1] - edges[0]), color="#0072B2")
    never, always = 100 * float((rates == 0).mean()), 100 * float((rates == 1).mean())
    left.set_title(f"0 exactly: {never:.1f} %, 1: {always:.1f} %", fontsize=6.5)
    left.set_xlabel("success rate $p_x$")
    left.set_ylabel("prompts, %")
    found = [(size, dead) for size in sorted({2, *group_sizes}) if (dead := dead_of(difficulty, size)) is not None]
    for place, (_, dead) in enumerate(found):
        low, high = dead.d_real_ci95
        right.bar(
            place - 0.2, 100 * dead.d_real, width=0.38, color="#D55E00", label="$D_{real}$" if place == 0 else None
        )
        right.plot([place - 0.2] * 2, [100 * low, 100 * high], color="#000000", linewidth=0.9)
        right.bar(place + 0.2, 100 * dead.d_iid, width=0.38, color="#FFFFFF", edgecolor="#000000", hatch="////",
                  linewidth=0.6, label="$D_{iid}$" if place == 0 else None)  # fmt: skip
    right.set_xticks(range(len(found)), [str(size) for size, _ in found])
    right.set_xlabel("group size G")
    right.set_ylabel("dead groups, %")
    right.set_ylim(0, 118)
    right.set_yticks([0, 25, 50, 75, 100])
    right.legend(frameon=False, ncols=2, loc="upper center", fontsize=6.5, handlelength=1.2, columnspacing=0.8)
    return figure
