"""The files of sweeps/: each says what it tests, composes, and has a twin that runs here and differs as it says."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from gradstarve.cli import main
from gradstarve.launching.compose import Composer
from gradstarve.launching.multirun import ask
from gradstarve.launching.sweep_file import read_sweep_file
from gradstarve.reporting.paper import the_paper
from gradstarve.runs.config import RunConfig, plain_config
from gradstarve.runs.signature import run_name

from .conftest import changed

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SWEEPS = REPOSITORY / "sweeps"
FILES = {path.stem: read_sweep_file(path) for path in sorted(SWEEPS.glob("*.yaml"))}
TWINS = sorted(name for name, file in FILES.items() if file.like is not None)
# Written for what is made here, not for the paper's model.
HERE = {"demo", "word_problems"}
PAPERS = sorted(set(FILES) - set(TWINS) - HERE)


@pytest.fixture(scope="module")
def composer() -> Composer:
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        return Composer(GlobalHydra.instance().config_loader(), "config", ["hydra.mode=RUN"])


@functools.cache
def configs(name: str, composer: Composer) -> list[RunConfig]:
    (asked,) = ask([f"+sweep={name}"], composer, SWEEPS)
    return asked.configs


@pytest.mark.parametrize("name", PAPERS)
def test_a_sweep_says_what_it_tests(name: str) -> None:
    file = FILES[name]
    assert file.title and file.note
    claims = re.search(r"Claims: ([^.;]+(?:\.\S[^.;]*)*)", file.note)
    if claims is None:
        assert file.note.startswith("The paper has no such")
        return
    ids = set(re.findall(r"[\w-]+\.[\w./-]*\w", claims.group(1)))
    assert ids and ids <= set(the_paper().content["claims"]), ids


@pytest.mark.parametrize("name", PAPERS)
def test_a_sweep_composes_for_the_papers_model(name: str, composer: Composer) -> None:
    found = configs(name, composer)
    assert {config.model.source for config in found} == {"hub"}
    assert name == "table3" or {config.model.name for config in found} == {"qwen3_5_9b"}
    # What the paper says of its setting, each sweep has, but where the sweep is about another value.
    papers = {"steps": 200, "prompts_per_step": 4, "learning_rate": 2.0e-5}
    apart = {"learning_rate": {"learning_rate"}, "equal_tokens": {"prompts_per_step"}, "degeneracy": {"steps"}}
    for config in found:
        plain = plain_config(config)
        if config.advantage.trains:
            assert plain["model"]["lora"]["rank"] == 64 and plain["model"]["lora"]["alpha"] == 128
            assert {key for key, value in papers.items() if plain[key] != value} <= apart.get(name, set())
    # The untrained model is asked in every way in which the trained ones are.
    asked = {plain_config(c)["evaluation"]["name"] for c in found}
    assert {c.evaluation.name for c in found if not c.advantage.trains} == asked


def keys_set_by(choice: str) -> list[str]:
    """A data set for the evaluation alone comes with its completion limit, as one that is trained on does."""
    group, _, package = choice.partition("@")
    return [f"{package}.{group}", f"{package}.completion_limit"] if package else [group]


@pytest.mark.parametrize("name", PAPERS)
def test_a_twin_differs_in_the_keys_that_it_lists_and_in_nothing_else(name: str, composer: Composer) -> None:
    twin = FILES[f"{name}-tiny"]
    assert twin.like == name
    assert {"model", "dataset", "completion_limit"} <= set(twin.instead)

    def rest(found: list[RunConfig]) -> set[str]:
        kept = set()
        for config in found:
            plain: dict[str, Any] = plain_config(config)
            if not config.advantage.trains:
                plain.pop("learning_rate")  # the model's own, and not read
            for key in (key for listed in twin.instead for key in keys_set_by(listed)):
                *parents, last = key.split(".")
                node = plain
                for part in parents:
                    node = node[part]
                node.pop(last, None)
            kept.add(json.dumps(plain, sort_keys=True))
        return kept

    original, ours = configs(name, composer), configs(twin.name, composer)
    assert rest(ours) == rest(original)
    assert {config.model.source for config in ours} == {"tiny"}
    # As many settings and arms: the twin makes the same tables.
    for key in twin.instead:
        if key in {"learning_rate", "completion_limit"}:
            assert len({getattr(c, key) for c in ours}) == len({getattr(c, key) for c in original})


def test_the_transfer_check_trains_nothing_of_its_own(composer: Composer) -> None:
    others = {run_name(config) for name in ("table1", "g8_control") for config in configs(name, composer)}
    assert {run_name(config) for config in configs("math500_transfer", composer)} < others


def test_every_twin_belongs_to_a_sweep() -> None:
    assert [f"{name}-tiny" for name in PAPERS] == TWINS


def test_the_paper_page_counts_the_runs(composer: Composer) -> None:
    page = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8").split("## The sweeps")[1]
    counts = {name: int(runs) for name, runs in re.findall(r"^\| (\w+) \| (\d+) \|", page, re.M)}
    assert set(counts) == {*PAPERS, "demo"}
    assert counts == {name: len({run_name(config) for config in configs(name, composer)}) for name in counts}
    in_ci = set(re.findall(r"^\| (\w+) \|.*\| yes \|$", page, re.M))
    assert {f"{name}-tiny" for name in in_ci} == RUN_HERE


# These run in CI, with the warm start of seconds.
RUN_HERE = {"fair_length-tiny", "math500_transfer-tiny", "random_reward-tiny"}
Start = Callable[..., subprocess.Popen[str]]


def test_twins_run_and_make_the_tables_that_they_are_for(
    start: Start, quick: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = changed(quick, steps=2, eval_every=1, checkpoint_every=0)
    process = start("-m", f"+sweep={','.join(sorted(RUN_HERE))}", *short, "seed=42", "advantage=sign,base")
    _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    outputs = tmp_path / "outputs"
    told, tables = {}, {}
    for name in RUN_HERE:
        (declared,) = (outputs / "sweeps").glob(f"{name}-*.json")
        capsys.readouterr()
        assert main(["tables", "--outputs", str(outputs), "--sweep", declared.stem, "--no-figures"]) == 0
        told[name] = " ".join(capsys.readouterr().out.split())
        folder = outputs / "tables" / declared.stem
        tables[name] = {path.stem: pd.read_csv(path).set_index("arm") for path in folder.glob("table1-*.csv")}

    # Each completion limit has a table of its own, with an untrained model of its own.
    lengths = tables["fair_length-tiny"]
    assert set(lengths) == {f"table1-tiny-sums-completion_limit-{limit}" for limit in (12, 20)}
    assert all(table.loc[["base", "sign"], "n"].tolist() == [1, 1] for table in lengths.values())
    assert "Not mixed in: 1 runs of tiny-sums-completion_limit-" in told["fair_length-tiny"]

    # The questions of another data set have a table of their own, beside the untrained model's answers to them.
    folder = next((outputs / "tables").glob("math500_transfer-tiny-*"))
    transfer = {path.stem: pd.read_csv(path) for path in folder.glob("transfer-*.csv")}
    assert set(transfer) == {f"transfer-tiny-sums-on-longer_sums-kl-{kl}" for kl in (0, 0.04)}
    assert not tables["math500_transfer-tiny"]

    # A control says what it is, and reads no claim.
    control = tables["random_reward-tiny"]
    assert set(control) == {"table1-tiny-sums-reward-random"}
    assert "REWARDED BY A COIN (right 25 %), not by the verdict" in told["random_reward-tiny"]
    assert "rewarded with random, not with the verdict" in told["random_reward-tiny"]
    assert "agrees: 0, disagrees: 0, can't be told at this n: 0" in told["random_reward-tiny"]
