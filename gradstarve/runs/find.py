"""A run by the name that a user types."""

from __future__ import annotations

from pathlib import Path

from gradstarve.errors import UserError, nearest
from gradstarve.runs.folder import RunFolder, runs_root


def find_run(name: str, outputs: Path) -> RunFolder:
    """The folder of a run, by folder, name or unique beginning. Raises UserError, naming the nearest."""
    if (Path(name) / "config.yaml").is_file():
        return RunFolder(Path(name).resolve())
    names = [path.parent.name for path in runs_root(outputs).glob("*/config.yaml")]
    found = [name] if name in names else [known for known in names if known.startswith(name)]
    if not found:
        raise UserError(f"no run {name!r} in {runs_root(outputs)}. {nearest(name, names)}")
    if len(found) > 1:
        raise UserError(f"{len(found)} runs begin with {name!r}: {', '.join(sorted(found)[:5])}; name one")
    return RunFolder(runs_root(outputs) / found[0])
