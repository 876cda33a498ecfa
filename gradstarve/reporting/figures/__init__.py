"""Figures: every one from the same rows as the tables."""

from __future__ import annotations
