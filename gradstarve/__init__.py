"""Compare advantage estimators for RL with binary, verifiable rewards."""

from __future__ import annotations

__version__ = "0.1.0"
