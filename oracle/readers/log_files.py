"""Logs as a person names them: a file, a folder, standard input, with what the log leaves out.

    a.log   b/   -   a.log:nodes=2,ranks=16   b/:nodes=4   mbw.txt:nodes=2,pairs=8

What stands after the colon is said of that file alone; where the log itself says otherwise, that
is a fault of the reading. Said of a folder it holds for those of its logs that do not say. A
folder is read with all below it, in order of names; what is no log there is passed over and
listed with its reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.readers.logs import InputError, Reading, read
from oracle.spec.document import suggest

FACTS = ("ranks", "nodes", "pairs")
FILES = 2000  # of a folder, at most

_SAID = re.compile(r"(?s)(.+?):((?:[A-Za-z_]\w*=[^,=/]*)(?:,[A-Za-z_]\w*=[^,=/]*)*)")


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What was read of the files that were named, and what was passed over, with its reason."""

    readings: tuple[Reading, ...]
    names: tuple[str, ...]  # the file of each
    passed: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """A line for each file of a folder that is no log."""
        return "\n".join(f"{name}: passed over, {why}" for name, why in self.passed)


def gathered(names: Sequence[str], ranks: int | None = None, nodes: int | None = None) -> LogFiles:
    """Readings of all files; `ranks` and `nodes` hold where neither log nor name says them."""
    readings: list[Reading] = []
    files: list[str] = []
    passed: list[tuple[str, str]] = []
    for name in names:
        path, facts = named(name)
        if path != "-" and Path(path).is_dir():
            before = len(readings)
            for inner in _below(path):
                try:
                    readings.append(read(inner).given(**facts))
                    files.append(inner)
                except InputError as refusal:
                    passed.append((inner, refusal.what))
            if len(readings) == before:
                raise InputError(path, 0, "there is no log in this folder", "name a log")
        else:
            readings.append(read(path).stated(**facts))
            files.append(path)
    if ranks or nodes:
        readings = [reading.given(ranks, nodes) for reading in readings]
    return LogFiles(tuple(readings), tuple(files), tuple(passed))


def named(name: str) -> tuple[str, dict[str, int]]:
    """The path in a name, and what is said of it.

    >>> named("a.log:nodes=2,ranks=16"), named("runs/")
    (('a.log', {'nodes': 2, 'ranks': 16}), ('runs/', {}))
    """
    found = _SAID.fullmatch(name)
    if found is None or os.path.lexists(name):
        return name, {}
    path, facts = found[1], dict[str, int]()
    for each in found[2].split(","):
        word, _, value = each.partition("=")
        if word not in FACTS:
            hint = suggest(word, FACTS, "known")
            raise InputError(path, 0, f"nobody knows what `{word}` says of a log", hint)
        if not (value.isascii() and value.isdecimal() and 0 < int(value[:10]) < 2**31):
            raise InputError(path, 0, f"`{each}` is no whole number above 0", f"{word}=16")
        facts[word] = int(value)
    return path, facts


def _below(folder: str) -> Iterator[str]:
    """Files of a folder and all below it, but for hidden ones and links."""
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(place, name)
            if name.startswith(".") or os.path.islink(path):
                continue
            count += 1
            if count > FILES:
                raise InputError(folder, 0, f"more than {FILES} files", "name a smaller folder")
            yield path
