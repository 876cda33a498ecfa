from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .conftest import RUN_PY, Door


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("sed=43", "sed: unknown key. Did you mean 'seed'"),
        ("optimizer.beta=1", "optimizer.beta: unknown key. Did you mean 'beta"),
        ("advantge=sign", "advantge: unknown key. Did you mean 'advantage'"),
        ("advantage=sgin", "advantage=sgin: no such option. Did you mean 'sign"),
        ("+newkey=1", "newkey: unknown key."),
        ("+seed=3", "seed: is a key of the config already"),
        ("seed.deeper=3", "seed.deeper: unknown key."),
        ("seed=abc", "seed: should be a valid integer, got 'abc'"),
        ("seed='1..3'", "seed: should be a valid integer, got '1..3'"),
        ("steps=1.5", "steps: should be a valid integer, got 1.5"),
        ("learning_rate=1..3", "learning_rate: should be a valid number, got '1..3'"),
        ("dry_run=maybe", "dry_run: should be a valid boolean, got 'maybe'"),
        ("seed=${nothing}", "seed: Interpolation key 'nothing' not found"),
        ("~seed", "seed: missing"),
        ("group_size=1", "group_size: a group needs at least 2 completions"),
        ("completions_per_pass=3", "completions_per_pass: 3 does not divide the 16 completions"),
        ("advantage=3", "advantage=3: advantage is chosen by a name"),
        ("seed=42..48", "seed=42..48 asks for 7 runs: add -m"),
        ("advantage=sign,tasa", "advantage=sign,tasa asks for 2 runs: add -m"),
        ("+sweep=demo", "+sweep=demo asks for the runs of a sweep file: add -m"),
        ("sweep=demo", "sweep=demo asks for the runs of a sweep file: add -m"),
        ("hydra/launcher=local", "hydra/launcher=local says how a multirun is launched, and would be ignored: add -m"),
        ("hydra.launcher.threads=0", "hydra.launcher.threads: should be a whole number of at least 1, got 0"),
        ("foo", "'foo' is not an override: write KEY=VALUE"),
        ("seed=1,,2", "malformed override 'seed=1,,2'"),
        ("a b=3", "malformed override 'a b=3'"),
        ("advantage=sign advantage=tasa", "advantage is given twice: advantage=sign and advantage=tasa"),
        ("+advantage=tasa", "advantage: two values for one group"),
        ("--multrun", "unknown option --multrun. Did you mean '--multirun'"),
        ("--cfg jbo", "argument --cfg/-c: invalid choice: 'jbo'"),
        ("--cfg job -m", "--multirun and --cfg do not go together"),
        ("--resolve", "--resolve goes with --cfg"),
        ("-m +sweep=dmeo", "+sweep=dmeo: no such sweep in"),
        ("-m sed=1..3", "sed: unknown key. Did you mean 'seed'"),
        ("-m advantage=sign,sgin", "advantage=sgin: no such option. Did you mean 'sign"),
        ("-m seed=1..3 group_size=4,1", "group_size: a group needs at least 2 completions"),
        ("-m seed=1..5..0", "1..5..0: the step of a range cannot be 0"),
        ("-m seed=interval(1,2)", "seed=interval(1,2): an interval cannot be enumerated"),
        ("-m hydra/launcher=lcoal", "hydra/launcher=lcoal: no such option. Did you mean 'local'?"),
        ("-m hydra/launcher=basic", "hydra/launcher=basic cannot launch these runs"),
        ("-m hydra/sweeper=basic", "hydra/sweeper=basic: runs are taken from hydra/sweeper=gradstarve only"),
        ("-m hydra.launcher.jbos=2", "hydra.launcher.jbos: unknown key. Did you mean 'jobs'?"),
        ("-m hydra.launcher.jobs=two", "hydra.launcher.jobs: should be a whole number of at least 1, got 'two'"),
        ("outputs=/proc/nowhere", "outputs=/proc/nowhere: cannot be written to"),
        ("-m outputs=/proc/nowhere", "outputs=/proc/nowhere: cannot be written to"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_written(
    door: Door, tmp_path: Path, typed: str, says: str
) -> None:
    arguments = [typed] if typed == "a b=3" else typed.split(" ")
    assert door(*arguments).line.startswith(says)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_grid_is_named_with_its_file(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("grids: [{advantage: sign}, {sed: 42..43}]")
    line = door("-m", "+sweep=mine.yaml").line
    assert line.startswith("mine.yaml: grid 2: sed: unknown key. Did you mean 'seed'")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def plan(out: str) -> tuple[dict[str, object], list[str], str]:
    """The config, the runs' names, and the last line of a dry run."""
    config, _, runs = out.partition("# runs\n")
    *lines, last = runs.splitlines()
    return yaml.safe_load(config), [line.split()[0] for line in lines if not line.startswith("#")], last


def test_a_dry_run_shows_config_name_and_state_and_runs_nothing(door: Door, tmp_path: Path) -> None:
    answer = door("dry_run=true", "seed=43", "group_size=8")
    config, names, last = plan(answer.out)
    assert (answer.code, answer.err) == (0, "")
    assert (config["seed"], config["group_size"], config["steps"]) == (43, 8, 120)
    assert len(names) == 1 and names[0].startswith("sign-g8-s43-")
    assert last == "# 1 run: 0 done, 1 would run"
    assert list(tmp_path.iterdir()) == []


def test_the_line_of_the_readme_is_14_runs(door: Door, tmp_path: Path) -> None:
    answer = door("-m", "advantage=sign,drgrpo", "seed=42..48", "dry_run=true")
    config, names, last = plan(answer.out)
    assert [name.rsplit("-", 1)[0] for name in names] == [
        f"{advantage}-g4-s{seed}" for advantage in ("sign", "drgrpo") for seed in range(42, 49)
    ]
    assert len(set(names)) == 14
    assert last == "# 14 runs: 0 done, 14 would run"
    assert "seed" not in config and config["group_size"] == 4
    assert list(tmp_path.iterdir()) == []


SIX = ("sign", "sign_ce", "tasa", "tasa_ce", "contrastive_pair", "drgrpo")


def test_the_demo_is_the_union_of_its_grids(door: Door) -> None:
    _, names, last = plan(door("-m", "+sweep=demo", "dry_run=true").out)
    arms = [name.rsplit("-", 1)[0] for name in names]
    seeds = range(42, 49)
    assert sorted(arms) == sorted(
        [f"{advantage}-g4-s{seed}" for advantage in SIX for seed in seeds]
        + [f"{advantage}-g8-s{seed}" for advantage in ("sign", "drgrpo") for seed in seeds]
        + ["base"]
    )
    assert last == "# 57 runs: 0 done, 57 would run"


def test_what_is_typed_beside_a_sweep_holds_for_all_of_it(door: Door) -> None:
    config, names, last = plan(door("-m", "+sweep=demo", "steps=20", "seed=42,43", "group_size=4", "dry_run=true").out)
    assert config["steps"] == 20
    # sign and drgrpo of both grids are the same runs now.
    assert [name.rsplit("-", 1)[0] for name in names] == [
        *(f"{advantage}-g4-s{seed}" for advantage in SIX for seed in (42, 43)),
        "base",
    ]
    assert last.endswith("would run; 5 more asked for one of these again")


def test_the_same_run_is_asked_for_once(door: Door) -> None:
    _, names, last = plan(door("-m", "advantage=base", "seed=42..48", "dry_run=true").out)
    assert len(names) == 1
    assert last == "# 1 run: 0 done, 1 would run; 6 more asked for one of these again"


def test_two_evaluations_of_one_run_are_one_run(door: Door) -> None:
    _, names, last = plan(door("-m", "evaluation.limit=10,20", "dry_run=true").out)
    assert len(names) == 2 and len(set(names)) == 1
    assert last == "# 1 run: 0 done, 1 would run"


@pytest.mark.parametrize("typed", [("seed=44", "-m", "steps=5"), ("seed=44", "steps=5", "--multirun")])
def test_options_may_stand_anywhere(door: Door, typed: tuple[str, ...]) -> None:
    config, names, _ = plan(door(*typed, "dry_run=true").out)
    assert (config["seed"], config["steps"], len(names)) == (44, 5, 1)


def test_cfg_prints_the_resolved_config(door: Door) -> None:
    answer = door("--cfg", "job", "--resolve", "advantage=tasa")
    config = yaml.safe_load(answer.out)
    assert (answer.code, config["advantage"]) == (0, {"name": "tasa", "c": 0.5})
    assert "hydra" not in config


def test_help_names_the_groups_and_the_keys(door: Door) -> None:
    answer = door("--help")
    assert answer.code == 0
    for word in ("advantage:", "drgrpo", "seed: 42", "+sweep=demo", "42..48"):
        assert word in answer.out


def test_a_dry_run_imports_no_torch_and_works_from_anywhere(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", str(RUN_PY), "-m", "+sweep=demo", "dry_run=true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in ended.stderr.splitlines()}
    assert "hydra" in imported
    assert not imported & {"torch", "transformers", "trl", "datasets"}
    assert ended.stdout.endswith("# 57 runs: 0 done, 57 would run\n")
    assert list(tmp_path.iterdir()) == []


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    """A result.json that cannot be opened is nobody's typing mistake."""
    name = plan(
        subprocess.run(
            [sys.executable, str(RUN_PY), "dry_run=true"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
    )[1][0]
    (tmp_path / "outputs" / "runs" / name / "result.json").mkdir(parents=True)
    ended = subprocess.run([sys.executable, str(RUN_PY), "dry_run=true"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr and "IsADirectoryError" in ended.stderr
