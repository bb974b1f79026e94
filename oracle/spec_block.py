"""The `collectives:` block of a system spec, written as text and put in its place.

The rest of the file, remarks and all, stays as its author wrote it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence

from oracle.specs import Calibrated


def block(entries: Sequence[Calibrated]) -> str:
    """The `collectives:` block of a system spec."""
    lines = ["collectives:"]
    for e in entries:
        fields = [f"op: {_word(e.op)}", f"level: {_word(e.level)}"]
        fields += [f"algorithm: {_word(e.algorithm)}"]
        fields += [f"protocol: {_word(e.protocol)}"] if e.protocol else []
        fields += [f"base: {_seconds(e.base)}", f"latency: {_seconds(e.latency)}"]
        fields += [f"bandwidth: {e.bandwidth / 1e9:.6g} GB/s"]
        fields += [f"concurrency: {e.concurrency:g}"] if e.concurrency != 1 else []
        fields += [f"ranks: [{', '.join(str(p) for p in e.ranks)}]"] if e.ranks else []
        fields += [f"sizes: [{', '.join(f'{size:.0f} B' for size in e.sizes)}]"] if e.sizes else []
        if e.uncertainty:
            pairs = ", ".join(f"{name}: {value:.4g}" for name, value in e.uncertainty.items())
            fields.append(f"uncertainty: {{{pairs}}}")
        words = ", ".join([*fields, f"source: {json.dumps(plain(e.source))}"])
        lines += textwrap.wrap(
            f"{{{words}}}",
            99,
            initial_indent="  - ",
            subsequent_indent="     ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z][\w -]*\w", text) else json.dumps(text)


def _seconds(value: float) -> str:
    return f"{value * 1e6:.6g} us" if value else "0 s"


def with_block(text: str, entries: str) -> str:
    """A spec's text with its top-level `collectives:` replaced, or added at the end."""
    lines = text.splitlines(keepends=True)
    first = next((k for k, s in enumerate(lines) if re.match(r"collectives\s*:", s)), None)
    if first is None:
        return text + ("" if text.endswith("\n") else "\n") + entries
    last = first + 1
    while last < len(lines) and not re.match(r"[^\s#-]", lines[last]):
        last += 1
    return "".join(lines[:first]) + entries + "".join(lines[last:])


def plain(text: str) -> str:
    """Text on one line, without what cannot be printed."""
    return " ".join("".join(c if c.isprintable() else "?" for c in text).split())
