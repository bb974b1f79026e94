"""IOR, text and JSON: each repetition's reads and writes, all tasks together.

What a run reads back of what it wrote itself may come from the memory of the node, unless tasks
were shifted (`-C`, `-Z`: "ordering inter file"). The seconds that opening took are those of an
`open` where each task has a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from oracle.readers.logs import InputError, Reading, lines_of, number, unprefixed, whole_json
from oracle.readers.storage_samples import StorageSample, finite, usable

TITLE = "IOR text or JSON"

_SAID = re.compile(r"\s{0,8}(\w[\w ]{0,30}?)\s*: (.{0,200})")
KEYS = ("nodes", "tasks", "clients per node", "access", "ordering inter file")
CELLS = {"bw(MiB/s)": "bwMiB", "xfer(KiB)": "xferKiB", "open(s)": "openTime"}


def recognises(text: str) -> bool:
    """The tool's heading, or the heading of its table, or its JSON."""
    if text[:64].lstrip().startswith("{"):
        return '"bwMiB"' in text and '"tests"' in text
    return "bw(MiB/s)" in text and "xfer(KiB)" in text


def parse(text: str, path: str) -> Reading:
    """A sample for each repetition of each access."""
    found = _Runs(path)
    if text[:64].lstrip().startswith("{"):
        _json(text, path, found)
    else:
        _text(text, found)
    return found.reading()


class _Runs:
    """The options that hold, and what was found under them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tool = "IOR"
        self.options: dict[str, str] = {}
        self.wrote = False
        self.samples: list[StorageSample] = []
        self.skipped: list[tuple[int, str]] = []

    def begin(self) -> None:
        self.options, self.wrote = {}, False

    def take(self, way: str, cells: Mapping[str, float], at: int) -> None:
        """One row, whichever way it is written."""
        self.wrote = self.wrote or way == "write"
        nodes, tasks = self.count("nodes"), self.count("tasks")
        each = self.count("clients per node")
        nodes = nodes or (-(-tasks // each) if tasks and each else None)
        each = each or (-(-tasks // nodes) if tasks and nodes else None)
        shifted = "offset" in self.options.get("ordering inter file", "no tasks offsets").replace(
            "no tasks offsets", "")  # fmt: skip
        size = cells.get("xferKiB", 0.0) * 1024
        rate = cells.get("bwMiB", 0.0) * 2**20
        cached = way == "read" and self.wrote and not shifted
        one = StorageSample(way, rate / size if size else 0.0, size, each, nodes, None, cached,
                            where=f"{self.path}:{at}")  # fmt: skip
        if not usable(one):
            self.skipped.append((at, "no usable rate"))
            return
        self.samples.append(one)
        opening, own = cells.get("openTime", 0.0), self.options.get("access", "")
        if way == "read" and tasks and opening > 0 and own == "file-per-process":
            opened = StorageSample("open", tasks / opening, 0.0, each, nodes, opening, cached,
                                   where=f"{self.path}:{at}")  # fmt: skip
            self.samples += [opened] if usable(opened) else []

    def count(self, name: str) -> int | None:
        text = self.options.get(name, "")
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) else None

    def reading(self) -> Reading:
        return Reading(self.path, TITLE, machine={"tool": self.tool}, skipped=tuple(self.skipped),
                       storage=tuple(self.samples))  # fmt: skip


def _text(text: str, found: _Runs) -> None:
    heading: list[str] = []
    for at, raw in lines_of(text, found.skipped):
        line = unprefixed(raw) if raw[:1] in "[0123456789" else raw
        words = line.split()
        if words[0].startswith("IOR-") or words[0] == "IOR":
            found.tool = line.strip().partition(": ")[0][:60]
        elif words[0] == "Options:":
            found.begin()
        elif words[0] == "access" and "bw(MiB/s)" in words:
            heading = words
        elif heading and words[0] in ("read", "write") and len(words) == len(heading):
            cells = {
                CELLS[name]: number(cell) or 0.0
                for name, cell in zip(heading, words, strict=True)
                if name in CELLS
            }
            found.take(words[0], cells, at)
        elif (said := _SAID.fullmatch(line)) and said[1] in KEYS:
            found.options[said[1]] = said[2].strip()


def _json(text: str, path: str, found: _Runs) -> None:
    data = whole_json(text, path, "run it again with -O summaryFormat=JSON")
    tests = data.get("tests") if isinstance(data, dict) else None
    if not isinstance(tests, list):
        raise InputError(path, 1, "`tests` is not a list", "run it again")
    found.tool = f"IOR {str(data.get('Version', ''))[:40]}".strip()
    at = 0
    for test in tests:
        found.begin()
        options = test.get("Options") if isinstance(test, dict) else None
        if isinstance(options, dict):
            found.options = {str(key)[:40]: str(value)[:200] for key, value in options.items()}
        for row in _rows(test.get("Results") if isinstance(test, dict) else None):
            at += 1
            way = row.get("access")
            if way in ("read", "write"):
                cells = {name: finite(row.get(name)) for name in CELLS.values()}
                found.take(way, cells, at)


def _rows(results: Any) -> Iterator[dict[str, Any]]:
    """Rows of a list of repetitions, each a list of its own."""
    for each in results if isinstance(results, list) else ():
        for row in each if isinstance(each, list) else (each,):
            if isinstance(row, dict):
                yield row
