"""IOR, text and JSON: each repetition's reads and writes, all tasks together.

Data that a run reads after it wrote them may come from the memory of the node, unless tasks were
shifted (`-C`, `-Z`: "ordering inter file"). Where each task has a file of its own, the seconds of
opening are those of an `open`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from oracle.readers.logs import InputError, Reading, json_document, lines_of, number, unprefixed
from oracle.readers.storage_samples import StorageSample, finite, usable

TITLE = "IOR text or JSON"

_OPTION = re.compile(r"\s{0,8}(\w[\w ]{0,30}?)\s*: (.{0,200})")
KEYS = ("nodes", "tasks", "clients per node", "access", "ordering inter file")
CELLS = {"bw(MiB/s)": "bwMiB", "xfer(KiB)": "xferKiB", "open(s)": "openTime"}


def recognises(text: str) -> bool:
    """Return whether a text has the heading of the tool's table, or its JSON."""
    if text[:64].lstrip().startswith("{"):
        return '"bwMiB"' in text and '"tests"' in text
    return "bw(MiB/s)" in text and "xfer(KiB)" in text


def parse(text: str, path: str) -> Reading:
    """Return a sample for each repetition of each access."""
    runs = _Runs(path)
    if text[:64].lstrip().startswith("{"):
        _json(text, path, runs)
    else:
        _text(text, runs)
    return runs.reading()


class _Runs:
    """The options of the current run, and the samples so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tool = "IOR"
        self.options: dict[str, str] = {}
        self.wrote = False
        self.samples: list[StorageSample] = []
        self.skipped: list[tuple[int, str]] = []

    def begin(self) -> None:
        self.options, self.wrote = {}, False

    def take(self, way: str, cells: Mapping[str, float], line_number: int) -> None:
        """Add the samples of one row, of text or of JSON."""
        self.wrote = self.wrote or way == "write"
        nodes, tasks = self.count("nodes"), self.count("tasks")
        tasks_a_node = self.count("clients per node")
        nodes = nodes or (-(-tasks // tasks_a_node) if tasks and tasks_a_node else None)
        tasks_a_node = tasks_a_node or (-(-tasks // nodes) if tasks and nodes else None)
        shifted = "offset" in self.options.get("ordering inter file", "no tasks offsets").replace(
            "no tasks offsets", "")  # fmt: skip
        size = cells.get("xferKiB", 0.0) * 1024
        rate = cells.get("bwMiB", 0.0) * 2**20
        cached = way == "read" and self.wrote and not shifted
        sample = StorageSample(
            way, rate / size if size else 0.0, size, tasks_a_node, nodes, None, cached,
            where=f"{self.path}:{line_number}",
        )  # fmt: skip
        if not usable(sample):
            self.skipped.append((line_number, "no usable rate"))
            return
        self.samples.append(sample)
        opening, access = cells.get("openTime", 0.0), self.options.get("access", "")
        if way == "read" and tasks and opening > 0 and access == "file-per-process":
            opened = StorageSample(
                "open", tasks / opening, 0.0, tasks_a_node, nodes, opening, cached,
                where=f"{self.path}:{line_number}",
            )  # fmt: skip
            self.samples += [opened] if usable(opened) else []

    def count(self, name: str) -> int | None:
        text = self.options.get(name, "")
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) else None

    def reading(self) -> Reading:
        return Reading(self.path, TITLE, machine={"tool": self.tool}, skipped=tuple(self.skipped),
                       storage=tuple(self.samples))  # fmt: skip


def _text(text: str, runs: _Runs) -> None:
    heading: list[str] = []
    for line_number, raw in lines_of(text, runs.skipped):
        line = unprefixed(raw) if raw[:1] in "[0123456789" else raw
        words = line.split()
        if words[0].startswith("IOR-") or words[0] == "IOR":
            runs.tool = line.strip().partition(": ")[0][:60]
        elif words[0] == "Options:":
            runs.begin()
        elif words[0] == "access" and "bw(MiB/s)" in words:
            heading = words
        elif heading and words[0] in ("read", "write") and len(words) == len(heading):
            cells = {
                CELLS[name]: number(cell) or 0.0
                for name, cell in zip(heading, words, strict=True)
                if name in CELLS
            }
            runs.take(words[0], cells, line_number)
        elif (option := _OPTION.fullmatch(line)) and option[1] in KEYS:
            runs.options[option[1]] = option[2].strip()


def _json(text: str, path: str, runs: _Runs) -> None:
    data = json_document(text, path, "run it again with -O summaryFormat=JSON")
    tests = data.get("tests") if isinstance(data, dict) else None
    if not isinstance(tests, list):
        raise InputError(path, 1, "`tests` is not a list", "run it again")
    runs.tool = f"IOR {str(data.get('Version', ''))[:40]}".strip()
    row_number = 0
    for test in tests:
        runs.begin()
        options = test.get("Options") if isinstance(test, dict) else None
        if isinstance(options, dict):
            runs.options = {str(key)[:40]: str(value)[:200] for key, value in options.items()}
        for row in _rows(test.get("Results") if isinstance(test, dict) else None):
            row_number += 1
            way = row.get("access")
            if way in ("read", "write"):
                cells = {name: finite(row.get(name)) for name in CELLS.values()}
                runs.take(way, cells, row_number)


def _rows(results: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a list of repetitions, each a list of its own."""
    for repetition in results if isinstance(results, list) else ():
        for row in repetition if isinstance(repetition, list) else (repetition,):
            if isinstance(row, dict):
                yield row
