"""A worker process: reads pairs of expressions as JSON lines, writes verdicts. Run as a module, never imported.

It imports sympy once and forks a child that does the work; where the child ends, or is killed for taking too long, the
next is there at once. The child limits its own memory (RLIMIT_AS) and, as a backstop, its processor time for each pair;
the pool limits the time by the clock. Both end when the pool's process is gone, even in the middle of a pair.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import resource
import signal
import sys
import threading
from fractions import Fraction
from typing import TextIO

WARMING = [
    "\\frac{1}{2} - 3\\sqrt{13}", "2(k+1) + x^2 - 3x", "\\left(\\frac{a+b}{2}\\right)^{2n}", "6 - 5i", "12\\pi",
    "\\sin(x) + \\log_2 8", "y = 2x + 3", "x \\leq 5",
]  # fmt: skip


def _read_lines(lines: queue.SimpleQueue[str | None], source: TextIO) -> None:
    """Pass lines on; at the end of input leave at once, whatever the main thread is computing."""
    for line in source:
        lines.put(line)
    os._exit(0)


def _watch_parent(parent: int) -> None:
    """A child that the parent forked may hold our input open after the parent's death: look at the parent itself."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(0)


def _limit_processor(seconds: float) -> None:
    """Let the kernel end us if one pair takes longer, even inside a single big-integer operation."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _decide(task: dict[str, str | None]) -> dict[str, str]:
    from gradstarve.grading.symbols import read, same

    gold, answer, tolerance = task["gold"], task.get("answer"), task.get("tolerance")
    assert gold is not None
    try:
        if answer is not None:
            return {"verdict": same(gold, answer, Fraction(tolerance) if tolerance else None)}
        read(gold)
        return {"verdict": "right"}
    # A parser of foreign text fails in ways that its authors do not list; each of them means "could not decide".
    except Exception as error:
        return {"verdict": "unverifiable", "why": "memory" if isinstance(error, MemoryError) else "parser"}


def _work(memory_bytes: int, seconds: float, parent: int, answers: TextIO) -> None:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines, sys.stdin), daemon=True).start()
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    reply: dict[str, str | int] = {"ready": os.getpid()}
    while True:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        if reply.get("why") == "memory":
            os._exit(1)
        task = json.loads(lines.get() or "null")
        _limit_processor(seconds)
        reply = dict(_decide(task))


def main() -> None:
    memory_bytes, seconds, parent = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    # The parent answers for its signals (Ctrl-C, SLURM's warnings) and ends us; they are not ours to die of.
    for name in ("SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # The answers' channel is kept for answers: whatever a library prints goes nowhere.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # math-verify warns of every limit that is left to us.
    logging.disable(logging.CRITICAL)
    from gradstarve.grading.symbols import same

    # The grammar's tables are built as it meets new forms; children inherit them.
    for expression in WARMING:
        same(expression, expression)
    while os.getppid() == parent:
        child = os.fork()
        if child == 0:
            _work(memory_bytes, seconds, os.getppid(), answers)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
