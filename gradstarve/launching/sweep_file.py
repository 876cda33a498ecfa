"""Sweep files: sweeps/*.yaml, each the full description of what is run for a table or a figure.

    title: one line for a table's heading            (may be left out)
    note: anything a reader should know              (may be left out)
    common:                                          (may be left out)
      KEY: VALUES                                    what every grid has unless it says otherwise
    grids:
      - KEY: VALUES                                  every combination within a grid;
      - KEY: VALUES                                  the sweep is the union of its grids, each run once

A KEY is one of the command line's, dotted (`evaluation.limit`); VALUES are written as there (`sign,tasa`, `42..48`,
`42..44,50`) or as a YAML list. A value that is itself a list, or text with a comma, is quoted for Hydra: "[0.5, 0.5]".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from gradstarve.errors import UserError, nearest

KEYS = ("title", "note", "common", "grids")


@dataclass(frozen=True)
class SweepFile:
    """A sweep file as it was read: each grid a list of override texts, the common ones among them."""

    name: str
    path: Path
    title: str | None
    note: str | None
    grids: tuple[tuple[str, ...], ...]


def find_sweep(wanted: str, folder: Path) -> Path:
    """The file of a sweep: a name in `folder`, or a path. Raises UserError, naming the nearest."""
    if wanted.endswith((".yaml", ".yml")) or "/" in wanted:
        path = Path(wanted)
        if not path.is_file():
            raise UserError(f"+sweep={wanted}: no such file")
        return path
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if wanted not in known:
        raise UserError(f"+sweep={wanted}: no such sweep in {folder}. {nearest(wanted, known)}")
    return known[wanted]


def read_sweep_file(path: Path) -> SweepFile:
    """Raises UserError: one line that names the file, the grid and the key."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: a sweep file is a mapping with the keys {', '.join(KEYS)}")
    for key in content:
        if key not in KEYS:
            raise UserError(f"{path}: {key!s}: unknown key. {nearest(str(key), KEYS)}")
    for key in ("title", "note"):
        if not isinstance(content.get(key), str | None):
            raise UserError(f"{path}: {key}: should be text, got {content[key]!r}")
    common = _grid(content.get("common") or {}, f"{path}: common")
    grids = content.get("grids")
    if not isinstance(grids, list) or not grids:
        raise UserError(f"{path}: grids: should be a list of at least one grid")
    texts = [{**common, **_grid(grid, f"{path}: grid {number}")} for number, grid in enumerate(grids, 1)]
    return SweepFile(
        path.stem, path, content.get("title"), content.get("note"), tuple(tuple(t.values()) for t in texts)
    )


def _grid(content: Any, where: str) -> dict[str, str]:
    """Override texts by key."""
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: should be a mapping of keys to values, got {content!r}")
    overrides = {}
    for key, value in content.items():
        if not isinstance(key, str) or not key or "=" in key:
            raise UserError(f"{where}: {key!r} is not a key")
        bare = key.lstrip("+~")
        if bare.startswith(("hydra.", "hydra/")) or bare in {"sweep", "outputs", "dry_run"}:
            raise UserError(f"{where}: {key}: says how a sweep is run, not what; give it on the command line")
        overrides[bare] = f"{key}={_values(value, f'{where}: {key}')}"
    return overrides


def _values(value: Any, where: str) -> str:
    if isinstance(value, list):
        if not value:
            raise UserError(f"{where}: an empty list of values")
        return ",".join(_text(item, where) for item in value)
    return _text(value, where)


def _text(value: Any, where: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise UserError(f"{where}: should be a value or a list of values, got {value!r}; write nested keys with dots")
