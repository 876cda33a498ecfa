"""Numbers as people and models write them, read exactly: a `Fraction` or nothing, never a float, always bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from gradstarve.grading.policy import DEFAULT, Policy

# No answer to a question that people pose has more digits, or a power of ten further out.
MAX_DIGITS = 1_000
MAX_EXPONENT = 1_000

SCALES = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15,
}  # fmt: skip

# Digit groups are split by commas, by the thin spaces of typesetting, or (as in some of GSM8K's own solutions) by
# single spaces. `++` gives nothing back, so that a long run of digits is read once.
_UNSIGNED = (
    r"(?:\d{1,3}(?:(?:,\\![ ]{0,3}|\{,\}|,|\\[,! ][ ]{0,3})\d{3})++(?!\d)|[1-9]\d{0,2}(?:[ ]\d{3})++(?!\d)|\d++)"
)
_INTEGER = r"(?:\{[ ]{0,3}[-+]?\d++[ ]{0,3}\}|[-+]?\d++)"
_FRACTION = r"""\\[dtc]?frac[ ]{{0,3}}
    (?:\{{[ ]{{0,3}}(?P<{0}>[-+]?\d++(?:\.\d++)?)[ ]{{0,3}}\}}|(?P<{0}_digit>\d))[ ]{{0,3}}
    (?:\{{[ ]{{0,3}}(?P<{1}>[-+]?\d++(?:\.\d++)?)[ ]{{0,3}}\}}|(?P<{1}_digit>\d))"""
NUMBER = re.compile(
    rf"""(?=[\d.\\])(?<![A-Za-z_\d^])(?<!\d\.)(?<!\^\{{)(?<!\^-)(?<!\^\{{-)
    (?:
        (?P<whole>{_UNSIGNED})(?P<decimals>\.\d++)?
        (?:
            [ ]{{0,3}}/[ ]{{0,3}}(?P<divisor>{_UNSIGNED})(?P<divisor_decimals>\.\d++)?
          | [ \t~]{{1,3}}(?P<part>\d++)[ ]{{0,3}}/[ ]{{0,3}}(?P<parts>\d++)(?![\d.]\d)
          | [ ]{{0,3}}{_FRACTION.format("over", "under")}
          | [eE](?P<exponent>[-+]?\d++)(?![A-Za-z])
          | [ ]{{0,3}}(?:[xX*]|\\times|\\cdot)[ ]{{0,3}}10[ ]{{0,3}}\^[ ]{{0,3}}(?P<times_ten_to>{_INTEGER})
          | [ ]{{0,3}}\^[ ]{{0,3}}(?P<power>{_INTEGER})
        )?
      | (?<!\.)(?P<leading>\.\d++)(?:[eE](?P<leading_exponent>[-+]?\d++)(?![A-Za-z]))?
      | {_FRACTION.format("top", "bottom")}
    )
    (?:[ \t~]{{0,3}}(?P<scale>hundred|thousand|million|billion|trillion|quadrillion)s?\b)?
    (?P<percent>[ \t~]{{0,3}}(?:\\?%|percent\b|pct\b|percentage\b))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CURRENCY = re.compile(r"(?:\\?\$|[€£¥₹₩₽₪₫฿])\s?$")
# Characters that stand in no number.
_NO_NUMBER = re.compile(r"[=:;<>()\n$\"'?bghjklnpquvwyzABCDF-WYZ]")
_BARE_INTEGER = re.compile(r"(?:[A-WYZa-wyz:=>] {1,2}|[=:>\n])(\$?(\d{1,15}))\Z")
_GOES_ON = re.compile(r" {0,3}[hmbtqpHMBTQP%\\]")
_LAST_DIGIT = re.compile(r".*\d", re.DOTALL)


class TooLongError(Exception):
    """A number whose value would be dearer to work out than any answer is worth."""


class Number(NamedTuple):
    """A number where it stands: text[start:end], and its value. None: it has none, or one beyond every gold's bounds.

    `percent` says that a percent sign follows; the value is what stands before the sign.
    """

    start: int
    end: int
    value: Fraction | None
    percent: bool = False


def _whole(digits: str) -> str:
    return digits if digits.isdigit() else re.sub(r"\D", "", digits)


def _decimal(whole: str, decimals: str | None, exponent: str | None = None) -> Fraction | None:
    """whole.decimals * 10**exponent, or None beyond `MAX_DIGITS` or `MAX_EXPONENT`, where no gold is."""
    digits = _whole(whole)
    if decimals is None and exponent is None and len(digits) <= MAX_DIGITS:
        return Fraction(int(digits))
    after = (decimals or "").removeprefix(".")
    # Only zeros that do not change the value are dropped, so what is left measures the number itself.
    after = after.rstrip("0")
    digits = (digits + after).lstrip("0")
    if not digits:
        return Fraction(0)
    short = digits.rstrip("0")
    if len(short) > MAX_DIGITS or len(exponent or "") > 20:
        return None
    power = int(exponent or 0) - len(after) + len(digits) - len(short)
    if abs(power) > MAX_EXPONENT:
        return None
    return Fraction(int(short) * 10**power) if power >= 0 else Fraction(int(short), 10**-power)


def _ratio(over: str, under: str) -> Fraction | None:
    """over / under for decimal literals; None where the divisor is 0. Raises `TooLongError` beyond the bounds."""
    parts = []
    for literal in (over, under):
        whole, _, decimals = literal.lstrip("+-").partition(".")
        part = _decimal(whole, decimals or None)
        if part is None:
            raise TooLongError
        parts.append(-part if literal.startswith("-") else part)
    return parts[0] / parts[1] if parts[1] else None


def _power(base: Fraction, exponent: str) -> Fraction | None:
    exponent = exponent.strip("{} \t\n")
    if len(exponent) > 6 or abs(int(exponent)) * max(len(str(base.numerator)), len(str(base.denominator))) > MAX_DIGITS:
        raise TooLongError
    power = int(exponent)
    return None if base == 0 and power <= 0 else base**power


def _unsigned_value(match: re.Match[str], policy: Policy) -> Fraction | None:
    if match["whole"] is not None:
        whole, decimals = match["whole"], match["decimals"]
        if match["divisor"] is not None:
            value = _ratio(
                _whole(whole) + (decimals or ""), _whole(match["divisor"]) + (match["divisor_decimals"] or "")
            )
        elif match["exponent"] is not None:
            value = _decimal(whole, decimals, match["exponent"])
        elif match["times_ten_to"] is not None:
            value = _decimal(whole, decimals, match["times_ten_to"].strip("{} \t\n"))
        else:
            value = _decimal(whole, decimals)
            if value is None:
                return None
            if match["power"] is not None:
                value = _power(value, match["power"])
            elif match["part"] is not None:
                fraction = _ratio(match["part"], match["parts"])
                value = None if fraction is None else value + fraction
            elif match["over"] is not None or match["over_digit"] is not None:
                fraction = _ratio(match["over"] or match["over_digit"], match["under"] or match["under_digit"])
                value = None if fraction is None else value + fraction
    elif match["leading"] is not None:
        value = _decimal("0", match["leading"], match["leading_exponent"])
    else:
        value = _ratio(match["top"] or match["top_digit"], match["bottom"] or match["bottom_digit"])
    if value is not None and match["scale"] is not None and policy.scale_words:
        value *= SCALES[match["scale"].lower()]
    return value


def _negative(text: str, start: int) -> tuple[int, bool]:
    """Where a number begins once its currency and sign are taken in, and whether the sign is a minus.

    A minus after a digit, a letter or a closing bracket subtracts; one that touches its number elsewhere is a sign. A
    minus with a space behind it is a sign only where an answer begins: at the start, or after `=`, `:`, `{` or `$`.
    """
    before = text[max(0, start - 12) : start]
    bare = _CURRENCY.sub("", before)
    stripped = bare.rstrip(" ")
    begin = start - (len(before) - len(bare))
    if not stripped.endswith("-"):
        return begin, False
    at = start - len(before) + len(stripped) - 1
    ahead = text[max(0, at - 12) : at]
    touching = ahead[-1:]
    if _CURRENCY.search(ahead):
        return start - len(before) + len(stripped) - 1, True
    previous = ahead.rstrip(" \t")[-1:]
    if touching.isalnum() or previous.isdigit() or (previous and previous in ")]}%-"):
        return begin, False
    if stripped != bare and previous and previous not in "=:{$\n([,":
        return begin, False
    return at, True


def _read(text: str, match: re.Match[str], policy: Policy) -> Number:
    value = _unsigned_value(match, policy)
    start, negative = _negative(text, match.start())
    chained = match.start() >= 2 and text[match.start() - 1] == "/" and text[match.start() - 2].isdigit()
    if chained or value is None:
        return Number(start, match.end(), None, match["percent"] is not None)
    return Number(start, match.end(), -value if negative else value, match["percent"] is not None)


def numbers(text: str, policy: Policy = DEFAULT) -> Iterator[Number]:
    """Every number in plain `text` (see `text.plain`), in order. Raises `TooLongError` on one that can't be worked out.

    Digits glued to a letter in front (m2, x1) and exponents of units (m^2) are no numbers.
    """
    for match in NUMBER.finditer(text):
        yield _read(text, match, policy)


def last_number(text: str, policy: Policy = DEFAULT) -> Number | None:
    """The last number in plain `text`, or None. Reads from the end, so that a long text costs no more than a short one.

    Raises `TooLongError` where the last number can't be worked out.
    """
    digit = _LAST_DIGIT.match(text)
    if digit is None:
        return None
    # Most texts end in a bare integer: decided here, as the general way would.
    bare = _BARE_INTEGER.search(text, max(0, digit.end() - 20), digit.end())
    if bare is not None and not _GOES_ON.match(text, digit.end()):
        return Number(bare.start(1), bare.end(), Fraction(int(bare[2])))
    width, end = 24, min(len(text), digit.end() + 20)
    while True:
        begin = max(0, digit.end() - width)
        matches = list(NUMBER.finditer(text, begin, end))
        last = matches[-1] if matches else None
        # Where nothing parts the window's edge from the number, it may have begun before the window; not where many
        # other numbers stand between.
        if begin == 0 or len(matches) > 16 or (last and _NO_NUMBER.search(text, begin, last.start())):
            return None if last is None else _read(text, last, policy)
        width *= 4


_BETWEEN = re.compile(
    r"(?:[^\w\\/=%<]|\\(?:boxed|fbox|text|quad|qquad|\W)|(?P<alternative>\bor\b|/)|\band\b)*+",
    re.IGNORECASE,
)
# A word or an equals sign right before a number: no list leads to it.
_ALONE = re.compile(r"(?:=|[A-Za-z](?<!\bor)(?<!\band)(?<!boxed)(?<!text)) {0,2}\$?\Z", re.IGNORECASE)
_JOINT = re.compile(r"[ \t]|\b(?:and|or)\b", re.IGNORECASE)


def ends_a_list(text: str, last: Number, policy: Policy = DEFAULT) -> bool:
    """Whether `last` closes a list of candidates: three or more different numbers parted in one way by nothing but
    separators, or two by an "or". Then the text names no single answer."""
    if _ALONE.search(text, max(0, last.start - 12), last.start):
        return False
    begin = max(0, last.start - 600)
    values, joints, after = {last.value}, list[str](), last.start - begin
    window = text[begin : last.start]
    for number in reversed(list(numbers(window, policy))):
        between = _BETWEEN.fullmatch(window, number.end, after)
        if between is None:
            return False
        values.add(number.value)
        joints.append(_JOINT.sub("", between.group()))
        if len(values) == 2 and between["alternative"]:
            return True
        # "1, 2, and 3" and "1, 2 and 3" are parted in one way; the numbers of a sum and the answer's own line are not.
        if len({*joints[1:], joints[0] or joints[-1]}) > 1:
            return False
        if len(values) > 2:
            return True
        after = number.start
    return False


def read_number(text: str, policy: Policy = DEFAULT) -> Number | None:
    """The whole of plain `text` as one number, currency, percent and closing full stop allowed; None where it is not.

    Raises `TooLongError` where it is one that can't be worked out.
    """
    text = text.strip()
    match = NUMBER.search(text, 0, 200 + len(text))
    if match is None:
        return None
    rest = text[match.end() :].strip()
    if rest not in ("", ".", "$", "\\$", "€", "£"):
        return None
    number = _read(text, match, policy)
    ahead = text[: number.start].strip()
    return number if ahead in ("", "+") or _CURRENCY.fullmatch(ahead) else None
