"""What a diagnosis says in words: each finding with its evidence and the remedy that follows."""

from __future__ import annotations

import math

from gradstarve.analysis.diagnosis import Diagnosis, Finding
from gradstarve.analysis.rollouts import Group, Rollouts
from gradstarve.analysis.text import percent, percent_interval
from gradstarve.analysis.trajectory import trajectory_findings
from gradstarve.estimators.degeneracy import binomial_interval, degeneracy

MUCH_DEAD, SOME_DEAD = 0.5, 0.2
MUCH_TRUNCATED = 0.2
MUCH_UNVERIFIABLE = 0.02

NOTE_ADVICE = {
    "restart": ("info", "Nothing to do; compare with the earlier attempt only by hand."),
    "repeated-steps": ("info", "Nothing to do: several optimizer steps shared one generation."),
    "unfinished-line": ("info", "Nothing to do if the run was killed there."),
    "rows-without-reward": ("info", "Nothing to do if those rows are evaluations; they are used as such."),
    "rewards-recoded": ("info", "Nothing to do if -1 means wrong; else give --threshold."),
    "unequal-groups": (
        "warning",
        "Look at the named row: a group that was cut short, or a prompt sampled twice. --group-size sets the size.",
    ),
    "group-size-inferred": ("warning", "Give --group-size."),
}


