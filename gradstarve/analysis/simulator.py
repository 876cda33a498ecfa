"""A simulated policy: prompts of given difficulty, answers that share parameters, any advantage, all seeds at once.

Nothing here is a run. Each prompt has one right answer and several wrong ones; the logit of an answer is a constant
plus the product of its features with parameters that all prompts share. The right answers' features have a common part,
so that what is learned on one prompt carries over to others, in training and held out. A step samples prompts, draws
groups, and follows the mean of A grad log pi with Adam: on-policy, unclipped, no KL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from gradstarve.analysis.prompt_difficulty import Difficulty
from gradstarve.errors import UserError
from gradstarve.estimators.advantages import Advantage
from gradstarve.estimators.coefficients import advantage_table

# The Beta distribution whose mean and dead share at G = 2 are those that the paper's two samples a prompt give without
# bias: 0.325 and 0.80.
PAPER_BETA = (0.272, 0.565)
BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class World:
    """Prompts, the first half for training and the second held out.

    `logits` (prompts x answers), answer 0 is the right one; `features` (prompts x answers x parameters).
    """

    logits: NDArray[np.float64]
    features: NDArray[np.float64]
    training: int


@dataclass(frozen=True)
class Trajectory:
    """One simulated arm. `held_out`, `training` and the shares are (evaluations x seeds); `steps` (evaluations)."""

    steps: NDArray[np.int64]
    held_out: NDArray[np.float64]
    training: NDArray[np.float64]
    all_fail: NDArray[np.float64]
    all_pass: NDArray[np.float64]
    completions: int


def paper_difficulty() -> Difficulty:
    """PAPER_BETA as 200 equally likely points."""
    quantiles = betaincinv(*PAPER_BETA, (np.arange(200) + 0.5) / 200)
    return Difficulty(quantiles, np.full(200, 1 / 200), np.zeros((0, 200)), None, None)


def make_world(
    difficulty: Difficulty,
    prompts: int = 128,
    answers: int = 8,
    parameters: int = 64,
    transfer: float = 0.3,
    seed: int = 0,
) -> World:
    """Prompts whose success probabilities at the start are quantiles of `difficulty`, the same for both halves.

    `transfer` in [0, 1] is the share of a right answer's features that all right answers have in common.
    """
    if not 0 <= transfer <= 1:
        raise UserError(f"transfer lies in [0, 1], got {transfer:g}")
    rng = np.random.default_rng([seed, 1])
    order = np.argsort(difficulty.p)
    cumulative = np.cumsum(difficulty.weights[order])
    wanted = (np.arange(prompts) + 0.5) / prompts * cumulative[-1]
    p_P = np.tile(difficulty.p[order][np.searchsorted(cumulative, wanted)], 2)
    wrong_PV = rng.normal(size=(2 * prompts, answers - 1))
    log_wrong_P = np.logaddexp.reduce(wrong_PV, axis=1)
    with np.errstate(divide="ignore"):
        right_P = np.log(p_P) + log_wrong_P
        wrong_PV = wrong_PV + np.log1p(-p_P)[:, None]
    logits_PV = np.concatenate([right_P[:, None], wrong_PV], axis=1)
    features_PVD = rng.normal(size=(2 * prompts, answers, parameters)) / np.sqrt(parameters)
    common_D = rng.normal(size=parameters) / np.sqrt(parameters)
    features_PVD[:, 0] = np.sqrt(1 - transfer) * features_PVD[:, 0] + np.sqrt(transfer) * common_D
    return World(logits_PV, features_PVD, prompts)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def success(world: World, theta_SD: NDArray[np.float64]) -> NDArray[np.float64]:
    """p (seeds x prompts) under the parameters of each seed."""
    shift_SPV = np.tensordot(theta_SD, world.features, axes=([1], [2]))
    return softmax(world.logits + shift_SPV)[..., 0]


def group_gradients(
    world: World,
    theta_SD: NDArray[np.float64],
    prompts_SB: NDArray[np.int64],
    table: tuple[NDArray[np.float64], NDArray[np.float64]],
    group_size: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Each group's gradient estimate (seeds x prompts x parameters), mean over its completions, and its n_plus."""
    correct_N, wrong_N = table
    features_SBVD = world.features[prompts_SB]
    shift_SBV = np.einsum("sbvd,sd->sbv", features_SBVD, theta_SD, optimize=True)
    policy_SBV = softmax(world.logits[prompts_SB] + shift_SBV)
    counts_SBV = rng.multinomial(group_size, policy_SBV)
    n_plus_SB = counts_SBV[..., 0]
    weights_SBV = counts_SBV * wrong_N[n_plus_SB][..., None]
    weights_SBV[..., 0] = n_plus_SB * correct_N[n_plus_SB]
    weights_SBV /= group_size
    on_logits_SBV = weights_SBV - weights_SBV.sum(axis=-1, keepdims=True) * policy_SBV
    return np.einsum("sbv,sbvd->sbd", on_logits_SBV, features_SBVD, optimize=True), n_plus_SB


def simulate(
    world: World,
    advantage: Advantage,
    group_size: int,
    steps: int,
    prompts_per_step: int,
    seeds: int,
    learning_rate: float = 0.05,
    seed: int = 0,
    evaluations: int = 20,
    progress: Callable[[], None] = lambda: None,
) -> Trajectory:
    """One arm, all seeds at once. The same `seed` gives the same trajectory; arms share the draws of their prompts."""
    table = advantage_table(advantage, group_size)
    prompt_rng, answer_rng = np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3, group_size])
    theta_SD = np.zeros((seeds, world.features.shape[2]))
    first_SD, second_SD = np.zeros_like(theta_SD), np.zeros_like(theta_SD)
    evaluated = np.unique(np.linspace(0, steps, evaluations + 1).round().astype(np.int64))
    held_out, training, all_fail, all_pass = [], [], [], []
    for step in range(steps + 1):
        if step in evaluated:
            p_SP = success(world, theta_SD)
            training_SP = p_SP[:, : world.training]
            held_out.append(p_SP[:, world.training :].mean(axis=1))
            training.append(training_SP.mean(axis=1))
            all_fail.append(((1 - training_SP) ** group_size).mean(axis=1))
            all_pass.append((training_SP**group_size).mean(axis=1))
            progress()
        if step == steps:
            break
        prompts_SB = prompt_rng.integers(world.training, size=(seeds, prompts_per_step))
        gradients_SBD, _ = group_gradients(world, theta_SD, prompts_SB, table, group_size, answer_rng)
        gradient_SD = gradients_SBD.mean(axis=1)
        first_SD = BETAS[0] * first_SD + (1 - BETAS[0]) * gradient_SD
        second_SD = BETAS[1] * second_SD + (1 - BETAS[1]) * gradient_SD**2
        unbiased_SD = first_SD / (1 - BETAS[0] ** (step + 1))
        scale_SD = np.sqrt(second_SD / (1 - BETAS[1] ** (step + 1))) + 1e-8
        theta_SD = theta_SD + learning_rate * unbiased_SD / scale_SD
    return Trajectory(
        evaluated,
        np.array(held_out),
        np.array(training),
        np.array(all_fail),
        np.array(all_pass),
        steps * prompts_per_step * group_size,
    )
