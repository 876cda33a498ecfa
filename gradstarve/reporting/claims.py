"""The paper's claims, read against the runs: agrees, disagrees, can't be told at this n, not tested; with the evidence.

One rule decides throughout: a difference is taken as one where its exact two-sided permutation p is below 0.05, or,
against a single number, where its 95 % t-interval lies on one side. No claim is assumed:
the same code gives either answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from gradstarve.estimators.degeneracy import degeneracy
from gradstarve.reporting.cells import Cell, Setting
from gradstarve.reporting.comparisons import compare_cells, summary_of
from gradstarve.reporting.setting_names import apart_by_model
from gradstarve.reporting.statistics import Comparison, summarise
from gradstarve.reporting.tables.pass_at_k import gain_difference
from gradstarve.reporting.tables.table import shown_p, signed
from gradstarve.reporting.trajectories import first_and_last

Verdict = Literal["agrees", "disagrees", "can't be told at this n", "not tested"]
LEVEL = 0.05
LITTLE = 0.05  # points of accuracy (as a fraction) up to which a gain is called little
NO_GAIN = 0.02  # ... and up to which an arm is said not to improve another


@dataclass(frozen=True)
class Reading:
    """One claim in one setting (or in none: `setting` is "")."""

    claim: str
    verdict: Verdict
    evidence: str
    setting: str = ""
    runs: tuple[str, ...] = ()


Answer = tuple[Verdict, str, tuple[str, ...]]
Test = Callable[[Setting], Answer | None]


def read_claims(settings: Sequence[Setting], most: int | None = None) -> list[Reading]:
    """Every claim in every setting that can speak to it, in the paper's order; "not tested" where none can.

    With `most`, claims about one setting are read in so many, the first; that about several models in all. Training
    questions speak to none: what they are asked for is how hard they are. Nor does training that was rewarded with
    anything but the verdict.
    """
    settings = [setting for setting in settings if not setting.on_training and setting.reward == "verified"]
    readings = []
    for claim, test in _CLAIMS:
        found = [(setting, answer) for setting in settings[:most] if (answer := test(setting)) is not None]
        readings += [Reading(claim, *answer[:2], setting.name, answer[2]) for setting, answer in found]
        if not found:
            readings.append(Reading(claim, "not tested", "No runs here speak to it."))
    return [*readings, *_models_claim(settings)]


def tally(readings: Sequence[Reading]) -> str:
    """ "2 agree, 1 disagrees, ..." for a line under the tables."""
    verdicts: list[Verdict] = ["agrees", "disagrees", "can't be told at this n", "not tested"]
    return ", ".join(f"{verdict}: {sum(reading.verdict == verdict for reading in readings)}" for verdict in verdicts)


def _above(arm_a: str, size_a: int, arm_b: str, size_b: int, transfer: bool = False) -> Test:
    """The claim that arm a is above arm b."""

    def judge(comparison: Comparison) -> Verdict:
        if comparison.permutation.p_two_sided < LEVEL:
            return "agrees" if comparison.difference > 0 else "disagrees"
        return "can't be told at this n"

    return _compared((arm_a, size_a), (arm_b, size_b), transfer, judge)


def _not_above(arm_a: str, size_a: int, arm_b: str, size_b: int, transfer: bool = False) -> Test:
    """The claim that arm a does not improve on arm b: no difference seen is not yet agreement."""

    def judge(comparison: Comparison) -> Verdict:
        if comparison.permutation.p_two_sided < LEVEL:
            return "disagrees" if comparison.difference > 0 else "agrees"
        if comparison.ci95 is not None and comparison.ci95[1] < NO_GAIN:
            return "agrees"
        return "can't be told at this n"

    rule = f" Agreement would need the interval to end below {100 * NO_GAIN:g} points."
    return _compared((arm_a, size_a), (arm_b, size_b), transfer, judge, rule)


def _compared(
    a: tuple[str, int],
    b: tuple[str, int],
    transfer: bool,
    judge: Callable[[Comparison], Verdict],
    undecided: str = "",
) -> Test:
    """A claim about two arms, each at its group size; `undecided` is said where it can't be told."""

    def test(setting: Setting) -> Answer | None:
        pair = _pair(setting, a, b, transfer)
        if pair is None:
            return None
        verdict = judge(compare_cells(*pair))
        told = _difference_told(*pair) + (undecided if verdict == "can't be told at this n" else "")
        return verdict, told, (*pair[0].runs, *pair[1].runs)

    return test


