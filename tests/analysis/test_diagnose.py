"""`gradstarve diagnose` through its door: every format, every refusal, and what it says of real logs."""

from __future__ import annotations

import csv
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradstarve.cli import main

ROWS = {"a": [0, 0, 0, 0], "b": [1, 0, 0, 1], "c": [1, 1, 1, 1], "d": [0, 0, 0, 0]}
KEYS = {
    "prompts",
    "samples",
    "group_size",
    "mean_reward",
    "shares",
    "d_real",
    "d_iid",
    "jensen_gap",
    "pass_at_k",
    "findings",
}


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code = main(["diagnose", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["diagnose", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def ids(report: dict[str, Any]) -> set[str]:
    return {finding["id"] for finding in report["findings"]}


def evidence(report: dict[str, Any], name: str) -> str:
    return next(finding["evidence"] for finding in report["findings"] if finding["id"] == name)


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "lists.jsonl", [{"prompt_id": p, "rewards": r} for p, r in ROWS.items()])


def test_the_json_contract(lists: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ask(capsys, lists)
    assert set(report) == KEYS
    assert (report["prompts"], report["samples"], report["group_size"]) == (4, 16, 4)
    assert report["mean_reward"] == 0.375
    assert report["shares"] == {"all_fail": 0.5, "mixed": 0.25, "all_pass": 0.25}
    assert report["d_real"]["unbiased"] == 0.75
    # D(0), D(1/2), D(1), D(0) at G = 4.
    assert report["d_real"]["plug_in"] == pytest.approx((1 + 2 / 16 + 1 + 1) / 4)
    low, high = report["d_real"]["ci95"]
    assert 0 < low < 0.75 < high <= 1
    assert report["d_iid"] == pytest.approx(0.375**4 + 0.625**4)
    assert report["jensen_gap"] == pytest.approx(0.75 - report["d_iid"])
    assert report["pass_at_k"] == {"1": 0.375, "2": pytest.approx((5 / 6 + 1) / 4), "4": 0.5}
    for finding in report["findings"]:
        assert set(finding) == {"id", "severity", "evidence", "advice"}
        assert finding["severity"] in ("info", "warning", "critical")
        assert finding["evidence"] and finding["advice"]


def test_another_group_size_from_the_same_counts(lists: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ask(capsys, lists, "--group-size", 2)
    # b has two right of four: pairs are dead in (1 + 1)/6 of the cases.
    assert report["d_real"]["unbiased"] == pytest.approx((1 + 1 / 3 + 1 + 1) / 4)
    assert report["shares"]["all_fail"] == pytest.approx((2 + 1 / 6) / 4)
    assert report["group_size"] == 2


def long_rows() -> list[dict[str, Any]]:
    return [
        {"prompt_id": p, "reward": r}
        for sample in zip(*ROWS.values(), strict=True)
        for p, r in zip(ROWS, sample, strict=True)
    ]


@pytest.mark.parametrize(
    "form", ["jsonl", "csv", "parquet", "list-parquet", "verl", "verl-folder", "trl", "trl-folder", "minus", "lists.gz"]
)
def test_every_format_says_the_same(form: str, lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = ask(capsys, lists)
    path = tmp_path / f"log.{form}"
    rows = long_rows()
    verl = [
        {"input": r["prompt_id"], "output": "text", "gts": "1", "score": float(r["reward"]), "step": 1} for r in rows
    ]
    trl = pd.DataFrame(
        {
            "step": 1,
            "prompt": [[{"role": "user", "content": r["prompt_id"]}] for r in rows],
            "completion": [[{"role": "assistant", "content": f"text {i}"}] for i in range(len(rows))],
            "accuracy_reward": [float(r["reward"]) for r in rows],
            "advantage": 0.0,
        }
    )
    if form == "jsonl":
        write_lines(path, rows)
    elif form == "csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    elif form == "parquet":
        pd.DataFrame(rows).to_parquet(path)
    elif form == "list-parquet":
        path = tmp_path / "lists.parquet"
        pd.DataFrame({"prompt_id": list(ROWS), "rewards": list(ROWS.values())}).to_parquet(path)
    elif form == "verl":
        path = write_lines(tmp_path / "1.jsonl", verl)
    elif form == "verl-folder":
        path.mkdir()
        write_lines(path / "1.jsonl", verl)
    elif form == "trl":
        path = tmp_path / "completions_00001.parquet"
        trl.to_parquet(path)
    elif form == "trl-folder":
        (path / "completions").mkdir(parents=True)
        trl.to_parquet(path / "completions" / "completions_00001.parquet")
    elif form == "minus":
        path = write_lines(tmp_path / "minus.jsonl", [{**r, "reward": 2 * r["reward"] - 1} for r in rows])
    else:
        import gzip

        path = tmp_path / "log.jsonl.gz"
        path.write_bytes(gzip.compress(lists.read_bytes()))
    report = ask(capsys, path)
    for key in KEYS - {"findings"}:
        assert report[key] == expected[key], key
    assert ("rewards-recoded" in ids(report)) == (form == "minus")


def test_our_run_folder_while_it_runs_and_when_it_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "sign-g4-s42-0123abcd"
    run.mkdir()
    cut = {"a", "d"}
    # The last group has the prompt of the first: two groups all the same.
    prompts = {**{p: p for p in ROWS}, "d": "a"}
    completions = [
        {
            "step": 1,
            "group": g,
            "prompt_id": prompts[p],
            "completion": "x",
            "reward": r,
            "truncated": p in cut,
            "length": 9,
        }
        for g, (p, rewards) in enumerate(ROWS.items())
        for r in [*rewards[:3], None]
    ]
    write_lines(run / "completions.jsonl", completions)
    with (run / "completions.jsonl").open("a") as stream:
        stream.write('{"step": 2, "prompt_id"')
    report = ask(capsys, run, "--group-size", 3)
    assert (report["prompts"], report["samples"]) == (3, 16)
    assert report["shares"] == {"all_fail": 0.5, "mixed": 0.25, "all_pass": 0.25}
    assert "4 of 16 completions have no verdict" in evidence(report, "unverifiable")
    assert "Of 2 all-fail groups, 2 are cut off throughout" in evidence(report, "truncation")

    # `group_size` counts verdicts.
    groups = [
        {
            "step": 1,
            "group": g,
            "prompt_id": prompts[p],
            "group_size": 3,
            "n_plus": sum(r[:3]),
            "unverifiable": 1,
            "truncated": 4 * (p in cut),
            "tokens": 36,
        }
        for g, (p, r) in enumerate(ROWS.items())
    ]
    (run / "completions.jsonl").unlink()
    pd.DataFrame(groups).to_parquet(run / "groups.parquet")
    again = ask(capsys, run, "--group-size", 3)
    assert {k: again[k] for k in KEYS - {"findings"}} == {k: report[k] for k in KEYS - {"findings"}}
    assert evidence(again, "truncation") == evidence(report, "truncation")


def test_unverifiable_groups_are_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt_id": p, "rewards": r} for p, r in ROWS.items()] + [
        {"prompt_id": "e", "rewards": [math.nan, 1, None, 0]}
    ]
    report = ask(capsys, write_lines(tmp_path / "log.jsonl", rows))
    assert report["shares"] == {"all_fail": 0.5, "mixed": 0.25, "all_pass": 0.25}
    text = evidence(report, "unverifiable")
    assert "2 of 20" in text and "1 of 5 groups have fewer than 4 verdicts" in text and "line 5" in text


def test_a_group_cut_short_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt_id": str(i), "rewards": [0, 1, 1, 0]} for i in range(20)] + [{"prompt_id": "z", "rewards": [1, 1]}]
    path = write_lines(tmp_path / "log.jsonl", rows)
    report = ask(capsys, path)
    assert report["prompts"] == 20
    assert "line 21" in evidence(report, "unequal-groups")
    assert "line 1: 4 completions, fewer than the group size 8" in refusal(capsys, path, "--group-size", 8)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"prompt_id": "a", "rewards": [0, 0.5]}', "line 1, sample 2: reward 0.5 is neither 0 nor 1"),
        ('{"prompt_id": "a", "rewards": [0, "yes"]}', "line 1, sample 2: reward 'yes' is not a number"),
        ('{"prompt_id": "a", "rewards": [0, -1]}', "line 1: reward -1 in a log that also has 0"),
        ('{"prompt_id": "a", "rewards": [0, 1]}\n{"prompt_id": "b"}', "line 2: no list of rewards"),
        ('{"prompt_id": "a", "rewards": [0, 1]}\n{oops}\n', "line 2: not JSON"),
        ('{"prompt_id": "a", "rewards": [0, 1]}\n[1]\n', "line 2: expected one JSON object"),
        ('{"prompt_id": "a", "rewards": [1]}', "line 1: this prompt has 1 completion"),
        ('{"prompt_id": "a", "rewards": [null, 1]}', "line 1: 1 verdicts; no group has 2"),
        ('{"prompt_id": "a", "rewards": [0, 1], "truncated": [true]}', "`truncated` is not a list of 2"),
        ('{"prompt_id": "a", "rewards": [1, 0], "step": "x"}', "line 1: step 'x' is not a number"),
        ('{"answer": "a", "reward": 1}', "no prompt column"),
        ('{"prompt_id": "a", "grade": 1}', "no reward among the columns prompt_id, grade"),
        ('{"prompt_id": "a", "reward": 1}\n{"prompt_id": "a"}', "line 2: no 'reward'"),
        ("", "empty"),
    ],
)
def test_refusals_name_the_row(lines: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(lines, encoding="utf-8")
    assert message in refusal(capsys, path)


def test_other_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in refusal(capsys, tmp_path / "absent.jsonl")
    assert "neither a run folder" in refusal(capsys, tmp_path)
    (tmp_path / "log.parquet").write_bytes(b"not parquet")
    assert "not a parquet file" in refusal(capsys, tmp_path / "log.parquet")
    (tmp_path / "log.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refusal(capsys, tmp_path / "log.jsonl")
    (tmp_path / "log.csv").write_text("step,reward_avg\n1,0.5\n2,0.3\n")
    assert "line 3: mean reward 0.3 is no multiple of 1/8" in refusal(capsys, tmp_path / "log.csv", "--group-size", 8)
    (tmp_path / "log.csv").write_text("step,reward_avg\n1,0.5\n2\n")
    assert "line 3: not as many fields" in refusal(capsys, tmp_path / "log.csv")
    assert "at least 2" in refusal(capsys, tmp_path / "log.csv", "--group-size", 1)


def test_a_threshold_makes_graded_rewards_binary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "log.jsonl", [{"prompt_id": "a", "rewards": [0.2, 0.9, -1, 1]}])
    assert ask(capsys, path, "--threshold", 0.5)["mean_reward"] == 0.5


def test_a_last_line_that_was_being_written_is_left_out(lists: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lists.open("a") as stream:
        stream.write('{"prompt_id": "e", "rew')
    report = ask(capsys, lists)
    assert report["prompts"] == 4 and "line 5" in evidence(report, "unfinished-line")


def test_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [1, 2, 3, 4, 2, 3]  # the attempt that reached 4 was given up; the run went back to 2
    means = [1.0, 0.0, 0.0, 0.0, 0.5, 0.5]
    path = tmp_path / "log.csv"
    path.write_text("step,reward_avg\n" + "".join(f"{s},{m}\n" for s, m in zip(steps, means, strict=True)))
    report = ask(capsys, path, "--group-size", 2)
    assert report["shares"] == pytest.approx({"all_fail": 0, "mixed": 2 / 3, "all_pass": 1 / 3})
    assert "3 rows" in evidence(report, "restart")

    rows = [
        {"step": s, "prompt_id": "a", "reward": r}
        for s, m in zip(steps, means, strict=True)
        for r in (m >= 0.5, m == 1)
    ]
    assert ask(capsys, write_lines(tmp_path / "log.jsonl", rows))["shares"] == report["shares"]

    path.write_text("step,reward_avg\n3,0\n2,0.5\n1,1\n")  # newest first is an order, not three restarts
    assert ask(capsys, path, "--group-size", 2)["samples"] == 6


def test_trl_logs_of_one_generation_used_twice_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, mark in ((1, "x"), (2, "x"), (3, "y")):
        frame = pd.DataFrame(
            {
                "step": step,
                "prompt": ["p"] * 4,
                "completion": [f"{mark}{i}" for i in range(4)],
                "reward_func": [1.0, 0.0, None, 1.0],
                "advantage": 0.0,
            }
        )
        frame.to_parquet(tmp_path / f"completions_{step:05d}.parquet")
    report = ask(capsys, tmp_path, "--group-size", 3)
    assert report["samples"] == 8
    assert "1 steps logged" in evidence(report, "repeated-steps")


def test_trl_with_several_reward_columns_asks_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame(
        {
            "step": 1,
            "prompt": ["p"] * 2,
            "completion": ["a", "b"],
            "right": [1.0, 0.0],
            "form": [1.0, 1.0],
            "advantage": 0.0,
        }
    )
    frame.to_parquet(tmp_path / "completions_00001.parquet")
    assert "choose with --reward: right, form" in refusal(capsys, tmp_path)
    assert ask(capsys, tmp_path, "--reward", "right")["mean_reward"] == 0.5
    assert "no column 'rihgt'. Did you mean 'right'" in refusal(capsys, tmp_path, "--reward", "rihgt")


def stepped(shares: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Steps of 60 groups of 2: so many all-fail, mixed and all-pass."""
    kinds = ([0, 0], [0, 1], [1, 1])
    return [
        {"step": step, "prompt_id": f"{step}.{kind}.{i}", "rewards": kinds[kind]}
        for step, share in enumerate(shares)
        for kind, count in enumerate(share)
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ((40, 10, 10), (10, 10, 40), "sides-changed"),
        ((40, 10, 10), (20, 30, 10), "starvation-falling"),
        ((20, 30, 10), (45, 5, 10), "starvation-rising"),
        ((30, 20, 10), (30, 20, 10), "sides-unchanged"),
    ],
)
def test_whether_starvation_falls_or_changes_sides(first, last, expected, tmp_path: Path, capsys) -> None:
    rows = stepped([first] * 2 + [(30, 15, 15)] * 2 + [last] * 2)
    report = ask(capsys, write_lines(tmp_path / "log.jsonl", rows))
    assert expected in ids(report)


def test_silent_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"prompt_id": "a", "rewards": [0, 0], "lengths": [30, 30]},  # all-fail: 60 tokens
        {"prompt_id": "b", "rewards": [1, 0], "lengths": [10, 30]},
    ]
    text = evidence(ask(capsys, write_lines(tmp_path / "log.jsonl", rows)), "silent-compute")
    assert "generated tokens" in text
    assert "60.0 % under drgrpo, grpo, dr_grpo, rloo" in text
    assert "90.0 % under psr" in text and "10.0 % under nsr" in text and "0.0 % under sign" in text


def test_amplification_against_the_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The paper's trajectory: 438 all-fail, 246 mixed and 116 all-pass groups of four, against a base at 0.25.
    kinds = [[0] * 4] * 438 + [[0, 1, 1, 0]] * 246 + [[1] * 4] * 116
    rows = [{"step": i // 4, "prompt_id": i, "rewards": rewards} for i, rewards in enumerate(kinds)]
    report = ask(capsys, write_lines(tmp_path / "log.jsonl", rows), "--base", 0.25)
    assert report["d_real"]["unbiased"] == pytest.approx(0.6925)
    assert report["d_real"]["ci95"] == pytest.approx([0.659, 0.724], abs=0.0006)
    assert "p = 0.25 alone would give 32.0 %; that is multiplied by 2.2." in evidence(report, "starvation")


def test_game24(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shared_data / "rollouts_game24_cot_100x100.jsonl"
    report = ask(capsys, path, "--group-size", 4)
    assert "51 of 100 prompts have no success in 100 samples" in evidence(report, "never-solved")
    assert report["pass_at_k"]["100"] == pytest.approx(0.49)
    assert ask(capsys, path)["shares"]["all_fail"] == pytest.approx(0.51)


def test_qwen25math_with_either_grader(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shared_data / "rollouts_math_qwen25math_100x8.jsonl"
    report = ask(capsys, path)
    assert report["shares"]["all_pass"] == pytest.approx(0.86)
    assert "generated characters" in evidence(report, "silent-compute")
    assert ask(capsys, path, "--reward", "rewards_math_verify")["samples"] == 800


@pytest.mark.parametrize(
    ("name", "expected", "absent"),
    [
        (
            "7_3_plus_tracking_metrics.csv",
            {"collapse", "entropy-explosion", "reward-up-evaluation-down", "restart"},
            set(),
        ),
        ("7_4_plus_clip_ratio_metrics.csv", {"evaluation-falls", "entropy-loss"}, {"collapse", "restart"}),
    ],
)
def test_real_training_metrics(name: str, expected: set, absent: set, shared_data: Path, capsys) -> None:
    path = shared_data / "grpo_metrics" / name
    report = ask(capsys, path, "--group-size", 8)
    assert report["prompts"] == 500 and report["samples"] == 4000
    assert expected <= ids(report) and not absent & ids(report)
    # The trainer's own standard deviation of advantages is zero exactly in dead groups.
    with path.open() as stream:
        last = {row["step"]: float(row["adv_std"]) for row in csv.DictReader(stream)}
    assert report["shares"]["mixed"] == pytest.approx(sum(std > 0 for std in last.values()) / 500)
    inferred = ask(capsys, path)
    assert inferred["group_size"] == 8 and "group-size-inferred" in ids(inferred)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name in ("src", "href") or name.startswith("on") for name, _ in attrs)
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def test_html_is_one_offline_file_with_everything_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e\x1b[31m'
    rows = [
        {"step": step, "prompt_id": hostile + str(i), "rewards": [i % 2, 0], "completions": [hostile, "\ud800"]}
        for step in range(8)
        for i in range(3)
    ]
    log = tmp_path / "a<b>&'log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "report.html"
    assert main(["diagnose", str(log), "--html", str(out)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    page = Page()
    page.feed(out.read_text(encoding="utf-8"))
    assert page.open == []
    assert not {"script", "img", "link", "iframe", "b"} & set(page.tags)
    assert "a&lt;b&gt;&amp;" in out.read_text(encoding="utf-8")
    assert list(tmp_path.glob(".*")) == []
