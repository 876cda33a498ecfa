"""The numbers of a diagnosis: what share of a rollout log is starved."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from gradstarve.analysis.rollouts import Group, Rollouts
from gradstarve.errors import UserError
from gradstarve.estimators.advantages import ADVANTAGES, Advantage
from gradstarve.estimators.degeneracy import Degeneracy, estimate_degeneracy
from gradstarve.estimators.pass_at_k import mean_pass_at_k

# A log in which more groups than this are too short for the group size is refused: it has another group size.
MOST_SHORT = 0.1
WIDTHS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Finding:
    """One thing a diagnosis says: what was seen, and what follows from it."""

    id: str
    severity: str  # "info", "warning" or "critical"
    evidence: str
    advice: str


@dataclass
class Diagnosis:
    """A rollout log's numbers. Shares are fractions; `silent` maps an advantage to the share of `weight_unit` without
    gradient under it; `degeneracy_at` holds D_real at other group sizes that the same counts allow; `base` is the base
    model's success rate where it was given.
    """

    kind: str
    prompts: int
    samples: int
    group_size: int
    mean_reward: float
    degeneracy: Degeneracy
    degeneracy_at: dict[int, Degeneracy]
    pass_at_k: dict[int, float]
    silent: dict[str, float]
    weight_unit: str
    counts: list[tuple[int, int]]
    groups: list[Group]
    stepped: bool
    notes: list[tuple[str, str]]
    base: float | None = None
    findings: list[Finding] = field(default_factory=list)

    def counted(self) -> str:
        """How many prompts or groups, in words; a csv of metrics does not know its prompts."""
        groups = f"{len(self.groups)} groups"
        if not self.stepped:
            return f"{self.prompts} prompts"
        return groups if self.prompts == len(self.groups) else f"{self.prompts} prompts in {groups}"

    def as_json(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "samples": self.samples,
            "group_size": self.group_size,
            "mean_reward": self.mean_reward,
            "shares": {
                "all_fail": self.degeneracy.all_fail,
                "mixed": self.degeneracy.mixed,
                "all_pass": self.degeneracy.all_pass,
            },
            "d_real": {
                "unbiased": self.degeneracy.d_real,
                "plug_in": self.degeneracy.plug_in,
                "ci95": list(self.degeneracy.d_real_ci95),
            },
            "d_iid": self.degeneracy.d_iid,
            "jensen_gap": self.degeneracy.jensen_gap,
            "pass_at_k": {str(k): value for k, value in self.pass_at_k.items()},
            "findings": [vars(finding) for finding in self.findings],
        }


def measure(rollouts: Rollouts, group_size: int | None = None) -> Diagnosis:
    """Measure a rollout log at `group_size`, by default its own.

    A log with steps is counted group by group, since the policy moves; one without is counted prompt by prompt. A group
    larger than `group_size` counts as every subset of that size does, on average. Raises UserError where the log can't
    answer, with the row named.
    """
    notes = list(rollouts.notes)
    size = group_size if group_size is not None else _own_size(rollouts.groups)
    if size < 2:
        raise UserError(f"a group has at least 2 completions, got a group size of {size}")
    stepped = all(group.step is not None for group in rollouts.groups)
    units = _units(rollouts.groups, stepped)
    kept = _long_enough(units, size, notes)
    counts = [(group.verdicts, group.successes) for group in kept]
    samples_P, successes_P = [n for n, _ in counts], [c for _, c in counts]
    shortest = min(samples_P)
    silent, unit = _silent_shares(kept, size, rollouts.length_unit)
    widths = [width for width in WIDTHS if width <= shortest and width != size]
    return Diagnosis(
        kind=rollouts.kind,
        prompts=len({group.prompt for group in kept}),
        samples=sum(len(group.rewards) for group in kept),
        group_size=size,
        mean_reward=math.fsum(c / n for n, c in counts) / len(counts),
        degeneracy=estimate_degeneracy(samples_P, successes_P, size),
        degeneracy_at={width: estimate_degeneracy(samples_P, successes_P, width) for width in widths},
        pass_at_k={k: mean_pass_at_k(samples_P, successes_P, k) for k in _ks(shortest)},
        silent=silent,
        weight_unit=unit,
        counts=counts,
        groups=kept,
        stepped=stepped,
        notes=notes,
    )


def _own_size(groups: list[Group]) -> int:
    sizes = Counter(len(group.rewards) for group in groups)
    size, _ = max(sizes.items(), key=lambda item: (item[1], item[0]))
    if size < 2:
        first = next(group for group in groups if len(group.rewards) < 2)
        raise UserError(f"{first.where}: this prompt has {len(first.rewards)} completion; a group has at least 2")
    return size


def _units(groups: list[Group], stepped: bool) -> list[Group]:
    """What is counted: every group of a log with steps; without them, every prompt with all of its completions."""
    if stepped:
        return groups
    by_prompt: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_prompt[group.prompt].append(group)
    return [members[0] if len(members) == 1 else _joined(members) for members in by_prompt.values()]


def _joined(members: list[Group]) -> Group:
    lengths = [group.lengths for group in members if group.lengths is not None]
    truncated = [group.truncated for group in members if group.truncated is not None]
    return Group(
        where=members[0].where,
        prompt=members[0].prompt,
        step=None,
        rewards=tuple(reward for group in members for reward in group.rewards),
        lengths=tuple(x for part in lengths for x in part) if len(lengths) == len(members) else None,
        truncated=tuple(x for part in truncated for x in part) if len(truncated) == len(members) else None,
    )


def _long_enough(units: list[Group], size: int, notes: list[tuple[str, str]]) -> list[Group]:
    short = [unit for unit in units if len(unit.rewards) < size]
    if len(short) > MOST_SHORT * len(units):
        first = short[0]
        raise UserError(
            f"{first.where}: {len(first.rewards)} completions, fewer than the group size {size} (as have "
            f"{len(short)} of {len(units)} groups); give a smaller --group-size"
        )
    if short:
        places = f"{len(short)} of {len(units)} groups have fewer than {size} completions and are left out"
        notes.append(("unequal-groups", f"{places} (the first: {short[0].where}, with {len(short[0].rewards)})"))
    large = [unit for unit in units if len(unit.rewards) > size]
    if large and len(large) < len(units) - len(short):
        text = f"{len(large)} of {len(units)} groups have more than {size} completions (the first: {large[0].where})"
        notes.append(("unequal-groups", f"{text}; each counts as its subsets of {size} do on average"))
    undecided = [unit for unit in units if len(unit.rewards) >= size > unit.verdicts]
    kept = [unit for unit in units if unit.verdicts >= size]
    if not kept:
        first = (undecided or units)[0]
        raise UserError(f"{first.where}: {first.verdicts} verdicts; no group has {size}, so nothing can be said")
    unverifiable = sum(len(unit.rewards) - unit.verdicts for unit in units)
    if unverifiable:
        total = sum(len(unit.rewards) for unit in units)
        text = f"{unverifiable} of {total} completions have no verdict"
        if undecided:
            text += f"; {len(undecided)} of {len(units)} groups have fewer than {size} verdicts and are left out"
            text += f" (the first: {undecided[0].where})"
        notes.append(("unverifiable", text))
    return kept


def _ks(shortest: int) -> list[int]:
    powers = [2**i for i in range(shortest.bit_length()) if 2**i <= shortest]
    return powers if powers[-1] == shortest else [*powers, shortest]


def _silent_shares(groups: list[Group], size: int, unit: str | None) -> tuple[dict[str, float], str]:
    """The share of tokens (or what the log has) that get an advantage of exactly 0, for every advantage."""
    if unit is None or any(group.lengths is None for group in groups):
        unit = "completions"
    right: dict[tuple[int, int], float] = defaultdict(float)
    wrong: dict[tuple[int, int], float] = defaultdict(float)
    undecided = 0.0
    for group in groups:
        weights = group.lengths if unit != "completions" and group.lengths is not None else (1.0,) * len(group.rewards)
        key = group.verdicts, group.successes
        for reward, weight in zip(group.rewards, weights, strict=True):
            if reward is None:
                undecided += weight
            elif reward == 1:
                right[key] += weight
            else:
                wrong[key] += weight
    total = sum(right.values()) + sum(wrong.values()) + undecided
    shares = {}
    for name, advantage in ADVANTAGES.items():
        if advantage.least_verdicts > size:
            continue
        silent = undecided
        for key in right.keys() | wrong.keys():
            silent_right, silent_wrong = _silent_sides(advantage, key, size)
            silent += right.get(key, 0.0) * silent_right + wrong.get(key, 0.0) * silent_wrong
        shares[name] = silent / total if total else 0.0
    return shares, unit


def _silent_sides(advantage: Advantage, counts: tuple[int, int], size: int) -> tuple[float, float]:
    """Of the right, and of the wrong, completions in a random group of `size` from (n, c): the share that gets 0."""
    n, c = counts
    right = right_silent = wrong = wrong_silent = 0
    for n_plus in range(max(0, size - (n - c)), min(size, c) + 1):
        ways = math.comb(c, n_plus) * math.comb(n - c, size - n_plus)
        correct_gets, wrong_gets = advantage(n_plus, size)
        right += ways * n_plus
        right_silent += ways * n_plus * (correct_gets == 0)
        wrong += ways * (size - n_plus)
        wrong_silent += ways * (size - n_plus) * (wrong_gets == 0)
    return right_silent / right if right else 0.0, wrong_silent / wrong if wrong else 0.0
