"""Figures show every seed and the numbers of the tables, and are written as vector and PNG."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic

from gradstarve.reporting.difficulty import dead_of, difficulty_of
from gradstarve.reporting.figures.seed_dots import seed_dots
from gradstarve.reporting.figures.training_curves import share_curves
from gradstarve.reporting.paper import the_paper
from gradstarve.reporting.study import read_study
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_identity


def test_every_seed_is_a_dot(outputs: Any) -> None:
    outputs.base(25)
    outputs.cell("sign", [80, 84, 84, 91])
    outputs.cell("drgrpo", [30, 34])
    (setting,) = read_study(outputs.path).settings
    (axes,) = seed_dots(setting, 4, the_paper()).axes
    drawn = [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() in {"o", "X"}]
    assert drawn == [pytest.approx([30, 34]), pytest.approx([80, 84, 84, 91])]
    # Equal seeds do not hide each other.
    places = {(x, y) for line in axes.lines if line.get_marker() == "o" for x, y in zip(*line.get_data(), strict=True)}
    assert len(places) == 4
    assert [label.get_text() for label in axes.get_yticklabels()] == ["drgrpo (2)", "sign (4)"]
    means = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "|"]
    assert means == pytest.approx([32, 84.75])


def test_shares_stack_to_all_groups_and_have_one_key(outputs: Any) -> None:
    for arm in ("sign", "drgrpo"):
        outputs.cell(arm, [80, 84], tables=True)
    (setting,) = read_study(outputs.path).settings
    figure = share_curves(setting, 4)
    assert figure is not None
    axes, _ = figure.axes
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["all-fail", "mixed", "all-pass", "truncated"]
    top = max(path.vertices[:, 1].max() for collection in axes.collections for path in collection.get_paths())
    assert top == pytest.approx(100)


def test_all_figures_are_written_twice_over(outputs: Any) -> None:
    outputs.base(25)
    outputs.cell("sign", [80, 84], tables=True, by_step={10: 50})
    assert outputs.call("tables")[0] == 0
    files = sorted(file.name for file in (outputs.path / "figures").iterdir())
    kinds = ("difficulty", "reward-g4", "seeds-g4", "shares-g4", "tokens")
    assert files == sorted(f"{kind}-tiny-sums.{suffix}" for kind in kinds for suffix in ("pdf", "png"))
    for file in (outputs.path / "figures").iterdir():
        head = file.read_bytes()[:24]
        assert head.startswith(b"\x89PNG" if file.suffix == ".png" else b"%PDF")
        if file.suffix == ".png":
            width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
            # A paper column at 220 dots an inch.
            assert width == round(3.4 * 220)
            assert 200 < height < width


def test_difficulty_comes_from_the_start_of_training(outputs: Any) -> None:
    outputs.cell("sign", [80, 84], tables=True)
    study = read_study(outputs.path)
    difficulty = difficulty_of(study.settings[0], study.settings)
    assert difficulty is not None
    # The first tenth of 20 steps is 2 steps of 4 groups, in 2 runs.
    assert len(difficulty.samples_P) == 16
    assert set(difficulty.samples_P) == {4}
    dead = dead_of(difficulty, 4)
    assert dead is not None
    assert dead.d_real == pytest.approx(np.mean(np.isin(difficulty.successes_P, [0, 4])))
    assert dead_of(difficulty, 8) is None


@pytest.mark.parametrize(
    ("dataset", "changed", "used"),
    [
        ("sums", {}, True),
        ("sums", {"evaluation__split": "train"}, True),
        ("math500", {}, False),
        ("sums", {"completion_limit": 20}, False),
        ("sums", {"dataset__largest_operand": 7}, False),
    ],
)
def test_difficulty_comes_from_samples_of_the_same_task(
    outputs: Any, dataset: str, changed: dict[str, Any], used: bool
) -> None:
    """What the untrained model was asked elsewhere says nothing of this training."""
    outputs.cell("sign", [80, 84], tables=True)
    base = outputs.base()
    asked = outputs.config("base", evaluation__greedy=False, evaluation__samples=4, **changed)
    rows = pd.DataFrame({"question_id": ["a"] * 4 + ["b"] * 4, "verdict": ["right"] * 4 + ["wrong"] * 4})
    final = {"step": 0, "n": 8, "questions": 2, "right": 4, "truncated": 0.0}
    identity = evaluation_identity(asked)
    synthetic.write_evaluation(
        RunFolder.of(base), base, final, name="samples-00000001", rows=rows, identity=identity, dataset=dataset
    )
    study = read_study(outputs.path)
    (setting,) = [setting for setting in study.settings if setting.points]
    difficulty = difficulty_of(setting, study.settings)
    assert difficulty is not None
    assert (list(difficulty.successes_P) == [4, 0]) == used
    kind = "training question" if changed.get("evaluation__split") else "question"
    assert difficulty.source.startswith(f"4 samples a {kind} of sums" if used else "groups of 4")
