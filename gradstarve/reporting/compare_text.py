"""The plain text of `gradstarve compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradstarve.reporting.statistics import Comparison, Permutation, Summary

ALL_EQUAL = "every value of both groups is the same: no test can tell them apart, and each p is 1 for that alone"
LONGEST_NAME = 60


def describe(
    summaries: Mapping[str, Summary],
    comparisons: Mapping[str, Comparison],
    holm_ps: Mapping[str, float | None],
    baseline: str,
    value_name: str,
) -> str:
    """A table of the groups, then a block for each comparison with the baseline."""
    header = ["group", "n", "mean", "sd", "median", "min", "max", "IQM", "95 % t-interval"]
    rows = [
        [
            _shown(name) + (" (baseline)" if name == baseline else ""),
            str(summary.n),
            *map(_number, (summary.mean, summary.sd, summary.median, summary.minimum, summary.maximum, summary.iqm)),
            "- (no spread)" if summary.sd == 0 else _interval(summary.ci95),
        ]
        for name, summary in summaries.items()
    ]
    blocks = [f"{_shown(value_name)} of each group", _columns([header, *rows])]
    for name, comparison in comparisons.items():
        title = f"{_shown(name)} - {_shown(baseline)} ({comparison.n_a} v {comparison.n_b})"
        if all_equal(summaries[name], summaries[baseline]):
            title += f"\n  {ALL_EQUAL}"
        blocks.append(title + "\n" + _columns(_comparison_rows(comparison, holm_ps[name], len(comparisons)), "  "))
    return "\n\n".join(blocks)


def all_equal(a: Summary, b: Summary) -> bool:
    """Whether every value of both groups is the same."""
    return a.minimum == a.maximum == b.minimum == b.maximum and a.sd == b.sd == 0


def _comparison_rows(comparison: Comparison, holm_p: float | None, family: int) -> list[list[str]]:
    reasons = comparison.reasons
    welch = comparison.welch
    rows = [
        ["difference of means", _number(comparison.difference)],
        ["  95 % interval (Welch)", _interval(comparison.ci95) + _because(reasons, "ci95")],
        [
            "Welch's t-test",
            f"p = {_p(welch.p)} two-sided (t = {welch.t:.3f}, df = {welch.df:.2f})"
            if welch
            else "-" + _because(reasons, "welch"),
        ],
        *_permutation_rows(comparison.permutation),
        [
            "Mann-Whitney",
            f"p = {_p(comparison.mann_whitney_p)} two-sided "
            + ("(exact)" if comparison.mann_whitney_exact else "(normal approximation: too many values)"),
        ],
        [f"Holm, {family} comparison{'s' * (family > 1)}", f"p = {_p(holm_p)} (of the two-sided permutation p)"],
        ["Hodges-Lehmann shift", _number(comparison.hodges_lehmann) + _because(reasons, "hodges_lehmann")],
    ]
    confidence = comparison.hodges_lehmann_confidence
    rows.append(
        [
            f"  {100 * confidence:.1f} % interval (exact)" if confidence else "  95 % interval (exact)",
            _interval(comparison.hodges_lehmann_ci95) + _because(reasons, "hodges_lehmann_ci95"),
        ]
    )
    every = "; every one above every one of the baseline" if comparison.every_a_above_every_b else ""
    detectable = comparison.detectable_difference
    rows += [
        ["Hedges g", _number(comparison.hedges_g) + _because(reasons, "hedges_g")],
        ["probability of improvement", f"{100 * comparison.probability_of_improvement:.1f} %{every}"],
        [
            "difference seen 8 times in 10",
            _number(detectable)
            + (" or more, at these n and this spread (t-test, 5 %)" if detectable is not None else "")
            + _because(reasons, "detectable_difference"),
        ],
    ]
    return rows


def _permutation_rows(test: Permutation) -> list[list[str]]:
    of = f"of {test.relabellings:,} relabellings" + ("" if test.exact else " drawn at random")
    rows = [
        [
            "permutation test" + (" (exact)" if test.exact else ""),
            f"p = {_p(test.p_two_sided)} two-sided, {_p(test.p_greater)} one-sided (greater); {of}",
        ],
    ]
    if test.exact:
        rows.append(
            ["  smallest p possible", f"{_p(test.smallest_p)} two-sided, {_p(test.smallest_p_greater)} one-sided"]
        )
    else:
        rows.append(["  not exact", f"too many values too fine to count; p in steps of {_p(1 / test.relabellings)}"])
    if test.p_doubled != test.p_two_sided:
        rows.append(["  smaller tail doubled", f"p = {_p(test.p_doubled)} (scipy's two-sided)"])
    return rows


def _columns(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"[{_number(ends[0])}, {_number(ends[1])}]"


def _because(reasons: Mapping[str, str], field: str) -> str:
    return f" ({reasons[field]})" if field in reasons else ""


def _shown(name: str) -> str:
    # Names come from a file: no line breaks or terminal escapes, and no name that fills the screen.
    cut = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."
    return "".join(character if character.isprintable() else "�" for character in cut)