def _separated(arm_a: str, arm_b: str, size: int) -> Test:
    """The claim that every seed of a is above every seed of b: one counterexample disagrees."""

    def test(setting: Setting) -> Answer | None:
        pair = _pair(setting, (arm_a, size), (arm_b, size))
        if pair is None:
            return None
        a, b = pair
        comparison = compare_cells(a, b)
        verdict: Verdict = "disagrees"
        if comparison.every_a_above_every_b:
            verdict = "agrees" if comparison.permutation.p_two_sided < LEVEL else "can't be told at this n"
        told = (
            f"Lowest seed of {a.label}: {100 * min(a.accuracies):.1f} %, highest of {b.label}: "
            f"{100 * max(b.accuracies):.1f} % "
            f"({len(a.points)} v {len(b.points)} seeds; permutation p "
            f"{shown_p(comparison.permutation.p_two_sided)}, the smallest "
            f"possible {shown_p(comparison.permutation.smallest_p)})."
        )
        return verdict, told, (*a.runs, *b.runs)

    return test


def _over_base(arm: str, size: int, little: bool) -> Test:
    """The claim that an arm gains on the untrained model, or (`little`) hardly does."""

    def test(setting: Setting) -> Answer | None:
        cell = setting.find(arm, size)
        if not _own(setting) or cell is None or not cell.points or setting.base is None or not setting.base.points:
            return None
        base, summary = fmean(setting.base.accuracies), summary_of(cell)
        verdict: Verdict = "can't be told at this n"
        told = f"{_mean_told(cell)} against base {100 * base:.1f} %: {signed(100 * (summary.mean - base))} points"
        if summary.ci95 is not None:
            low, high = summary.ci95[0] - base, summary.ci95[1] - base
            told += f", 95 % interval [{signed(100 * low)}, {signed(100 * high)}]"
            if little:
                verdict = "disagrees" if low > LITTLE else "agrees" if high < LITTLE else verdict
            else:
                verdict = "agrees" if low > 0 else "disagrees" if high < 0 else verdict
        rule = f" (little: less than {100 * LITTLE:g} points)" if little else ""
        return verdict, f"{told}{rule}.", (*cell.runs, *setting.base.runs)

    return test


def _starved(setting: Setting) -> Answer | None:
    """The claim that drgrpo's groups at G = 4 are dead more often than equal prompts would make them."""
    cell = setting.find("drgrpo", 4)
    if not _own(setting) or cell is None or not cell.points or setting.base is None or not setting.base.points:
        return None
    shares = [share for point in cell.points if (share := point.share("dead")) is not None]
    if not shares:
        return None
    base = fmean(setting.base.accuracies)
    homogeneous, dead = float(degeneracy(base, 4)), summarise(shares)
    verdict: Verdict = "can't be told at this n"
    told = f"{100 * dead.mean:.1f} % of drgrpo's groups were dead"
    if dead.ci95 is not None:
        told += f" (95 % interval [{100 * dead.ci95[0]:.1f}, {100 * dead.ci95[1]:.1f}])"
        verdict = "agrees" if dead.ci95[0] > homogeneous else "disagrees" if dead.ci95[1] < homogeneous else verdict
    return (
        verdict,
        f"{told}; equal prompts at base's {100 * base:.1f} % would give {100 * homogeneous:.1f} %.",
        cell.runs,
    )


