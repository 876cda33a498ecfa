"""What a log of training metrics shows over its steps: collapse, entropy, reward against evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median, pvariance

from gradstarve.analysis.diagnosis import Finding
from gradstarve.analysis.rollouts import StepMetrics
from gradstarve.analysis.text import percent

FEWEST_STEPS = 20
COLLAPSE_SHARE, COLLAPSE_DROP, COLLAPSE_ERRORS = 0.5, 0.2, 4.0
ENTROPY_FACTOR = 4.0
EVALUATION_DROP = 0.05  # of the better evaluation; smaller falls are within the noise of a few hundred questions
REWARD_ERRORS = 2.0


def trajectory_findings(metrics: Sequence[StepMetrics]) -> list[Finding]:
    """Findings of a log with at least a few steps; none for a log without metrics."""
    if len(metrics) < FEWEST_STEPS:
        return []
    return [*_collapse(metrics), *_entropy(metrics), *_evaluation(metrics)]


def _windows(pairs: Sequence[tuple[int, float]]) -> list[tuple[int, int, float, float]]:
    """(first step, last step, mean, standard error) of consecutive windows of a twentieth of the log."""
    width = max(10, len(pairs) // 20)
    found = []
    for start in range(0, len(pairs) - width + 1, width):
        window = pairs[start : start + width]
        values = [value for _, value in window]
        found.append((window[0][0], window[-1][0], fmean(values), math.sqrt(pvariance(values) / width)))
    return found


def _collapse(metrics: Sequence[StepMetrics]) -> list[Finding]:
    windows = _windows([(m.step, m.reward) for m in metrics if m.reward is not None])
    worst: tuple[float, int, float, int, int] | None = None
    for (_, before_end, before, before_error), (start, end, after, after_error) in combinations(windows, 2):
        drop = before - after
        noise = math.hypot(before_error, after_error)
        fell = after < COLLAPSE_SHARE * before and drop >= COLLAPSE_DROP and drop > COLLAPSE_ERRORS * noise
        if fell and (worst is None or (after, -before_end) < (worst[2], -worst[1])):
            worst = before, before_end, after, start, end
    if worst is None:
        return []
    before, before_end, after, start, end = worst
    last = windows[-1][2]
    return [
        Finding(
            "collapse",
            "critical",
            f"Mean reward fell from {before:.2f} (up to step {before_end}) to {after:.2f} (steps {start} to {end}); "
            f"it ends at {last:.2f}.",
            f"Go back to a checkpoint from before step {before_end} and lower the learning rate or bound the step "
            "(clip, KL); what was learned after the fall is not the same policy.",
        )
    ]


def _entropy(metrics: Sequence[StepMetrics]) -> list[Finding]:
    entropies = [(m.step, m.entropy) for m in metrics if m.entropy is not None]
    if len(entropies) < FEWEST_STEPS:
        return []
    begin = fmean(value for _, value in entropies[: max(5, len(entropies) // 50)])
    end = median(value for _, value in entropies[-(len(entropies) // 3) :])
    found = []
    if begin > 0 and end < begin / ENTROPY_FACTOR:
        found.append(
            Finding(
                "entropy-loss",
                "warning",
                f"Entropy fell from {begin:.2f} at the start to {end:.2f} in the last third.",
                "The completions of a group become alike, so mixed groups get rarer at the same p. Sample warmer, or "
                "use an advantage that favours rare successes (passk, nsr).",
            )
        )
    first, last, highest, _ = max(_windows(entropies), key=lambda window: window[2])
    if highest > ENTROPY_FACTOR * max(begin, 1e-9):
        found.append(
            Finding(
                "entropy-explosion",
                "critical",
                f"Entropy rose from {begin:.2f} at the start to {highest:.2f} (steps {first} to {last}).",
                "The policy spreads over junk; penalties without a bound do this. Lower the learning rate, bound the "
                "step, and look at the completions of those steps.",
            )
        )
    return found


def _evaluation(metrics: Sequence[StepMetrics]) -> list[Finding]:
    evaluations: list[tuple[int, float]] = []
    rewards: list[list[float]] = []
    since: list[float] = []
    for m in metrics:
        if m.reward is not None:
            since.append(m.reward)
        if m.evaluation is not None:
            evaluations.append((m.step, m.evaluation))
            rewards.append(since)
            since = []
    opposed = None
    for i, j in combinations(range(len(evaluations)), 2):
        if min(len(rewards[i]), len(rewards[j])) < 5 or evaluations[i][1] <= 0:
            continue
        fall = 1 - evaluations[j][1] / evaluations[i][1]
        rise = fmean(rewards[j]) - fmean(rewards[i])
        error = math.sqrt(pvariance(rewards[i]) / len(rewards[i]) + pvariance(rewards[j]) / len(rewards[j]))
        if fall >= EVALUATION_DROP and rise > REWARD_ERRORS * error and (opposed is None or fall > opposed[0]):
            opposed = fall, i, j
    if opposed is not None:
        fall, i, j = opposed
        return [
            Finding(
                "reward-up-evaluation-down",
                "critical",
                f"From step {evaluations[i][0]} to {evaluations[j][0]} the mean reward rose from "
                f"{fmean(rewards[i]):.2f} to {fmean(rewards[j]):.2f} while the evaluation fell from "
                f"{evaluations[i][1]:g} to {evaluations[j][1]:g} ({percent(fall)} of it). The log does not say how "
                "many questions the evaluation has.",
                "The reward is being met in a way that the evaluation does not credit: read completions that got "
                "reward 1, and keep the checkpoint with the best evaluation.",
            )
        ]
    if len(evaluations) < 3:
        return []
    best = max(evaluations[:-1], key=lambda item: item[1])
    last = evaluations[-1]
    if best[1] <= 0 or 1 - last[1] / best[1] < EVALUATION_DROP:
        return []
    return [
        Finding(
            "evaluation-falls",
            "warning",
            f"The evaluation was {best[1]:g} at step {best[0]} and is {last[1]:g} at step {last[0]}.",
            f"Keep the checkpoint of step {best[0]}; more steps of this run did not help.",
        )
    ]
