"""What of a completion may hold its answer, and the letters it is written in. All of it linear in the text."""

from __future__ import annotations

import re
import unicodedata
from itertools import chain

# A chat model's own end marks. What follows the first of them is another turn, not this answer.
END_OF_TURN = re.compile(
    r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|eom_id|end|start_header_id|user|assistant|system)\|>"
    r"|</s>|<eos>|<end_of_turn>|<start_of_turn>|<｜end▁of▁sentence｜>|\[/?INST\]"
)
LEADING_MARKS = re.compile(
    r"(?:\s*(?:<\|(?:im_start|start_header_id|begin_of_text|assistant|end_header_id)\|>(?:assistant)?|<s>|<bos>))+"
)
THINK_OPEN = re.compile(r"<think(?:ing)?>")

_LAST_DIGIT = 0x1FBF9  # no script has decimal digits above this code (Unicode 16)
_INVISIBLE = [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0x00AD, 0x061C, 0xFEFF]


def _plain_characters() -> dict[int, str]:
    """Decimal digits of every script, full-width signs, and the spaces and minus signs that typesetting uses."""
    decimals = ((code, unicodedata.decimal(chr(code), -1)) for code in range(0x80, _LAST_DIGIT + 1))
    digits = {code: str(digit) for code, digit in decimals if digit >= 0}
    full_width = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    signs = {"−": "-", "﹣": "-", "–": "-", "‐": "-", "‑": "-", "×": "*", "⋅": "*", "·": "*", "÷": "/", "⁄": "/",
             "∕": "/", "٫": ".", "٬": ",", "٪": "%", "，": ",", "、": ",", "。": "."}  # fmt: skip
    spaces = dict.fromkeys([0x00, 0x0B, 0x0C, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x3000], " ")
    narrow = {0x2009: "\\,", 0x202F: "\\,"}
    fractions = {
        code: " " + unicodedata.normalize("NFKC", chr(code)).replace("⁄", "/") + " "
        for code in [0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F)]
    }
    powers = {ord(power): f"^{digit}" for digit, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    invisible = dict.fromkeys(_INVISIBLE, "")
    return (
        full_width | digits | {ord(k): v for k, v in signs.items()} | spaces | narrow | fractions | powers | invisible
    )


_PLAIN = _plain_characters()


def plain(text: str) -> str:
    """`text` with digits, signs and spaces of other scripts in ASCII, and without invisible marks.

    A digit is read as the digit it is (١٨ and １８ are 18), in the order of the characters, whatever bidi marks make of
    the order on a screen. A null character is a space.
    """
    return text.replace("\0", " ") if text.isascii() else text.translate(_PLAIN)


def answer_part(completion: str) -> str:
    """The part of a completion that may hold its answer; empty where there is none.

    Text after the first end-of-turn mark belongs to another turn. Thinking is not an answer: what counts comes after
    the last `</think>` and before a `<think>` that is left open.
    """
    if "<" not in completion and "[" not in completion:
        return completion
    if leading := LEADING_MARKS.match(completion):
        completion = completion[leading.end() :]
    if end := END_OF_TURN.search(completion):
        completion = completion[: end.start()]
    if "think" in completion:
        if (closed := max(completion.rfind("</think>"), completion.rfind("</thinking>"))) >= 0:
            completion = completion[completion.index(">", closed) + 1 :]
        if opened := THINK_OPEN.search(completion):
            completion = completion[: opened.start()]
    return completion


_BRACES = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\s*(-?\d[\d.,/]*)")


def boxes(text: str) -> list[tuple[int, int, int, int]]:
    """The closed boxes of `text` in order, the outermost only: (start, start of content, end of content, end).

    A box left open is no box. A box that holds nothing but a box is that box; `\\boxed 18` without braces is one.
    """
    first = min((at for at in (text.find("\\boxed"), text.find("\\fbox")) if at >= 0), default=-1)
    if first < 0:
        return []
    found: list[tuple[int, int, int, int]] = []
    # For each open brace: where its box began, or -1 for a plain brace; and where its content begins.
    open_braces: list[tuple[int, int]] = []
    box_at = box_end = -1
    for token in chain(_BRACES.finditer(text, first), [None]):
        mark = token.group() if token else ""
        if box_at >= 0 and not (token and mark == "{" and not text[box_end : token.start()].strip()):
            if bare := _BARE_BOX.match(text, box_end):
                found.append((box_at, bare.start(1), bare.end(1), bare.end(1)))
            box_at = -1
        if token is None:
            break
        if len(mark) > 2:
            box_at, box_end = token.start(), token.end()
        elif mark == "{":
            open_braces.append((box_at, token.end()))
            box_at = -1
        elif mark == "}" and open_braces:
            start, inside = open_braces.pop()
            if start < 0:
                continue
            inner = None
            while found and found[-1][0] > start:
                inner = found.pop()
            if inner and not text[inside : inner[0]].strip() and not text[inner[3] : token.start()].strip():
                found.append((start, inner[1], inner[2], token.end()))
            else:
                found.append((start, inside, token.start(), token.end()))
    return found
