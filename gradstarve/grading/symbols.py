"""Are two expressions equal? Parsed by math-verify, compared by value. Imports sympy: only worker processes load it."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Eq, Expr, MatrixBase

from gradstarve.grading.verdict import Verdict

# Units are ours to judge: math-verify's own list takes the last letter of 5t for a ton.
_PLAIN_LATEX = LatexExtractionConfig(
    normalization_config=NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, boxed="none")
)
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)")
_DEGREES = re.compile(r"(\d+)\s*(?:\\degree|\^\s*\{?\s*\\circ\s*\}?)")
# A letter before a bracket is a factor, unless it is one that names functions.
_PRODUCT = re.compile(r"(?<![a-zA-Z\\{_])([a-eijkmnr-zA-DIKLMNRST])\s*\(")
# The parser writes variables in lower case: R and r would be one. A capital that names a function keeps its letter.
_CAPITAL = re.compile(r"(?<![a-zA-Z\\{_])[A-Z](?![a-zA-Z_(]|\s*\()|(?<=[\s{(])[A-Z](?=[\^})\s])")
_DIGITS = 60
_POINTS = 4


class NotReadError(Exception):
    """The parser found no mathematics in the text."""


def read(latex: str) -> Basic | MatrixBase:
    """`latex` as a sympy object, decimals as fractions so that no float enters. Raises NotReadError."""
    latex = _DEGREES.sub(r"(\1 \\cdot \\frac{\\pi}{180})", latex)
    latex = _CAPITAL.sub(lambda found: f" w_{{{ord(found[0])}}} ", latex)
    latex = _PRODUCT.sub(r"\1 \\cdot (", latex)
    exact = _DECIMAL.sub(lambda found: rf"\frac{{{int(found[1] + found[2])}}}{{{10 ** len(found[2])}}}", latex)
    parsed = parse(
        f"${exact}$",
        extraction_config=[_PLAIN_LATEX],
        fallback_mode="no_fallback",
        parsing_timeout=None,
        raise_on_error=True,
    )
    if not parsed or not isinstance(parsed[0], (Basic, MatrixBase)):
        raise NotReadError(latex)
    return parsed[0]


def same(gold_latex: str, answer_latex: str, tolerance: Fraction | None = None) -> Verdict:
    """Whether two expressions are equal, for every value of their variables.

    Both are evaluated at random points to 60 digits: a difference there is proof that they differ, whatever a
    simplifier says. Where evaluation says nothing (sets, relations, unknown functions), math-verify decides.
    """
    gold, answer = read(gold_latex), read(answer_latex)
    found = _by_value(gold, answer, tolerance)
    if found is not None:
        return "right" if found else "wrong"
    agreed = verify(gold, answer, strict=True, timeout_seconds=None, raise_on_error=True)
    return "right" if agreed else "wrong"


def _by_value(gold: Basic | MatrixBase, answer: Basic | MatrixBase, tolerance: Fraction | None) -> bool | None:
    """True or False where values decide; None where they say nothing."""
    if isinstance(gold, MatrixBase) and isinstance(answer, MatrixBase):
        if gold.shape != answer.shape:
            return False
        parts = [_by_value(g, a, tolerance) for g, a in zip(gold.doit(), answer.doit(), strict=True)]
        return False if False in parts else None if None in parts else True
    if isinstance(gold, Eq) and isinstance(answer, Eq):
        return _proportional(gold.lhs - gold.rhs, answer.lhs - answer.rhs)
    if isinstance(gold, Eq) != isinstance(answer, Eq):
        return None
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return None
    equal = None
    for left, right in _values(gold, answer):
        allowed = max(abs(left), abs(right), 1) * sympy.Float(10) ** (10 - _DIGITS)
        if tolerance is not None:
            allowed = max(allowed, abs(left) * sympy.Rational(tolerance.numerator, tolerance.denominator))
        if not abs(left - right) <= allowed:
            return False
        equal = True
    return equal


def _proportional(gold: Basic, answer: Basic) -> bool | None:
    """Two equations are one where their differences are a constant multiple of each other."""
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return None
    ratios = [left / right if right != 0 else None for left, right in _values(gold, answer)]
    if len(ratios) < 2 or None in ratios:
        return None
    first = ratios[0]
    if first is None or first == 0:
        return None
    return all(ratio is not None and abs(ratio / first - 1) < sympy.Float(10) ** (12 - _DIGITS) for ratio in ratios)


def _values(gold: Expr, answer: Expr) -> list[tuple[Expr, Expr]]:
    """Both at the same seeded random points, where both are finite numbers. Variables are one by their names."""
    names = sorted(
        {symbol.name for symbol in gold.free_symbols | answer.free_symbols if isinstance(symbol, sympy.Symbol)}
    )
    generator = random.Random(0)
    found: list[tuple[Expr, Expr]] = []
    for _ in range(3 * _POINTS if names else 1):
        point = {name: sympy.Float(generator.randint(10**5, 10**6), _DIGITS) / 97_003 for name in names}
        # An answer's i is the imaginary unit.
        point |= {"i": sympy.I} if "i" in point else {}
        pair = []
        for side in (gold, answer):
            places = {symbol: point[symbol.name] for symbol in side.free_symbols if isinstance(symbol, sympy.Symbol)}
            # Numbers go in as 60 digits, not as fractions, whose powers sympy would try to take exactly.
            value = side.doit().evalf(_DIGITS, subs=places)
            if not value.is_number or not value.is_finite:
                break
            pair.append(value)
        if len(pair) == 2:
            found.append((pair[0], pair[1]))
        if len(found) == _POINTS:
            break
    return found
