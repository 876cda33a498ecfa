"""Each table by itself: a run that is missing stands under it by name, and so does a limit that cuts answers off."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import synthetic

from gradstarve.runs.config import RunConfig
from gradstarve.runs.files import write_json
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.signature import identity
from gradstarve.runs.status import write_failure

SAMPLED = {
    "evaluation": {"greedy": False, "samples": 2, "temperature": 1.0, "limit": None, "completion_limit": 14},
    "dataset": {},
}
OTHER = {"model__name": "large", "model__hidden_size": 192}
# Every table of numbers of arms, by the beginning of its file's name.
TABLES = ("table1", "table2", "contrasts-g4", "replay-g4", "leave-one-out-g4", "group-size", "degeneracy", "cost",
          "table3", "transfer", "pass-at-k")  # fmt: skip


@pytest.fixture(scope="module")
def study(module_outputs: Any) -> Any:
    """Three seeds of each arm, of which one more failed; of what is generated in training 40 % has no end."""
    outputs = module_outputs
    wanted: list[dict[str, Any]] = []

    def run(advantage: str, group_size: int, seed: int, right: int, **keys: Any) -> RunConfig:
        config = outputs.config(advantage, group_size, seed, **keys)
        folder = synthetic.write_run(config, right, 100, truncated=0.4)
        final = {"step": 20, "n": 4, "questions": 2, "right": 2, "truncated": 0.375}
        rows = pd.DataFrame({"question_id": ["a", "a", "b", "b"], "verdict": ["right", "wrong"] * 2})
        synthetic.write_evaluation(folder, config, final, name="samples-00000001", rows=rows, identity=SAMPLED)
        synthetic.write_evaluation(folder, config, final, name="elsewhere-00000002", dataset="math500")
        return config

    def failed(advantage: str, group_size: int, seed: int, **keys: Any) -> None:
        config = outputs.config(advantage, group_size, seed, **keys)
        RunFolder.of(config).write_config(config)
        write_failure(RunFolder.of(config).path, MemoryError("out of memory"))
        for evaluation in (identity(config)["evaluation"], "samples-00000001", "elsewhere-00000002"):
            wanted.append({**identity(config), "evaluation": evaluation})

    outputs.base()
    outputs.base(**OTHER)
    for arm, right in (("sign", 60), ("drgrpo", 50), ("tasa", 55), ("tasa_ce", 58)):
        for seed in (42, 43, 44):
            run(arm, 4, seed, right + seed % 7)
        failed(arm, 4, 45)
    for arm in ("sign", "drgrpo"):
        run(arm, 8, 42, 70)
        failed(arm, 8, 45)
        run(arm, 4, 42, 40, **OTHER)
        failed(arm, 4, 45, **OTHER)
    write_json(
        outputs.path / "sweeps" / "wanted.json",
        {"name": "wanted", "title": None, "command": [], "declared": 1.0, "runs": wanted},
    )
    outputs.tables()
    return outputs


def text_of(study: Any, kind: str) -> str:
    """The Markdown of the largest setting's table of a kind."""
    found = [
        file.read_text().replace("\\", "")
        for file in (study.path / "tables").glob(f"{kind}*.md")
        if "large" not in file.name and ("elsewhere" in file.name or "math500" in file.name) == (kind == "transfer")
    ]
    assert len(found) == 1, (kind, sorted(file.name for file in (study.path / "tables").glob("*.md")))
    return found[0]


@pytest.mark.parametrize("kind", TABLES)
def test_a_failed_run_is_named_under_each_table_that_lacks_it(study: Any, kind: str) -> None:
    text = text_of(study, kind)
    name = RunFolder.of(study.config("sign" if kind != "replay-g4" else "tasa_ce", 8 if kind == "table2" else 4, 45))
    assert f"† {name.name}: failed (MemoryError: out of memory)" in text, text


def test_a_failed_run_of_another_model_is_named_under_the_table_of_models(study: Any) -> None:
    assert f"† {RunFolder.of(study.config('sign', 4, 45, **OTHER)).name}: failed" in text_of(study, "table3")


@pytest.mark.parametrize("kind", TABLES)
def test_truncation_is_warned_of_under_each_table(study: Any, kind: str) -> None:
    text = text_of(study, kind)
    arm = "tasa_ce" if kind == "replay-g4" else "sign"
    warned = [line for line in text.splitlines() if "no end within the completion limit" in line]
    of_arm = [line for line in warned if f"{arm}: " in line or f"{arm}, G = 4: " in line or f"{arm}, G = 8: " in line]
    assert of_arm and "40 % of the training completions" in of_arm[0], warned
    assert ("38 % of the evaluated completions" in of_arm[0]) == (kind in ("transfer", "pass-at-k")), of_arm


