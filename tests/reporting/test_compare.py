from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradstarve.cli import main
from gradstarve.reporting.statistics import compare, permutation_test

SEEDS = {
    "sign": [939, 941, 928, 944, 936, 950, 947],
    "drgrpo": [902, 911, 889, 897, 925],
    "tasa": [930, 930, 921, 941, 938],
}


def written(path: Path, groups: dict[str, list[Any]], header: str = "advantage,accuracy") -> Path:
    rows = [f"{name},{value}" for name, values in groups.items() for value in values]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def asked(path: Path | str, *more: str, baseline: str = "drgrpo") -> list[str]:
    return ["compare", str(path), "--group", "advantage", "--value", "accuracy", "--baseline", baseline, *more]


def test_json_is_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "seeds.csv", {n: [c / 1319 for c in counts] for n, counts in SEEDS.items()})
    assert main(asked(path, "--json")) == 0
    output = capsys.readouterr()
    assert output.err == ""
    result = json.loads(output.out)
    assert result.keys() == {"groups", "comparisons"}
    assert list(result["groups"]) == ["sign", "drgrpo", "tasa"]
    assert all(group.keys() == {"n", "mean", "sd", "median", "ci95"} for group in result["groups"].values())
    assert result["groups"]["sign"]["n"] == 7
    assert result["groups"]["sign"]["mean"] == pytest.approx(sum(SEEDS["sign"]) / 7 / 1319)
    assert [(c["a"], c["b"]) for c in result["comparisons"]] == [("sign", "drgrpo"), ("tasa", "drgrpo")]
    for comparison in result["comparisons"]:
        assert comparison.keys() == {
            "a",
            "b",
            "difference",
            "ci95",
            "welch",
            "permutation",
            "mann_whitney_p",
            "hodges_lehmann",
            "hedges_g",
            "probability_of_improvement",
            "holm_p",
        }
        assert comparison["welch"].keys() == {"t", "df", "p"}
        assert comparison["permutation"].keys() == {"p_two_sided", "p_greater", "smallest_p", "exact"}
        # The text of c / 1319 is read back as the count that it is: the same ties, the same exact p.
        of_counts = permutation_test(SEEDS[comparison["a"]], SEEDS["drgrpo"])
        assert comparison["permutation"]["p_two_sided"] == of_counts.p_two_sided
        assert comparison["permutation"]["p_greater"] == of_counts.p_greater
        assert comparison["permutation"]["exact"] is True
    sign, tasa = result["comparisons"]
    assert sign["permutation"]["p_greater"] == 1 / 792
    smaller, larger = sorted(c["permutation"]["p_two_sided"] for c in (sign, tasa))
    assert sorted(c["holm_p"] for c in (sign, tasa)) == pytest.approx([2 * smaller, max(2 * smaller, larger)])


def test_decimals_are_read_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In floats the two groups' means would differ in the last place.
    path = written(tmp_path / "ties.csv", {"a": ["0.1", "0.2"], "drgrpo": ["0.3", "0.0"]})
    main(asked(path, "--json"))
    comparison = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert comparison["difference"] == 0 and comparison["permutation"]["p_two_sided"] == 1


def test_the_table_shows_every_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "seeds.csv", SEEDS)
    assert main(asked(path)) == 0
    text = capsys.readouterr().out
    comparison = compare(SEEDS["sign"], SEEDS["drgrpo"])
    assert comparison.welch is not None and comparison.hedges_g is not None
    for shown in (
        "drgrpo (baseline)",
        "sign - drgrpo (7 v 5)",
        "792 relabellings",
        "smallest p possible",
        "Holm, 2 comparisons",
        "every one above every one of the baseline",
        f"t = {comparison.welch.t:.3f}, df = {comparison.welch.df:.2f}",
        f"{comparison.hedges_g:.5g}",
        "95 % t-interval",
        "seen 8 times in 10",
    ):
        assert shown in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_reads_standard_input_and_pipes_json_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "seeds.csv", SEEDS)
    done = subprocess.run(
        [sys.executable, "-m", "gradstarve", *asked("-", "--json")],
        input=b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["groups"]["tasa"]["n"] == 5


def test_other_columns_quotes_and_blank_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        'seed,advantage,note,accuracy\n1,sign,"a, b",.5\n\n2,sign,,5e-1\n1,drgrpo,,+0.25\n2,drgrpo,, 0.75 \n'
    )
    assert main(asked(path, "--json")) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert groups["sign"]["mean"] == groups["drgrpo"]["mean"] == 0.5


def test_no_spread_is_null_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "flat.csv", {"sign": [0.1] * 3, "drgrpo": [0.2] * 3})
    assert main(asked(path, "--json")) == 0
    output = capsys.readouterr()
    comparison = json.loads(output.out)["comparisons"][0]
    assert comparison["welch"] == {"t": None, "df": None, "p": None} and comparison["ci95"] is None
    assert comparison["hedges_g"] is None and comparison["permutation"]["p_two_sided"] == 0.1
    assert "neither group has any spread" in output.err and output.err.count("\n") == 1
    assert main(asked(path)) == 0
    assert "- (neither group has any spread)" in capsys.readouterr().out


