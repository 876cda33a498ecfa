"""Pure functions of rewards: advantages, degeneracy, coefficients, pass@k. Importing it registers every advantage."""

from __future__ import annotations

from gradstarve.estimators import presets as presets
from gradstarve.estimators.advantages import ADVANTAGES, Advantage, get_advantage, group_advantages

__all__ = ["ADVANTAGES", "Advantage", "get_advantage", "group_advantages"]
