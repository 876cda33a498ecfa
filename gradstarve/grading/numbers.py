"""Numbers as people and models write them, read exactly: a `Fraction` or nothing, never a float, never without bound."""

from __future__ import annotations

import re
from fractions import Fraction

from gradstarve.grading.policy import DEFAULT, Policy

# No answer to a question that people pose has more digits, or a power of ten further out.
MAX_DIGITS = 1_000
MAX_EXPONENT = 1_000

_SCALES = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15,
}  # fmt: skip

# Digit groups are split by a comma or by the thin spaces of typesetting; a plain space parts two numbers.
_GROUP = r"(?:,\\!\s*|\{,\}|,|\\[,!]\s*)"
_UNSIGNED = rf"(?:\d{{1,3}}(?:{_GROUP}\d{{3}})++(?![\d])|\d++)"
_ARGUMENT = r"(?:\{{\s*(?P<{name}>[-+]?\d++(?:\.\d++)?)\s*\}}|\s*(?P<{name}_digit>\d))"
_LATEX_FRACTION = r"\\[dtc]?frac\s*" + _ARGUMENT.format(name="over") + r"\s*" + _ARGUMENT.format(name="under")
NUMBER = re.compile(
    rf"""(?<![A-Za-z_\d])(?<![A-Za-z\d]\.)
    (?:
        (?P<whole>{_UNSIGNED})(?P<decimals>\.\d++)?
        (?:
            \s*/\s*(?P<divisor>{_UNSIGNED})(?!\s*/\s*\d)(?P<divisor_decimals>\.\d++)?
          | (?:\s++|\s*\+\s*(?=\\?\d+/\d+\b)|(?=\\)) (?P<mixed>(?P<part>\d++)\s*/\s*(?P<parts>\d++)(?![/\d,.]\d) | {_LATEX_FRACTION})
          | [eE](?P<exponent>[-+]?\d++)(?![A-Za-z])
          | \s*(?:[xX*]|\\times|\\cdot)\s*10\s*\^\s*(?:\{{\s*(?P<power_braced>[-+]?\d++)\s*\}}|(?P<power>[-+]?\d++))
        )?
      | (?P<leading>\.\d++)(?:[eE](?P<leading_exponent>[-+]?\d++)(?![A-Za-z]))?
      | {_LATEX_FRACTION.replace("over", "top").replace("under", "bottom")}
    )
    (?:[\s~]*+(?P<scale>hundred|thousand|million|billion|trillion|quadrillion)s?\b)?
    (?P<percent>\s*(?:\\?%|percent\b|pct\b|percentage\b))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
