"""The results of a shell script's arithmetic and tests, where they can be known."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from oracle.readers.jobs.sheet import OPEN

_TOKEN = re.compile(r"\s*(\d{1,15}|[A-Za-z_]\w*|<=|>=|==|!=|&&|\|\||[-+*/%()<>])")
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: int(a / b), "%": lambda a, b: a - b * int(a / b)},
)
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le,
    "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
DEEPEST, LARGEST = 20, 2**53


def arithmetic(text: str, value: Callable[[str], str]) -> int | None:
    """Return the value of `8 * NODES`; None where a name is unknown or the text is no sum."""
    tokens: list[str] = []
    text, place = text.strip(), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if not match or len(tokens) > 200:
            return None
        tokens.append(match[1])
        place = match.end()
    try:
        result = _sum(tokens, value, 0, 0)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return result if not tokens and abs(result) < LARGEST else None


def _sum(tokens: list[str], value: Callable[[str], str], level: int, depth: int) -> int:
    """Return the value of the tokens at the front of the list, and remove them."""
    if depth > DEEPEST:
        raise ValueError
    if level == len(_LEVELS):
        return _operand(tokens, value, depth)
    total = _sum(tokens, value, level + 1, depth)
    while tokens and tokens[0] in _LEVELS[level]:
        apply = _LEVELS[level][tokens.pop(0)]
        total = apply(total, _sum(tokens, value, level + 1, depth))
        if abs(total) > LARGEST:
            raise ValueError
    return total


def _operand(tokens: list[str], value: Callable[[str], str], depth: int) -> int:
    if not tokens:
        raise ValueError
    token = tokens.pop(0)
    if token == "(":
        total = _sum(tokens, value, 0, depth + 1)
        if not tokens or tokens.pop(0) != ")":
            raise ValueError
        return total
    if token == "-":
        return -_operand(tokens, value, depth + 1) if depth < DEEPEST else 0
    if token.isdigit():
        return int(token)
    text = value(token)
    if not re.fullmatch(r"-?\d{1,15}", text):
        raise ValueError
    return int(text)


def truth(words: list[str]) -> bool | None:
    """Return the truth of `[ A = B ]` without its brackets; None where it cannot be known."""
    for joint, decided in (("||", True), ("-o", True), ("&&", False), ("-a", False)):
        if joint in words:
            place = words.index(joint)
            parts = truth(words[:place]), truth(words[place + 1 :])
            if decided in parts:
                return decided
            return None if None in parts else not decided
    if words[:1] == ["!"]:
        inner = truth(words[1:])
        return None if inner is None else not inner
    if len(words) == 2 and words[0] in ("-z", "-n"):
        empty = not words[1] or words[1].startswith(OPEN)  # a variable that nothing sets is empty
        return empty == (words[0] == "-z")
    if len(words) == 1 and not words[0].startswith("-"):
        return bool(words[0]) and not words[0].startswith(OPEN)
    if len(words) != 3 or any(OPEN in word for word in words):
        return None
    left, sign, right = words
    if sign in ("=", "==", "!="):
        return (left == right) == (sign != "!=")
    if sign in _COMPARED and all(re.fullmatch(r"-?\d{1,15}", word) for word in (left, right)):
        return _COMPARED[sign](int(left), int(right))
    return None
