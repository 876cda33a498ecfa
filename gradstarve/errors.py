"""What a user is told when the user can put it right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A user's mistake: one line that says what is wrong, where, and what to do. Doors print it and exit non-zero."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> str:
    """The end of a message about an unknown `name`: the nearest known names, or all of them where few are known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=most, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(repr(c) for c in close)}?"
    return f"Known: {', '.join(names)}." if names else "None is known."
