"""Values that no log can mean, and files that are damaged, through the door of `gradstarve diagnose`: one line each."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gradstarve.cli import main


def refusal(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    assert main(["diagnose", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


GOOD = '{"prompt_id": "a", "rewards": [1, 0]}\n'
BAD_VALUES = {
    "infinite": ('{"prompt_id": "b", "rewards": [Infinity, 0]}', "line 2, sample 1: reward inf is neither 0 nor 1"),
    "beyond a float": ('{"prompt_id": "b", "rewards": [%s, 0]}' % ("9" * 400), "line 2, sample 1: reward 999"),
    "beyond an int": ('{"prompt_id": "b", "rewards": [%s, 0]}' % ("9" * 5000), "line 2: not JSON (Exceeds the limit"),
    "broken": ("{broken", "line 2: not JSON (Expecting property name"),
    "half a step": ('{"prompt_id": "b", "step": 1.5, "rewards": [1, 0]}', "line 2: step 1.5 is not whole"),
    "length": ('{"prompt_id": "b", "rewards": [1, 0], "lengths": [-5, 3]}', "line 2: lengths -5 is not the length"),
    "truncated": ('{"prompt_id": "b", "rewards": [1, 0], "truncated": ["no", "yes"]}', "truncated is 'no', neither"),
}


@pytest.mark.parametrize("kind", BAD_VALUES)
def test_a_value_that_cannot_be_is_named_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    line, said = BAD_VALUES[kind]
    path = tmp_path / "log.jsonl"
    path.write_text(GOOD + line + "\n")
    error = refusal(capsys, path)
    assert said in error and "log.jsonl line 2" in error


BAD_FILES = {
    "noise.csv.gz": (b"\x80" * 60, "noise.csv.gz line 1: the compressed data is damaged"),
    "cut.csv.gz": (gzip.compress(b"prompt_id,reward\na,1\na,0\n")[:20], "the compressed data is damaged"),
    "cut.jsonl.gz": (gzip.compress(GOOD.encode())[:-6], "the compressed data is damaged"),
    "twice.csv": (b"prompt_id,reward,reward\na,1,0\na,0,1\n", "more than one column 'reward'"),
    "latin.csv": (b"prompt_id,reward\n\xe9,1\n", "not UTF-8 text"),
    "size.csv": (b"step,reward,group_size\n1,0.5,1e300\n", "size.csv line 2: group_size 1e+300"),
    "zero.csv": (b"step,reward,group_size\n1,0.5,0\n", "zero.csv line 2: group_size 0"),
    "infinite.csv": (b"step,reward\n1,0.5\n2,inf\n", "infinite.csv line 3: mean reward inf is not in [0, 1]"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_damaged_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    content, said = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    assert said in refusal(capsys, tmp_path / name)
