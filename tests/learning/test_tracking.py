"""What wandb holds is what the run's files say, and nothing that befalls it reaches the run."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from gradstarve.cli import main
from gradstarve.errors import UserError
from gradstarve.launching.jobs import jobs_of
from gradstarve.learning import tracking
from gradstarve.learning.run import execute
from gradstarve.runs.config import RunConfig, plain_config, read_config
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.sweeps import declare

from .wandb_server import serving

SPEC = importlib.util.find_spec("wandb")
pytestmark = pytest.mark.skipif(SPEC is None or SPEC.origin is None, reason="wandb is not installed")

# What two equal runs may differ in: times, and where and when they were run.
TIMES = ("seconds", "seconds_rollout", "seconds_loss", "seconds_rest", "finished", "code")


@pytest.fixture(autouse=True)
def _no_home_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """wandb has nobody to talk to, and leaves nothing in the home folder."""
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith(("WANDB_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    # However busy this machine is: what is tested is what the mirror holds, not how fast it is.
    monkeypatch.setattr(tracking, "STOPPED_SECONDS", 600.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
    yield
    assert [path for path in home.rglob("*") if "wandb" in path.name] == []


@pytest.fixture(scope="module")
def done_before() -> list[RunFolder]:
    return []


@pytest.fixture
def untracked(
    quick: tuple[str, ...], compose_config: Any, tmp_path_factory: pytest.TempPathFactory, done_before: list[RunFolder]
) -> RunFolder:
    """The run that all tests here do, without a tracker; done once."""
    if not done_before:
        config = compose_config(*quick, "learning_rate=0.003")
        outputs = tmp_path_factory.mktemp("untracked")
        (outputs / "models").symlink_to(Path(config.outputs) / "models")
        config = dataclasses.replace(config, outputs=str(outputs))
        execute(config)
        done_before.append(RunFolder.of(config))
    return done_before[0]


@pytest.fixture
def tracked(quick: tuple[str, ...], compose_config: Any) -> Callable[..., RunConfig]:
    """The config of the same run, with wandb."""
    patient = "tracker.finish_seconds=600"
    return lambda *more: compose_config(*quick, "learning_rate=0.003", "tracker=wandb", patient, *more)


def read_back(wandb_folder: Path, run: str) -> dict[str, Any]:
    """The one run of that id in a folder of wandb, as wandb's own reader tells it."""
    (file,) = wandb_folder.glob(f"*run-*-{run}/run-{run}.wandb")
    assert SPEC is not None and SPEC.origin is not None
    reader = [str(Path(SPEC.origin).parent / "bin" / "wandb-core"), "leet", "inspect", "--no-observability", "--json"]
    place = ["--run-file", str(file), str(wandb_folder)]
    told = subprocess.run([*reader, *place], capture_output=True, text=True, check=True).stdout
    records = [json.loads(line) for line in told.splitlines()]
    summary = json.loads(subprocess.check_output([*reader, "--summary", *place]))
    (record,) = [record["run"] for record in records if record["type"] == "run"]
    rows = [record["history"] for record in records if record["type"] == "history"]
    return {
        **record,
        "config": {key: value for key, value in record["config"]["update"].items() if key != "_wandb"},
        "history": public([row["item"] for row in rows]),
        "steps": [row["step"].get("num", 0) for row in rows],
        "summary": summary["summary"],
        "exit": [record["exit"].get("exit_code", 0) for record in records if record["type"] == "exit"],
        "files": file.parent / "files",
    }


