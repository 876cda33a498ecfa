"""Naming the keys of a config: where a mistake stands, and which key was meant."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from gradstarve.errors import nearest


def explain(error: ValidationError, root: Any, prefix: tuple[str, ...] = ()) -> str:
    """The first problem of a pydantic error in one line: where in the dataclass `root`, what, and the nearest names for
    an unknown key."""
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in (*prefix, *problem["loc"])]
    node: Any = root
    shown: list[str] = []
    for part in path:
        # Discriminated unions add their tag to the location; a user never wrote it.
        tagged = [candidate for candidate in _candidates(node) if _source(candidate) == part]
        if shown and tagged:
            node = tagged[0]
            continue
        shown.append(part)
        if part != path[-1]:
            node = _child(node, part)
    where = ".".join(shown)
    more = len(error.errors()) - 1
    end = f" (and {more} more)" if more else ""
    if problem["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        names = {name for c in _candidates(node) for name in _field_names(c)}
        return f"{where}: unknown key. {nearest(path[-1], names)}{end}"
    if problem["type"] in {"missing", "missing_argument"}:
        return f"{where}: missing{end}"
    if problem["type"] == "union_tag_invalid":
        context = problem["ctx"]
        key, known = context["discriminator"].strip("'"), context["expected_tags"].replace(", ", " or ")
        return f"{where}.{key}: should be {known}, got {context['tag']!r}{end}"
    message = problem["msg"][0].lower() + problem["msg"][1:]
    given = f", got {problem['input']!r}" if not isinstance(problem["input"], Mapping) else ""
    return f"{where}: {message.removeprefix('input ')}{given}{end}"


def _candidates(node: Any) -> tuple[Any, ...]:
    # An instance is no candidate: pydantic's own markers, such as Discriminator, are dataclasses too.
    if isinstance(node, type) and dataclasses.is_dataclass(node):
        return (node,)
    return tuple(c for arg in get_args(node) for c in _candidates(arg))


def _source(dataclass_type: Any) -> str | None:
    """What tells the members of a union apart: the only value of `source`, or of `name` where there is no source."""
    hints = get_type_hints(dataclass_type)
    values = get_args(hints.get("source", hints.get("name")))
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _field_names(dataclass_type: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(dataclass_type)]


def _child(node: Any, part: str) -> Any:
    for candidate in _candidates(node):
        hints = get_type_hints(candidate, include_extras=True)
        if part in hints:
            return hints[part]
    return None


def known_keys(node: Any, prefix: str = "") -> list[str]:
    """Every dotted key that a config can have, for naming the nearest to an unknown one."""
    keys: list[str] = []
    for candidate in _candidates(node):
        for name, hint in get_type_hints(candidate, include_extras=True).items():
            keys.append(prefix + name)
            keys.extend(known_keys(hint, f"{prefix}{name}."))
    return sorted(set(keys))


def nearest_key(key: str, root: Any) -> str:
    """The nearest dotted keys to an unknown one."""
    close = difflib.get_close_matches(key, known_keys(root), n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(repr(c) for c in close)}?" if close else "See `python run.py --cfg job`."