def _share_change(arm: str, share: str, falls: bool) -> Test:
    """The claim that a share of groups falls over the training, or (`falls` False) that it does not."""

    def test(setting: Setting) -> Answer | None:
        cell = setting.find(arm, 4)
        if not _own(setting) or cell is None:
            return None
        ends = [pair for point in cell.points if (pair := first_and_last(point, share)) is not None]
        if not ends:
            return None
        changes = summarise([last - first for first, last in ends])
        first, last = fmean(e[0] for e in ends), fmean(e[1] for e in ends)
        name = share.replace("_", "-")
        told = f"{name} groups of {arm}: {100 * first:.0f} % in the steps' first tenth, {100 * last:.0f} % in the last"
        verdict: Verdict = "can't be told at this n"
        if changes.ci95 is not None:
            low, high = changes.ci95
            told += f"; change {signed(100 * changes.mean)} points, 95 % interval "
            told += f"[{signed(100 * low)}, {signed(100 * high)}]"
            fell, stayed = high < 0, low > -LITTLE
            if falls:
                verdict = "agrees" if fell else "disagrees" if low > 0 or stayed else verdict
            else:
                verdict = "agrees" if stayed else "disagrees" if high < -LITTLE else verdict
        return verdict, f"{told} (n {len(ends)}).", cell.runs

    return test


def _compression(setting: Setting) -> Answer | None:
    """The claim that sign gains more at pass@1 than at a large k."""
    found = gain_difference(setting, "sign", 4)
    if found is None:
        return None
    (gain_1, gain_k, k), (low, high), runs = found
    verdict: Verdict = "agrees" if low > 0 else "disagrees" if high < 0 else "can't be told at this n"
    told = (
        f"sign over base: {signed(100 * gain_1)} points at pass@1, {signed(100 * gain_k)} at pass@{k}; difference "
        "of the gains, "
        f"95 % interval over questions [{signed(100 * low)}, {signed(100 * high)}]."
    )
    return verdict, told, runs


def _models_claim(settings: Sequence[Setting]) -> list[Reading]:
    """One reading for each part of the settings in which a model has one; a part with one model says nothing."""
    parts = apart_by_model([setting for setting in settings if _own(setting)])
    readings = [_models_reading(members, apart) for apart, members in parts]
    tested = [reading for reading in readings if reading.verdict != "not tested"]
    return tested or [_models_reading([], "")]


def _models_reading(settings: Sequence[Setting], apart: str) -> Reading:
    claim = (
        "The stronger the untrained model, the smaller the gain of sign at G = 4 (of the models that can learn at all)"
    )
    gains, unable = [], []
    for setting in settings:
        cell = setting.find("sign", 4)
        if _own(setting) and cell and cell.points and setting.base and setting.base.points:
            base, summary = fmean(setting.base.accuracies), summary_of(cell)
            # The paper sets Qwen3.5-2B aside: what does not learn has no gain to compare.
            if (summary.ci95[0] if summary.ci95 is not None else summary.mean) <= base:
                unable.append(setting.model)
                continue
            gains.append((base, summary.mean - base, setting.model, setting.dataset, cell.runs))
    models = {(model, dataset) for _, _, model, dataset, _ in gains}
    data = {dataset for _, dataset in models}
    if len(models) < 2 or len(data) > 1 or len(models) != len(gains):
        return Reading(claim, "not tested", "It takes several models on the same data, in one setting each.")
    gains.sort()
    told = "; ".join(
        f"{model}: base {100 * base:.1f} %, gain {signed(100 * gain)}" for base, gain, model, _, _ in gains
    )
    falling = all(first[1] > second[1] for first, second in pairwise(gains))
    # With m models, one order of m! falls throughout.
    verdict: Verdict = "can't be told at this n" if len(gains) < 4 else "agrees" if falling else "disagrees"
    told += f"; left out, no gain seen: {', '.join(unable)}" if unable else ""
    return Reading(claim, verdict, f"{told}.", apart, tuple(run for *_, runs in gains for run in runs))


def _own(setting: Setting) -> bool:
    """Whether the training's own questions are asked, once each."""
    return not setting.transfer and setting.samples == 1