def find(diagnosis: Diagnosis, rollouts: Rollouts) -> list[Finding]:
    """Every finding, the most severe first."""
    found = [
        _starvation(diagnosis),
        *_never_solved(diagnosis),
        *_truncation(diagnosis),
        *_length_limit(diagnosis),
        *_silent(diagnosis),
        *_sides(diagnosis),
        *trajectory_findings(rollouts.metrics),
        *_notes(diagnosis),
    ]
    order = {"critical": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _starvation(diagnosis: Diagnosis) -> Finding:
    d = diagnosis.degeneracy
    severity = "critical" if d.d_real >= MUCH_DEAD else "warning" if d.d_real >= SOME_DEAD else "info"
    evidence = (
        f"{percent(d.d_real)} of groups of {d.group_size} are dead {percent_interval(d.d_real_ci95)}: "
        f"{percent(d.all_fail)} all-fail {percent_interval(d.all_fail_ci95)}, "
        f"{percent(d.all_pass)} all-pass {percent_interval(d.all_pass_ci95)}. "
        f"If all prompts had p = {diagnosis.mean_reward:.3f} it would be {percent(d.d_iid)}."
    )
    if d.d_iid > 0 and d.amplification() >= 1.1:
        evidence += f" Their differences multiply it by {d.amplification():.1f}."
    if diagnosis.base is not None:
        alike = float(degeneracy(diagnosis.base, d.group_size))
        evidence += f" The base model's p = {diagnosis.base:g} alone would give {percent(alike)}"
        evidence += f"; that is multiplied by {d.amplification(diagnosis.base):.1f}." if alike > 0 else "."
    others = ", ".join(f"{percent(other.d_real)} at G = {size}" for size, other in diagnosis.degeneracy_at.items())
    if others:
        evidence += f" The same counts give {others}."
    if severity == "info":
        return Finding("starvation", severity, evidence, "Little is lost to dead groups; look elsewhere first.")
    if d.all_fail >= 2 * d.all_pass:
        advice = (
            "Mostly all-fail. First see whether answers are cut off or graded wrongly; then easier prompts, a larger "
            "group, or resampling (dynamic sampling) turn dead groups into mixed ones. A fixed-reference advantage "
            "(sign, nsr, ngrpo) does push on all-fail groups, but where p is 0 that push is noise."
        )
    elif d.all_pass >= 2 * d.all_fail:
        advice = (
            "Mostly all-pass: the prompts are solved. Drop them or draw harder ones; a larger group helps less and "
            "less as p nears 1, and a fixed-reference advantage only rehearses them."
        )
    else:
        advice = (
            "Both sides: the prompts are either solved or out of reach. Choose prompts by their measured success rate; "
            "`gradstarve plan` compares group sizes for these prompts."
        )
    return Finding("starvation", severity, evidence, advice)


def _never_solved(diagnosis: Diagnosis) -> list[Finding]:
    never = [n for n, c in diagnosis.counts if c == 0]
    if diagnosis.stepped or not never:
        return []
    bound = 1 - 0.05 ** (1 / min(never))
    return [
        Finding(
            "never-solved",
            "warning" if len(never) >= SOME_DEAD * len(diagnosis.counts) else "info",
            f"{len(never)} of {len(diagnosis.counts)} prompts have no success in {_range(never)} samples; for each, "
            f"p may still be as high as {percent(bound)} (95 %).",
            "No success so far is not p = 0: more samples of these prompts alone tell them apart. Where p is 0, no "
            "advantage learns from them.",
        )
    ]


def _range(values: list[int]) -> str:
    return str(values[0]) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def _truncation(diagnosis: Diagnosis) -> list[Finding]:
    told = [(group, group.truncated) for group in diagnosis.groups if group.truncated is not None]
    flags = [flag for _, truncated in told for flag in truncated]
    if not flags or not any(flags):
        return []
    cut = sum(flags)
    failed = [truncated for group, truncated in told if group.successes == 0]
    wholly = sum(all(truncated) for truncated in failed)
    partly = sum(any(truncated) for truncated in failed)
    share = cut / len(flags)
    evidence = f"{percent(share)} of completions are cut off {percent_interval(binomial_interval(cut, len(flags)))}."
    if failed:
        evidence += f" Of {len(failed)} all-fail groups, {wholly} are cut off throughout and {partly} in part."
    return [
        Finding(
            "truncation",
            "critical" if share >= MUCH_DEAD else "warning" if share > MUCH_TRUNCATED else "info",
            evidence,
            "Raise the completion limit (or shorten the prompt's demand) before changing the advantage: a cut-off "
            "answer counts as wrong, so these groups look starved and are not hard.",
        )
    ]


def _length_limit(diagnosis: Diagnosis) -> list[Finding]:
    if diagnosis.weight_unit != "tokens" or any(group.truncated is not None for group in diagnosis.groups):
        return []
    whole = diagnosis.kind == "csv of training metrics"
    lengths = [
        _mean(group) if whole else x
        for group in diagnosis.groups
        for x in (group.lengths or ())[: 1 if whole else None]
    ]
    longest = max(lengths)
    at_limit = sum(length >= longest for length in lengths)
    if at_limit < max(3, 0.005 * len(lengths)):
        return []
    what = "steps have all of their completions" if whole else "completions end"
    return [
        Finding(
            "length-limit",
            "warning" if at_limit >= MUCH_TRUNCATED * len(lengths) else "info",
            f"{at_limit} of {len(lengths)} {what} at exactly the greatest length seen, {longest:g} tokens; the log "
            "does not say which were cut off.",
            "Log truncation, and compare the limit with the lengths of right answers before reading the reward.",
        )
    ]


def _mean(group: Group) -> float:
    lengths = group.lengths or (0.0,)
    return math.fsum(lengths) / len(lengths)


def _silent(diagnosis: Diagnosis) -> list[Finding]:
    by_share: dict[str, list[str]] = {}
    for name, share in diagnosis.silent.items():
        by_share.setdefault(percent(share), []).append(name)
    listed = "; ".join(f"{share} under {', '.join(names)}" for share, names in by_share.items())
    unit = diagnosis.weight_unit
    return [
        Finding(
            "silent-compute",
            "info",
            f"Share of generated {unit} with an advantage of exactly 0: {listed}.",
            "Coverage is not signal: an advantage that reaches all groups adds noise with the signal. `gradstarve "
            "plan` weighs both.",
        )
    ]


def _sides(diagnosis: Diagnosis) -> list[Finding]:
    """Whether dead groups get fewer over the log, or only change from all-fail to all-pass."""
    if not diagnosis.stepped or len({group.step for group in diagnosis.groups}) < 6:
        return []
    third = len(diagnosis.groups) // 3
    first, last = _shares(diagnosis.groups[:third]), _shares(diagnosis.groups[-third:])
    evidence = "First third to last third of the log: " + ", ".join(
        f"{name} {percent(before)} to {percent(after)}"
        for name, before, after in zip(("all-fail", "mixed", "all-pass"), first, last, strict=True)
    )

    def moved(index: int) -> int:
        """-1, 0 or 1: fell, can't be told, rose; by two standard errors."""
        pooled = (first[index] + last[index]) / 2
        error = math.sqrt(2 * pooled * (1 - pooled) / third)
        change = last[index] - first[index]
        return 0 if abs(change) <= 1.96 * error else int(math.copysign(1, change))

    fail, mixed, passed = moved(0), moved(1), moved(2)
    if fail < 0 and passed > 0:
        return [
            Finding(
                "sides-changed",
                "info",
                f"{evidence}. All-fail groups turned into all-pass groups.",
                "That is progress, even where the dead share did not fall: degeneracy alone does not measure "
                "progress. The prompts now solved teach little; draw harder ones.",
            )
        ]
    if mixed < 0 and fail > 0:
        return [
            Finding(
                "starvation-rising",
                "warning",
                f"{evidence}. Dead groups became more, on the all-fail side.",
                "The policy got worse or the prompts harder: look at evaluation, truncation and entropy before "
                "anything else.",
            )
        ]
    if mixed > 0:
        return [
            Finding(
                "starvation-falling",
                "info",
                f"{evidence}. Dead groups became fewer.",
                "Nothing to do: the log escapes starvation by itself.",
            )
        ]
    return [
        Finding(
            "sides-unchanged" if not (fail or passed) else "sides-shifted",
            "info",
            f"{evidence}." + (" No change can be told from noise." if not (fail or passed) else ""),
            "Compare evaluations: this log's groups don't show progress by themselves.",
        )
    ]


def _shares(groups: list[Group]) -> tuple[float, float, float]:
    failed = sum(group.successes == 0 for group in groups)
    passed = sum(group.successes == group.verdicts for group in groups)
    return failed / len(groups), (len(groups) - failed - passed) / len(groups), passed / len(groups)


def _notes(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    for name, text in diagnosis.notes:
        if name == "unverifiable":
            undecided = sum(reward is None for group in diagnosis.groups for reward in group.rewards)
            severity = "warning" if undecided > MUCH_UNVERIFIABLE * diagnosis.samples or "left out" in text else "info"
            advice = "Look at what the grader could not decide: it is counted neither as right nor as wrong."
        else:
            severity, advice = NOTE_ADVICE[name]
        found.append(Finding(name, severity, text[0].upper() + text[1:] + ".", advice))
    return found
