"""Everything random starts from the run's seed, before the model is built."""

from __future__ import annotations

import torch
from transformers import set_seed


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch, and ask torch for deterministic kernels where it has them."""
    set_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory is for finding reads of it, and costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
