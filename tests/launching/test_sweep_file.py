from __future__ import annotations

from pathlib import Path

import pytest

from gradstarve.errors import UserError
from gradstarve.launching.sweep_file import find_sweep, read_sweep_file


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path, says: str) -> None:
    """One line, which names the file."""
    with pytest.raises(UserError) as error:
        read_sweep_file(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_grids_take_what_is_common_and_may_say_otherwise(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        title: A title
        note: A note
        common: {steps: 20, seed: "1..3", evaluation.limit: null, dry: false}
        grids:
          - advantage: sign,tasa
          - advantage: [sign, drgrpo]
            seed: 7
            learning_rate: 1e-4
        """,
    )
    sweep = read_sweep_file(path)
    assert (sweep.name, sweep.title, sweep.note) == ("mine", "A title", "A note")
    assert sweep.grids == (
        ("steps=20", "seed=1..3", "evaluation.limit=null", "dry=false", "advantage=sign,tasa"),
        ("steps=20", "seed=7", "evaluation.limit=null", "dry=false", "advantage=sign,drgrpo", "learning_rate=0.0001"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grid: []", "grid: unknown key. Did you mean 'grids'?"),
        ("title: x", "grids: should be a list of at least one grid"),
        ("grids: []", "grids: should be a list of at least one grid"),
        ("- advantage: sign", "a sweep file is a mapping"),
        ("", "grids: should be a list of at least one grid"),
        ("grids: [sign]", "grid 1: should be a mapping of keys to values, got 'sign'"),
        ("grids: [{seed: []}]", "grid 1: seed: an empty list of values"),
        ("grids: [{evaluation: {limit: 3}}]", "grid 1: evaluation: should be a value or a list of values"),
        ("grids: [{}, {hydra.launcher.jobs: 3}]", "grid 2: hydra.launcher.jobs: says how a sweep is run"),
        ("grids: [{outputs: x}]", "grid 1: outputs: says how a sweep is run"),
        ("grids: [{seed=3: x}]", "grid 1: 'seed=3' is not a key"),
        ("title: 3\ngrids: [{}]", "title: should be text, got 3"),
        ("grids: [{seed: 1, seed: 2}]", "not readable as YAML"),
        ("grids: [{", "not readable as YAML"),
    ],
)
def test_a_bad_file_is_told_in_one_line_that_names_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    refused(written(tmp_path, text), says)


def test_a_sweep_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    path = written(tmp_path, "grids: [{}]")
    assert find_sweep("mine", tmp_path) == path
    assert find_sweep(str(path), tmp_path / "elsewhere") == path
    with pytest.raises(UserError, match=r"no such sweep in .*\. Did you mean 'mine'\?"):
        find_sweep("mien", tmp_path)
    with pytest.raises(UserError, match="no such file"):
        find_sweep("mine.yaml", tmp_path)


ORIGINAL = """
title: The original
note: Why
common: {model: large, seed: "42..48"}
grids:
  - advantage: sign,tasa
    rate: [1.0e-5, 2.0e-5]
  - advantage: base
    model: large,other
"""


def test_a_twin_is_the_other_sweep_with_what_it_lists_replaced(tmp_path: Path) -> None:
    original = read_sweep_file(written(tmp_path, ORIGINAL, "original.yaml"))
    twin = read_sweep_file(
        written(
            tmp_path,
            """
            like: original
            instead:
              model: {large: tiny, other: tiny}
              rate: {1.0e-5: 1.0e-4}
              steps: 20
              seed: 1..2
            """,
            "twin.yaml",
        )
    )
    assert twin.grids == (
        ("model=tiny", "seed=1..2", "advantage=sign,tasa", "rate=0.0001,2e-05", "steps=20"),
        ("model=tiny", "seed=1..2", "advantage=base", "steps=20"),
    )
    assert (twin.title, twin.note) == ("The original (twin)", "Why")
    assert (twin.like, twin.instead) == ("original", ("model", "rate", "steps", "seed"))
    assert (original.like, original.instead) == (None, ())
    # A key that only some grids have is replaced in these alone.
    partly = read_sweep_file(written(tmp_path, "like: original\ninstead: {rate: 3}", "partly.yaml"))
    assert [[text for text in grid if "rate" in text] for grid in partly.grids] == [["rate=3"], []]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("like: orignal\ninstead: {seed: 1}", "like: no sweep 'orignal' beside it. Did you mean 'original'?"),
        ("like: mine\ninstead: {seed: 1}", "like: no sweep 'mine' beside it"),
        ("like: other\ninstead: {seed: 1}", "like: other is itself like original; name that one"),
        ("like: original", "instead: should be a mapping of the replaced keys"),
        ("like: original\ninstead: {}", "instead: should be a mapping of the replaced keys"),
        ("like: original\ninstead: {seed: 1}\ngrids: [{}]", "grids: a file with `like` has the grids of original"),
        ("like: original\ninstead: {model: {huge: tiny}}", "instead: model: huge: no grid has this value"),
        ("like: original\ninstead: {nothing: {a: b}}", "instead: nothing: a: no grid has this value"),
        ("like: original\ninstead: {outputs: x}", "instead: outputs: says how a sweep is run"),
        ("like: 3\ninstead: {seed: 1}", "like: should be text, got 3"),
        ("instead: {seed: 1}\ngrids: [{}]", "instead: read only where `like` names the sweep"),
    ],
)
def test_a_bad_twin_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    written(tmp_path, ORIGINAL, "original.yaml")
    written(tmp_path, "like: original\ninstead: {seed: 1}", "other.yaml")
    refused(written(tmp_path, text), says)