def _pair(setting: Setting, a: tuple[str, int], b: tuple[str, int], transfer: bool = False) -> tuple[Cell, Cell] | None:
    cells = setting.find(*a), setting.find(*b)
    # The paper does not say what its MATH-500 numbers trained on.
    other_data = setting.transfer or setting.asked == "math500"
    if setting.samples > 1 or other_data != transfer or not all(cell and cell.points for cell in cells):
        return None
    assert cells[0] is not None and cells[1] is not None
    return cells[0], cells[1]


def _difference_told(a: Cell, b: Cell) -> str:
    comparison = compare_cells(a, b)
    told = f"{_mean_told(a)} against {_mean_told(b)}: {signed(100 * comparison.difference)} points"
    if comparison.ci95 is not None:
        told += f", 95 % interval [{signed(100 * comparison.ci95[0])}, {signed(100 * comparison.ci95[1])}]"
    told += f", permutation p {shown_p(comparison.permutation.p_two_sided)}"
    if comparison.permutation.smallest_p >= LEVEL:
        smallest = shown_p(comparison.permutation.smallest_p)
        return f"{told}; with {len(a.points)} v {len(b.points)} seeds it cannot fall below {smallest}."
    if comparison.permutation.p_two_sided >= LEVEL and comparison.detectable_difference is not None:
        told += f"; this n would have seen {100 * comparison.detectable_difference:.1f} points with probability 0.8"
    return f"{told}."


def _mean_told(cell: Cell) -> str:
    size = f", G = {cell.group_size}" if cell.group_size is not None else ""
    n = f"{len(cell.points)} of {len(cell.points) + len(cell.absent)}" if cell.absent else f"{len(cell.points)}"
    return f"{cell.label} {100 * fmean(cell.accuracies):.1f} % (n {n}{size})"


_CLAIMS: list[tuple[str, Test]] = [
    ("At G = 4, sign ends above drgrpo (73.8 against 28.4 %)", _above("sign", 4, "drgrpo", 4)),
    ("At G = 4, every seed of sign is above every seed of drgrpo (64.6, 30.6 %)", _separated("sign", "drgrpo", 4)),
    ("At G = 4, sign ends above tasa (73.8 against 45.9 %)", _above("sign", 4, "tasa", 4)),
    ("At G = 4, tasa ends above drgrpo (45.9 against 28.4 %)", _above("tasa", 4, "drgrpo", 4)),
    ("At G = 4, drgrpo gains little over the untrained model (+2.9 points)", _over_base("drgrpo", 4, little=True)),
    ("Cross-entropy replay does not improve sign (67.8 against 73.8 %)", _not_above("sign_ce", 4, "sign", 4)),
    ("Cross-entropy replay improves tasa (49.8 against 45.9 %)", _above("tasa_ce", 4, "tasa", 4)),
    ("drgrpo at G = 8 ends above drgrpo at G = 4 (81.7 against 28.4 %)", _above("drgrpo", 8, "drgrpo", 4)),
    ("At G = 8, sign ends above drgrpo (85.8 against 81.7 %)", _above("sign", 8, "drgrpo", 8)),
    ("At G = 8, every seed of sign is above every seed of drgrpo (p 0.0013)", _separated("sign", "drgrpo", 8)),
    ("sign learns at G = 2 as well (67.1 %)", _over_base("sign", 2, little=False)),
    ("At G = 4, more of drgrpo's groups are dead than equal prompts would give (69, 32 %)", _starved),
    ("Under sign at G = 4, the all-fail share falls (70 to 10 %)", _share_change("sign", "all_fail", True)),
    ("Under drgrpo at G = 4, the dead share does not fall (69 to 72 %)", _share_change("drgrpo", "dead", False)),
    ("sign gains more at pass@1 than at pass@100 (+11.9 against +2.2 points)", _compression),
    ("On MATH-500, sign is above drgrpo at G = 4 (36.8 against 31.8 %, n 1)", _above("sign", 4, "drgrpo", 4, True)),
    ("On MATH-500, sign is not above drgrpo at G = 8 (29.3 against 32.3 %, n 3)",
     _not_above("sign", 8, "drgrpo", 8, True)),
]  # fmt: skip
