"""What the source must not hold: a place where a time limit or a bug could vanish, and what travels as a pickle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = [
    *sorted((REPOSITORY / "gradstarve").rglob("*.py")),
    *sorted((REPOSITORY / "hydra_plugins").rglob("*.py")),
    REPOSITORY / "run.py",
]
BROAD = {"Exception", "BaseException"}
# Processes beside a run, whose own end is the answer: a parser of what models wrote, and the tracker's mirror, which
# also closes what it has opened before it passes an error on.
ANSWERED_THERE = {
    "gradstarve/grading/worker.py",
    "gradstarve/learning/wandb_mirror.py",
    "gradstarve/learning/wandb_process.py",
}


def names(node: ast.AST | None) -> set[str]:
    return set() if node is None else {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def swallowing(tree: ast.AST) -> Iterator[int]:
    """The lines that catch everything and let nothing through."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and (node.type is None or names(node.type) & BROAD):
            if not any(isinstance(part, ast.Raise) for part in ast.walk(node)):
                yield node.lineno
        elif isinstance(node, ast.Call) and "suppress" in ast.unparse(node.func) and names(node) & BROAD:
            yield node.lineno


def test_no_place_swallows_what_it_does_not_know() -> None:
    found = {
        str(file.relative_to(REPOSITORY)): lines
        for file in SOURCES
        if (lines := list(swallowing(ast.parse(file.read_text(encoding="utf-8")))))
    }
    assert len(SOURCES) > 100
    assert set(found) == ANSWERED_THERE, found
    assert all(len(lines) == 1 for lines in found.values()), found


def test_the_look_for_such_places_finds_them() -> None:
    code = """
try:
    f()
except ValueError:
    pass
except (OSError, Exception):
    print("so what")
try:
    f()
except:
    pass
try:
    f()
except BaseException:
    clean()
    raise
with contextlib.suppress(Exception):
    f()
with contextlib.suppress(OSError):
    f()
"""
    assert sorted(swallowing(ast.parse(code))) == [6, 10, 17]


def test_nothing_travels_as_a_pickle() -> None:
    """What a job gets is a config and a folder, so that a logger, a module or a lambda cannot kill a submission."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            roots = {name.partition(".")[0] for name in imported}
            assert not roots & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}, (file, imported)
