"""An answer that would fill the machine: ended by the limit of memory, not by the clock, and not by the kernel."""

from __future__ import annotations

from collections.abc import Hashable

from gradstarve.grading import Verdict
from gradstarve.grading.pool import Pair, WorkerPool


def test_a_power_of_a_gigabyte_is_refused_its_memory_and_the_next_pair_is_decided() -> None:
    found: dict[Hashable, tuple[Verdict, str]] = {}

    def decided(key: Hashable, verdict: Verdict, why: str) -> dict[Hashable, Pair]:
        found[key] = (verdict, why)
        return {}

    # 9,898,020,100 binary digits.
    with WorkerPool(workers=1, seconds=100, memory_bytes=700 << 20) as pool:
        pool.decide({"large": Pair("x^2", "((2^{9999})^{9999})^{99} x")}, decided)
        pool.decide({"small": Pair("x + 1", "1 + x")}, decided)
    assert found == {"large": ("unverifiable", "memory"), "small": ("right", "")}
