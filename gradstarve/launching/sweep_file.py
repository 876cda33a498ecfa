"""Sweep files: sweeps/*.yaml, each the full description of what is run for a table or a figure.

    title: one line for a table's heading            (may be left out)
    note: anything a reader should know              (may be left out)
    common:                                          (may be left out)
      KEY: VALUES                                    what every grid has unless it says otherwise
    grids:
      - KEY: VALUES                                  every combination within a grid;
      - KEY: VALUES                                  the sweep is the union of its grids, each run once

or another sweep with some of its values replaced, and with nothing else changed:

    like: NAME                                       a sweep file of the same folder, with grids of its own
    instead:
      KEY: VALUES                                    in the grids that have the key; in all where none has it
      KEY: {VALUE: VALUE, ...}                       value for value

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

KEYS = ("title", "note", "common", "grids", "like", "instead")


@dataclass(frozen=True)
class SweepFile:
    """A sweep file as it was read: each grid a list of override texts, the common ones among them.

    `like` names the sweep that this one is, but for the keys of `instead`.
    """

    name: str
    path: Path
    title: str | None
    note: str | None
    grids: tuple[tuple[str, ...], ...]
    like: str | None = None
    instead: tuple[str, ...] = ()


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
    for key in ("title", "note", "like"):
        if not isinstance(content.get(key), str | None):
            raise UserError(f"{path}: {key}: should be text, got {content[key]!r}")
    if content.get("like") is not None:
        return _twin(path, content)
    if "instead" in content:
        raise UserError(f"{path}: instead: read only where `like` names the sweep that is changed")
    common = _grid(content.get("common") or {}, f"{path}: common")
    grids = content.get("grids")
    if not isinstance(grids, list) or not grids:
        raise UserError(f"{path}: grids: should be a list of at least one grid")
    texts = [{**common, **_grid(grid, f"{path}: grid {number}")} for number, grid in enumerate(grids, 1)]
    return SweepFile(
        path.stem, path, content.get("title"), content.get("note"), tuple(tuple(t.values()) for t in texts)
    )


def _twin(path: Path, content: Mapping[Any, Any]) -> SweepFile:
    """The sweep that `like` names, with the replacements of `instead`."""
    for key in ("common", "grids"):
        if key in content:
            raise UserError(f"{path}: {key}: a file with `like` has the grids of {content['like']}; say `instead`")
    other_path = path.parent / f"{content['like']}.yaml"
    if other_path == path or not other_path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.yaml") if file != path)
        raise UserError(f"{path}: like: no sweep {content['like']!r} beside it. {nearest(content['like'], known)}")
    other = read_sweep_file(other_path)
    if other.like is not None:
        raise UserError(f"{path}: like: {other.name} is itself like {other.like}; name that one")
    changes = content.get("instead")
    if not isinstance(changes, Mapping) or not changes:
        raise UserError(f"{path}: instead: should be a mapping of the replaced keys to their values")
    grids = [{_bare(text): text for text in grid} for grid in other.grids]
    for key, value in changes.items():
        where = f"{path}: instead"
        if isinstance(value, Mapping):
            _exchange(grids, key, value, f"{where}: {key}")
        else:
            change = _grid({key: value}, where)
            for grid in [grid for grid in grids if grid.keys() & change.keys()] or grids:
                grid |= change
    return SweepFile(
        path.stem,
        path,
        content.get("title") or f"{other.title or other.name} ({path.stem})",
        content.get("note") or other.note,
        tuple(tuple(grid.values()) for grid in grids),
        other.name,
        tuple(str(key).lstrip("+~") for key in changes),
    )


def _exchange(grids: list[dict[str, str]], key: str, values: Mapping[Any, Any], where: str) -> None:
    """Put values in the place of others, one for one. Raises UserError for one that no grid has."""
    exchanged = {_text(old, where): _text(new, where) for old, new in values.items()}
    seen = set()
    for grid in grids:
        if key not in grid:
            continue
        typed, _, texts = grid[key].partition("=")
        seen |= set(texts.split(","))
        new = dict.fromkeys(exchanged.get(text, text) for text in texts.split(","))
        grid[key] = f"{typed}={','.join(new)}"
    unknown = sorted(set(exchanged) - seen)
    if unknown:
        raise UserError(f"{where}: {', '.join(unknown)}: no grid has this value")


def _bare(text: str) -> str:
    return text.partition("=")[0].lstrip("+~")


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
