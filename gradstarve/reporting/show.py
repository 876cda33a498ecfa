"""`gradstarve show RUN [OTHER]`: what a run is, where it stands, what came out, and how it differs from another."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow

from gradstarve.errors import UserError
from gradstarve.estimators import get_advantage
from gradstarve.reporting.run_problems import problems_of
from gradstarve.runs.files import finite
from gradstarve.runs.find import find_run
from gradstarve.runs.folder import RunFolder
from gradstarve.runs.rows import read_row
from gradstarve.runs.status import read_status

LONGEST_LINE = 1000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run's name, the beginning of one that no other shares, or its folder")
    parser.add_argument("other", nargs="?", help="another run, to show what differs")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="default: outputs")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    shown = describe(find_run(arguments.run, arguments.outputs))
    if arguments.other is not None:
        other = describe(find_run(arguments.other, arguments.outputs))
        shown["differs"] = {"from": other["run"], **differences(shown, other)}
    print(json.dumps(finite(shown), indent=2, allow_nan=False, default=str) if arguments.json else as_text(shown))
    return 0


def describe(folder: RunFolder) -> dict[str, Any]:
    """All that a run folder says, as plain containers."""
    plain = folder.read_config()
    status = read_status(folder.path) or {}
    row = read_row(folder.name, str(folder.path))
    assert row is not None, "a folder with a config.yaml is a row"
    problems = problems_of(folder, plain, row)
    last_step = None
    try:
        last_step = folder.last_step()
    except (pyarrow.ArrowException, OSError, ValueError):
        problems.append("its table of steps is damaged")
    return {
        "run": folder.name,
        "folder": str(folder.path),
        "state": row.state,
        "why": row.why,
        "error": status.get("error"),
        "host": status.get("host"),
        "job_id": status.get("job_id"),
        "problems": problems,
        "last_step": last_step,
        "formula": _formula(plain.get("advantage"), folder.path),
        "config": plain,
        "provenance": folder.provenance(),
        "result": row.result,
        "evaluations": {
            name: {**({"dataset": summary["dataset"]} if "dataset" in summary else {}), **summary["final"]}
            for name, summary in row.evaluations.items()
            if isinstance(summary.get("final"), dict)
        },
    }


def _asked(final: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The data set that was asked, where it is not the one trained on."""
    asked = final.get("dataset")
    return f" on {asked}" if asked not in {None, (config.get("dataset") or {}).get("name")} else ""


def _formula(advantage: Any, folder: Path) -> str:
    """From the plain config, so that a run of an older version can be shown."""
    if not isinstance(advantage, Mapping) or "name" not in advantage:
        raise UserError(f"{folder}: its config.yaml has no advantage; it was damaged or edited after the run")
    name = advantage.get("formula", advantage["name"])
    if name == "base":
        return "untrained"
    parameters = {k: v for k, v in advantage.items() if k not in {"name", "formula", "replay"}}
    return get_advantage(name, parameters).resolved_formula()


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between two runs in config and provenance: dotted key -> [this, other]."""
    found = {}
    for part in ("config", "provenance"):
        # Sessions and the machine say when and where; what decides a number is code and versions.
        left, right = (
            {k: v for k, v in flat(run[part]).items() if not k.startswith(("sessions", "hardware"))} for run in (a, b)
        )
        for key in sorted(left.keys() | right.keys()):
            if left.get(key) != right.get(key):
                found[key if part == "config" else f"provenance.{key}"] = [left.get(key), right.get(key)]
    return found


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    rows: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            rows.update(flat(item, f"{prefix}{key}."))
        else:
            rows[f"{prefix}{key}"] = item
    return rows


def as_text(shown: Mapping[str, Any]) -> str:
    """For a terminal."""
    lines = [f"{shown['run']}   {shown['state']}", f"  {shown['folder']}", f"  advantage: {shown['formula']}"]
    if shown["error"]:
        lines.append(f"  error: {shown['error']} (traceback in status.json)")
    elif shown["why"] and shown["why"] != shown["state"]:
        lines.append(f"  {shown['why']}")
    lines += [f"  PROBLEM: {problem}" for problem in shown["problems"]]
    step, result = shown["last_step"], shown["result"]
    if result is None and step is not None:
        steps = shown["config"].get("steps", "?")
        lines.append(f"  step {step.get('step')} of {steps}, reward {_percent(step.get('reward'))}")
    if result is not None and result.get("shares") is not None:
        shares = result["shares"]
        lines.append(
            f"  training: reward {_percent(result['reward_first'])} to {_percent(result['reward_last'])} (first and "
            f"last ten steps); all-fail {_percent(shares['all_fail'])}, mixed {_percent(shares['mixed'])}, all-pass "
            f"{_percent(shares['all_pass'])}; truncated {_percent(shares['truncated'])}; {result['tokens']:,} tokens "
            f"in {result['seconds']['total']:.0f} s"
        )
    for name, final in shown["evaluations"].items():
        asked = _asked(final, shown["config"])
        lines.append(
            f"  {name}{asked}: {_percent(final['accuracy'])} ({final['right']} of {final['n']}), truncated "
            f"{_percent(final['truncated'])}, unverifiable {final['unverifiable']}"
        )
    if result is not None and "finished" in result:
        lines.append(f"  finished {time.strftime('%Y-%m-%d %H:%M', time.localtime(result['finished']))}")
    code = shown["provenance"].get("code", {})
    versions = shown["provenance"].get("versions", {})
    lines.append(
        f"  code {code.get('commit') or 'unknown'}{' (changed files)' if code.get('dirty') else ''}; "
        + ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers", "trl") if name in versions)
    )
    if "differs" in shown:
        differing = {key: value for key, value in shown["differs"].items() if key != "from"}
        lines.append(f"differs from {shown['differs']['from']} in {len(differing)} keys")
        lines += [f"  {key}: {ours!r} here, {theirs!r} there" for key, (ours, theirs) in differing.items()]
    else:
        lines.append("config")
        lines += [f"  {key}: {value}" for key, value in flat(shown["config"]).items()]
    return "\n".join(_one_line(line) for line in lines)


def _one_line(text: str) -> str:
    """What a run folder holds comes from models, data and other machines: nothing that steers a terminal."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:LONGEST_LINE])
    return shown if len(text) <= LONGEST_LINE else f"{shown}... (--json shows all)"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.1f} %"