def test_fine_values_say_that_they_are_not_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine = {name: [math.sin(shift + i) for i in range(30)] for name, shift in (("sign", 1), ("drgrpo", 100))}
    path = written(tmp_path / "fine.csv", fine)
    assert main(asked(path, "--json")) == 0
    permutation = json.loads(capsys.readouterr().out)["comparisons"][0]["permutation"]
    assert permutation["exact"] is False and permutation["smallest_p"] == 1e-5
    assert main(asked(path)) == 0
    text = capsys.readouterr().out
    assert "drawn at random" in text and "not exact" in text


MISTAKES = {
    "empty file": ("", "is empty"),
    "header alone": ("advantage,accuracy\n", "has a header but no rows"),
    "nan": ("advantage,accuracy\nsign,1\nsign,nan\n", "line 3: column 'accuracy' is 'nan', not a number"),
    "infinite": ("advantage,accuracy\nsign,-inf\n", "line 2: column 'accuracy' is '-inf', not a number"),
    "text": ("advantage,accuracy\nsign,1\ndrgrpo,failed\n", "line 3: column 'accuracy' is 'failed', not a number"),
    "percent": ("advantage,accuracy\nsign,67.8%\n", "without %"),
    "thousands": ('advantage,accuracy\nsign,"1,319"\n', "thousands separators"),
    "underscore": ("advantage,accuracy\nsign,1_319\n", "not a number"),
    "other digits": ("advantage,accuracy\nsign,١٢\n", "not a number"),
    "too large": ("advantage,accuracy\nsign,1e999\n", "another unit"),
    "long": ("advantage,accuracy\nsign," + "1" * 5000 + "\n", "not a number"),
    "empty cell": ("advantage,accuracy\nsign,\n", "line 2: column 'accuracy' is empty"),
    "empty group": ("advantage,accuracy\n ,1\n", "line 2: column 'advantage' is empty"),
    "short row": ("advantage,accuracy\nsign\n", "line 2: 1 cells under a header of 2"),
    "long row": ("advantage,accuracy\nsign,1,2\n", "line 2: 3 cells under a header of 2"),
    "unknown column": ("advantage,acuracy\nsign,1\n", "no column 'accuracy'. Did you mean 'acuracy'?"),
    "semicolons": ("advantage;accuracy\nsign;1\n", "separated by something other than commas"),
    "column twice": ("advantage,accuracy,accuracy\nsign,1,2\n", "more than one column 'accuracy'"),
    "no baseline": ("advantage,accuracy\nsign,1\nsign,2\ndr_grpo,3\ndr_grpo,3\n", "Did you mean 'dr_grpo'?"),
    "baseline alone": ("advantage,accuracy\ndrgrpo,1\ndrgrpo,2\n", "nothing to compare it with"),
    "one value": ("advantage,accuracy\ndrgrpo,1\ndrgrpo,2\nsign,3\n", "group 'sign' has one value"),
    "open quote": ('advantage,accuracy\n"sign,1\n', "can't be read as csv"),
    "name with a line break": ('advantage,accuracy\ndrgrpo,1\ndrgrpo,2\n"si\ngn",3\n', "group 'si\\ngn' has one value"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, said = MISTAKES[mistake]
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    assert main(asked(path, "--json")) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1 and said in output.err


def test_unreadable_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "weights.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path, said in ((tmp_path / "absent.csv", "does not exist"), (tmp_path, "can't be read"), (binary, "not UTF-8")):
        assert main(asked(path)) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and said in error


def test_group_and_value_must_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "seeds.csv", SEEDS)
    assert main(["compare", str(path), "--group", "accuracy", "--value", "accuracy", "--baseline", "1"]) == 2
    assert "two different columns" in capsys.readouterr().err


def test_real_training_logs(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Rewards of the last 20 steps of two real runs: 20 v 20 values of one rollout batch each.
    files = sorted((shared_data / "grpo_metrics").glob("*.csv"))
    with (tmp_path / "runs.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["advantage", "accuracy"])
        for file in files:
            with file.open(newline="") as lines:
                rewards = [row["reward_avg"] for row in csv.DictReader(lines)][-20:]
            writer.writerows([file.stem, reward] for reward in rewards)
    assert main(asked(tmp_path / "runs.csv", "--json", baseline=files[0].stem)) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["comparisons"]) == len(files) - 1
    for comparison in result["comparisons"]:
        assert comparison["permutation"]["exact"] is True
        assert 0 < comparison["permutation"]["smallest_p"] <= comparison["permutation"]["p_two_sided"] <= 1


def test_equal_values_are_said_to_be_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "same.csv", {"sign": ["1", "1.0", "1e0"], "drgrpo": [1, 1, 1]})
    assert main(asked(path)) == 0
    text = capsys.readouterr().out
    assert "every value of both groups is the same: no test can tell them apart" in text
    assert text.count("- (no spread)") == 2 and "nan" not in text
    assert main(asked(path, "--json")) == 0
    output = capsys.readouterr()
    result = json.loads(output.out, parse_constant=pytest.fail)
    (comparison,) = result["comparisons"]
    assert [group["ci95"] for group in result["groups"].values()] == [None, None]
    assert comparison["hedges_g"] is None and comparison["permutation"]["p_two_sided"] == 1
    assert output.err.count("\n") == 1 and "no Welch test, no Hedges g" in output.err


def test_a_name_fills_no_screen_and_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "names.csv", {"\x1b[2J\u202e" + "x" * 5000: [1, 2], "drgrpo": [1, 3]})
    assert main(asked(path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() and len(line) < 200 for line in lines)
