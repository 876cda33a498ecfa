from __future__ import annotations

from pathlib import Path

import pytest

from gradstarve.errors import UserError
from gradstarve.launching.sweep_file import find_sweep, read_sweep_file


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


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
    path = written(tmp_path, text)
    with pytest.raises(UserError) as error:
        read_sweep_file(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_sweep_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    path = written(tmp_path, "grids: [{}]")
    assert find_sweep("mine", tmp_path) == path
    assert find_sweep(str(path), tmp_path / "elsewhere") == path
    with pytest.raises(UserError, match=r"no such sweep in .*\. Did you mean 'mine'\?"):
        find_sweep("mien", tmp_path)
    with pytest.raises(UserError, match="no such file"):
        find_sweep("mine.yaml", tmp_path)
