"""docs/paper.md: every claim and every sweep, under names that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gradstarve.reporting.paper import the_paper

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8")
CLAIMS = the_paper().content["claims"]
SWEEPS = {path.stem for path in (REPOSITORY / "sweeps").glob("*.yaml")}
STATUSES = ("not measured", "recomputed", "proven", "not testable", "the sweep has")


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_claim_has_one_row_with_a_sweep_and_a_status() -> None:
    table = rows("Claims")
    assert [row[0].strip("`") for row in table] == list(dict.fromkeys(row[0].strip("`") for row in table))
    assert {row[0].strip("`") for row in table} == set(CLAIMS)
    for _, _, sweeps, where, status in table:
        assert where
        assert status.startswith(STATUSES), status
        named = set(re.findall(r"\w+", sweeps)) - {"none"}
        assert named <= SWEEPS, named - SWEEPS
        # What no sweep tests is recomputed or proven.
        assert named or status.startswith(("recomputed", "proven"))


def test_every_sweep_is_on_the_page_and_every_one_named_exists() -> None:
    listed = {row[0] for row in rows("The sweeps")}
    own = {name for name in SWEEPS if not name.endswith("-tiny")} - {"word_problems"}
    assert listed == own
    assert {row[0] for row in rows("What the paper lacks")} < own
    for name in re.findall(r"(?:\+sweep=|sweeps/|--sweep )([\w-]+)", PAGE):
        assert name in SWEEPS, name


def test_the_claims_are_those_of_the_papers_text(shared_data: Path) -> None:
    file = shared_data.parent / "paper" / "claims.yaml"
    if not file.is_file():
        pytest.skip(f"the paper's claims are not at {file}")
    theirs = yaml.safe_load(file.read_text(encoding="utf-8"))
    theirs.pop("setup")
    ids = {f"{part}.{claim}" for part, claims in theirs.items() for claim in claims}
    assert {claim for claim in CLAIMS if not claim.startswith("theory.")} == ids
