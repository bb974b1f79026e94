"""Writes blocks of a system spec as text and puts them in their place.

The rest of the file, remarks and all, stays as its author wrote it.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from oracle.spec.catalogue import is_path
from oracle.spec.system import Calibrated, Level, Library
from oracle.spec.units import exact, parse, show


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


ALONE = ("tree", "own", "few", "opened", "error")  # single numbers of a `Library`


def library_block(entries: Sequence[Library]) -> str:
    """The `library:` block of a system spec."""
    lines = ["library:"]
    for e in entries:
        lines.append(f"  - level: {_word(e.level)}")
        for name in ("base", "hop", "bandwidth"):
            pairs = ", ".join(f"{kind}: {value:g}" for kind, value in getattr(e, name).items())
            lines += [f"    {name}: {{{pairs}}}"] if pairs else []
        lines += [f"    {name}: {getattr(e, name):g}" for name in ALONE]
        lines += [f"    operations: [{', '.join(e.operations)}]"] if e.operations else []
        lines += [f"    ranks: [{', '.join(str(p) for p in e.ranks)}]"] if e.ranks else []
        lines += (
            [f"    sizes: [{', '.join(f'{size:.0f} B' for size in e.sizes)}]"] if e.sizes else []
        )
        lines += ["    source: >-", *textwrap.wrap(
            plain(e.source), 94, initial_indent="      ", subsequent_indent="      ",
            break_long_words=False, break_on_hyphens=False)]  # fmt: skip
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z][\w -]*\w", text) else json.dumps(text)


def _seconds(value: float) -> str:
    return f"{value * 1e6:.6g} us" if value else "0 s"


def with_block(text: str, entries: str) -> str:
    """A spec's text with a top-level block replaced, or added at the end."""
    before, _, after = _cut(text, entries.partition(":")[0])
    if not after and before == text:
        return text + ("" if text.endswith("\n") else "\n") + entries
    return before + entries + after


def _cut(text: str, key: str) -> tuple[str, str, str]:
    """(what stands before a top-level key, the key with its block, what stands after it)."""
    lines = text.splitlines(keepends=True)
    first = next((k for k, s in enumerate(lines) if re.match(rf"{key}\s*:", s)), len(lines))
    last = first + 1
    while last < len(lines) and not re.match(r"[^\s#-]", lines[last]):
        last += 1
    return "".join(lines[:first]), "".join(lines[first:last]), "".join(lines[last:])


def moved(text: str, origin: Path, to: Path) -> str:
    """A spec's text for another folder: the files that it names are named from there."""

    def named(match: re.Match[str]) -> str:
        lead, quote, name = match.groups()
        if not is_path(name) or os.path.isabs(name):
            return match[0]
        return f"{lead}{quote}{os.path.relpath(origin / name, to)}{quote}"

    for key in ("device", "collectives"):
        before, block, after = _cut(text, key)
        lead, end = rf"\A{key}:\s*|^\s*-\s+|[\[,]\s*", r"\s*[,\]]|\s*(?:#.*)?$"
        scalar = rf"({lead})([\"']?)([^\s\"'\[\],:{{}}]+)\2(?={end})"
        text = before + re.sub(scalar, named, block, flags=re.MULTILINE) + after
    return text


def with_levels(text: str, old: Sequence[Level], new: Sequence[Level]) -> str:
    """A spec's text with other levels; those that stay are left as their author wrote them.

    Raises a ValueError where the text has no block of levels, one to an item.
    """
    before, levels_block, after = _cut(text, "levels")
    first = re.search(r"^ {0,20}(?=- )", levels_block, flags=re.MULTILINE)
    margin = first[0] if first else ""
    items = re.split(rf"^(?={margin}- )", levels_block, flags=re.MULTILINE)
    if len(items) != len(old) + 1:
        raise ValueError("its levels are not written one to an item")
    item_of = {level.name: (level, item) for level, item in zip(old, items[1:], strict=True)}
    written = [
        item_of[level.name][1] if item_of.get(level.name, (None,))[0] == level
        else textwrap.indent(_level(level), margin)
        for level in new
    ]  # fmt: skip
    tail = re.search(r"(?:^[ \t]*(?:#.*)?\n)*\Z", items[-1], re.MULTILINE)
    if new[-1] != old[-1] and tail:  # remarks after the last level are of what follows
        written.append(tail[0])
    return before + items[0] + "".join(written) + after


# units of fields that nodes measured
UNITS = {"bandwidth": "B/s", "low": "B/s", "high": "B/s", "size": "B", "beside": "s"}


def _item(value: Any) -> str:
    """A value as an item of a list; of a measurement only the unusual fields."""
    if is_dataclass(value):
        unusual = {field.name: getattr(value, field.name) for field in fields(value)
                   if getattr(value, field.name) != field.default}  # fmt: skip
        words = (f"{name}: {quantity(number, UNITS[name]) if name in UNITS else number}"
                 for name, number in unusual.items())  # fmt: skip
        return f"{{{', '.join(words)}}}"
    return value if isinstance(value, str) else f"{value:g}"


def _level(level: Level) -> str:
    """One item of `levels:`, with what differs from the defaults."""
    lines = [f"- name: {_word(level.name)}", f"devices: {level.devices}", f"link: {level.link}"]
    for field in fields(Level):
        value = getattr(level, field.name)
        if field.name in ("name", "devices", "link", "source", "bandwidth", "latency"):
            continue
        if value != field.default:
            items = [*map(_item, value)] if isinstance(value, tuple) else None
            words = f"[{', '.join(items)}]" if items else value if isinstance(value, str) else None
            lines.append(f"{field.name}: {words or f'{value:g}'}")
    lines += [f"bandwidth: {quantity(level.bandwidth, 'B/s')}"]
    lines += [f"latency: {quantity(level.latency, 's')}", "source: >-"]
    lines += textwrap.wrap(plain(level.source), 94, initial_indent="  ", subsequent_indent="  ",
                           break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return lines[0] + "\n" + textwrap.indent("\n".join(lines[1:]) + "\n", "  ")


def quantity(value: float, unit: str) -> str:
    """The shortest text of a quantity that does not change it."""
    short = (show(value, unit, digits) for digits in (3, 5, 8))
    return next((text for text in short if parse(text, unit) == value), exact(value, unit))


def rounded(value: float, digits: int) -> float:
    """A number in so many digits."""
    return float(f"{value:.{digits}g}")


def plain(text: str) -> str:
    """Text on one line, without what cannot be printed."""
    return " ".join("".join(c if c.isprintable() else "?" for c in text).split())
