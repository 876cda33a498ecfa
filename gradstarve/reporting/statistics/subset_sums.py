"""How many subsets of some integers have a sum of at least x: exact counts far beyond what can be enumerated.

Two ways, both exact. *Packed*: the dynamic programme over sums, with all counts of one subset size packed into one
large Python integer (Kronecker substitution), so that adding a value to every subset is one shift and one addition. It
suits counts of questions, whose range is small. *Halved*: the sums of the subsets of either half of the values, sorted,
and for each sum of one half the matching ones of the other by bisection. It suits any integers, up to 44 of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

_MOST_PACKED_BYTES = 20_000_000_000  # moved through memory in all: some seconds
_MOST_PACKED_BYTES_HELD = 500_000_000
_MOST_HALVED = 44  # 2**22 sums in each half
_MOST_HALVED_WIDE = 34  # the same with integers beyond 64 bits, which numpy handles as objects


class SubsetSums(Protocol):
    """The distribution of the sum of a subset, all subsets counted once."""

    @property
    def subsets(self) -> int:
        """The number of all subsets."""
        ...

    def at_least(self, threshold: int) -> int:
        """The number of subsets whose sum is at least `threshold`."""
        ...


@dataclass(frozen=True)
class PackedSums:
    """`packed` holds the count of sum s in its bits `s * width` to `(s + 1) * width`."""

    packed: int
    width: int
    subsets: int

    def at_least(self, threshold: int) -> int:
        # A number is congruent to the sum of its digits modulo (base - 1), and no such sum reaches base - 1 here.
        return (self.packed >> (max(threshold, 0) * self.width)) % ((1 << self.width) - 1)


@dataclass(frozen=True)
class HalvedSums:
    """`pairs`: (sorted sums of subsets of one half, sorted sums of the subsets of the other that complete them)."""

    pairs: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
    subsets: int

    def at_least(self, threshold: int) -> int:
        return sum(int(np.sum(len(high) - np.searchsorted(high, threshold - low))) for low, high in self.pairs)


def subset_sums(values: Sequence[int], size: int | None) -> SubsetSums | None:
    """The exact distribution of the sum over all subsets of `size` of the `values` (of any size where None).

    `values` are at least 0. None where neither way could do it in some seconds.
    """
    packed_bytes, packed_bytes_held = _packed_cost(values, size)
    packable = packed_bytes <= _MOST_PACKED_BYTES and packed_bytes_held <= _MOST_PACKED_BYTES_HELD
    wide = sum(values) >= 2**62
    halvable = len(values) <= (_MOST_HALVED_WIDE if wide else _MOST_HALVED)
    halved_bytes = 2 ** (len(values) // 2) * 8 * 32  # 32 passes: sorting and the bisections
    if packable and (packed_bytes <= halved_bytes or not halvable):
        return _packed(values, size)
    return _halved(values, size, wide) if halvable else None


def _number_of_subsets(values: Sequence[int], size: int | None) -> int:
    return 2 ** len(values) if size is None else math.comb(len(values), size)


def _packed_cost(values: Sequence[int], size: int | None) -> tuple[int, int]:
    """Bytes moved in all, and bytes held at once."""
    of_one_size = sum(sorted(values)[-size:] if size else values) * _number_of_subsets(values, size).bit_length() // 8
    if size is None:
        return len(values) * of_one_size, of_one_size
    return size * (len(values) - size) * of_one_size // 2, size * of_one_size


def _packed(values: Sequence[int], size: int | None) -> PackedSums:
    subsets = _number_of_subsets(values, size)
    width = subsets.bit_length() + 1
    if size is None:
        ways = 1
        for value in sorted(values):
            ways += ways << (value * width)
        return PackedSums(ways, width, subsets)
    ways_by_size = [1] + [0] * size
    for done, value in enumerate(sorted(values)):
        fewest = max(1, size - (len(values) - done - 1))  # smaller subsets can no longer reach `size`
        for chosen in range(min(size, done + 1), fewest - 1, -1):
            ways_by_size[chosen] += ways_by_size[chosen - 1] << (value * width)
    return PackedSums(ways_by_size[size], width, subsets)


def _halved(values: Sequence[int], size: int | None, wide: bool) -> HalvedSums:
    middle = len(values) // 2
    first, second = (_sums_by_size(half, wide) for half in (values[:middle], values[middle:]))
    subsets = _number_of_subsets(values, size)
    if size is None:
        return HalvedSums([(np.sort(np.concatenate(first)), np.sort(np.concatenate(second)))], subsets)
    sizes = range(max(0, size - len(second) + 1), min(size, len(first) - 1) + 1)
    return HalvedSums([(first[chosen], second[size - chosen]) for chosen in sizes], subsets)


def _sums_by_size(values: Sequence[int], wide: bool) -> list[np.ndarray[Any, Any]]:
    kind = object if wide else np.int64
    sums = [np.zeros(1, dtype=kind)] + [np.zeros(0, dtype=kind)] * len(values)
    for done, value in enumerate(values):
        for chosen in range(done + 1, 0, -1):
            sums[chosen] = np.concatenate([sums[chosen], sums[chosen - 1] + value])
    return [np.sort(of_size) for of_size in sums]
