"""`gradstarve tables`: sweeps, --explain, files, and what a user is told when there is nothing."""

from __future__ import annotations

import shutil
from typing import Any

import pandas as pd
import pytest
import synthetic

from gradstarve.runs.folder import RunFolder
from gradstarve.runs.status import write_failure


def test_nothing_to_tabulate_is_one_line(outputs: Any) -> None:
    code, out, err = outputs.call("tables")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "python run.py -m" in err
    config = outputs.config("sign")
    RunFolder.of(config).write_config(config)
    write_failure(RunFolder.of(config).path, ValueError("x"))
    code, _, err = outputs.call("tables")
    assert code == 2
    assert "1 failed" in err


def test_a_declared_sweep_wants_all_its_runs(outputs: Any) -> None:
    done = outputs.cell("sign", [80, 84])
    missing = outputs.config("sign", 4, 44)
    outputs.cell("tasa", [1, 2])
    outputs.declare([*done, missing], "mine")
    code, _, err = outputs.call("tables", "--sweep", "mine")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert RunFolder.of(missing).name in err
    assert "--allow-partial" in err
    assert not (outputs.path / "tables").exists()
    out = outputs.tables("--sweep", "mine", "--allow-partial")
    assert "PARTIAL: 1 of the 3 runs of sweep mine" in " ".join(out.split())
    assert "tasa" not in outputs.csv("mine/table1-tiny-sums")
    synthetic.write_run(missing, 88, 100)
    out = outputs.tables("--sweep", "mine")
    assert "PARTIAL" not in out
    assert outputs.csv("mine/table1-tiny-sums")["sign"]["n"] == "3"


def test_a_sweep_wants_the_evaluation_that_it_declared(outputs: Any) -> None:
    synthetic.write_run(outputs.config("sign", 4, 42, evaluation__limit=50), 40, 50)
    outputs.declare([outputs.config("sign", 4, 42)], "mine")
    code, _, err = outputs.call("tables", "--sweep", "mine")
    assert code == 2
    assert "1 of 1 runs" in err


def test_a_sweep_counts_the_evaluations_that_it_declares_and_no_others(outputs: Any) -> None:
    runs = [config for arm in ("sign", "drgrpo") for config in outputs.cell(arm, [80, 84])]
    first = outputs.config("sign", 4, 42, evaluation__limit=50)
    synthetic.write_run(outputs.config("sign", 4, 44, evaluation__limit=50), 40, 50)
    outputs.base()
    outputs.declare(runs, "whole")
    outputs.declare([first], "first")
    outputs.tables("--sweep", "whole")
    (table,) = (outputs.path / "tables" / "whole").glob("table1-*.csv")
    assert pd.read_csv(table).set_index("arm").loc[["base", "sign", "drgrpo"], "n"].tolist() == [1, 2, 2]
    # Its run is there, but was not asked so.
    code, _, err = outputs.call("tables", "--sweep", "first", "--allow-partial")
    assert code == 2
    assert "no run of sweep first has been evaluated as it says; evaluate them with: python run.py" in err


def test_answers_of_another_data_set_are_never_taken_for_the_own(outputs: Any) -> None:
    """Also where result.json is all that is left of an evaluation."""
    longer = {"source": "sums", "name": "longer_sums", "operand_shares": {6: 1.0}, "largest_operand": 9,
              "train_size": 10, "eval_size": 100, "seed": 0}  # fmt: skip
    for config in [c for arm in ("sign", "drgrpo") for c in outputs.cell(arm, [80, 84], evaluation__dataset=longer)]:
        shutil.rmtree(RunFolder.of(config).path / "evaluations")
    outputs.tables()
    names = {path.stem for path in (outputs.path / "tables").glob("*.csv")}
    assert "transfer-tiny-sums-on-longer_sums" in names
    assert not any(name.startswith("table1") for name in names)


def test_an_unknown_sweep_names_the_nearest(outputs: Any) -> None:
    outputs.declare(outputs.cell("sign", [80]), "table1")
    code, _, err = outputs.call("tables", "--sweep", "tabel1")
    assert code == 2
    assert "'table1'" in err


