"""What a run would need: parameters, memory, tokens and GPU hours, from its config alone. An estimate, not measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gradstarve.launching.architecture import Shape, UnknownShapeError, parameters, shape_of
from gradstarve.launching.gpu_hours import Gpu, Work, batches_of, hours, work_of
from gradstarve.launching.memory import Memory, memory_of
from gradstarve.launching.question_sizes import Prompts, prompts_of
from gradstarve.runs.config import RunConfig


@dataclass(frozen=True)
class Sized:
    """What is known where the model's shape is: exact weights, and estimates of memory and work."""

    shape: Shape
    parameters: int
    memory: Memory
    work: Work
    dtype: str

    def hours(self, gpu: Gpu) -> tuple[float, float]:
        """GPU hours of the run, under the fast and the slow assumption."""
        return hours(self.work, self.shape, self.dtype, gpu)


@dataclass(frozen=True)
class Estimate:
    """One run. Tokens are upper bounds; where `sized` is None, `unknown` says what is missing."""

    prompts: Prompts
    tokens_sampled: int
    tokens_evaluated: int
    sized: Sized | None
    unknown: str | None


def estimate(config: RunConfig, trained: bool = False) -> Estimate:
    """The estimate of a run, or of its final evaluation alone where it is `trained` already."""
    prompts = prompts_of(config)
    sampled, evaluated = batches_of(config, prompts, trained)
    sized, unknown = None, None
    try:
        shape = shape_of(config.model)
        memory = memory_of(config, shape, prompts)
        work = work_of(config, shape, prompts, trained)
        sized = Sized(shape, parameters(shape), memory, work, config.model.dtype)
    except UnknownShapeError as error:
        unknown = str(error)
    return Estimate(
        prompts=prompts,
        tokens_sampled=sum(batch.rows * batch.limit * batch.times for batch in sampled),
        tokens_evaluated=sum(batch.rows * batch.limit * batch.times for batch in evaluated),
        sized=sized,
        unknown=unknown,
    )


def setting_of(config: RunConfig, trained: bool) -> str:
    """Equal for configs of one estimate: all that it reads, and no more."""
    evaluation = dataclasses.replace(config.evaluation, name="", seed=0, temperature=1.0)
    read = (
        *(config.model, config.dataset, config.rollout, evaluation, config.advantage.trains, config.advantage.replay),
        *(config.group_size, config.prompts_per_step, config.steps, config.completion_limit, config.eval_every),
        *(config.completions_per_pass, config.loss.kl > 0, trained),
    )
    return repr(read)