def public(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what wandb adds."""
    return [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]


def same_history(told: dict[str, Any], folder: RunFolder, only_to: int | None = None) -> None:
    """Each step once, in order, with the row of steps.parquet and the evaluations after it; None and NaN left out."""
    rows = folder.read("steps").to_dict("records")[:only_to]
    expected = [{k: v for k, v in row.items() if not pd.isna(v)} for row in rows]
    assert told["steps"] == [row["step"] for row in rows]
    assert [{k: v for k, v in row.items() if "/" not in k} for row in told["history"]] == expected
    for name, points in folder.evaluation_points().items():
        accuracies = {row["step"]: row[f"{name}/accuracy"] for row in told["history"] if f"{name}/accuracy" in row}
        assert accuracies == {s: p["accuracy"] for s, p in points.items() if only_to is None or s <= only_to}


def same_result(a: RunFolder, b: RunFolder) -> None:
    """Bit for bit, times aside."""
    for table in ("steps", "groups", "completions"):
        left, right = (f.read(table).drop(columns=list(TIMES), errors="ignore") for f in (a, b))  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    weights = [(f.weights / "model.safetensors").read_bytes() for f in (a, b)]
    assert weights[0] == weights[1]
    assert timeless(a.result()) == timeless(b.result())


def only_ours(config: RunConfig, folder: RunFolder) -> None:
    """No file of the run is wandb's to write: wandb links files, and writes a config.yaml of its own."""
    assert read_config(folder.read_config()) == config
    assert [file for file in folder.path.rglob("*") if file.is_file() and file.stat().st_nlink > 1] == []


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return value


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], None]) -> None:
    """Do something right after the row of a step is written."""
    append = RunFolder.append

    def appended(self: RunFolder, table: Any, rows: Any) -> None:
        append(self, table, rows)
        if table == "steps" and rows[-1]["step"] == step:
            act()

    monkeypatch.setattr(RunFolder, "append", appended)


