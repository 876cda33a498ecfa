"""`gradstarve simulate`: what would happen at cluster scale, asked of a simulated policy. Never mixed with runs."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from gradstarve.analysis.advantages import add_advantage_option, check_group_size, parse_advantages
from gradstarve.analysis.plan import add_difficulty_options, difficulty_of
from gradstarve.analysis.simulator import Trajectory, make_world, paper_difficulty, simulate
from gradstarve.analysis.text import percent, shortened, show_progress, table
from gradstarve.errors import UserError

ADVANTAGES = ("sign", "tasa", "drgrpo", "rloo")
GROUP_SIZES = (2, 4, 8, 16, 32, 64)
LARGEST = {"steps": 1_000_000, "prompts_per_step": 50_000, "seeds": 50_000}
# Groups of all seeds in one step: some 4 KB each.
LARGEST_STEP = 50_000
# Adam moves each parameter by about this much in a step; a logit beyond 1e4 says no more than 1e4 does.
LARGEST_LEARNING_RATE = 100.0
LABEL = "SIMULATION, not a run: a softmax policy of a few thousand numbers, on-policy, unclipped, no KL"


def summary(label: str, group_size: int, found: Trajectory) -> dict[str, object]:
    """One arm; accuracies are mean success probabilities of the held-out prompts, one for each seed at the end."""
    final_S = found.held_out[-1]
    return {
        "simulation": True,
        "advantage": label,
        "group_size": group_size,
        "completions": found.completions,
        "start": float(found.held_out[0].mean()),
        "final": final_S.tolist(),
        "mean": float(final_S.mean()),
        "sd": float(final_S.std(ddof=1)) if len(final_S) > 1 else None,
        "training_mean": float(found.training[-1].mean()),
        "steps": found.steps.tolist(),
        "held_out": found.held_out.mean(axis=1).tolist(),
        "all_fail": found.all_fail.mean(axis=1).tolist(),
        "all_pass": found.all_pass.mean(axis=1).tolist(),
    }


def configure(parser: argparse.ArgumentParser) -> None:
    add_difficulty_options(parser)
    parser.set_defaults(log_group_size=None)
    add_advantage_option(parser, f"default: {', '.join(ADVANTAGES)}")
    parser.add_argument("--group-sizes", type=int, nargs="+", default=list(GROUP_SIZES), metavar="G")
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps (default 200, as in the paper)")
    parser.add_argument(
        "--budget", type=int, metavar="COMPLETIONS", help="completions an arm may use, in place of --steps"
    )
    parser.add_argument("--prompts-per-step", type=int, default=4, metavar="N", help="groups in a step (default 4)")
    parser.add_argument("--seeds", type=int, default=7, metavar="N", help="how many seeds (default 7)")
    parser.add_argument(
        "--learning-rate", type=float, default=0.01, help="Adam's, of the simulated policy (default 0.01)"
    )
    parser.add_argument(
        "--transfer", type=float, default=0.3, help="how much prompts have in common, 0 to 1 (default 0.3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompts and of all draws (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    for name in ("steps", "prompts_per_step", "seeds"):
        given = getattr(arguments, name)
        if not 1 <= given <= LARGEST[name]:
            raise UserError(
                f"--{name.replace('_', '-')} must be at least 1 and at most {LARGEST[name]:,}, got {shortened(given)}"
            )
    if arguments.seeds * arguments.prompts_per_step > LARGEST_STEP:
        raise UserError(
            f"--seeds times --prompts-per-step must be at most {LARGEST_STEP:,}: one step is held in memory"
        )
    if not 0 < arguments.learning_rate <= LARGEST_LEARNING_RATE:
        raise UserError(
            f"--learning-rate must be above 0 and at most {LARGEST_LEARNING_RATE:g}, got {arguments.learning_rate:g}"
        )
    if not 0 <= arguments.seed < 2**63:
        raise UserError(f"--seed must be at least 0 and below 2^63, got {shortened(arguments.seed)}")
    if arguments.file is None and arguments.p_histogram is None:
        difficulty, taken = paper_difficulty(), "a Beta with the paper's mean 0.325 and dead share 0.80 at G = 2"
    else:
        difficulty, taken = difficulty_of(arguments)
    advantages = parse_advantages(arguments.advantage or ADVANTAGES)
    sizes = sorted(set(arguments.group_sizes))
    for size in sizes:
        check_group_size(size, "--group-sizes")
        for advantage in advantages.values():
            advantage(0, size)
    world = make_world(difficulty, transfer=arguments.transfer, seed=arguments.seed)
    results: list[dict[str, object]] = []
    arms, began = len(sizes) * len(advantages), time.monotonic()
    for size in sizes:
        steps = arguments.steps
        if arguments.budget is not None:
            steps = arguments.budget // (arguments.prompts_per_step * size)
            if not 1 <= steps <= LARGEST["steps"]:
                amount = "less than one step" if steps < 1 else f"more than {LARGEST['steps']:,} steps"
                raise UserError(f"--budget {shortened(arguments.budget)} is {amount} at group size {size}")
        for label, advantage in advantages.items():
            show_progress(began, f"simulated arms: {len(results)} of {arms}")
            found = simulate(
                world,
                advantage,
                size,
                steps,
                arguments.prompts_per_step,
                arguments.seeds,
                arguments.learning_rate,
                arguments.seed,
            )
            results.append(summary(label, size, found))
    show_progress(began, f"simulated arms: {arms} of {arms}", last=True)
    settings = {
        name: getattr(arguments, name)
        for name in ("steps", "budget", "prompts_per_step", "seeds", "learning_rate", "transfer", "seed")
    }
    if arguments.json:
        report = {"simulation": True, "note": LABEL, "difficulty": taken, "settings": settings, "results": results}
        print(json.dumps(report, indent=2, allow_nan=False))
        return 0
    print(f"{LABEL}.\nDifficulty: {taken}. {arguments.seeds} seeds, {arguments.prompts_per_step} prompts a step.\n")
    print(table(["G, advantage (simulated)", "completions", "held out", "sd", "all-fail", "all-pass"], _cells(results)))
    return 0


def _cells(results: list[dict[str, object]]) -> list[list[str]]:
    cells = []
    for row in results:
        fail, passed = np.array(row["all_fail"]), np.array(row["all_pass"])
        sd = row["sd"]
        cells.append(
            [
                f"{row['group_size']} {row['advantage']}",
                str(row["completions"]),
                f"{percent(float(str(row['start'])))} to {percent(float(str(row['mean'])))}",
                "-" if sd is None else percent(float(str(sd))),
                f"{percent(fail[0])} to {percent(fail[-1])}",
                f"{percent(passed[0])} to {percent(passed[-1])}",
            ]
        )
    return cells
