"""Pure functions of rewards. Importing the room registers every advantage."""

from __future__ import annotations

from gradstarve.estimators import presets as presets