def wait_for(found: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if answer := found():
                return answer
        time.sleep(0.05)
    raise AssertionError(f"no {what} after two minutes")


class Stopped(BaseException):
    """Stands for whatever stops a run."""


def stop() -> None:
    raise Stopped


def kill_myself() -> None:
    """Once the mirror has begun."""
    wait_for(lambda: service_of(os.getpid()), "service of wandb")
    os.kill(os.getpid(), signal.SIGKILL)


def mirrors_of(folder: RunFolder) -> list[psutil.Process]:
    """Wherever they are."""
    return [p for p in psutil.process_iter(["cmdline"]) if str(folder.path) in (p.info["cmdline"] or [])]


def mirror_of(pid: int) -> psutil.Process | None:
    found = [p for p in psutil.Process(pid).children() if any("wandb_process" in word for word in p.cmdline())]
    return found[0] if found else None


def service_of(pid: int) -> psutil.Process | None:
    mirror = mirror_of(pid)
    found = [p for p in mirror.children(recursive=True) if "wandb-core" in p.name()] if mirror else []
    return found[0] if found else None


def test_an_offline_run_holds_what_the_run_s_files_say(
    tracked: Callable[..., RunConfig], untracked: RunFolder, tmp_path: Path
) -> None:
    config = tracked("tracker.project=starved", "tracker.tags=[a,b]")
    outputs, folder = Path(config.outputs), RunFolder.of(config)
    for name in ("older", "table1", "newest"):
        wanted = [config] if name != "newest" else [dataclasses.replace(config, seed=43)]
        declare(outputs, name, None, [], wanted)
    execute(config)
    assert folder.name == untracked.name
    same_result(folder, untracked)

    told = read_back(outputs / "wandb", folder.name)
    assert told["run_id"] == told["display_name"] == folder.name
    assert (told["project"], told["run_group"], told["job_type"]) == ("starved", "table1", "run")
    assert told["tags"] == ["a", "b"] and told["exit"] == [0]
    assert told["config"] == json.loads(json.dumps(plain_config(config)))
    only_ours(config, folder)
    same_history(told, folder)
    assert told["summary"]["result"] == folder.result()
    assert {name: final["accuracy"] for name, final in told["summary"]["evaluations"].items()} == {
        name: summary["final"]["accuracy"] for name, summary in folder.evaluations().items()
    }
    for file in ("config.yaml", "result.json", "steps.parquet", "groups.parquet"):
        assert (told["files"] / "gradstarve" / file).read_bytes() == (folder.path / file).read_bytes()

    tables = {key: value for key, value in told["summary"].items() if isinstance(value, dict) and "_type" in value}
    (evaluation,) = folder.evaluations()
    assert set(tables) == {"evaluation_table", "completions_sample", f"answers_sample_{evaluation}"}
    written = {key: json.loads((told["files"] / table["path"]).read_text()) for key, table in tables.items()}
    completions = folder.read("completions")
    sample = pd.DataFrame(**{k: written["completions_sample"][k] for k in ("columns", "data")})
    assert len(sample) == len(completions) == 96
    assert list(sample["completion"]) == list(completions["completion"])
    answers = pd.DataFrame(**{k: written[f"answers_sample_{evaluation}"][k] for k in ("columns", "data")})
    assert list(answers["verdict"]).count("right") == folder.evaluations()[evaluation]["final"]["right"]


def test_killed_stopped_and_resumed_is_one_run_with_each_step_once(
    tracked: Callable[..., RunConfig], untracked: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tracked()
    folder, wandb = RunFolder.of(config), Path(config.outputs) / "wandb"
    with monkeypatch.context() as patch:
        at_step(patch, 3, kill_myself)
        process = multiprocessing.get_context("fork").Process(target=execute, args=(config,))
        process.start()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    # Nobody tells the mirror; it sees that the run is gone, and ends what it has.
    wait_for(lambda: not mirrors_of(folder), "end of the mirror")
    told = read_back(wandb, folder.name)
    assert told["exit"] == [1]
    same_history(told, folder, only_to=2)  # the newest waits for its evaluation

    with monkeypatch.context() as patch:
        at_step(patch, 5, stop)
        with pytest.raises(Stopped):
            execute(config)
    told = read_back(wandb, folder.name)
    assert told["steps"] == [1, 2, 3, 4] and told["exit"] == [1]

    execute(config)
    same_result(folder, untracked)
    told = read_back(wandb, folder.name)
    assert told["steps"] == [1, 2, 3, 4, 5, 6] and told["exit"] == [0]
    same_history(told, folder)
    assert told["summary"]["result"] == folder.result()


def test_online_without_an_answer_ends_in_time_and_offline(
    tracked: Callable[..., RunConfig],
    untracked: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A server that takes connections and never answers: worse than none at all."""
    config = tracked("tracker.mode=online", "tracker.finish_seconds=60")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        execute(config)
    folder = RunFolder.of(config)
    same_result(folder, untracked)
    assert "tracker: online is not to be had" in capfd.readouterr().err
    told = read_back(Path(config.outputs) / "wandb", folder.name)
    same_history(told, folder)
    assert told["summary"]["result"] == folder.result()


def test_online_and_resumed_the_server_has_each_step_once(
    tracked: Callable[..., RunConfig], untracked: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tracked("tracker.mode=online", "tracker.tags=[a]")
    folder, outputs = RunFolder.of(config), Path(config.outputs)
    with serving() as server, monkeypatch.context() as patch:
        patch.setenv("WANDB_BASE_URL", server.url)
        patch.setenv("WANDB_API_KEY", "0" * 40)
        with monkeypatch.context() as stopping:
            at_step(stopping, 5, stop)
            with pytest.raises(Stopped):
                execute(config)
        (run,) = server.runs.values()
        assert [row["_step"] for row in run["history"]] == [1, 2, 3, 4] and run["exit"] == [1]
        execute(config)
        mirror(outputs, "--mode", "online")
    same_result(folder, untracked)
    assert set(server.runs) == {folder.name}
    assert run["asked"]["groupName"] == "tiny-sums" and run["asked"]["tags"] == ["a"]
    same_history({"history": public(run["history"]), "steps": [row["_step"] for row in run["history"]]}, folder)
    assert run["exit"] == [1, 0, 0]
    assert run["summary"]["result"] == folder.result()
    assert {"gradstarve/result.json", "gradstarve/steps.parquet"} <= run["files"]
    only_ours(config, folder)


@pytest.mark.slow
def test_synced_twice_the_server_has_each_step_once(
    tracked: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wandb sync` between two sessions, and after a mirror that was made again; it appends without asking."""
    config = tracked()
    folder, outputs = RunFolder.of(config), Path(config.outputs)
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)

        def sync() -> list[int]:
            command = [sys.executable, "-m", "wandb", "sync", "--yes"]
            environment = {**os.environ, "WANDB_ERROR_REPORTING": "false", "WANDB_CACHE_DIR": str(outputs / "cache")}
            subprocess.run(command, cwd=outputs, env=environment, check=True, capture_output=True)
            return [row["_step"] for row in server.runs[folder.name]["history"]]

        with monkeypatch.context() as patch:
            at_step(patch, 5, stop)
            with pytest.raises(Stopped):
                execute(config)
        assert sync() == [1, 2, 3, 4]
        execute(config)
        assert sync() == [1, 2, 3, 4, 5, 6]
        only_ours(config, folder)
        mirror(outputs)
        assert sync() == [1, 2, 3, 4, 5, 6]
    run = server.runs[folder.name]
    same_history({"history": public(run["history"]), "steps": [row["_step"] for row in run["history"]]}, folder)
    assert run["summary"]["result"] == folder.result()


@pytest.mark.parametrize(
    "harm",
    [
        "service killed",
        pytest.param("mirror killed", marks=pytest.mark.slow),
        pytest.param("mirror hangs", marks=pytest.mark.slow),
    ],
)
def test_harm_to_the_tracker_is_no_harm_to_the_run(
    tracked: Callable[..., RunConfig], untracked: RunFolder, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    config = tracked(f"tracker.finish_seconds={10 if harm == 'mirror hangs' else 60}")

    def act() -> None:
        service = wait_for(lambda: service_of(os.getpid()), "service of wandb")
        if harm == "service killed":
            service.kill()
        elif harm == "mirror killed":
            mirror_of(os.getpid()).kill()  # type: ignore[union-attr]
        else:
            mirror_of(os.getpid()).suspend()  # type: ignore[union-attr]

    at_step(monkeypatch, 3, act)
    said: list[str] = []
    execute(config, said.append)
    folder = RunFolder.of(config)
    same_result(folder, untracked)
    assert any("tracker: the mirror" in line and "`gradstarve mirror` does it" in line for line in said)
    assert mirror_of(os.getpid()) is None
    if harm == "mirror killed":
        mirror(Path(config.outputs))
        told = read_back(Path(config.outputs) / "wandb", folder.name)
        same_history(told, folder)
        assert told["summary"]["result"] == folder.result()


@pytest.mark.parametrize("place", ["a file", pytest.param("a full disk", marks=pytest.mark.slow)])
def test_a_folder_that_cannot_be_written_is_no_harm_to_the_run(
    tracked: Callable[..., RunConfig], untracked: RunFolder, tmp_path: Path, place: str
) -> None:
    spot = tmp_path / "spot"
    if place == "a file":
        spot.write_text("")
    else:
        spot.mkdir()
        if (
            os.geteuid() != 0
            or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(spot)]).returncode
        ):
            pytest.skip("mounting a small file system needs root")
    try:
        config = tracked(f"tracker.folder={spot}")
        said: list[str] = []
        execute(config, said.append)
        same_result(RunFolder.of(config), untracked)
        assert any("tracker: the mirror is not complete" in line for line in said)
    finally:
        if place == "a full disk":
            subprocess.run(["umount", "--lazy", str(spot)], check=True)


def test_without_the_package_the_mistake_is_told_before_anything_runs(
    tracked: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tracked()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    with pytest.raises(UserError, match=r"tracker=wandb: the package wandb is not installed; pip install"):
        jobs_of([config])


def mirror(outputs: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "gradstarve", "mirror", *arguments, "--outputs", str(outputs)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_mirror_copies_finished_runs_and_tables_and_can_be_repeated(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    outputs = tmp_path / "outputs"
    configs = [compose_config(*quick, f"advantage={name}") for name in ("sign", "base")]
    for config in configs:
        execute(config)
    missing = dataclasses.replace(configs[0], seed=43)
    declare(outputs, "small", None, ["python", "run.py"], [*configs, missing])
    tables = outputs / "tables" / "small"
    tables.mkdir(parents=True)
    (tables / "table1.csv").write_text("advantage,mean,sd\nsign,0.25,\nbase,0.5,\n")
    (tables / "table1.md").write_text("| advantage | mean |\n")
    for _ in range(2):
        said = mirror(outputs, "small", "--project", "starved")
    assert "1 of 3 runs are not finished" in said
    for config in configs:
        folder = RunFolder.of(config)
        told = read_back(outputs / "wandb", folder.name)
        assert (told["project"], told["run_group"], told["exit"]) == ("starved", "small", [0])
        assert told["summary"]["result"] == folder.result()
        if config.advantage.trains:
            same_history(told, folder)
        else:
            (evaluation,) = folder.evaluations()
            (row,) = told["history"]
            assert row["step"] == 0
            assert row[f"{evaluation}/accuracy"] == folder.result()["evaluation"]["accuracy"]  # type: ignore[index]
    told = read_back(outputs / "wandb", "tables-small")
    assert (told["job_type"], told["run_group"]) == ("tables", "small")
    written = json.loads((told["files"] / told["summary"]["table_table1"]["path"]).read_text())
    assert written["columns"] == ["advantage", "mean", "sd"]
    assert written["data"] == [["sign", 0.25, None], ["base", 0.5, None]]
    assert (told["files"] / "gradstarve" / "tables" / "small" / "table1.md").read_text() == "| advantage | mean |\n"


def test_mirror_without_a_finished_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mirror", "--outputs", str(tmp_path / "outputs")]) == 2
    assert "no finished run in" in capsys.readouterr().err
