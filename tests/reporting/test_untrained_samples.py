"""Samples of the untrained model have a table and a figure of their own, without any trained run."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import synthetic

from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import evaluation_identity, evaluation_name


def sampled_base(outputs: Any, rights: list[int], samples: int = 4, rows: bool = True) -> str:
    """The untrained model asked training questions, `samples` times each."""
    keys = {"name": "samples", "split": "train", "greedy": False, "samples": samples, "limit": len(rights)}
    config = outputs.config("base", **{f"evaluation__{key}": value for key, value in keys.items()})
    synthetic.write_run(config, sum(rights), samples * len(rights))
    verdicts = [
        (f"q{number}", "right" if place < right else "wrong")
        for number, right in enumerate(rights)
        for place in range(samples)
    ]
    final = {"step": 0, "n": len(verdicts), "questions": len(rights), "right": sum(rights), "truncated": 0.25}
    table = pd.DataFrame(verdicts, columns=["question_id", "verdict"])
    folder = RunFolder.of(config)
    synthetic.write_evaluation(
        folder, config, final, name=evaluation_name(config), rows=table if rows else None,
        identity=evaluation_identity(config),
    )  # fmt: skip
    return folder.name


def test_dead_groups_follow_from_the_samples(outputs: Any) -> None:
    run = sampled_base(outputs, [0, 0, 4, 2])
    shown = outputs.tables()
    (name,) = [file.stem for file in (outputs.path / "tables").glob("difficulty-*.csv")]
    rows = outputs.csv(name)
    assert list(rows) == ["2", "4"]
    # Two prompts never, one always, one half: of its 6 pairs 2 are alike. (1 + 1 + 1 + 1/3) / 4 at G = 2.
    assert float(rows["2"]["dead"]) == pytest.approx((3 + 1 / 3) / 4)
    assert float(rows["2"]["all_fail"]) == pytest.approx((2 + 1 / 6) / 4)
    # The mean rate is 6 / 16 = 3/8.
    assert float(rows["2"]["d_iid"]) == pytest.approx((3 / 8) ** 2 + (5 / 8) ** 2)
    assert float(rows["4"]["dead"]) == pytest.approx(3 / 4)
    text = outputs.text(name)
    assert "50.0 % were never answered right and 25.0 % always" in text
    assert "untrained. Evaluated on 4 training questions (not held out) of sums, 4 samples" in text
    # An untrained model has no training to describe.
    assert "steps" not in text and "learning rate" not in text
    assert "25 % of the evaluated completions had no end within the completion limit" in text.replace("\n", " ")
    assert "@1" in shown
    assert outputs.call("tables")[0] == 0
    assert list((outputs.path / "figures").glob("difficulty-*.png"))
    code, out, _ = outputs.call("tables", "--explain", "difficulty/g2/dead")
    assert code == 0 and run in out


def test_samples_that_were_not_kept_make_no_table_and_no_traceback(outputs: Any) -> None:
    sampled_base(outputs, [1, 2], rows=False)
    code, out, err = outputs.call("tables", "--no-figures")
    assert (code, "Traceback" in out + err) == (0, False)
    assert not list((outputs.path / "tables").glob("difficulty-*"))
