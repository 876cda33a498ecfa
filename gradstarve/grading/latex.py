"""One way to write each thing: LaTeX answers with their dress taken off. Strings in, strings out, linear in length."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradstarve.grading.text import plain

_GROUPED = re.compile(r"(?<=\d)(?:,\s*\\!\s*|\{,\}|\\[,!]\s*)(?=\d{3}(?!\d))")
_SPACING = re.compile(
    r"(?<!\\)\\(?:[!,;:> ]|quad(?![a-z])|qquad(?![a-z])|displaystyle|textstyle|limits|nolimits|hfill)|~"
)
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\.?")
_MATH_MARKS = re.compile(r"(?<!\\)\\[()\[\]]|(?<!\\)\$\$?")
_WORDS = re.compile(
    r"\\(?:text|mbox|hbox|textbf|textit|textrm|textnormal|textsf|mathrm|mathbf|mathit|mathsf|boldsymbol|bf|rm|it)\s*\{([^{}]*)\}"
)
_AND = re.compile(r"(?<![a-zA-Z\\])\s*,?\s*(?:and|or)(?![a-zA-Z])|\\(?:lor|vee|land|wedge)(?![a-zA-Z])", re.IGNORECASE)
_FRAC = re.compile(r"\\[dtc]?frac\s*(?=\S)")
_ROOT = re.compile(r"\\sqrt\s*(\d|[a-zA-Z](?![a-zA-Z])|\\[a-zA-Z]+)")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}])")
_SPACES = re.compile(r"\s+")
_DEGREE = re.compile(r"\^\s*\{?\s*(?:\\circ|\\degree)\s*\}?|\\degrees?(?![a-zA-Z])|°|º")
_ROMAN_E = re.compile(r"\\(?:mathrm|operatorname|text)\{e\}")
_ABOUT = re.compile(r"\\(?:approx|simeq|cong|doteq)(?![a-zA-Z])|≈")
_NAMES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\(?:leqslant|leq|le)(?![a-zA-Z])|<=|=<|≤|⩽", "\\\\leq "),
        (r"\\(?:geqslant|geq|ge)(?![a-zA-Z])|>=|≥|⩾", "\\\\geq "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\(?:neq|ne)(?![a-zA-Z])|!=|≠|\\not\s*=", "\\\\neq "),
        (r"\\(?:infin|infty)(?![a-zA-Z])|∞|(?<![a-zA-Z\\])(?:inf|infinity|oo)(?![a-zA-Z])", "\\\\infty "),
        (r"∪", "\\\\cup "),
        (r"\\(?:isin|in)(?![a-zA-Z])|∈", "\\\\in "),
        (r"π|(?<![a-zA-Z\\])pi(?![a-zA-Z])", "\\\\pi "),
        (r"√\s*(\d+|[a-z](?![a-z])|(?=\())", r"\\sqrt{\1}"),
        (r"(?<![a-zA-Z\\])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"±|\+/-|\\plusminus(?![a-zA-Z])", "\\\\pm "),
        (r"\\pmod\s*(?:\{[^{}]*\}|\d+)|\(\s*\\(?:mod|bmod)[^()]*\)", ""),
        (r"\\equiv(?![a-zA-Z])|≡", "="),
        (r"\*\*", "^"),
        (r"\\(?:cdot|times|ast)(?![a-zA-Z])|\*", "\\\\cdot "),
        (r"\\(?:lbrace|\{)", "\\\\{"),
        (r"\\(?:rbrace|\})", "\\\\}"),
        (r"\\(?:lbrack)(?![a-zA-Z])", "["),
        (r"\\(?:rbrack)(?![a-zA-Z])", "]"),
        (r"\\(?:varnothing|emptyset)(?![a-zA-Z])|∅", "\\\\emptyset "),
    ]
]


def matching(text: str, at: int) -> int:
    """Where the brace opened at text[at] closes, or -1."""
    depth = 0
    for mark in re.finditer(r"\\.|[{}]", text[at:]):
        if mark.group() == "{":
            depth += 1
        elif mark.group() == "}":
            depth -= 1
            if depth == 0:
                return at + mark.start()
    return -1


def _argument(text: str, at: int) -> tuple[str, int]:
    """One LaTeX argument from text[at:], and where it ends."""
    while at < len(text) and text[at].isspace():
        at += 1
    if text[at : at + 1] == "{" and (end := matching(text, at)) >= 0:
        return text[at + 1 : end], end + 1
    if command := re.compile(r"\\[a-zA-Z]+").match(text, at):
        return command.group(), command.end()
    return text[at : at + 1], at + 1


def _full_fractions(text: str) -> str:
    """\\frac12, \\frac 9{19}, \\dfrac{1}2 with both braces."""
    pieces, at = [], 0
    for found in _FRAC.finditer(text):
        if found.start() < at:
            continue
        over, middle = _argument(text, found.end())
        under, end = _argument(text, middle)
        pieces += [text[at : found.start()], "\\frac{", _full_fractions(over), "}{", _full_fractions(under), "}"]
        at = end
    return "".join([*pieces, text[at:]])


def undress(answer: str) -> str:
    """`answer` without math marks, sizes, spacing commands and text wrappers, its symbols written in one way.

    Words of \\text{...} come out between quotes, as \\"words\\", so that a name is told from a product of variables.
    """
    text = _SPACES.sub(" ", plain(answer)).strip()
    if "matrix" not in text and "array" not in text:
        # Doubled by a layer of JSON or Python too many.
        text = _DOUBLED.sub(r"\\", text)
    text = _GROUPED.sub("", text)
    text = text.replace("\\$", "").replace("\\%", "%")
    text = _SIZES.sub("", _MATH_MARKS.sub(" ", text))
    text = _DEGREE.sub(r"\\degree ", _ROMAN_E.sub("e", text))
    # Twice, for \\textbf{\\text{...}}; deeper nesting stays as it is, and is no answer that anyone writes.
    for _ in range(2):
        text = _WORDS.sub(_quoted, text)
    text = _SPACING.sub(" ", text)
    for pattern, replacement in _NAMES:
        text = pattern.sub(replacement, text)
    # "x = 1/3 \\approx 0.33" gives the exact value first.
    exact, *about = _ABOUT.split(text.strip())
    text = exact if exact.strip() or not about else about[0]
    text = _full_fractions(_ROOT.sub(r"\\sqrt{\1}", text))
    return _trimmed(_SPACES.sub(" ", _AND.sub(" , ", text)).strip())


def _quoted(found: re.Match[str]) -> str:
    words = found.group(1).replace('"', "").strip()
    if words.strip(", ").casefold() in ("and", "or"):
        return " , "
    return f' "{words}" ' if words else " "


def _trimmed(text: str) -> str:
    while text and text[-1] in ".,;:\\ " and not text.endswith("\\\\"):
        text = text[:-1]
    return text.strip()


_BRACKETS = re.compile(r"\\[{}]|\\begin\{[a-zA-Z]*\}|\\end\{[a-zA-Z]*\}|\\[a-zA-Z]+|\\.|[a-zA-Z]+|.", re.DOTALL)
_OPENING = {"(", "[", "{", "\\{", "\\langle"}
_CLOSING = {")", "]", "}", "\\}", "\\rangle"}


def outer_tokens(text: str) -> Iterator[tuple[str, int, int, int]]:
    """The tokens of `text` as (token, start, end, depth), an opening and a closing bracket at the depth outside it."""
    depth, quoted = 0, False
    for found in _BRACKETS.finditer(text):
        token = found.group()
        if token == '"':
            quoted = not quoted
        opens = token in _OPENING or token.startswith("\\begin")
        closes = token in _CLOSING or token.startswith("\\end")
        if closes:
            depth = max(0, depth - 1)
        yield token, found.start(), found.end(), depth + quoted
        if opens:
            depth += 1


def split_outside(text: str, *separators: str) -> list[str]:
    """`text` parted at `separators` that stand outside every bracket."""
    parts, begin = [], 0
    for token, start, end, depth in outer_tokens(text):
        if depth == 0 and token in separators:
            parts.append(text[begin:start].strip())
            begin = end
    parts.append(text[begin:].strip())
    return parts
