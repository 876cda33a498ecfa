"""Mathematical answers, policy by policy, and the limits of the processes that decide symbols."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from gradstarve.grading import Grade, MathGrader, Policy, check_gold

PAIRS = {
    "numbers": [
        ("1024", "2^{10}", "right"), ("1\\frac{4}{5}", "1.8", "right"), ("137 \\frac{1}{2}", "275/2", "right"),
        ("-\\frac{3}{4}", "\\frac{3}{-4}", "right"), (".0000672", "6.72 \\times 10^{-5}", "right"),
        ("1", "1.0000001", "wrong"), ("\\pi", "3.14159", "wrong"), ("11\\sqrt2", "11\\sqrt{2}", "right"),
    ],
    "expressions": [
        ("x^2+x-6", "(x-2)(x+3)", "right"), ("6 - 5i", "-5i + 6", "right"), ("6 - 5i", "6 + 5i", "wrong"),
        ("\\cot x", "\\frac{\\cos x}{\\sin x}", "right"), ("-1", "e^{i\\pi}", "right"), ("24", "4!", "right"),
        ("\\frac{11+9a}{20}", "0.55 + 0.45a", "right"), ("1-\\frac{1}{e}", "1+\\frac{1}{e}", "wrong"),
        ("1 - \\frac{1}{\\mathrm{e}}", "1 + \\frac{1}{\\mathrm{e}}", "wrong"), ("1-1/e", "\\frac{e-1}{e}", "right"),
        ("p - q", "q - p", "wrong"), ("3R^2", "3r^2", "wrong"), ("\\pi(R^2-r^2)", "0", "wrong"), ("5t", "5", "wrong"),
        ("i(2-i)", "1+2i", "right"), ("\\cos(x)", "\\sin(90^{\\circ}-x)", "right"), ("\\infty", "-\\infty", "wrong"),
    ],
    "equations": [
        ("x=5", "5", "right"), ("y = 2x + 3", "2x+3", "right"), ("2x+3", "f(x) = 2x+3", "right"),
        ("x=5", "y=5", "wrong"),
        ("5x - 7y + 11z + 4 = 0", "-10x + 14y = 22z + 8", "right"), ("5x - 7y + 11z + 4 = 0", "5x-7y+11z+5=0", "wrong"),
        ("y = -2x", "2x + y = 0", "right"), ("18", "9 + 9 = 18", "right"), ("0", "x^2 + y = 0", "wrong"),
    ],
    "lists and tuples": [
        ("3, 5, 7", "7,5,3", "right"), ("3, 5, 7", "3, 5", "wrong"), ("2, 3", "x = 2 or x = 3", "right"),
        ("1, 1", "1", "wrong"),
        ("\\{1\\pm\\sqrt{5},-2\\}", "-2, 1+\\sqrt5, 1-\\sqrt5", "right"), ("(6,31,-1)", "(6, 31, -1)", "right"),
        ("(6,31,-1)", "(31,6,-1)", "wrong"), ("(1,2)", "1, 2", "wrong"), ("18", "17, 18", "wrong"),
        ("7:32", "7 : 32", "right"),
        ("12:00", "1:00", "wrong"), ("32349", "32,349", "right"), ("32349", "32, 349", "wrong"),
    ],
    "intervals": [
        ("(0,9) \\cup (9,36)", "(9,36)\\cup(0,9)", "right"),
        ("(0,9) \\cup (9,36)", "0<x<9 \\text{ or } 9<x<36", "right"),
        ("(2,\\infty)", "x > 2", "right"), ("(2,\\infty)", "[2,\\infty)", "wrong"),
        ("x \\in [-2,7]", "7 \\geq x \\geq -2", "right"),
        ("x \\leq 1", "-x \\geq -1", "right"), ("x \\leq 1", "x < 1", "wrong"),
        ("[0, 0.5]", "\\left[0, \\frac12\\right]", "right"),
    ],
    "matrices": [
        ("\\begin{pmatrix} -2 \\\\ 1/2 \\end{pmatrix}", "\\begin{bmatrix} -2 \\\\ \\frac{1}{2} \\end{bmatrix}",
        "right"),
        ("\\begin{pmatrix} -2 \\\\ 1/2 \\end{pmatrix}", "(-2, 0.5)", "right"),
        ("\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", "\\begin{pmatrix} 1 & 2 \\\\ 3 & 5 \\end{pmatrix}",
        "wrong"),
        ("\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "wrong"),
    ],
    "words and units": [
        ("\\text{Evelyn}", "Evelyn", "right"), ("\\text{Evelyn}", "Carla", "wrong"), ("\\text{(B)}", "B", "right"),
        ("864 \\mbox{ inches}^2", "864", "right"), ("864 \\mbox{ inches}^2", "864 \\text{ square inches}", "right"),
        ("15\\mbox{ cm}^2", "15\\text{ m}^2", "wrong"), ("15\\mbox{ cm}^2", "15\\text{ cm}", "wrong"),
        ("90^\\circ", "90", "right"), ("90^\\circ", "90 degrees", "right"), ("90^\\circ", "\\frac{\\pi}{2}", "wrong"),
        ("\\$18.90", "18.9 dollars", "right"), ("12", "12^{\\mathrm{th}} \\text{ grade}", "right"),
        ("5", "five", "wrong"),
    ],
    "bases": [
        ("4210_{5}", "4210_5", "right"), ("4210_5", "(4210)_5", "right"), ("4210_5", "4210_6", "wrong"),
        ("4210_5", "4210", "wrong"), ("52_8", "42", "wrong"), ("40_9", "36", "wrong"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    with MathGrader(workers=1, seconds=20) as started:
        yield started


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs(grader: MathGrader, kind: str) -> None:
    golds, answers, verdicts = zip(*PAIRS[kind], strict=True)
    bare = [grade.verdict for grade in grader.grade_bare(answers, golds)]
    assert list(zip(golds, answers, bare, strict=True)) == PAIRS[kind]
    boxed = [
        g.verdict for g in grader.grade_many([f"Hence $\\boxed{{{answer}}}$." for answer in answers], golds, "strict")
    ]
    assert boxed == list(verdicts)


@pytest.mark.parametrize(
    ("completion", "extracted", "rule"),
    [
        ("\\boxed{3} then \\boxed{4}", "4", "boxed"), ("\\boxed{4} and so \\boxed{", "4", "boxed"),
        ("\\boxed{1} and \\boxed{2}", "1, 2", "boxed"), ("\\boxed{1}\\boxed{1}", "1", "boxed"),
        ("The final answer is $\\frac{1}{2}$. I hope it is correct.", "\\frac{1}{2}", "phrase"),
        ("Final Answer: The largest $n$ is 34.", "34", "phrase"), ("**Answer:** 42", "42", "phrase"),
        ("so that \\[x = 7.\\]", "x = 7.", "formula"), ("with $n=3$ she has 7 nickels", "7", "last number"),
        ("It is 1, 2, 3, 4, 5", None, "list"),
        ("<think>\\boxed{4}", None, "none"), ("", None, "none"), ("\\boxed{}", None, "none"),
    ],
)  # fmt: skip
def test_where_an_answer_is_found(grader: MathGrader, completion: str, extracted: str | None, rule: str) -> None:
    found = grader.grade(completion, "1000001")
    assert (found.verdict, found.extracted, found.rule.split(",")[0]) == ("wrong", extracted, rule)


def test_the_strict_rule_wants_a_box(grader: MathGrader) -> None:
    assert grader.grade("The answer is $7$.", "7", "strict") == Grade("wrong", None, "none")
    assert grader.grade("The answer is $7$.", "7", "flexible").verdict == "right"


def test_policies() -> None:
    def under(policy: Policy, gold: str, answer: str) -> str:
        return MathGrader(policy=policy).grade_bare([answer], [gold])[0].verdict

    default = Policy()
    for policy, gold, answer, verdict in [
        (default, "4, 0.1, 2", "0.1, 4, 2", "right"), (Policy(list_order="kept"), "4, 0.1, 2", "0.1, 4, 2", "wrong"),
        (default, "(1,2)", "1,2", "wrong"), (Policy(list_brackets="optional"), "(1,2)", "1,2", "right"),
        (Policy(list_brackets="optional"), "(1,2)", "2,1", "wrong"),
        (default, "15\\text{ cm}", "15", "right"), (Policy(units="required"), "15\\text{ cm}", "15", "wrong"),
        (default, "4210_5", "4210", "wrong"), (Policy(base="optional"), "4210_5", "4210", "right"),
        (Policy(base="optional"), "4210_5", "555", "wrong"), (Policy(base="optional"), "4210_5", "4210_7", "wrong"),
        (default, "10", "10\\%", "right"), (Policy(percent="hundredth"), "10", "10\\%", "wrong"),
        (Policy(percent="hundredth"), "0.1", "10\\%", "right"), (Policy(percent="either"), "0.1", "10\\%", "right"),
        (default, "1,22", "1.22", "wrong"), (Policy(decimal_comma=True), "1,22", "1.22", "right"),
        (default, "1/3", "0.3333", "wrong"), (Policy(tolerance=Fraction(1, 1000)), "1/3", "0.3333", "right"),
        (default, "(-\\infty,3)", "x<3", "right"), (Policy(inequalities="text"), "(-\\infty,3)", "x<3", "wrong"),
    ]:  # fmt: skip
        assert (policy, gold, answer, under(policy, gold, answer)) == (policy, gold, answer, verdict)


def test_tolerance_reaches_the_workers() -> None:
    with MathGrader(policy=Policy(tolerance=Fraction(1, 1000))) as grader:
        assert grader.grade_bare(["1.4142", "1.5"], ["\\sqrt{2}", "\\sqrt{2}"]) == [
            Grade("right", "1.4142", "answer, symbolic"),
            Grade("wrong", "1.5", "answer, symbolic"),
        ]


def test_golds_that_cannot_be_read_are_named(grader: MathGrader) -> None:
    for gold in ("", "\\frac{1}{2", "}", 5):
        with pytest.raises(ValueError, match="gold"):
            check_gold(gold, "math500")
    for gold in ("4210_5", "\\text{Evelyn}", "(1,2)", "x^2"):
        check_gold(gold, "math500")
    with pytest.raises(ValueError, match="task"):
        check_gold("1", "aime")
    assert grader.unreadable(["x^2 + 1", "\\frac{x}{}^{", "(2, x)"]) == [1]


def test_a_pair_beyond_a_limit_is_unverifiable_and_the_next_is_graded() -> None:
    with MathGrader(workers=1, seconds=1.0, memory_bytes=600 << 20) as grader:
        slow = grader.grade("\\boxed{" + "(" * 60 + "x" + ")" * 60 + "}", "x^2")
        assert slow.verdict == "unverifiable" and slow.rule == "boxed, symbolic, time"
        assert grader.grade("\\boxed{1+x}", "x+1").verdict == "right"
        greedy = grader.grade("\\boxed{(3^{9999})^{9999} x}", "x^2")
        assert greedy.verdict in ("unverifiable", "wrong")
        assert grader.grade("\\boxed{2+x}", "x+2").verdict == "right"
        for tower in ("10^{10^{10}}", "9^9^9^9", "((99!)!)!", "\\binom{99999999}{5}", "x^{99999999}"):
            assert grader.grade(f"\\boxed{{{tower}}}", "y") == Grade("unverifiable", tower, "boxed, length")


def test_a_killed_worker_costs_one_pair() -> None:
    with MathGrader(workers=1, seconds=20) as grader:
        assert grader.grade("\\boxed{1+x}", "x+1").verdict == "right"
        worker = grader._pool._workers[0]
        os.kill(worker.child, signal.SIGKILL)
        assert grader.grade("\\boxed{2+x}", "x+2").verdict in ("right", "unverifiable")
        assert grader.grade("\\boxed{3+x}", "x+3").verdict == "right"
        worker.process.kill()
        assert grader.grade("\\boxed{4+x}", "x+4").verdict in ("right", "unverifiable")
        assert grader.grade("\\boxed{5+x}", "x+5").verdict == "right"


def test_it_works_in_a_thread_and_leaves_the_callers_alarm_alone(grader: MathGrader) -> None:
    found: list[Grade] = []
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rang.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        thread = threading.Thread(target=lambda: found.append(grader.grade("\\boxed{7+x}", "x+7")))
        thread.start()
        thread.join()
        until = time.monotonic() + 10
        while not rang and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert found[0].verdict == "right" and rang


def test_the_order_of_many_is_kept_over_workers() -> None:
    with MathGrader(workers=2, seconds=20) as grader:
        golds = [f"x + {n}" for n in range(40)]
        grades = grader.grade_many([f"\\boxed{{{n + n % 2} + x}}" for n in range(40)], golds)
        assert [grade.verdict for grade in grades] == ["right", "wrong"] * 20


ORPHANS = """
import sys, time
from gradstarve.grading import MathGrader
grader = MathGrader(workers=1, seconds=60).__enter__()
grader.grade("\\\\boxed{1+x}", "x+1")
worker = grader._pool._workers[0]
print(worker.process.pid, worker.child, flush=True)
grader.grade("\\\\boxed{" + "(" * 90 + "x" + ")" * 90 + "}", "x^2")
"""


def _alive(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
def test_no_worker_outlives_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2 and all(_alive(worker) for worker in workers)
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 30
    while any(_alive(worker) for worker in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(_alive(worker) for worker in workers)


def test_a_grader_that_was_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="with"):
        MathGrader().grade("\\boxed{x+1}", "1+x")
