"""docs/theory.md agrees with the code, and docs/add-an-advantage.md works when it is followed to the letter."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradstarve.estimators.advantages import ADVANTAGES
from gradstarve.estimators.coefficients import coefficients

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_table_of_coefficients() -> None:
    text = (REPOSITORY / "docs" / "theory.md").read_text(encoding="utf-8")
    rows = text.split("<!-- kappa: read by a test -->\n")[1].split("\n\n")[0].splitlines()[2:]
    listed = {}
    for row in rows:
        name, *numbers = [cell.strip() for cell in row.strip("|").split("|")]
        listed[name] = [float(number) for number in numbers]
    assert list(listed) == list(ADVANTAGES)
    for name, numbers in listed.items():
        advantage = ADVANTAGES[name]
        found = coefficients(advantage, 0.25, 4)
        assert found.snr is not None
        expected = [found.kappa, found.all_fail, found.mixed, found.all_pass, found.snr]
        assert numbers[:2] == pytest.approx([advantage.all_fail(4), advantage.all_pass(4)], abs=1e-6), name
        assert numbers[2:] == pytest.approx(expected, abs=5.1e-5), name


def place(copy: Path, prose: str, kind: str, code: str) -> None:
    """Put a code block where the prose above it says."""
    name = re.findall(r"`([\w/.-]+\.(?:py|yaml|md))`", prose)[-1]
    path = copy / name
    if "Append to" in prose:
        path.write_text(path.read_text() + "\n\n" + code)
    elif "Create" in prose:
        assert not path.exists()
        path.write_text(code)
    elif "below" in prose:
        row = re.search(r"^\| pkpo .*\n", path.read_text(), re.MULTILINE)
        assert row is not None
        path.write_text(path.read_text().replace(row.group(), row.group() + code))
    else:
        dictionary = re.findall(r"`([A-Z]+)`", prose)[-1]
        head = re.search(rf"^{dictionary}\b.*= \{{\n", path.read_text(), re.MULTILINE)
        assert head is not None
        path.write_text(path.read_text().replace(head.group(), head.group() + code))


def test_following_the_page(tmp_path: Path) -> None:
    for folder in ("gradstarve", "conf", "docs", "tests/estimators"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(REPOSITORY / file, tmp_path / file)
    page = (tmp_path / "docs" / "add-an-advantage.md").read_text(encoding="utf-8")
    parts = re.split(r"^```(\w+)\n(.*?)^```\n", page, flags=re.MULTILINE | re.DOTALL)
    blocks = list(zip(parts[0::3], parts[1::3], parts[2::3], strict=False))
    assert [kind for _, kind, _ in blocks] == ["python", "yaml", "python", "python", "markdown", "console"]
    for prose, kind, code in blocks[:-1]:
        place(tmp_path, prose, kind, code)
    console = blocks[-1][2]
    commands = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    assert len(commands) == 3
    for command in commands:
        line, *expected = command.splitlines()
        module, *arguments = line.split()
        if module == "pytest":
            # Those that an added advantage meets; this test would follow the page again.
            arguments += ["-p", "no:cacheprovider", "--rootdir", ".", "-k", "golden or config or kappa or table"]
        result = subprocess.run(
            [sys.executable, "-m", module, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        for text in expected:
            assert text in result.stdout.splitlines(), result.stdout
