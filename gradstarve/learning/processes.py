"""One run in several processes: which one this is, and who does what.

Whoever starts the processes sets RANK and WORLD_SIZE, as torchrun does; accelerate reads the same. All of them train,
the first alone writes, evaluates and holds the claim.
"""

from __future__ import annotations

import os

import torch
from accelerate import PartialState


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_everyone() -> None:
    """Returns once every process of the run has come here."""
    if count() > 1:
        _state().wait_for_everyone()


def any_of_them(value: bool) -> bool:
    """Whether `value` is true in any process of the run: the same answer in all of them."""
    if count() == 1:
        return value
    said = torch.tensor([float(value)], device=_state().device)
    torch.distributed.all_reduce(said, op=torch.distributed.ReduceOp.MAX)
    return bool(said.item())


def _state() -> PartialState:
    return PartialState(cpu=not torch.cuda.is_available())
