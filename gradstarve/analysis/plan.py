"""`gradstarve plan`: group size and advantage for a budget of completions, from measured success rates."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gradstarve.analysis.advantages import add_advantage_option, parse_advantages
from gradstarve.analysis.budget import Option, Recommendation, plan
from gradstarve.analysis.diagnose import LARGEST_SIZE
from gradstarve.analysis.diagnosis import measure
from gradstarve.analysis.prompt_difficulty import Difficulty, from_counts, from_histogram
from gradstarve.analysis.rollout_formats import Reading, read_rollouts
from gradstarve.analysis.text import percent, percent_interval, shortened, table
from gradstarve.errors import UserError

GROUP_SIZES = (2, 4, 8, 16, 32)
# The paper's three and the plain centred one; more options only bring more ties.
ADVANTAGES = ("sign", "tasa", "drgrpo", "rloo")
ASSUMPTION = (
    "snr is for a policy with one shared logit. diffuse is relative to the best and assumes that scores mostly point "
    "elsewhere,\nas those of a large model do; the recommendation follows it. On-policy, unclipped, one step: no "
    "learning curve."
)


def add_difficulty_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a rollout log, as for diagnose")
    parser.add_argument("--p-histogram", nargs="+", metavar="P:WEIGHT", help="success probabilities in place of a log")
    parser.add_argument("--reward", metavar="COLUMN", help="the column of the reward, where it has an unusual name")
    parser.add_argument("--threshold", type=float, metavar="T", help="count rewards of at least T as right")


def counts_of(arguments: argparse.Namespace) -> tuple[list[tuple[int, int]], str]:
    """(samples, successes) of each prompt of the log, and how they were taken.

    Of a log with steps only the last third counts: the policy as it was last.
    """
    reading = Reading(arguments.reward, arguments.threshold, getattr(arguments, "log_group_size", None))
    diagnosis = measure(read_rollouts(arguments.file, reading), reading.group_size)
    if not diagnosis.stepped or len({group.step for group in diagnosis.groups}) < 3:
        return diagnosis.counts, f"{len(diagnosis.counts)} prompts"
    last = diagnosis.counts[-(len(diagnosis.counts) // 3) :]
    return last, f"the last third of the log, {len(last)} groups"


def difficulty_of(arguments: argparse.Namespace) -> tuple[Difficulty, str]:
    if (arguments.file is None) == (arguments.p_histogram is None):
        raise UserError("give a rollout log or --p-histogram, one of them")
    if arguments.file is None:
        return from_histogram(arguments.p_histogram), "given probabilities"
    counts, taken = counts_of(arguments)
    return from_counts(counts), taken


def as_json(
    budget: int, taken: str, difficulty: Difficulty, options: list[Option], advice: Recommendation
) -> dict[str, object]:
    return {
        "budget": budget,
        "source": taken,
        "prompts": difficulty.prompts,
        "samples": difficulty.samples,
        "options": [vars(option) for option in options],
        "recommendation": vars(advice),
    }


def configure(parser: argparse.ArgumentParser) -> None:
    add_difficulty_options(parser)
    parser.add_argument("--budget", type=int, required=True, metavar="COMPLETIONS", help="completions to spend")
    parser.add_argument("--group-sizes", type=int, nargs="+", default=list(GROUP_SIZES), metavar="G")
    parser.add_argument("--log-group-size", type=int, metavar="G", help="group size of a csv of mean rewards")
    add_advantage_option(parser, f"default: {', '.join(ADVANTAGES)}")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    size = arguments.log_group_size
    if size is not None and not 2 <= size <= LARGEST_SIZE:
        raise UserError(
            f"--log-group-size {shortened(size)}: a group has at least 2 and at most {LARGEST_SIZE:,} completions"
        )
    difficulty, taken = difficulty_of(arguments)
    advantages = parse_advantages(arguments.advantage or ADVANTAGES)
    options, advice = plan(difficulty, advantages, sorted(set(arguments.group_sizes)), arguments.budget)
    if arguments.json:
        print(json.dumps(as_json(arguments.budget, taken, difficulty, options, advice), indent=2, allow_nan=False))
        return 0
    best = max(option.snr_diffuse for option in options) or 1.0
    cells = [
        [
            f"{option.group_size} {option.advantage}",
            str(option.groups),
            f"{percent(option.dead_share)} {percent_interval(option.dead_share_ci95)}",
            percent(option.useful_share),
            f"{option.kappa:.3f}",
            "-" if option.snr is None else f"{option.snr:.1f}",
            f"{option.snr_diffuse / best:.2f}",
            "-" if option.dynamic_sampling_cost is None else f"{option.dynamic_sampling_cost:.2f}x",
        ]
        for option in options
    ]
    print(f"{arguments.budget} completions; difficulty from {taken}\n")
    print(table(["G, advantage", "groups", "dead", "useful", "kappa", "snr", "diffuse", "dynamic sampling"], cells))
    print(f"\n{ASSUMPTION}\n\n{advice.text}")
    return 0
