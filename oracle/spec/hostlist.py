"""Names of nodes as Slurm writes them: `rack3-[1-16],rack7-[01-16]`.

Ranges keep their leading zeros, brackets may stand side by side (`r[1-2]n[0-3]`), and what a text
says is bounded before it is written out: `n[0-999999999]` is eleven bytes long.
"""

from __future__ import annotations

import re
from functools import lru_cache

MOST = 200_000  # names of one list
BRACKETS = 8  # of one entry
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
KEPT = 64  # lists whose names are remembered


@lru_cache(KEPT)
def names(text: str) -> tuple[str, ...]:
    """The nodes of a list, in its order; a ValueError says what is wrong, and what to write."""
    found: list[str] = []
    for part in commas(text.strip()):
        found += expand(part.strip(), MOST - len(found))
    for name in found:
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{name[:40]}` is no name of a node; e.g. rack3-[1-16],rack7-[1-16]")
    if len(set(found)) < len(found):
        seen: set[str] = set()
        twice = next(name for name in found if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"`{twice[:40]}` is named twice; once each")
    return tuple(found)


def commas(text: str) -> list[str]:
    """A list split at its commas, those inside brackets left alone."""
    if "[" not in text:
        return text.split(",")
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "[":
            depth += 1
        elif c == "]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def expand(part: str, most: int = MOST) -> list[str]:
    """The names of one entry, in order; no more than `most`."""
    if part.count("[") > BRACKETS:
        raise ValueError(f"more than {BRACKETS} brackets in `{part[:40]}`; e.g. r[1-2]n[0-3]")
    head, bracket, rest = part.partition("[")
    if not bracket:
        if not part:
            raise ValueError("an empty name between commas; e.g. n[0-3],n7")
        return [part]
    inner, closing, tail = rest.partition("]")
    if not closing:
        raise ValueError(f"a bracket of `{part[:40]}` is never closed; e.g. n[0-3]")
    tails = expand(tail, most) if tail else [""]
    found: list[str] = []
    for piece in inner.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise ValueError(f"`{piece[:40]}` is not a range of nodes; e.g. n[0-3]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range {piece} runs backwards; the smaller number first")
        if len(found) + (last - first + 1) * len(tails) > most:
            raise ValueError(f"more than {MOST:,} nodes; is a range mistyped?")
        width = len(match[1])
        found += [f"{head}{i:0{width}d}{end}" for i in range(first, last + 1) for end in tails]
    return found


def folded(every: tuple[str, ...]) -> str:
    """Names as a list again, runs of numbers as ranges: what Slurm's own tools would print."""
    found: list[tuple[str, int, int, int]] = []  # (head, width, first, last)
    for name in every:
        match = re.fullmatch(r"(.*?)(\d{1,9})", name)
        head, digits = (match[1], match[2]) if match else (name, "")
        if digits and found:
            before, width, first, last = found[-1]
            same = width == len(digits) or (len(str(last + 1)) > width == len(str(first)))
            if before == head and same and int(digits) == last + 1:
                found[-1] = before, width, first, last + 1
                continue
        found.append((head, len(digits), int(digits or -1), int(digits or -1)))
    groups: list[tuple[str, list[str]]] = []
    for head, width, first, last in found:
        if width == 0:
            groups.append((head, []))
            continue
        piece = f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "")
        if groups and groups[-1][1] and groups[-1][0] == head:
            groups[-1][1].append(piece)
        else:
            groups.append((head, [piece]))
    return ",".join(
        head if not pieces
        else head + pieces[0] if len(pieces) == 1 and "-" not in pieces[0]
        else f"{head}[{','.join(pieces)}]"
        for head, pieces in groups
    )  # fmt: skip
