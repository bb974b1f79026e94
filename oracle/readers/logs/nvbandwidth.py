"""nvbandwidth, text and JSON: copies between the devices of a node, and over their host link.

A copy between devices is a `put` (write) or a `get` (read) of the tool's own size, back to back.
A matrix with the title Total is the sum of both ways; an untitled matrix of a bidirectional test is
one of the two ways. Copies over the host link, and within a device, become facts of the machine
(bytes per second, median); latencies of single loads, and copies from and to all devices at once,
are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from oracle.readers.logs import (
    InputError,
    LogFault,
    Reading,
    Sample,
    json_document,
    number,
    unknown_line,
    usable,
)
from oracle.readers.matrices import Matrix, matrix

TITLE = "nvbandwidth text or JSON"
SIZE = 512 * 2.0**20  # bytes of a copy, unless told otherwise
REPEATS = 16  # copies back to back
FACTS = {  # of the machine, by the name of a test
    "host_to_device_memcpy": "host to device",
    "device_to_host_memcpy": "device to host",
    "device_local_copy": "copy within a device",
}

_RUNNING = re.compile(r"^Running (\w{1,60})\.\s*$")
_DEVICE = re.compile(r"^(?:Device )?(\d{1,4}): (.{1,80}?) \([0-9a-f]{8}:")


def recognises(text: str) -> bool:
    """Return whether a text has the name of the tool with a test, or its JSON."""
    if text[:64].lstrip().startswith("{"):
        return '"nvbandwidth"' in text and '"testcases"' in text
    if "nvbandwidth" in text and "Running " in text:
        return True
    return "memcpy" in text and "bandwidth (GB/s)" in text and "GPU(column)" in text


def parse(text: str, path: str) -> Reading:
    """Return a sample of every pair in every matrix of copies between devices."""
    if text[:64].lstrip().startswith("{"):
        return _json(text, path)
    tests = Tests(path)
    lines, name, title, line_number = text.splitlines(), "", "", 0
    while line_number < len(lines):
        line = lines[line_number][:4096]
        line_number += 1
        if match := _RUNNING.match(line):
            name, title = match[1], ""
        elif match := _DEVICE.match(line):
            tests.device(match[2], line_number)
        elif "(GB/s)" in line or "(ns)" in line:
            title = line.strip()
        elif title and line.strip() and (table := matrix(lines, line_number - 1)) is not None:
            tests.take(name, title, table)
            if not table.rows or ("GPU(row)" in title and len(table.rows) < table.columns):
                tests.cut(
                    line_number, f"a matrix of {table.columns} devices has {len(table.rows)} rows"
                )
            line_number, title = table.end, ""
        elif title and line.strip():
            tests.skipped.append((line_number, unknown_line(line)))
    if name and title:
        tests.cut(len(lines), "the run ended within a test")
    return tests.reading()


class Tests:
    """The results of the tests of a file, of text or of JSON."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.samples: list[Sample] = []
        self.skipped: list[tuple[int, str]] = []
        self.faults: list[LogFault] = []
        self.devices: dict[str, int] = {}
        self.rates: dict[str, list[float]] = {}

    def device(self, name: str, line_number: int) -> None:
        self.devices.setdefault(name, line_number)

    def cut(self, line_number: int, complaint: str) -> None:
        self.faults.append(LogFault(line_number, "truncated", complaint, "run it again to its end"))

    def take(self, name: str, title: str, table: Matrix) -> None:
        """Add samples and facts of one matrix, or the reason why there are none."""
        fact = next((fact for key, fact in FACTS.items() if name.startswith(key)), "")
        between = "GPU(row)" in title and "GPU(column)" in title and "(GB/s)" in title
        if fact and "bidirectional" not in name and "_all_" not in name:
            self.rates.setdefault(fact, []).extend(
                cell * 1e9 for _, _, cells in table.rows for cell in cells if cell
            )
        elif between and not re.search(r"\b(Read|Write)\d\b", title):
            self._pairs(name, title, table)
        elif table.rows:
            why = "one way of two: their sum counts" if between else "not copies from one to one"
            self.skipped.append((table.rows[0][0], f"{why}: {name}"))

    def _pairs(self, name: str, title: str, table: Matrix) -> None:
        ways = 2 if "Total" in title else 1
        bidirectional = "bidirectional" in name or "<->" in title
        for line, i, j, value in table.pairs():
            seconds = SIZE * ways / (value * 1e9)
            if not usable(seconds):
                self.skipped.append((line, "no usable time"))
                continue
            self.samples.append(Sample(
                "get" if "_read" in name else "put",
                SIZE, seconds, 2, 1, 2, window=REPEATS, library="cuda", memory="device",
                algorithm="sm" if " SM " in title else "ce", where=f"{self.path}:{line}",
                direction="both ways" if bidirectional else "one way", pair=(i, j),
            ))  # fmt: skip

    def reading(self) -> Reading:
        machine: dict[str, Any] = {"tool": "nvbandwidth"}
        machine |= {name: next(iter(self.devices)) for name in ("device",) if self.devices}
        machine |= {fact: float(median(rates)) for fact, rates in self.rates.items() if rates}
        return Reading(self.path, TITLE, tuple(self.samples), machine, tuple(self.skipped),
                       faults=tuple(self.faults), devices=tuple(self.devices.items()))  # fmt: skip


def _json(text: str, path: str) -> Reading:
    data = json_document(text, path, "run it again with --json")
    body = data.get("nvbandwidth") if isinstance(data, dict) else None
    if not isinstance(body, dict) or not isinstance(body.get("testcases"), list):
        raise InputError(path, 1, "`testcases` is not a list", "run it again with --json")
    tests = Tests(path)
    names = body.get("GPU Device list")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and (match := _DEVICE.match(name)):
            tests.device(match[2], 1)
    for k, case in enumerate(body["testcases"], 1):
        if not isinstance(case, dict):
            tests.skipped.append((k, "a test that is no object"))
        elif case.get("status") not in ("Passed", None):
            tests.skipped.append((k, f"the test did not pass: {str(case.get('status'))[:20]}"))
        else:
            rows = tuple(_rows(case.get("bandwidth_matrix"), k))
            table = Matrix(max((len(cells) for _, _, cells in rows), default=0), rows, k)
            name, title = str(case.get("name", "")), str(case.get("bandwidth_description", ""))
            tests.take(name[:60], title[:120], table)
    return tests.reading()


def _rows(matrix: Any, test_number: int) -> Iterator[tuple[int, int, tuple[float | None, ...]]]:
    for k, row in enumerate(matrix if isinstance(matrix, list) else ()):
        cells = row if isinstance(row, list) else []
        yield test_number, k, tuple(number(str(cell)) for cell in cells)
