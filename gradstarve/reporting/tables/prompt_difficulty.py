"""Dead groups at each group size, from samples of the untrained model: the paper's Figure 2 as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from gradstarve.reporting.cells import Setting
from gradstarve.reporting.difficulty import dead_of, sampled_difficulty
from gradstarve.reporting.tables.notes import cell_notes, describe
from gradstarve.reporting.tables.table import Column, Row, Table

GROUP_SIZES = (2, 4, 8, 16, 32, 64)
COLUMNS = [
    Column("group_size", "G", "count", "terminal"),
    Column("prompts", "prompts", "count", "terminal"),
    Column("dead", "D_real", "percent", "terminal"),
    Column("dead_ci95", "95 % CI", "interval", "terminal"),
    Column("d_iid", "D_iid", "percent", "terminal"),
    Column("ratio", "D_real / D_iid", "number", "terminal"),
    Column("all_fail", "all-fail", "percent", "terminal"),
    Column("all_fail_ci95", "all-fail 95 % CI", "interval"),
    Column("mixed", "mixed", "percent", "terminal"),
    Column("all_pass", "all-pass", "percent", "terminal"),
    Column("all_pass_ci95", "all-pass 95 % CI", "interval"),
    Column("truncated", "truncated", "percent", "terminal"),
]
LEGEND = (
    "D_real: the share of groups of G samples that would be all right or all wrong, unbiased from each prompt's "
    "counts, 95 % interval over prompts; D_iid: the same if all prompts had the mean success rate. A group size beyond "
    "the samples of a prompt is left out. Truncated: share of the samples."
)


def difficulty_table(setting: Setting, more_notes: Sequence[str] = ()) -> Table | None:
    """One row for each group size that the samples allow; None where the untrained model was not sampled."""
    difficulty = sampled_difficulty(setting)
    if difficulty is None or setting.base is None:
        return None
    rows = []
    for size in GROUP_SIZES:
        dead = dead_of(difficulty, size)
        if dead is None:
            continue
        values = {
            "group_size": size,
            "prompts": len(difficulty.samples_P),
            "dead": dead.d_real,
            "dead_ci95": dead.d_real_ci95,
            "d_iid": dead.d_iid,
            "ratio": dead.amplification(),
            "all_fail": dead.all_fail,
            "all_fail_ci95": dead.all_fail_ci95,
            "mixed": dead.mixed,
            "all_pass": dead.all_pass,
            "all_pass_ci95": dead.all_pass_ci95,
            "truncated": setting.base.truncated,
        }
        rows.append(Row(f"g{size}", values, {}, {"": difficulty.runs}))
    rates = difficulty.rates_P
    notes = [
        *more_notes,
        f"Of {len(rates):,} prompts {100 * float((rates == 0).mean()):.1f} % were never answered right and "
        f"{100 * float((rates == 1).mean()):.1f} % always; mean success rate {100 * float(rates.mean()):.1f} %.",
        *cell_notes([setting.base]),
    ]
    title = f"Dead groups from samples of the untrained model · {setting.name}"
    caption = f"{describe(setting, None)} From {difficulty.source}."
    return Table("difficulty", f"difficulty-{setting.name}", title, caption, COLUMNS, rows, notes, LEGEND)
