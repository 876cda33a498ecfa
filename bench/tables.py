"""How fast ten thousand run folders become tables, against reading every run's own tables with pandas.

    python bench/tables.py [--runs 10000] [--folder FOLDER] [--keep]

The folders are written by runs' own writers at full size (200 steps of 4 prompts, texts included, 1,319 evaluated
questions); the large tables of runs of one size are links to the same bytes. `gradstarve tables` runs in a process of
its own, so that its peak memory can be told. The naive reader computes the same means from steps.parquet and the
evaluation's rows, run by run, on a sample of the folders, and is scaled up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "reporting"))

import synthetic

from gradstarve.runs.config import RunConfig
from gradstarve.runs.files import write_parquet
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.sweeps import declare

ARMS = ("sign", "sign_ce", "tasa", "tasa_ce", "contrastive_pair", "drgrpo", "rloo", "dr_grpo")
SEEDS = range(42, 49)
QUESTIONS = 1319
TEXT = "She sells 16 - 3 - 4 = 9 eggs a day, so she makes 9 * 2 = 18 dollars at the market. #### 18 "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where to write them (default: a temporary folder)")
    parser.add_argument(
        "--keep", action="store_true", help="leave the folders; with --folder, a later call reads them again"
    )
    parser.add_argument("--sample", type=int, default=200, help="folders that the naive reader reads")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="gradstarve-bench-"))
    try:
        if not (folder / "runs").exists():
            write_folders(folder, arguments.runs)
        started = time.perf_counter()
        command = [sys.executable, "-m", "gradstarve", "tables", "--outputs", str(folder), "--no-figures"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ours = time.perf_counter() - started
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        runs = sorted((folder / "runs").iterdir())
        sample = random.Random(0).sample(runs, min(arguments.sample, len(runs)))
        started = time.perf_counter()
        naive_table(sample)
        naive = (time.perf_counter() - started) * len(runs) / len(sample)
        tables = len(list((folder / "tables").glob("*.csv")))
        print(f"{len(runs)} runs, {tables} tables in {ours:.1f} s, peak {peak:.0f} MiB")
        print(f"naive pandas: {naive:.1f} s (from {len(sample)} folders); ratio {naive / ours:.1f}")
        return 0
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


def write_folders(outputs: Path, runs: int) -> None:
    """Settings differ in the learning rate; each has all arms at G = 4 and 8 with 7 seeds."""
    templates: dict[int, Path] = {}
    configs: list[RunConfig] = []
    shown = time.monotonic()
    for number in range(runs):
        setting, rest = divmod(number, len(ARMS) * 2 * len(SEEDS))
        arm, rest = divmod(rest, 2 * len(SEEDS))
        size, seed = divmod(rest, len(SEEDS))
        group_size = (4, 8)[size]
        config = synthetic.config(outputs, ARMS[arm], group_size, SEEDS[seed], learning_rate=1e-5 * (1 + setting))
        right = random.Random(number).randrange(400, 1100)
        first = group_size not in templates
        run = synthetic.write_run(config, right, QUESTIONS, tables=first, by_step={50: right // 2, 100: right // 2})
        if first:
            templates[group_size] = run.path
            _write_texts(run, config)
        else:
            _link_tables(templates[group_size], run)
        configs.append(config)
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            print(f"written {number + 1} of {runs} run folders", file=sys.stderr)
    declare(outputs, "bench", "synthetic runs", ["bench/tables.py"], configs)


def _write_texts(run: RunFolder, config: RunConfig) -> None:
    for step in range(1, config.steps + 1):
        run.append(
            "completions",
            [
                {"step": step, "group": i // config.group_size, "prompt_id": f"p{i}", "prompt": TEXT,
                 "completion": f"{i} {TEXT * 4}", "extracted": "18", "verdict": "right", "rule": "answer",
                 "reward": 1.0, "advantage": 0.5, "length": 120, "truncated": False}
                for i in range(config.completions_per_step)
            ],
        )  # fmt: skip
    run.close_tables()
    rows = pd.DataFrame(
        {"question_id": [str(i) for i in range(QUESTIONS)], "question": TEXT, "gold": "18", "completion": TEXT * 4,
         "extracted": "18", "verdict": ["right" if i % 2 else "wrong" for i in range(QUESTIONS)], "truncated": False}
    )  # fmt: skip
    (evaluation,) = (run.path / "evaluations").iterdir()
    write_parquet(evaluation / f"step-{config.steps:06d}.parquet", rows)


def _link_tables(template: Path, run: RunFolder) -> None:
    for file in template.glob("*.parquet"):
        os.link(file, run.path / file.name)
    (evaluation,) = (run.path / "evaluations").iterdir()
    for file in template.glob("evaluations/*/*.parquet"):
        os.link(file, evaluation / file.name)


def naive_table(runs: list[Path]) -> pd.DataFrame:
    """Mean accuracy and dead share by arm, from the rows themselves."""
    rows = []
    for run in runs:
        result = json.loads((run / "result.json").read_text())
        steps = pd.read_parquet(run / "steps.parquet")
        answers = pd.concat(pd.read_parquet(file) for file in run.glob("evaluations/*/*.parquet"))
        rows.append(
            {"advantage": result["advantage"], "group_size": result["group_size"], "setting": result["setting"],
             "accuracy": (answers["verdict"] == "right").mean(), "dead": steps["dead"].mean()}
        )  # fmt: skip
    return pd.DataFrame(rows).groupby(["setting", "advantage", "group_size"]).agg(["mean", "std", "count"])


if __name__ == "__main__":
    sys.exit(main())
