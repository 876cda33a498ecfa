"""A worker process: reads pairs of expressions as JSON lines, writes verdicts. Run as a module, never imported.

It limits its own memory (RLIMIT_AS) and, as a backstop, its processor time for each pair; the parent limits the time by
the clock. It ends when its input closes or its parent is gone, even in the middle of a pair.
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


def main() -> None:
    memory_bytes, seconds, parent = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    # The parent answers for its signals (Ctrl-C, SLURM's warnings) and closes us; they are not ours to die of.
    for name in ("SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # The answers' channel is kept for answers: whatever a library prints goes nowhere.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for target, argument in ((_read_lines, (lines, sys.stdin)), (_watch_parent, (parent,))):
        threading.Thread(target=target, args=argument, daemon=True).start()  # type: ignore[arg-type]
    # math-verify warns of every limit that is left to us.
    logging.disable(logging.CRITICAL)
    from gradstarve.grading.symbols import read, same

    same("x + 1", "1 + x")
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    answers.write('{"ready": true}\n')
    answers.flush()
    while (line := lines.get()) is not None:
        task = json.loads(line)
        _limit_processor(seconds)
        try:
            if "answer" in task:
                tolerance = Fraction(task["tolerance"]) if task["tolerance"] else None
                result = same(task["gold"], task["answer"], tolerance)
            else:
                read(task["gold"])
                result = "right"
        except MemoryError:
            answers.write('{"verdict": "unverifiable", "why": "memory"}\n')
            answers.flush()
            os._exit(1)
        # A parser of foreign text fails in ways that its authors do not list; each of them means "could not decide".
        except Exception as error:
            answers.write(json.dumps({"verdict": "unverifiable", "why": type(error).__name__}) + "\n")
        else:
            answers.write(json.dumps({"verdict": result}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
