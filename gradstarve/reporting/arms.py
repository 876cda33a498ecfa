"""The arms of a table: their order and their names as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BASELINE = "drgrpo"
UNTRAINED = "base"
# As in the paper's Table 1.
PAPER_ARMS = ("base", "sign", "sign_ce", "tasa", "tasa_ce", "contrastive_pair", "drgrpo")


def arm_order(arm: str) -> tuple[int, str]:
    """Sort key: the paper's arms in the paper's order, then all others alphabetically."""
    name = arm.split(" ")[0]
    return (PAPER_ARMS.index(name), arm) if name in PAPER_ARMS else (len(PAPER_ARMS), arm)


def distinct_labels(advantages: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A label for each cell of one group size: the arm's name, with what sets it apart where a name is used twice.

    `advantages` maps a cell's key to its `advantage` config.
    """
    labels = {}
    for key, config in advantages.items():
        name = str(config["name"])
        twins = [other for k, other in advantages.items() if k != key and other["name"] == name]
        apart = sorted({k for other in twins for k in {*config, *other} if config.get(k) != other.get(k)})
        labels[key] = f"{name} ({', '.join(f'{k} {_brief(config.get(k))}' for k in apart)})" if apart else name
    return labels


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_brief(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def sorted_arms(arms: Iterable[str]) -> list[str]:
    return sorted(arms, key=arm_order)
