"""JSON as a log may hold it: no duplicate key, no NaN, no infinity, bounded depth.

Python's own reader keeps the last of two equal keys and accepts `NaN`: both would pass a damaged
measurement on as a good one.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

DEEPEST, MOST_VALUES = 64, 2**20
_FULL = re.compile(r"[^ \t\r\n]")
_MARK = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


class Unfit(ValueError):
    """JSON that is well formed and still not to be believed."""


def loads(text: str) -> Any:
    """The value of a JSON text; ValueError (`Unfit` or json's own) says what is wrong."""
    depth = deepest = 0
    if len(text) > MOST_VALUES and sum(map(text.count, ",[{")) > MOST_VALUES:
        raise Unfit(f"more than {MOST_VALUES} values")
    if text.count("[") + text.count("{") > DEEPEST:
        for match in _MARK.finditer(text):
            mark = match[0]
            depth += (mark in "[{") - (mark in "]}")
            deepest = max(deepest, depth)
        if deepest > DEEPEST:
            raise Unfit(f"nested more than {DEEPEST} deep")
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_constant=_constant,
        parse_float=_float,
        parse_int=_integer,
    )


def elements(text: str, begin: int = 0) -> Iterator[Any]:
    """The elements of the first list from a place on, one by one: a trace is never held whole.

    A list that breaks off ends with its last whole element.
    """
    read = json.JSONDecoder(parse_constant=_constant, parse_int=_integer).raw_decode
    at = text.find("[", begin) + 1
    while at:
        at = _space(text, at)
        if text[at : at + 1] == ",":
            at = _space(text, at + 1)
        if text[at : at + 1] in ("]", ""):
            return
        try:
            found, at = read(text, at)
        except RecursionError:
            raise Unfit("nested too deep") from None
        except json.JSONDecodeError as error:
            if error.pos >= len(text) - 1 or "Unterminated" in error.msg:
                return
            raise Unfit(f"not JSON at character {error.pos}") from None
        yield found


def _space(text: str, at: int) -> int:
    """The first place from here on that is no white space."""
    found = _FULL.search(text, at)
    return found.start() if found else len(text)


def closed(text: str) -> str:
    """A text that was cut off, up to its last whole value, with the brackets that are missing."""
    stack: list[str] = []
    end, missing = 0, ""
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark in "[{":
            stack.append("]" if mark == "[" else "}")
            if len(stack) > DEEPEST:
                raise Unfit(f"nested more than {DEEPEST} deep")
        elif mark in "]}":
            if not stack or stack.pop() != mark:
                raise Unfit("its brackets do not match")
            end, missing = match.end(), "".join(reversed(stack))
    return text[:end] + missing


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Unfit(f"the key `{twice[:40]}` stands twice")
    return found


def _constant(word: str) -> float:
    raise Unfit(f"`{word}` is not a number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Unfit(f"`{text[:20]}` is too large to be a number")
    return value


def _integer(text: str) -> int:
    if len(text) > 20:
        raise Unfit(f"`{text[:20]}…` is too large to be a number")
    return int(text)
