"""What a multirun wanted: `outputs/sweeps/<name>.json`, so that a table knows what it is missing."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError, nearest
from gradstarve.runs.config import RunConfig
from gradstarve.runs.files import read_json, write_json
from gradstarve.runs.signature import identity


def declare(
    outputs: Path, name: str | None, title: str | None, command: Sequence[str], runs: Sequence[RunConfig]
) -> Path:
    """Write down which runs a multirun asked for. A command typed by hand gets a name from what it asks for."""
    wanted = [identity(config) for config in runs]
    if name is None:
        digest = hashlib.sha256(json.dumps(sorted([w["run"], w["evaluation"]] for w in wanted)).encode()).hexdigest()[
            :8
        ]
        name = f"typed-{digest}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(f"sweep name {name!r}: letters, digits, '.', '_' and '-' only")
    file = outputs / "sweeps" / f"{name}.json"
    write_json(file, {"name": name, "title": title, "command": list(command), "declared": time.time(), "runs": wanted})
    return file


def read_sweeps(outputs: Path) -> list[dict[str, Any]]:
    """All declarations, oldest first."""
    found = []
    for file in sorted((outputs / "sweeps").glob("*.json")):
        content = read_json(file)
        if not isinstance(content, dict) or "runs" not in content:
            raise UserError(f"{file}: not a sweep's declaration; remove it, and give the sweep's command again")
        found.append(content)
    return sorted(found, key=lambda sweep: (sweep["declared"], sweep["name"]))


def read_sweep(outputs: Path, name: str) -> dict[str, Any]:
    """One declaration. Raises UserError for an unknown name, naming the nearest."""
    sweeps = {sweep["name"]: sweep for sweep in read_sweeps(outputs)}
    if name not in sweeps:
        raise UserError(f"no sweep {name!r} in {outputs / 'sweeps'}. {nearest(name, sweeps)}")
    return sweeps[name]
