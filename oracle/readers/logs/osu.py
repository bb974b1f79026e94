"""OSU micro-benchmarks (4 to 7) and OMB-Py: latency, bandwidth, multi-pair and collective tables.

A bandwidth of b MB/s at m bytes is kept as the m/b seconds between two messages, with the window
of messages in flight; of a bidirectional test half the sum is one direction's. A collective's
log does not say how many ranks took part: `Reading.with_facts(ranks=...)` supplies it. OSU counts
one rank's part for collectives that gather, scatter and exchange; we count all parts. Of a
non-blocking call the pure communication counts, and the hidden share of it. Tests of MPI_Put and
MPI_Get are `put` and `get`. Other titles (neighbourhoods, atomics, threads, other programming
models) are skipped with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oracle.readers.logs import (
    LARGEST_MESSAGE,
    MPI_CALLS,
    PARTS,
    InputError,
    LogFault,
    Reading,
    Sample,
    lines_of,
    number,
    unknown_line,
    unprefixed,
    usable,
)

TITLE = "OSU micro-benchmark text"
COLLECTIVES = {**MPI_CALLS, "broadcast": "broadcast", "all-to-all": "alltoall"}
for _vector in ("v", "w"):
    COLLECTIVES[f"alltoall{_vector}"] = COLLECTIVES[f"all-to-all{_vector}"] = "alltoall"
ONE_SIDED = {"put": "put", "get": "get"}
ATOMICS = frozenset(("accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap"))
# a word of a title, and why its table is skipped
UNPRICED = {
    "neighborhood": "a neighbourhood test does not say who the neighbours are",
    "neighbourhood": "a neighbourhood test does not say who the neighbours are",
    "multi-threaded": "several threads of a process talk at once, and the log does not say how",
    "multi-process": "several processes of a rank talk at once, and the log does not say how",
    "partitioned": "partitioned sends are not priced",
    "fan": "many senders of one receiver: congestion, not one call",
    "hello": "the start of a job is no message",
    "init": "the start of a job is no message",
}
LIBRARIES = {"mpi": "mpi", "nccl": "nccl", "rccl": "nccl", "oneccl": "ccl", "xccl": "ccl"}
LAST = {
    "latency": 2**22,
    "bandwidth": 2**22,
    "bidirectional": 2**22,
}  # bytes, without the option -m
LAST_COLLECTIVE = 2**20

_TIMES = ("avg lat", "latency", "overall", "pure comm")  # the last of these columns is the time
_TITLE = re.compile(
    r"# *(?:OSU|OMB-Py) +(?:MPI_(?=[A-Z])|(MPI|NCCL|RCCL|oneCCL|XCCL|UPC\+\+|UPC|OpenSHMEM)\b)"
    r"(-[A-Z]+)? *(.+)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"v(\d+\.\d+(?:\.\d+)?)")
_PAIRS = re.compile(r"pairs: (\d{1,6})")
_WINDOW = re.compile(r"window size: (\d{1,6})")


@dataclass(slots=True)
class OsuTable:
    """One table: its measurement, and the facts of its header."""

    name: str
    operation: str = ""
    kind: str = "latency"  # "latency", "bandwidth", "bidirectional"
    library: str = "mpi"
    memory: str = ""
    pairs: int | None = 1
    window: int = 1
    ranks: int | None = None
    direction: str = ""
    why: str = ""  # reason to skip the table
    column: int = 1
    overlap: int | None = None
    lowest: int | None = None
    highest: int | None = None
    iterations: int | None = None
    digits: int = 0  # decimals of its times
    width: int = 0  # fields of its rows
    began: int = 0  # the line of its title
    wrong: int = 0  # the first line whose result was wrong
    short: bool = False  # the last row has fewer, or no time
    largest: float = 0.0  # bytes, so far
    line: int = 0  # of the last row


def recognises(text: str) -> bool:
    """Return whether a text has a title, or the column header of these tests."""
    head = text if len(text) < 2**20 else text[: 2**20]
    if "# OSU " in head or "#OSU " in head or "# OMB-Py" in head:
        return True
    return "# Size" in head and ("Latency (us)" in head or "Bandwidth (MB/s)" in head)


def parse(text: str, path: str) -> Reading:
    """Return the samples of every table in a log."""
    machine: dict[str, Any] = {"tool": "OSU micro-benchmarks"}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    faults: list[LogFault] = []
    table: OsuTable | None = None
    for line_number, line in lines_of(text, skipped):
        if "[" in line or ":" in line:
            line = unprefixed(line)
        if line[:1].isspace():
            line = line.lstrip()
        if "#" in line[:2]:
            if match := _TITLE.match(line):
                faults += _ended(table)
                table = _title(match, machine)
                table.began = line_number
            elif line.startswith(("# OSU", "#OSU", "# OMB")):
                table = OsuTable("", why=f"a title that nobody knows: {line.strip('# ')[:40]}")
            else:
                table = _header(line, table)
        elif table is None:
            skipped.append((line_number, unknown_line(line)))
        else:
            _row(line.split(), table, path, line_number, samples, skipped)
    if table is None:
        raise InputError(path, 1, "no table began: the title line is missing", "keep the whole log")
    faults += _ended(table)
    if table.short and samples and samples[-1].where == f"{path}:{table.line}":
        samples.pop()
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(faults))


def _ended(table: OsuTable | None) -> list[LogFault]:
    """Return the fault of a table that stops before the tool would by itself."""
    if table is None or table.why:
        return []
    if table.wrong:
        complaint = "the validation of a result failed"
        advice = "find out what broke the run: its times are not to be trusted"
        return [LogFault(table.wrong, "wrong results", complaint, advice)]
    if table.began and not table.line:
        complaint = "no result follows this title: the run broke off"
        return [LogFault(table.began, "truncated", complaint, "run it again to its end")]
    if not table.line or table.operation == "barrier":
        return []
    if table.short:
        complaint = "the last row ends within its number: the file was cut off"
        return [LogFault(table.line, "truncated", complaint, "give the whole log")]
    last = LAST_COLLECTIVE if table.operation in COLLECTIVES.values() else LAST[table.kind]
    if table.largest >= last:
        return []
    complaint = (
        f"the last message is of {table.largest:.0f} bytes, and the tool goes on to {last} "
        "unless told: the run was cut off"
    )
    advice = "run it again to its end; large messages show the bandwidth"
    return [LogFault(table.line, "truncated", complaint, advice)]


def _header(line: str, table: OsuTable | None) -> OsuTable | None:
    if "Size" in line or "(us)" in line:
        table = table or OsuTable("", why="the title line is missing")
        _columns(line, table)
    elif table is not None:
        if match := _PAIRS.search(line):
            table.pairs = int(match[1])
        if match := _WINDOW.search(line):
            table.window = int(match[1])
        elif "window size: varied" in line:
            table.why = "a table of many windows is not read: leave out -V"
        if "threads:" in line:
            table.why = UNPRICED["multi-threaded"]
        if "Buffer on" in line or "Memory on" in line:
            table.memory = "host" if "HOST" in line and "DEVICE" not in line else "device"
    return table


def _title(match: re.Match[str], machine: dict[str, Any]) -> OsuTable:
    library, flavour, name = (match[1] or "MPI").lower(), match[2] or "", match[3]
    if version := _VERSION.search(name):
        machine["tool"] = f"OSU micro-benchmarks {version[1]}"
        name = name[: version.start()]
    if "OMB-Py" in match[0]:
        machine["tool"] = "OMB-Py"
    words = name.lower().replace("/", " ").split()
    first, _, device = words[0].partition("-") if match[1] is None and words else ("", "", "")
    table = OsuTable(" ".join(words), library=LIBRARIES.get(library, library))
    # a plain MPI test uses host buffers; one that can use a device's says which it took
    table.memory = "device" if flavour or device or library != "mpi" else "host"
    if library not in LIBRARIES:
        table.why = f"{match[1]} is another programming model"
    elif first in ATOMICS:
        table.why = "one-sided atomics are not priced"
    else:
        table.why = next((UNPRICED[word] for word in words if word in UNPRICED), "")
    spellings = [name for word in words for name in (word, word.removeprefix("i"))]
    operation = next((COLLECTIVES[word] for word in spellings if word in COLLECTIVES), "")
    if operation and not first:
        table.operation = operation
    elif first in ONE_SIDED or "bandwidth" in words or "latency" in words:
        _pairwise(table, first, words)
    elif not table.why:
        table.why = f"nothing that is priced: {table.name[:40] or 'no title'}"
    return table


def _pairwise(table: OsuTable, first: str, words: list[str]) -> None:
    """Note the measurement of a test of pairs of ranks."""
    table.operation = ONE_SIDED.get(first, "sendrecv")
    table.ranks, table.direction = 2, "one way"
    if "bandwidth" in words:
        bidirectional = {"bi-directional", "bidirectional"} & set(words)
        table.window, table.kind = 64, "bidirectional" if bidirectional else "bandwidth"
        table.direction = "both ways" if bidirectional else "one way"
    if {"multi", "multiple"} & {word.partition("-")[0] for word in words}:
        table.pairs = None


def _columns(line: str, table: OsuTable) -> None:
    """Find the columns of time, bounds and count; two blanks or more separate names."""
    names = [n for n in re.split(r"\s{2,}|\t", line.lstrip("# \t").rstrip().lower()) if n]
    names = ["size", *names[1:]] if names and names[0].startswith("size") else names
    table.lowest = table.highest = table.iterations = table.overlap = None
    for k, name in enumerate(names):
        if name in ("mb/s", "bandwidth (mb/s)") or name.startswith(_TIMES):
            table.column = k
        elif name.startswith(("min lat", "min comm")):
            table.lowest = k
        elif name.startswith(("max lat", "max comm")):
            table.highest = k
        elif name.startswith("overlap"):
            table.overlap = k
        elif name.startswith("iteration"):
            table.iterations = k
    if "mb/s" in line.lower() and table.kind == "latency":
        table.kind, table.window = "bandwidth", 64


def _row(
    fields: list[str], table: OsuTable, path: str, line_number: int, samples: list[Sample],
    skipped: list[tuple[int, str]],
) -> None:  # fmt: skip
    barrier = table.operation == "barrier"
    first = number(fields[0]) if fields else None
    if first is None or (not barrier and not fields[0].isdecimal()):
        skipped.append((line_number, unknown_line(" ".join(fields))))
        return
    width, size = len(fields), 0.0 if barrier else first
    column = table.column if not barrier or table.column < width else 0
    cell = fields[column] if column < width else ""
    value = number(cell) if cell else None
    if table.why:
        skipped.append((line_number, table.why))
        return
    point = cell.find(".")
    digits = len(cell) - 1 - point if point >= 0 else 0
    table.short = value is None or digits < table.digits or width < table.width
    table.digits, table.width, table.line = (
        max(digits, table.digits),
        max(width, table.width),
        line_number,
    )
    table.largest = max(table.largest, size)
    if value is None:
        skipped.append((line_number, "the row ends before its number"))
        return
    if fields[-1] == "Fail":
        table.wrong = table.wrong or line_number
        skipped.append((line_number, "the result was wrong (its validation failed)"))
    elif not value or size > LARGEST_MESSAGE:
        skipped.append((line_number, "no usable time"))
    elif table.kind != "latency" and size == 0:
        skipped.append((line_number, "0 bytes have no bandwidth"))
    else:
        seconds = value * 1e-6
        if table.kind != "latency":
            streams = (table.pairs or 1) * (2 if table.kind == "bidirectional" else 1)
            seconds = size * streams / (value * 1e6)
        if not usable(seconds):
            skipped.append((line_number, "no usable time"))
            return
        samples.append(_sample(fields, table, size, seconds, value, f"{path}:{line_number}"))


def _sample(
    fields: list[str], table: OsuTable, size: float, seconds: float, value: float, place: str
) -> Sample:
    spread = count = hidden = None
    if len(fields) > 2:
        low, high = _value(fields, table.lowest), _value(fields, table.highest)
        spread = (high - low) / value / 2 if low is not None and high is not None else None
        count, hidden = _value(fields, table.iterations), _value(fields, table.overlap)
    return Sample(
        table.operation, size, seconds, table.ranks, iterations=int(count) if count else None,
        groups=table.pairs, window=table.window, per_rank=table.operation in PARTS,
        spread=spread if spread is None or spread >= 0 else None, library=table.library,
        memory=table.memory, where=place, direction=table.direction,
        overlap=None if hidden is None else min(1.0, hidden / 100),
    )  # fmt: skip


def _value(fields: list[str], column: int | None) -> float | None:
    """Return the number in a column, or None where the column or the number is missing."""
    return number(fields[column]) if column is not None and column < len(fields) else None
