"""One run, one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradstarve.errors import UserError
from gradstarve.runs.claim import Claimed, claim, holder_of, process_identity

HOLD = """
import sys, time
from pathlib import Path
from gradstarve.runs.claim import claim
with claim(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

RACE = """
import sys, time
from pathlib import Path
from gradstarve.runs.claim import Claimed, claim
print("ready", flush=True)
while not (Path(sys.argv[1]) / "go").exists():
    time.sleep(0.001)
try:
    with claim(Path(sys.argv[1]) / "run"):
        print("won", flush=True)
        sys.stdin.readline()
except Claimed:
    print("lost", flush=True)
"""


def test_a_claim_is_held_by_one_and_freed_at_the_end(tmp_path: Path) -> None:
    with claim(tmp_path / "run"):
        with pytest.raises(Claimed, match=rf"is being run by process {os.getpid()} on "), claim(tmp_path / "run"):
            pass
        assert holder_of(tmp_path / "run") is not None
    assert holder_of(tmp_path / "run") is None
    with claim(tmp_path / "run"):
        pass


def test_a_killed_holder_s_claim_is_stale(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(Claimed, match=rf"process {holder.pid} "), claim(tmp_path):
        pass
    holder.kill()
    holder.wait()
    found = holder_of(tmp_path)
    assert found is not None and found[1] == "gone"
    with claim(tmp_path):
        pass


@pytest.mark.parametrize(
    "change",
    [{"start": 1}, {"boot": "another boot"}, {"pid": 2**22 - 1}],
    ids=["pid used again", "after a reboot", "no such process"],
)
def test_a_process_that_is_provably_gone_frees_its_claim(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "claim.json").write_text(json.dumps({**process_identity(os.getpid()), **change}))
    with claim(tmp_path):
        pass


def test_a_claim_from_another_host_is_refused_with_the_line_that_frees_it(tmp_path: Path) -> None:
    file = tmp_path / "claim.json"
    file.write_text(json.dumps({**process_identity(os.getpid()), "host": "node17", "job_id": "123"}))
    with pytest.raises(Claimed) as refused, claim(tmp_path):
        pass
    assert "node17 (job 123), which cannot be checked from" in str(refused.value)
    assert str(refused.value).endswith(f"rm {file}")
    file.unlink()
    with claim(tmp_path):
        pass


def test_garbage_is_no_claim(tmp_path: Path) -> None:
    (tmp_path / "claim.json").write_text("{")
    with claim(tmp_path):
        pass


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    # A stale claim to take over, which is where two takers could both succeed.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "claim.json").write_text(json.dumps({**process_identity(os.getpid()), "start": 1}))
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    outputs = [taker.stdout for taker in takers if taker.stdout is not None]
    assert [output.readline() for output in outputs] == ["ready\n"] * 6
    (tmp_path / "go").touch()
    # The winner holds its claim until it is told to end, so every loser has met it.
    assert sorted(output.readline() for output in outputs) == ["lost\n"] * 5 + ["won\n"]
    for taker in takers:
        taker.communicate("end\n")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file where a folder should be")
    with (
        pytest.raises(UserError, match=r"cannot be written: .*; choose another place with outputs=$"),
        claim(tmp_path / "outputs" / "runs" / "sign"),
    ):
        pass
