from __future__ import annotations

from gradstarve.cli import script

script()
