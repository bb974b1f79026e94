"""The terminal at hand: how wide it is, what characters it can carry, whether it takes colour."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TextIO

USUAL, NARROWEST, WIDEST = 80, 60, 140
SPELLED = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "σ": "sigma", "τ": "tau", "φ": "phi",
    "×": "x", "·": ".", "±": "+/-", "≤": "<=", "≥": ">=", "−": "-", "–": "-", "—": "-", "→": "->",
    "…": "...", "∞": "inf", "Σ": "sum ", "∂": "d", "√": "sqrt", "≈": "~", "“": '"', "”": '"',
    "‘": "'", "’": "'", "µ": "u", "μ": "u", "∈": "in", "∝": "~",
    "█": "#",
}  # fmt: skip
BOLD, DIM, RED, CYAN = "1", "2", "1;31", "36"
FIRST = r"Fastest|Best|Steadiest|Cheapest|Leanest|Of least \w+|First to end"
PAINT = [
    (re.compile(r"^(error(?:\[E\d+\])?)(?=:)", re.M), RED),
    (re.compile(r"(?<= \|) +(\^+)", re.M), RED),
    (re.compile(r"(?<=did you mean )(`[^`]*`)"), CYAN),
    (re.compile(rf"^((?:{FIRST}): .+?)(?= with |$)", re.M), BOLD),
    (re.compile(r"^( +# +plan .*|next: (?:.|\\\n)*|usage: .*)$", re.M), DIM),
]


def width() -> int:
    """Columns to fill: those of the terminal; 80 where the answer goes anywhere else."""
    if not _is_terminal(sys.stdout):
        return USUAL
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((USUAL, 24)).columns))


def wrapped(text: str, indent: int) -> list[str]:
    """Whole, on as many lines as it takes; its leading blanks stay."""
    import textwrap

    body, margin = text.lstrip(), " " * (len(text) - len(text.lstrip()))
    # runs of blanks that align columns stay as they are
    glued = body.replace("  ", "\u00a0\u00a0")
    found = textwrap.wrap(glued, width(), initial_indent=margin, subsequent_indent=" " * indent,
                          break_on_hyphens=False, break_long_words=False)  # fmt: skip
    return [line.replace("\u00a0", " ").rstrip() for line in found]


def fit(text: str, indent: int = 2) -> str:
    """The text on as many lines as it takes: broken at blanks, never inside a word such as a plan.

    Words joined by a no-break space stay together.
    """
    import textwrap

    found = textwrap.fill(text, width(), subsequent_indent=" " * indent, break_on_hyphens=False,
                          break_long_words=False)  # fmt: skip
    return found.replace("\u00a0", " ")


def laid_out(rows: Sequence[Sequence[str]], align: str, margin: str = "  ") -> list[str]:
    """A table, its head the first row: `<` columns are text, `>` columns numbers.

    Nothing is ever cut. Where a row is wider than the screen, its texts stand on a line of their
    own above its numbers.
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    side_by_side = len(margin) + sum(wide) + 2 * (len(wide) - 1) <= width()
    lines = []
    for row in rows:
        cells = [f"{cell:{side}{size}}" for cell, side, size in zip(row, align, wide, strict=True)]
        if side_by_side:
            lines.append((margin + "  ".join(cells)).rstrip())
            continue
        texts = [cell for cell, side in zip(row, align, strict=True) if side == "<" and cell]
        numbers = [cell for cell, side in zip(cells, align, strict=True) if side == ">"]
        lines += wrapped(margin + "  ".join(texts), 8)
        lines += wrapped(f"{margin}    {'  '.join(numbers)}", 8)
    return lines


def takes_colour(stream: TextIO, wish: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour: as wished, or on a terminal that nobody has asked to stay plain."""
    if wish != "auto":
        return wish == "always"
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return _is_terminal(stream) and not plain


def painted(text: str) -> str:
    """What stands out in an answer or an error, in colour; the characters stay the same."""
    for what, colour in PAINT:
        text = what.sub(partial(_coloured, colour), text)
    return text


def overwrites(stream: TextIO) -> bool:
    """Whether a line that was written there can be written anew."""
    return _is_terminal(stream) and os.environ.get("TERM") != "dumb"


def spell(stream: TextIO) -> None:
    """From now on a character that the stream cannot carry is spelled out, not a fault."""
    codecs.register_error("spelled", _spelled)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="spelled")


def _coloured(colour: str, found: re.Match[str]) -> str:
    begin, end = found.start(1) - found.start(), found.end(1) - found.start()
    text = found.group()
    return f"{text[:begin]}\x1b[{colour}m{text[begin:end]}\x1b[0m{text[end:]}"


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(char: str) -> str:
    if char in SPELLED:
        return SPELLED[char]
    bare = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    return bare or "?"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
