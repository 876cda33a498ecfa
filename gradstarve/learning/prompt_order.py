"""Which prompts each step trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import Sampler


class PromptOrder(Sampler[int]):
    """Which prompts each step trains on, as a function of seed and step alone.

    Epoch e is the (e+1)-th permutation drawn from a generator seeded by the run, which is also what TRL's own sampler
    gives in an uninterrupted run; starting at `first_step()`, asked when iteration starts, continues it. Each step's
    prompts come `group_size` times in a row, and the whole step `passes` times, as TRL expects (it generates on the
    first and reuses on the others).
    """

    def __init__(
        self,
        prompts: int,
        prompts_per_step: int,
        group_size: int,
        passes: int,
        steps: int,
        seed: int,
        first_step: Callable[[], int] = lambda: 0,
    ) -> None:
        self.prompts, self.prompts_per_step, self.group_size = prompts, prompts_per_step, group_size
        self.passes, self.steps, self.seed, self.first_step = passes, steps, seed, first_step
        # TRL drops the last, incomplete step of an epoch.
        self.steps_per_epoch = prompts // prompts_per_step

    def step_prompts(self) -> Iterator[list[int]]:
        """The prompts of the first step, and so on to the last."""
        first_step = self.first_step()
        generator = torch.Generator().manual_seed(self.seed)
        order: list[int] = []
        for step in range(self.steps):
            place = step % self.steps_per_epoch
            if place == 0:
                order = torch.randperm(self.prompts, generator=generator).tolist()
            if step >= first_step:
                yield order[place * self.prompts_per_step : (place + 1) * self.prompts_per_step]

    def __iter__(self) -> Iterator[int]:
        for prompts in self.step_prompts():
            for _ in range(self.passes):
                for prompt in prompts:
                    yield from [prompt] * self.group_size

    def __len__(self) -> int:
        return self.steps * self.passes * self.prompts_per_step * self.group_size
