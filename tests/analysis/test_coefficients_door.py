"""`gradstarve coefficients` and `gradstarve advantages` through the door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradstarve.cli import main
from gradstarve.estimators.advantages import ADVANTAGES


def test_the_coefficients_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coefficients", "--p", ".25", "--group-size", "4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["advantage"] for row in rows] == list(ADVANTAGES)
    for row in rows:
        assert list(row) == ["advantage", "kappa", "all_fail", "mixed", "all_pass", "snr"]
    kappa = {row["advantage"]: row["kappa"] for row in rows}
    assert kappa["sign"] == 2.0 and kappa["tasa"] == 1.015625
    assert kappa["drgrpo"] == pytest.approx(1.4246, abs=5e-5)


def test_parameters_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["coefficients", "--p", ".25", "--advantage", "pkpo:k=1", "constant:b=0.25", "--json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["advantage"], row["kappa"]) for row in rows] == [("pkpo:k=1", 0.25), ("constant:b=0.25", 1.0)]


def test_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        path = tmp_path / f"kappa.{kind}"
        assert main(["coefficients", "--figure", str(path), "--advantage", "sign", "nsr"]) == 0
        assert path.read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert main(["coefficients", "--figure", str(tmp_path / "kappa.doc")]) == 2
    assert main(["coefficients", "--figure", str(tmp_path / "absent" / "kappa.png")]) == 2


def test_the_list_of_advantages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advantages", "--json"]) == 0
    rows = {row["advantage"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(ADVANTAGES)
    dead = {name: (row["all_fail"], row["all_pass"]) for name, row in rows.items()}
    assert dead["sign"] == (-1, 1) and dead["tasa"] == (-0.25, 0.25) and dead["drgrpo"] == (0, 0)
    assert dead["nsr"] == (-1, 0) and dead["psr"] == (0, 1) and dead["pkpo"] == (0, 0.5)
    assert main(["advantages"]) == 0
    shown = capsys.readouterr().out
    assert all(advantage.source in shown for advantage in ADVANTAGES.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["coefficients"], "give a success probability"),
        (["coefficients", "--p", "1.5"], "[0, 1], got 1.5"),
        (["coefficients", "--p", ".5", "--group-size", "1"], "between 2 and 1000"),
        (["coefficients", "--p", ".5", "--advantage", "sgn"], "unknown advantage 'sgn'. Did you mean 'sign'"),
        (["coefficients", "--p", ".5", "--advantage", "passk:k=9"], "k = 9, group size 4"),
        (["coefficients", "--p", ".5", "--advantage", "constant:b=1.5"], "b in [0, 1], got 1.5"),
        (["coefficients", "--p", ".5", "--advantage", "constant:b"], "'b' is not parameter=number"),
        (["advantages", "--group-size", "1"], "at least 2"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_the_smallest_p_has_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    for p in ("0", "1", "1e-50", "0.9999999999999999"):
        assert main(["coefficients", "--p", p, "--group-size", "64", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert next(row["kappa"] for row in rows if row["advantage"] == "sign") == pytest.approx(2)
