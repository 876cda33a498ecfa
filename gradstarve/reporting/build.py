"""All tables and figures of a study, and the files they are written to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from gradstarve.reporting.cells import Setting
from gradstarve.reporting.difficulty import Difficulty, difficulty_of, sampled_difficulty
from gradstarve.reporting.figures.curves import pass_at_k_figure, tokens_figure
from gradstarve.reporting.figures.difficulty import difficulty_figure
from gradstarve.reporting.figures.seed_dots import seed_dots
from gradstarve.reporting.figures.style import save
from gradstarve.reporting.figures.training_curves import reward_curves, share_curves
from gradstarve.reporting.paper import the_paper
from gradstarve.reporting.provenance import provenance
from gradstarve.reporting.study import Study
from gradstarve.reporting.tables.accuracy import accuracy_table
from gradstarve.reporting.tables.across_settings import model_tables, transfer_table
from gradstarve.reporting.tables.contrasts import contrast_table, replay_table
from gradstarve.reporting.tables.every_run import runs_table
from gradstarve.reporting.tables.group_sizes import group_size_table
from gradstarve.reporting.tables.matched import matched_tables
from gradstarve.reporting.tables.pass_at_k import pass_at_k_table
from gradstarve.reporting.tables.prompt_difficulty import GROUP_SIZES, difficulty_table
from gradstarve.reporting.tables.robustness import leave_one_out_table, noise_note, noise_table
from gradstarve.reporting.tables.side_by_side import side_by_side_tables
from gradstarve.reporting.tables.table import Table
from gradstarve.reporting.tables.training import cost_table, degeneracy_table
from gradstarve.reporting.tables.writers import comma_separated, latex, markdown, put_text
from gradstarve.runs.files import finite, read_json


def build_tables(study: Study) -> list[Table]:
    """Every table that the runs allow, the settings with most runs first; the transfer is as prominent as Table 1."""
    paper, partial, noise = the_paper(), study.partial_note(), noise_table(study.rows)
    floor = noise_note(noise) if noise is not None else []
    found: list[Table | None] = []
    for setting in study.settings:
        if setting.samples > 1:
            found += [pass_at_k_table(setting, partial), difficulty_table(setting, partial)]
            continue
        sizes = sorted(setting.group_sizes, key=lambda size: (size != 4, size != 8, size)) or [4]
        found += [accuracy_table(setting, size, paper, study.settings, [*partial, *floor]) for size in sizes]
        # The tables above say so: how many training questions are answered is no held-out accuracy.
        if setting.on_training:
            continue
        found.append(transfer_table(setting, paper, partial))
        for size in sizes:
            found += [
                contrast_table(setting, size, partial),
                replay_table(setting, size, partial),
                leave_one_out_table(setting, size, partial),
            ]
        found.append(group_size_table(setting, paper, partial))
        if not setting.transfer:
            found += [degeneracy_table(setting, paper, partial), cost_table(setting, partial)]
    found += [
        *matched_tables(study.settings, partial),
        *side_by_side_tables(study.settings, partial),
        *model_tables(study.settings, paper, partial),
        noise,
    ]
    return [table for table in found if table is not None]


def write_tables(study: Study, tables: Sequence[Table]) -> list[Path]:
    """Write .md, .csv and .tex of each, and runs.csv."""
    folder = study.folder("tables")
    files = []
    for table in tables:
        for suffix, write in ((".md", markdown), (".csv", comma_separated), (".tex", latex)):
            file = folder / f"{table.name}{suffix}"
            put_text(file, write(table))
            files.append(file)
    every_run = folder / "runs.csv"
    put_text(every_run, comma_separated(runs_table(study.settings)))
    return [*files, every_run]


@dataclass(frozen=True)
class Drawing:
    """A figure on disk: `files` are its .png and its .pdf; `caption` says what it shows."""

    name: str
    setting: str
    caption: str
    files: Sequence[Path]


def write_figures(study: Study, progress: Callable[[str], None] | None = None) -> list[Drawing]:
    """Write every figure that the runs allow, as .png and .pdf."""
    folder = study.folder("figures")
    drawings = []
    for setting in study.settings:
        for kind, caption, draw in _figures(setting, study):
            name = f"{kind}-{setting.name}"
            if progress is not None:
                progress(f"drawing {name}")
            figure = draw()
            if figure is not None:
                drawings.append(Drawing(name, setting.name, caption, save(figure, folder, name)))
    return drawings


def _figures(setting: Setting, study: Study) -> Iterator[tuple[str, str, Callable[[], Figure | None]]]:
    """(kind, caption, how to draw it) of all that a setting could have."""
    paper = the_paper()
    if setting.samples > 1:
        yield (
            "pass-at-k",
            f"pass@k {'on training questions ' if setting.on_training else ''}against k on a logarithmic axis; bands: "
            "95 % over questions.",
            partial(pass_at_k_figure, setting),
        )
        sampled = sampled_difficulty(setting)
        if sampled is not None:
            yield _difficulty(sampled, GROUP_SIZES)
        return
    if setting.on_training:
        return
    for size in setting.group_sizes:
        if not any(cell.points for cell in setting.at(size)):
            continue
        seeds = f"Accuracy by arm at G = {size}: every seed a dot, mean and 95 % t-interval below; in brackets, n."
        yield f"seeds-g{size}", seeds, partial(seed_dots, setting, size, paper)
        if not setting.transfer:
            reward = (
                f"Training reward at G = {size}: mean and range of the seeds; moving average over 5 % of the steps."
            )
            yield f"reward-g{size}", reward, partial(reward_curves, setting, size)
            shares = (
                f"All-fail, mixed and all-pass groups over the training, G = {size}; dashed: truncated completions."
            )
            yield f"shares-g{size}", shares, partial(share_curves, setting, size)
    if setting.transfer or not setting.points:
        return
    tokens = "Accuracy against the tokens that a run had generated; one line a run."
    yield "tokens", tokens, partial(tokens_figure, setting)
    difficulty = difficulty_of(setting, study.settings)
    if difficulty is not None:
        yield _difficulty(difficulty, setting.group_sizes)


def _difficulty(difficulty: Difficulty, group_sizes: Sequence[int]) -> tuple[str, str, Callable[[], Figure | None]]:
    caption = (
        "Success rates of single prompts, and the dead groups that follow from them (D_real, unbiased, 95 % interval) "
        f"against those of equal prompts (D_iid). From {difficulty.source}."
    )
    return "difficulty", caption, partial(difficulty_figure, difficulty, group_sizes)


def write_provenance(study: Study, tables: Sequence[Table], files: Sequence[Path]) -> Path:
    """Write provenance.json last, and remove what an earlier call wrote into the same folders and this one did not."""
    file = study.folder("tables") / "provenance.json"
    before = read_json(file)
    content = provenance(tables, files, study.outputs)
    folders = {path.parent.resolve() for path in files}
    for name in set(before.get("files", [])) - set(content["files"]) if isinstance(before, dict) else ():
        old = study.outputs / name
        if old.parent.resolve() in folders:
            old.unlink(missing_ok=True)
        elif old.is_file():
            content["files"].append(name)
    put_text(file, json.dumps(finite(content), indent=1, ensure_ascii=False) + "\n")
    return file
