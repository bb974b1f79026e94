"""Logs by the names of the command line: a file, a folder, standard input, with facts added.

    a.log   b/   -   a.log:nodes=2,ranks=16   b/:nodes=4   mbw.txt:nodes=2,pairs=8

Facts after the colon are about that file alone; a log that contradicts them is a fault of the
reading. Facts about a folder hold for those of its logs that do not state them. A folder is read
with all folders below it, in order of names; files that are no logs are skipped and listed with
the reason.
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

_WITH_FACTS = re.compile(r"(?s)(.+?):((?:[A-Za-z_]\w*=[^,=/]*)(?:,[A-Za-z_]\w*=[^,=/]*)*)")


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The readings of the named files, and the files that were passed over, with the reason."""

    readings: tuple[Reading, ...]
    names: tuple[str, ...]  # the file of each
    passed: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Return a line for each file of a folder that is no log."""
        return "\n".join(f"{name}: passed over, {why}" for name, why in self.passed)


def gathered(names: Sequence[str], ranks: int | None = None, nodes: int | None = None) -> LogFiles:
    """Return the readings of all files; `ranks` and `nodes` hold where log and name do not."""
    readings: list[Reading] = []
    files: list[str] = []
    passed: list[tuple[str, str]] = []
    for name in names:
        path, facts = named(name)
        if path != "-" and Path(path).is_dir():
            before = len(readings)
            for inner in _below(path):
                try:
                    readings.append(read(inner).with_facts(**facts))
                    files.append(inner)
                except InputError as refusal:
                    passed.append((inner, refusal.what))
            if len(readings) == before:
                raise InputError(path, 0, "there is no log in this folder", "name a log")
        else:
            readings.append(read(path).checked_with_facts(**facts))
            files.append(path)
    if ranks or nodes:
        readings = [reading.with_facts(ranks, nodes) for reading in readings]
    return LogFiles(tuple(readings), tuple(files), tuple(passed))


def named(name: str) -> tuple[str, dict[str, int]]:
    """Return the path and the facts in a name.

    >>> named("a.log:nodes=2,ranks=16"), named("runs/")
    (('a.log', {'nodes': 2, 'ranks': 16}), ('runs/', {}))
    """
    match = _WITH_FACTS.fullmatch(name)
    if match is None or os.path.lexists(name):
        return name, {}
    path, facts = match[1], dict[str, int]()
    for pair in match[2].split(","):
        word, _, value = pair.partition("=")
        if word not in FACTS:
            hint = suggest(word, FACTS, "known")
            raise InputError(path, 0, f"nobody knows what `{word}` says of a log", hint)
        if not (value.isascii() and value.isdecimal() and 0 < int(value[:10]) < 2**31):
            raise InputError(path, 0, f"`{pair}` is no whole number above 0", f"{word}=16")
        facts[word] = int(value)
    return path, facts


def _below(folder: str) -> Iterator[str]:
    """Yield the files of a folder and of all below it, except hidden ones and links."""
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