@pytest.mark.parametrize(
    ("kind", "row", "column", "share"),
    [
        ("table1", "sign", "truncated_training", 0.4),
        ("table1", "sign", "truncated_evaluation", 0.03),
        ("degeneracy", "sign", "truncated", 0.4),
        ("group-size", "sign", "truncated_evaluation", 0.03),
        ("pass-at-k", "sign", "truncated_evaluation", 0.375),
        ("transfer", "4", "sign_truncated", 0.375),
        ("table3", None, "drgrpo_truncated", 0.03),
        ("table3", None, "base_truncated", 0.03),
    ],
)
def test_truncation_stands_in_each_table_of_accuracies(
    study: Any, kind: str, row: str | None, column: str, share: float
) -> None:
    (file,) = [
        file
        for file in (study.path / "tables").glob(f"{kind}*.csv")
        if "large" not in file.name and ("elsewhere" in file.name or "math500" in file.name) == (kind == "transfer")
    ]
    frame = pd.read_csv(file)
    shown = frame if row is None else frame[frame.iloc[:, 0].astype(str) == row]
    assert len(shown) and shown[column].tolist() == pytest.approx([share] * len(shown))
    if column != "truncated_evaluation" or kind != "table1":
        # Where people read too, not in the csv alone.
        assert "trunc" in next(line for line in file.with_suffix(".md").read_text().splitlines() if line[:1] == "|")


def test_a_short_limit_is_no_matter_for_a_warning_below_a_fifth(outputs: Any) -> None:
    for seed, share in ((42, 0.2), (43, 0.2)):
        synthetic.write_run(outputs.config("sign", 4, seed), 50, 100, truncated=share)
    outputs.tables()
    assert "had no end within" not in outputs.text("table1-tiny-sums")
    synthetic.write_run(outputs.config("sign", 4, 44), 50, 100, truncated=0.22)
    outputs.tables()
    assert "sign: 21 % of the training completions had no end" in outputs.text("table1-tiny-sums")


def test_what_could_not_be_graded_is_counted_aloud(outputs: Any) -> None:
    for seed, undecided in ((42, 2), (43, 3)):
        synthetic.write_run(outputs.config("sign", 4, seed), 50, 100, unverifiable=undecided)
    outputs.cell("drgrpo", [50, 50])
    outputs.tables()
    notes = [line for line in outputs.text("table1-tiny-sums").splitlines() if "could not be graded" in line]
    assert notes == [
        "- sign: 5 answers could not be graded; they count as not right.",
        "- sign: 5 training completions could not be graded; groups are without them.",
    ]
    # They are in the denominator: 100 of 200 questions are right.
    assert float(outputs.csv("table1-tiny-sums")["sign"]["mean"]) == 0.5
    frame = pd.read_csv(outputs.path / "tables" / "runs.csv")
    assert sorted(frame["unverifiable"]) == [0, 0, 2, 3]


def test_samples_that_are_gone_are_named_where_n_is_smaller_for_it(outputs: Any) -> None:
    configs = outputs.cell("sign", [50, 50])
    final = {"step": 20, "n": 4, "questions": 2, "right": 2, "truncated": 0.0}
    rows = pd.DataFrame({"question_id": ["a", "a", "b", "b"], "verdict": ["right", "wrong"] * 2})
    for config, kept in zip(configs, (rows, None), strict=True):
        synthetic.write_evaluation(
            RunFolder.of(config), config, final, name="samples-00000001", rows=kept, identity=SAMPLED
        )
    outputs.tables()
    assert outputs.csv("pass-at-k-tiny-sums-samples")["sign"]["n"] == "1"
    text = outputs.text("pass-at-k-tiny-sums-samples").replace("\\", "")
    assert f"- {RunFolder.of(configs[1]).name}: its samples were not kept, so it is not counted." in text
    assert RunFolder.of(configs[0]).name not in text


def test_a_caption_says_whether_a_kl_term_moved_dead_groups(outputs: Any) -> None:
    outputs.cell("sign", [50, 60])
    outputs.cell("sign", [50, 60], loss__kl=0.05)
    outputs.tables()
    told = {
        name: ("no KL" in text, "KL coefficient 0.05" in text)
        for name in (file.stem for file in (outputs.path / "tables").glob("table1-*.md"))
        for text in [outputs.text(name).splitlines()[2]]
    }
    assert sorted(told.values()) == [(False, True), (True, False)], told


def test_a_run_that_failed_hides_no_other_and_none_is_averaged_in_its_place(study: Any) -> None:
    row = study.csv("table1-tiny-sums")["sign"]
    assert (row["n"], row["n_absent"]) == ("3", "1")
    assert float(row["mean"]) == pytest.approx(sum((60 + seed % 7) / 100 for seed in (42, 43, 44)) / 3)
