"""An answer as what it is: a number, words, a list, an interval, a matrix, or an expression left to symbols."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from gradstarve.grading.latex import outer_tokens, split_outside, undress
from gradstarve.grading.numbers import read_number
from gradstarve.grading.policy import DEFAULT, Policy


@dataclass(frozen=True)
class Scalar:
    """One value. `text` is its LaTeX without name and unit; `value` where it is a number; `words` where it is text."""

    text: str
    value: Fraction | None = None
    percent: bool = False
    unit: str = ""
    base: str = ""
    words: str = ""
    name: str = ""


@dataclass(frozen=True)
class Several:
    """Values in a bracket. "" and "{" are lists and sets, "(" and "[" tuples or intervals, with their closing bracket;
    ":" is a ratio. `relation` is the inequality that an interval was written as."""

    items: tuple[Answer, ...]
    opening: str = ""
    closing: str = ""
    name: str = ""
    relation: str = ""


@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple[Answer, ...], ...]
    name: str = ""


Answer = Scalar | Several | Matrix

_UNITS = {
    "degree": "degrees deg",
    "cm": "centimeter centimeters centimetre centimetres",
    "mm": "millimeter millimeters millimetre millimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards",
    "mi": "mile miles",
    "kg": "kilogram kilograms",
    "g": "gram grams",
    "lb": "pound pounds lbs",
    "s": "second seconds sec",
    "min": "minute minutes mins",
    "h": "hour hours hr hrs",
    "cent": "cents",
    "dollar": "dollars usd",
    "mph": "",
    "kmh": "",
    "unit": "units",
}
_UNIT_NAMES = {word: unit for unit, words in _UNITS.items() for word in (unit, *words.split())}
_NOT_UNITS = {
    "pi",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "log",
    "ln",
    "exp",
    "arcsin",
    "arccos",
    "arctan",
    "mod",
}
_QUOTED_UNIT = re.compile(
    r'^(?P<value>.*[\d}\)a-z!])\s*(?:"(?P<unit>[^"]*)"|\^\s*\{?\s*"(?P<ordinal>[^"]*)"\s*\}?)\s*(?:\^\s*\{?(?P<power>\d)\}?)?\s*$',
    re.DOTALL,
)
_BARE_UNIT = re.compile(
    r"^(?P<value>.*[\d}\)])\s*(?P<unit>[A-Za-z]{2,}(?:[ /][A-Za-z]+){0,3})\s*(?:\^\s*\{?(?P<power>\d)\}?)?$", re.DOTALL
)
_DEGREES = re.compile(r"^(?P<value>.*?)\s*\\degree\s*$", re.DOTALL)
_BASED = re.compile(r"^\(?\s*([0-9A-Za-z]+)\s*\)?\s*_\s*\{?\s*(\d{1,2})\s*\}?$")
_NAME = re.compile(
    r"^(?:[A-Za-z]|\\[a-zA-Z]+|[A-Z]{2,3})(?:'|_\s*(?:\{[^{}]*\}|\w))*(?:\s*\([^()]*\))?$|^\(\s*[a-zA-Z](?:_\{?\w+\}?)?(?:\s*,\s*[a-zA-Z](?:_\{?\w+\}?)?)*\s*\)$|^\|[A-Z]+\|$"
)
_WORDS = re.compile(r"^[A-Za-z][A-Za-z' .!?-]*$")
_MATRIX = re.compile(
    r"^\(?\s*\\begin\{([pbBvV]?matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}\s*\)?$", re.DOTALL
)
_LONE_LETTER = re.compile(r"^\(?\s*([A-Za-z])\s*\)?\s*$")
MAX_ITEMS = 64


def read_answer(text: str, policy: Policy = DEFAULT) -> Answer:
    """What `text`, a bare answer in LaTeX or plain text, says. Never fails: what has no structure is a `Scalar`."""
    return _read(undress(text), policy, 0)


def _read(text: str, policy: Policy, depth: int) -> Answer:
    text = text.strip()
    if depth > 8:
        return Scalar(text)
    if scalar := _number(text, policy):
        return scalar
    if matrix := _MATRIX.match(text):
        rows = [row for row in split_outside(matrix[2], "\\\\") if row]
        if "\\begin" not in matrix[2]:
            return Matrix(tuple(tuple(_read(cell, policy, depth + 1) for cell in row.split("&")) for row in rows))
    parts = split_outside(text, ",", ";", "\\cup", "\\bigcup", "\\vee")
    parts = [part for part in parts if part]
    if len(parts) > 1:
        return _listed([_read(part, policy, depth + 1) for part in parts])
    text = parts[0] if parts else text
    if "\\in" in text:
        sides = split_outside(text, "\\in")
        if len(sides) == 2 and _NAME.match(sides[0]):
            return _read(sides[1], policy, depth + 1)
    if (named := _named(text, policy, depth)) is not None:
        return named
    if policy.inequalities == "intervals" and (interval := _interval(text, policy, depth)) is not None:
        return interval
    if (bracketed := _bracketed(text, policy, depth)) is not None:
        return bracketed
    ratio = split_outside(text, ":")
    if len(ratio) > 1 and all(ratio):
        return Several(tuple(_read(part, policy, depth + 1) for part in ratio), ":", ":")
    if "\\pm" in text or "\\mp" in text:
        upper = text.replace("\\pm", "+").replace("\\mp", "-")
        lower = text.replace("\\pm", "-").replace("\\mp", "+")
        return _listed([_read(upper.strip().removeprefix("+"), policy, depth + 1), _read(lower, policy, depth + 1)])
    return _scalar(text, policy)


def _listed(items: list[Answer]) -> Several:
    """One flat list: a list within a list, as of \\pm in a set, gives its items."""
    flat: list[Answer] = []
    for item in items:
        if isinstance(item, Several) and item.opening in ("", "{"):
            flat += item.items
        else:
            flat.append(item)
    return Several(tuple(flat))


def _number(text: str, policy: Policy) -> Scalar | None:
    number = read_number(text, policy)
    if number is None and policy.decimal_comma and re.fullmatch(r"-?\d+,\d+", text):
        number = read_number(text.replace(",", "."), policy)
    if number is None or number.value is None:
        return None
    return Scalar(text, number.value, number.percent)


def _scalar(text: str, policy: Policy) -> Scalar:
    if scalar := _number(text, policy):
        return scalar
    if text.startswith('"') and text.endswith('"') and text.count('"') == 2:
        inside = text[1:-1].strip()
        if scalar := _number(inside, policy):
            return scalar
        letter = _LONE_LETTER.match(inside)
        return Scalar(inside, words=(letter[1] if letter else inside).casefold())
    if letter := _LONE_LETTER.match(text):
        return Scalar(letter[1])
    if based := _BASED.match(text):
        return Scalar(based[1].lstrip("0") or "0", base=based[2])
    value, unit = _without_unit(text)
    if unit:
        inner = _scalar(value, policy)
        return Scalar(inner.text, inner.value, inner.percent, unit, inner.base, inner.words)
    if _WORDS.match(text) and len(text) > 1:
        return Scalar(text, words=text.casefold())
    if '"' in text and re.fullmatch(r'[\s"A-Za-z.,()\'-]*', text):
        words = re.sub(r'["()\s.]+', " ", text).strip()
        return Scalar(words, words=words.casefold())
    if text.startswith("+"):
        return _scalar(text[1:].strip(), policy)
    return Scalar(text.replace('"', " ").strip())


def _without_unit(text: str) -> tuple[str, str]:
    if degrees := _DEGREES.match(text):
        return degrees["value"], "degree"
    if (found := _QUOTED_UNIT.match(text)) and "_" not in found["value"][-2:]:
        return found["value"].strip(), _unit(found["unit"] or found["ordinal"] or "", found["power"])
    if found := _BARE_UNIT.match(text):
        first = found["unit"].split()[0].split("/")[0].casefold()
        known = first in _UNIT_NAMES or (len(first) > 3 and " " in text)
        if known and first not in _NOT_UNITS:
            return found["value"].strip(), _unit(found["unit"], found["power"])
    return text, ""


def _unit(words: str, power: str | None) -> str:
    plain_words = [word for word in re.split(r"[\s.]+", words.casefold()) if word]
    shape = {"square": "2", "sq": "2", "cubic": "3", "cu": "3", "squared": "2", "cubed": "3"}
    powers = [shape[word] for word in plain_words if word in shape]
    named = [_UNIT_NAMES.get(word, word) for word in plain_words if word not in shape]
    exponent = power or (powers[0] if powers else "")
    return (" ".join(named) + (f"^{exponent}" if exponent else "")) or "unit"


def _named(text: str, policy: Policy, depth: int) -> Answer | None:
    sides = split_outside(text, "=")
    if len(sides) < 2 or not sides[-1] or not all(_NAME.match(part) for part in split_outside(sides[0], ":")):
        return None
    inner = _read(sides[-1], policy, depth + 1)
    name = re.sub(r"\s", "", sides[0])
    if isinstance(inner, Scalar):
        return Scalar(inner.text, inner.value, inner.percent, inner.unit, inner.base, inner.words, name)
    if isinstance(inner, Several):
        return Several(inner.items, inner.opening, inner.closing, name, inner.relation)
    return Matrix(inner.rows, name)


_RELATIONS = ("<", ">", "\\leq", "\\geq")


def _interval(text: str, policy: Policy, depth: int) -> Several | None:
    """-2 <= x < 7 as [-2, 7), x > 5 as (5, oo); None where the middle is not one variable."""
    signs = [token for token, _, _, level in outer_tokens(text) if level == 0 and token in _RELATIONS]
    sides = split_outside(text, *_RELATIONS)
    if len(signs) not in (1, 2) or not all(sides):
        return None
    rising = [sign in ("<", "\\leq") for sign in signs]
    closed = ["eq" in sign for sign in signs]
    if len(signs) == 2:
        if rising[0] != rising[1] or not _NAME.match(sides[1]) or (_NAME.match(sides[0]) and "\\" not in sides[0]):
            return None
        if not rising[0]:
            sides, closed = sides[::-1], closed[::-1]
        low, high = _read(sides[0], policy, depth + 1), _read(sides[2], policy, depth + 1)
        return Several((low, high), "[" if closed[0] else "(", "]" if closed[1] else ")", relation=text)
    if _NAME.match(sides[0]):
        bound, below = sides[1], rising[0]
    elif _NAME.match(sides[1]):
        bound, below = sides[0], not rising[0]
    else:
        return None
    edge = _read(bound, policy, depth + 1)
    if below:
        return Several((Scalar("-\\infty"), edge), "(", "]" if closed[0] else ")", relation=text)
    return Several((edge, Scalar("\\infty")), "[" if closed[0] else "(", ")", relation=text)


def _bracketed(text: str, policy: Policy, depth: int) -> Answer | None:
    tokens = list(outer_tokens(text))
    if not tokens or tokens[0][0] not in ("(", "[", "\\{", "{", "\\langle") or len(tokens) < 2:
        return None
    opening, _, begin, _ = tokens[0]
    closing, end, _, level = tokens[-1]
    closings = (")", "]", "\\}", "}", "\\rangle")
    if closing not in closings or level != 0 or any(lv == 0 for _, _, _, lv in tokens[1:-1]):
        return None
    inside = text[begin:end].strip()
    if not inside:
        return None
    parts = [part for part in split_outside(inside, ",", ";") if part]
    items = [_read(part, policy, depth + 1) for part in parts]
    if opening in ("\\{", "{"):
        return _listed(items) if len(items) > 1 or opening == "\\{" else _read(inside, policy, depth + 1)
    if len(items) == 1:
        return items[0] if opening == "(" and closing == ")" else None
    opening = "(" if opening == "\\langle" else opening
    closing = ")" if closing == "\\rangle" else closing
    return Several(tuple(items), opening, closing)
