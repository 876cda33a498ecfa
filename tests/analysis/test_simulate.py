"""The simulator: its gradients against the coefficients, its repeatability, and its label."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradstarve.analysis.prompt_difficulty import from_histogram
from gradstarve.analysis.simulator import World, group_gradients, make_world, paper_difficulty, simulate, success
from gradstarve.cli import main
from gradstarve.estimators.advantages import ADVANTAGES, get_advantage
from gradstarve.estimators.coefficients import advantage_table, coefficients
from gradstarve.estimators.degeneracy import degeneracy


def grad_p(world: World, prompt: int) -> np.ndarray:
    step, zero = 1e-6, np.zeros((1, world.features.shape[2]))
    columns = []
    for d in range(zero.shape[1]):
        up, down = zero.copy(), zero.copy()
        up[0, d], down[0, d] = step, -step
        columns.append((success(world, up)[0, prompt] - success(world, down)[0, prompt]) / (2 * step))
    return np.array(columns)


@pytest.mark.parametrize("name", ["sign", "tasa", "drgrpo", "ngrpo", "pkpo"])
def test_simulated_groups_have_the_expected_gradient_and_dead_share(name: str) -> None:
    world = make_world(from_histogram(["0.25"]), prompts=1, answers=4, parameters=6)
    advantage, size, draws = get_advantage(name), 4, 200_000
    prompts_SB = np.zeros((1, draws), dtype=np.int64)
    gradients_SBD, n_plus_SB = group_gradients(
        world, np.zeros((1, 6)), prompts_SB, advantage_table(advantage, size), size, np.random.default_rng(0)
    )
    expected_D = coefficients(advantage, 0.25, size).kappa * grad_p(world, 0)
    error_D = gradients_SBD[0].std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(gradients_SBD[0].mean(axis=0) - expected_D) < 4.5 * error_D)
    assert np.isin(n_plus_SB, (0, size)).mean() == pytest.approx(float(degeneracy(0.25, size)), abs=0.005)


def test_the_world_starts_where_it_was_told_to() -> None:
    world = make_world(from_histogram(["0:1", "0.3:2", "1:1"]), prompts=8)
    p_SP = success(world, np.zeros((2, 64)))
    np.testing.assert_allclose(p_SP[0], [0, 0, 0.3, 0.3, 0.3, 0.3, 1, 1] * 2, atol=1e-12)


def test_the_papers_prompts() -> None:
    difficulty = paper_difficulty()
    assert difficulty.mean(difficulty.p) == pytest.approx(0.325, abs=0.002)
    assert difficulty.mean(degeneracy(difficulty.p, 2)) == pytest.approx(0.80, abs=0.002)


def test_the_same_seed_repeats_and_another_differs() -> None:
    world = make_world(paper_difficulty(), prompts=32)
    runs = [simulate(world, get_advantage("sign"), 4, 20, 4, 3, seed=seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0].held_out, runs[1].held_out)
    assert not np.array_equal(runs[0].held_out, runs[2].held_out)
    assert runs[0].completions == 320
    assert len({float(x) for x in runs[0].held_out[-1]}) == 3


def test_centred_advantages_learn_nothing_from_dead_prompts_and_sign_only_noise() -> None:
    world = make_world(from_histogram(["0"]), prompts=4, transfer=0)
    still = simulate(world, get_advantage("drgrpo"), 4, 20, 4, 2)
    assert np.all(still.held_out == 0) and np.all(still.all_fail == 1)
    gradients_SBD, _ = group_gradients(
        world,
        np.zeros((1, 64)),
        np.zeros((1, 50_000), dtype=np.int64),
        advantage_table(get_advantage("sign"), 4),
        4,
        np.random.default_rng(0),
    )
    mean_D, error_D = gradients_SBD[0].mean(axis=0), gradients_SBD[0].std(axis=0) / np.sqrt(50_000)
    assert np.all(np.abs(mean_D) < 4.5 * error_D) and np.all(error_D > 0)


def test_every_advantage_learns_where_there_is_something_to_learn() -> None:
    world = make_world(from_histogram(["0.3"]), prompts=32)
    for name, advantage in ADVANTAGES.items():
        found = simulate(world, advantage, 4, 60, 4, 3, learning_rate=0.02)
        assert found.held_out[-1].min() > 0.32, name


def test_the_door_labels_everything_as_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--group-sizes", "2", "4", "--steps", "10", "--seeds", "2", "--advantage", "sign"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("SIMULATION, not a run")
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["simulation"] is True and all(row["simulation"] is True for row in report["results"])
    assert [row["completions"] for row in report["results"]] == [80, 160]
    assert len(report["results"][0]["final"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be at least 1"),
        (["--transfer", "2"], "transfer lies in"),
        (["--budget", "10"], "less than one step at group size 4"),
        (["--group-sizes", "4", "--advantage", "passk:k=8"], "k = 8, group size 4"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--group-sizes", "4", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