def test_explain_prints_the_folders_behind_a_number(outputs: Any) -> None:
    outputs.base()
    runs = outputs.cell("sign", [80, 84])
    others = outputs.cell("drgrpo", [70, 74])
    code, out, _ = outputs.call("tables", "--explain", "table1/sign/mean")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [str(RunFolder.of(c).path) for c in runs]
    assert "80.00 %" in out
    assert not (outputs.path / "tables").exists()
    _, out, _ = outputs.call("tables", "--explain", "table1-tiny-sums/sign/to_drgrpo")
    assert all(str(RunFolder.of(config).path) in out for config in [*runs, *others])
    _, out, _ = outputs.call("tables", "--explain", "table1/sign/seed_43")
    assert RunFolder.of(runs[1]).name in out
    assert RunFolder.of(runs[0]).name not in out


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("table1/sing/mean", "'sign'"),
        ("table1/sign/maen", "'mean'"),
        ("tabel1/sign/mean", "'table1'"),
        ("table1", "TABLE/ROW/COLUMN"),
    ],
)
def test_explaining_what_is_not_there_names_the_nearest(outputs: Any, path: str, told: str) -> None:
    outputs.cell("sign", [80, 84])
    code, _, err = outputs.call("tables", "--explain", path)
    assert code == 2
    assert told in err


def test_files_of_an_earlier_call_go_and_a_users_own_stay(outputs: Any) -> None:
    outputs.cell("sign", [80, 84], 4)
    extra = outputs.cell("sign", [80, 84], 8)
    outputs.tables()
    mine = outputs.path / "tables" / "table2-my-notes.md"
    mine.write_text("keep me")
    assert (outputs.path / "tables" / "table2-tiny-sums.md").exists()
    for config in extra:
        shutil.rmtree(RunFolder.of(config).path)
    outputs.tables()
    assert not (outputs.path / "tables" / "table2-tiny-sums.md").exists()
    assert mine.read_text() == "keep me"


def test_tables_alone_leave_the_figures(outputs: Any) -> None:
    outputs.cell("sign", [80, 84])
    assert outputs.call("tables")[0] == 0
    drawn = sorted((outputs.path / "figures").iterdir())
    assert drawn
    outputs.tables()
    assert sorted((outputs.path / "figures").iterdir()) == drawn
    # A later call still knows them as its own.
    shutil.rmtree(outputs.path / "runs")
    outputs.cell("sign", [80, 84], completion_limit=20, group_size=8)
    assert outputs.call("tables")[0] == 0
    assert not set(drawn) & set((outputs.path / "figures").iterdir())


def test_twice_the_same_gives_the_same_bytes(outputs: Any) -> None:
    outputs.cell("sign", [80, 84])

    def written() -> dict[str, bytes]:
        assert outputs.call("tables")[0] == 0
        return {str(f): f.read_bytes() for kind in ("tables", "figures") for f in (outputs.path / kind).iterdir()}

    first = written()
    assert first == written()
    assert {".md", ".csv", ".tex", ".png", ".pdf", ".json"} == {name[name.rindex(".") :] for name in first}
    for file in (outputs.path / "figures").glob("*.pdf"):
        file.unlink()
    assert first == written()


def test_hostile_names_stay_text_and_inside_the_folder(outputs: Any) -> None:
    name = "../../x|<b>&_%$\x1b[31m"
    outputs.cell("sign", [80, 84], model__name=name)
    config = outputs.config("sign", 4, 50, model__name=name)
    RunFolder.of(config).write_config(config)
    write_failure(RunFolder.of(config).path, ValueError("<script>alert(1)</script> | \\ & % \x1b]0;x\x07"))
    out = outputs.tables()
    assert "\x1b" not in out
    (markdown,) = (outputs.path / "tables").glob("table1-*.md")
    assert "<script>" not in markdown.read_text()
    table = [line for line in markdown.read_text().splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    (latex,) = (outputs.path / "tables").glob("table1-*.tex")
    body = latex.read_text().split("\n", 1)[1].replace("{%\n", "")
    assert not any(c in body.replace("\\&", "").replace("\\%", "").replace(" & ", "") for c in "&%")
    assert sorted(p.name for p in outputs.path.parent.iterdir()) == [outputs.path.name]


def test_the_terminal_fits_an_ordinary_window(outputs: Any) -> None:
    outputs.base()
    for arm in ("sign", "contrastive_pair", "drgrpo"):
        outputs.declare(outputs.cell(arm, [50, 60, 70]), arm)
    assert max(len(line) for line in outputs.tables().splitlines() if not line.startswith("    ")) <= 115
