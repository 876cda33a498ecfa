"""`gradstarve plan`: its expectations against simulated groups, and what it says where it can't tell."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradstarve.analysis.budget import on_grid, plan
from gradstarve.analysis.prompt_difficulty import from_counts, from_histogram
from gradstarve.cli import main
from gradstarve.estimators.advantages import ADVANTAGES, get_advantage, group_advantages
from gradstarve.estimators.coefficients import coefficients, second_moment
from gradstarve.estimators.degeneracy import degeneracy, estimate_degeneracy


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code = main(["plan", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def test_the_grid_agrees_with_enumeration() -> None:
    p_B = np.array([0.05, 0.25, 0.5, 0.9])
    for name, advantage in ADVANTAGES.items():
        grid = on_grid(advantage, 4, p_B)
        for i, p in enumerate(p_B):
            c, moment = coefficients(advantage, float(p), 4), second_moment(advantage, float(p), 4)
            assert grid.kappa[i] == pytest.approx(c.kappa), name
            assert grid.signal[i] == pytest.approx(c.kappa * p * (1 - p)), name
            assert grid.square[i] / 4 == pytest.approx(moment.a1 + moment.a0), name
            if c.snr is not None:
                assert grid.signal[i] / math.sqrt(grid.variance[i]) == pytest.approx(c.snr), name


def test_plan_is_what_simulated_groups_show() -> None:
    difficulty = from_histogram(["0.02:1", "0.3:2", "0.8:1"])
    budget, size, trials = 64, 8, 40_000
    rng = np.random.default_rng(1)
    for name in ("sign", "tasa", "drgrpo", "rloo", "ngrpo"):
        advantage = get_advantage(name)
        (option,), _ = plan(difficulty, {name: advantage}, [size], budget)
        p_T = rng.choice([0.02, 0.3, 0.3, 0.8], size=trials)
        rewards_TG = (rng.random((trials, size)) < p_T[:, None]).astype(float)
        advantages_TG = group_advantages(rewards_TG, advantage)
        scores_TG = np.where(rewards_TG == 1, 1 - p_T[:, None], -p_T[:, None])
        gradients_T = (advantages_TG * scores_TG).mean(axis=1)
        dead = np.isin(rewards_TG.sum(axis=1), (0, size)).mean()
        within = np.mean([gradients_T[p_T == p].var() * w for p, w in ((0.02, 1), (0.3, 2), (0.8, 1))]) * 3 / 4
        assert option.groups == 8
        assert option.dead_share == pytest.approx(dead, abs=0.01)
        assert option.useful_share == pytest.approx((advantages_TG != 0).mean(), abs=0.01)
        assert option.snr == pytest.approx(gradients_T.mean() / math.sqrt(within / 8), rel=0.05)
        diffuse = gradients_T.mean() / math.sqrt((advantages_TG**2).mean() / 64)
        assert option.snr_diffuse == pytest.approx(diffuse, rel=0.05)
        assert option.dynamic_sampling_cost == pytest.approx(1 / (1 - dead), rel=0.05)


def test_none_of_eight_is_not_p_zero() -> None:
    difficulty = from_counts([(8, 0)] * 30 + [(8, 1)] * 10)
    dead = difficulty.mean(degeneracy(difficulty.p, 8))
    never_solved = 30 / 40 + 10 / 40 * (7 / 8) ** 8
    assert dead < never_solved - 0.02
    low, high = difficulty.interval(degeneracy(difficulty.p, 32))
    assert low < high


def test_the_fitted_population_gives_the_unbiased_dead_share() -> None:
    rng = np.random.default_rng(3)
    p_P = rng.beta(0.3, 0.6, 400)
    successes = rng.binomial(16, p_P).tolist()
    difficulty = from_counts([(16, c) for c in successes])
    for size in (2, 4, 8, 16):
        unbiased = estimate_degeneracy([16] * 400, successes, size)
        assert difficulty.mean(degeneracy(difficulty.p, size)) == pytest.approx(unbiased.d_real, abs=0.015)
    # Beyond the samples at hand: the truth at G = 64 lies in the interval.
    truth = float(degeneracy(np.random.default_rng(4).beta(0.3, 0.6, 200_000), 64).mean())
    low, high = difficulty.interval(degeneracy(difficulty.p, 64))
    assert low <= truth <= high


def test_a_clear_winner_has_a_margin_and_ties_are_not_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    clear = ask(capsys, "--p-histogram", "0.05:1", "--budget", 640, "--advantage", "sign", "rloo")["recommendation"]
    assert (clear["told"], clear["advantage"]) == (True, "rloo")
    # At one p: rloo has kappa 1 and mean square pqG/(G-1), sign has 2 and 1.
    assert clear["margin"] == pytest.approx(1 / math.sqrt(0.05 * 0.95 * 32 / 31) / 2 - 1, abs=1e-6)
    tied = ask(capsys, "--p-histogram", "0.05:1", "--budget", 640, "--advantage", "dr_grpo", "rloo")["recommendation"]
    assert not tied["told"] and tied["text"].startswith("Can't be told from this: dr_grpo, rloo")
    nothing = ask(capsys, "--p-histogram", "0:1", "1:1", "--budget", 640)
    assert not nothing["recommendation"]["told"] and "no option has a signal" in nothing["recommendation"]["text"]
    assert nothing["options"][0]["dynamic_sampling_cost"] is None


def test_few_samples_settle_less_than_many(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def widths(prompts: int) -> list[float]:
        path = tmp_path / f"{prompts}.jsonl"
        rows = [{"prompt_id": i, "rewards": [int(j < i % 9) for j in range(8)]} for i in range(prompts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        options = ask(capsys, path, "--budget", 800)["options"]
        return [option["dead_share_ci95"][1] - option["dead_share_ci95"][0] for option in options]

    assert all(few > many for few, many in zip(widths(9), widths(450), strict=True))


def test_real_logs(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ask(capsys, shared_data / "rollouts_game24_cot_100x100.jsonl", "--budget", 3200)
    assert report["prompts"] == 100 and len(report["options"]) == 20
    four = next(o for o in report["options"] if o["group_size"] == 4 and o["advantage"] == "sign")
    low, high = four["dead_share_ci95"]
    assert low < 0.878 < high and high - low < 0.12
    csv = ask(capsys, shared_data / "grpo_metrics" / "7_3_plus_tracking_metrics.csv", "--budget", 800)
    assert csv["source"] == "the last third of the log, 166 groups"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "100"], "give a rollout log or --p-histogram"),
        (["--p-histogram", "half", "--budget", "100"], "is not p:weight"),
        (["--p-histogram", "1.5:1", "--budget", "100"], "p lies in"),
        (["--p-histogram", "0.5:0", "--budget", "100"], "sum to 0"),
        (["--p-histogram", "0.5", "--budget", "8"], "does not fill one group of 32"),
        (["--p-histogram", "0.5", "--budget", "80", "--group-sizes", "1"], "between 2"),
        (["--p-histogram", "0.5", "--budget", "80", "--advantage", "passk:k=3"], "k = 3, group size 2"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
