"""Tables: what each shows, and how it is written."""

from __future__ import annotations
