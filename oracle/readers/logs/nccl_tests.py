"""nccl-tests and rccl-tests text: the tables of `all_reduce_perf` and the others, every version.

Columns are found by their header if there is one (`-I`, `-M`, `-S` add columns, `-C` renames one),
else by the number of fields. Old versions do not name the operation: it follows from the columns
and from busbw/algbw, which is 2(n-1)/n for an allreduce, (n-1)/n for operations that gather,
scatter or exchange, and 1 otherwise; the same ratio gives n when the device list is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from oracle.readers.closings import Runs
from oracle.readers.logs import (
    LARGEST_MESSAGE,
    InputError,
    LogFault,
    Reading,
    Sample,
    host_family,
    lines_of,
    number,
    unknown_line,
    usable,
)

TITLE = "nccl-tests text"
_WHOLE = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "char", "int")
_REAL = ("half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2")
TYPES = frozenset((*_WHOLE, *_REAL))
PROGRAMS = {
    "all_reduce_perf": "allreduce",
    "reduce_scatter_perf": "reduce_scatter",
    "all_gather_perf": "allgather",
    "broadcast_perf": "broadcast",
    "reduce_perf": "reduce",
    "alltoall_perf": "alltoall",
    "sendrecv_perf": "sendrecv",
    "gather_perf": "gather",
    "scatter_perf": "scatter",
    "hypercube_perf": "hypercube",
}
# the limit of busbw/algbw among many ranks
RATIOS = {"allreduce": 2.0, "reduce_scatter": 1.0, "allgather": 1.0, "alltoall": 1.0}
REDUCING = frozenset(("sum", "prod", "min", "max", "avg", "mulsum", "all"))
_LEAD = ("size", "count", "type", "redop", "root")
_HALF = ("time", "algbw", "busbw", "#wrong")
_OLD = (*_LEAD[:4], *_HALF, *_HALF)
_MID = (*_LEAD, *_HALF, *_HALF)

_RANK = re.compile(
    r"Rank +(\d{1,9}) +(?:Group +(\d{1,9}) +)?Pid +\d+ +on +(\S+) +device +(\d+ +\[[^\]]*\]) *(.*)"
)
_HEADING = re.compile(r"# nThread +\d|# *size +count +type")
_LARGEST = re.compile(r"\bmaxBytes (\d{1,19})|Reducing maxBytes to (\d{1,19})")
_RCCL = re.compile(r"rccl-tests: Version (\S+)")
_PROGRAM = re.compile(r"\b([a-z]+(?:_[a-z]+)?_perf)\b")
_ITERATIONS = re.compile(r"\biters: (\d{1,9})")
_VERSION = re.compile(r"nccl-tests version (\S+)(?: nccl-headers=(\d+))?(?: nccl-library=(\d+))?")
_LIBRARY = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_EPOCH = re.compile(r"^\[(\d{10})\.\d+\]")
_DAY = re.compile(r"\b(20\d\d-[01]\d-[0-3]\d)\b")


@dataclass(slots=True)
class Timing:
    """One measurement of a row: out of place, or in place."""

    time: float
    algbw: float
    busbw: float
    in_place: bool
    wrong: str = "0"
    spread: float | None = None


@dataclass(slots=True)
class TableRow:
    """One line of a table, as printed."""

    line: int
    size: int
    dtype: str
    redop: str | None
    root: int | None
    timings: list[Timing]


@dataclass(slots=True)
class RunTable:
    """The rows that one run printed, and the facts of its header."""

    rows: list[TableRow] = field(default_factory=list)
    ranks: dict[int, tuple[int, str]] = field(default_factory=dict)  # rank -> (group, host)
    operation: str = ""
    iterations: int | None = None
    names: tuple[str, ...] = ()
    cpu_time: bool = False


def recognises(text: str) -> bool:
    """Return whether a text has a table of nccl-tests, or the beginning of one."""
    if _HEADING.search(text):
        return True
    return any(_row_start(line.split()) is not None for line in text[:65536].splitlines())


def parse(text: str, path: str) -> Reading:
    """Return the samples of every table in a log."""
    skipped: list[tuple[int, str]] = []
    machine: dict[str, Any] = {"tool": "nccl-tests"}
    tables = [RunTable()]
    runs, devices, hosts = Runs(), dict[str, int](), dict[str, int]()
    program = ""  # the operation of the program that a line before the table names
    for line_number, line in lines_of(text, skipped):
        fields = line.split()
        start = _row_start(fields)
        table = tables[-1]
        if start is not None:
            row = _row(line_number, fields[start:], table, skipped)
            if row is not None:
                table.rows.append(row)
                runs.last, runs.largest = line_number, max(runs.largest, row.size)
        elif "#" in line and "busbw" in line and "size" in line:
            names = line[line.index("size") :].split()
            if table.rows:
                table = RunTable(ranks=table.ranks, iterations=table.iterations)
                tables.append(table)
            table.operation = table.operation or program
            table.names = tuple("time" if n == "cputime" else n for n in names)
            table.cpu_time = "cputime" in names
        elif "# nThread" in line:
            if table.rows or table.ranks:
                table = RunTable()
                tables.append(table)
            runs.begin(line_number)
            runs.promised = _promised(line)
            iterations = _ITERATIONS.findall(line)
            table.iterations = (
                int(iterations[-1 if len(iterations) < 2 else 1]) if iterations else None
            )
            table.operation = program
        elif "Rank" in line and (match := _RANK.search(line)):
            rank, group, host, place, device = match.groups()
            runs.place(f"{host} device {' '.join(place.split())}", line_number)
            table.ranks[int(rank)] = (int(group or 0), host)
            machine.setdefault("device", device.strip())
            devices.setdefault(device.strip(), line_number)
            hosts.setdefault(host_family(host), line_number)
        else:
            program = _facts(line, machine) or program
            _closing(line, line_number, runs)
            if (
                _RCCL.match(line) is None
                and "#" not in fields[0]
                and "#" not in fields[min(1, len(fields) - 1)]
            ):
                skipped.append((line_number, unknown_line(line)))
    runs.end(cut=True)
    samples: list[Sample] = []
    for table in tables:
        samples += _samples(table, program, path, machine, skipped, runs.faults)
    if not any(table.rows for table in tables) and not skipped and not samples:
        raise InputError(path, 1, "the run ended before its first result", "run it again")
    return Reading(path, TITLE, tuple(samples), machine, tuple(sorted(skipped)),
                   faults=tuple(sorted(runs.faults)), devices=tuple(devices.items()),
                   hosts=tuple(hosts.items()))  # fmt: skip


def _promised(line: str) -> int:
    """Return the largest message that a header promises, or 0."""
    match = _LARGEST.search(line)
    return int(match[1] or match[2]) if match else 0


def _closing(line: str, line_number: int, runs: Runs) -> None:
    """Note the end of a run, and wrong results that it reports."""
    if "# Out of bounds values" in line or "# Avg bus bandwidth" in line:
        runs.end()
    elif "Reducing maxBytes" in line:
        runs.promised = _promised(line)
    if "Out of bounds values" in line and "FAILED" in line:
        complaint = f"wrong results: {line.strip(' #')[:60]}"
        advice = "find out what broke the run: its times are not to be trusted"
        runs.faults.append(LogFault(line_number, "wrong results", complaint, advice))


def _row_start(fields: Sequence[str]) -> int | None:
    """Return where the `size count type` of a row begins, after any launcher's prefix."""
    for i, word in enumerate(fields[2:14]):
        if word in TYPES:
            count, size = fields[i + 1], fields[i].rpartition(":")[2]
            if count.isascii() and count.isdecimal() and size.isascii() and size.isdecimal():
                return i
    return None


def _row(
    line_number: int, fields: list[str], table: RunTable, skipped: list[tuple[int, str]]
) -> TableRow | None:
    names = table.names
    if "time" not in names:
        width = 13 if len(fields) > 4 and fields[4].lstrip("-").isdecimal() else 12
        names = _MID if width == 13 else _OLD
    digits = fields[0].rpartition(":")[2]
    if len(digits) > 19 or int(digits) > LARGEST_MESSAGE:
        skipped.append((line_number, "a message size that cannot be"))
        return None
    cells = dict(zip(names, fields, strict=False))
    root = cells.get("root", "")
    row = TableRow(line_number, int(digits), fields[2], cells.get("redop"), None, [])
    if root.removeprefix("-").isdecimal() and len(root) < 12:
        row.root = int(root)
    starts = [k for k, name in enumerate(names) if name == "time"]
    for k, first in enumerate(starts[:2]):
        last = starts[k + 1] if k + 1 < len(starts) else len(names)
        part = dict(zip(names[first:last], fields[first:last], strict=False))
        place = "in place" if k else "out of place"
        if "busbw" not in part:
            skipped.append((line_number, f"the row ends before its {place} numbers"))
            continue
        values = [number(part.get(n, "")) for n in ("time", "algbw", "busbw")]
        if any(v is None for v in values) or not usable((values[0] or 0) * 1e-6):
            skipped.append((line_number, f"no usable time {place}"))
            continue
        time, algbw, busbw = (float(v or 0) for v in values)
        cv = number(part.get("i_cv%", "").rstrip("%"))
        wrong = part.get("#wrong", part.get("error", "0"))
        timing = Timing(time, algbw, busbw, bool(k), wrong, None if cv is None else cv / 100)
        row.timings.append(timing)
    return row if row.timings else None


def _samples(
    table: RunTable, program: str, path: str, machine: dict[str, Any],
    skipped: list[tuple[int, str]], faults: list[LogFault],
) -> list[Sample]:  # fmt: skip
    if not table.rows:
        return []
    listed = max(table.ranks) + 1 if table.ranks else None
    complete = listed is not None and len(table.ranks) == listed
    counts = [group for group, _ in table.ranks.values()]
    groups = len(set(counts)) if complete else 1
    ranks = listed // groups if listed else None
    operation, deduced = deduce(table.rows, ranks, table.operation or program)
    if not operation:
        why = "the log does not say which operation this is: keep the line with the command"
        skipped += [(row.line, why) for row in table.rows]
        return []
    if ranks is not None:
        faults += contradicted(table.rows, ranks, operation)
    elif deduced is not None:
        ranks = deduced
        machine["ranks"] = f"{ranks}, from busbw/algbw: the device list is not in the log"
    hosts = {host for group, host in table.ranks.values() if group == counts[0]}
    nodes = len(hosts) if complete else None
    if nodes:
        machine["nodes"] = max(nodes, machine.get("nodes", 0))
    if table.cpu_time:
        why = "-C 1 prints the CPU's time, not the elapsed time"
        skipped += [(row.line, why) for row in table.rows for _ in row.timings]
        return []
    shared = Sample(operation, 0.0, 1.0, ranks, nodes, iterations=table.iterations, groups=groups)
    checked = table.names[-1:] != ("error",)  # which old versions printed in its place
    return measured(table.rows, shared, f"{path}:", skipped, "#wrong" if checked else "")


def measured(
    rows: Iterable[TableRow], shared: Sample, prefix: str, skipped: list[tuple[int, str]],
    wrong: str,
) -> list[Sample]:  # fmt: skip
    """Return rows as samples with shared facts; `wrong` names the count of wrong results."""
    ranks, nodes = shared.ranks, shared.nodes
    inner = ranks // nodes if ranks and nodes and ranks % nodes == 0 else None
    samples = []
    for row in rows:
        if row.size == 0:
            skipped.append((row.line, "0 bytes: nothing was sent"))
            continue
        for timing in row.timings:
            if wrong and timing.wrong.isdecimal() and int(timing.wrong[:18]):
                skipped.append((row.line, f"the results were wrong ({wrong} is not 0)"))
                continue
            samples.append(shared._replace(
                nbytes=float(row.size), seconds=timing.time * 1e-6, ranks_per_node=inner,
                in_place=timing.in_place, dtype=row.dtype, spread=timing.spread, library="nccl",
                memory="device", where=f"{prefix}{row.line}",
            ))  # fmt: skip
    return samples


def deduce(rows: Sequence[TableRow], ranks: int | None, program: str) -> tuple[str, int | None]:
    """Return operation and ranks as far as a table's numbers tell, else ("", None)."""
    pairs = [(t.algbw, t.busbw) for row in rows for t in row.timings if t.algbw > 0]
    algbw, busbw = max(pairs, default=(0.0, 0.0))
    ratio = busbw / algbw if algbw else 0.0
    slack = 0.0051 * (1 + ratio) / algbw if algbw else 0.0  # both are printed to two digits
    first = rows[0]
    reducing = first.redop in REDUCING
    rooted = first.root is not None and first.root >= 0
    if program:
        operation = program
    elif not algbw:
        operation = "allreduce" if reducing and not rooted else ""
    elif abs(ratio - 1) <= slack and (ranks in (None, 2) or rooted or first.redop is None):
        flat = {(True, True): "reduce", (True, False): "allreduce", (False, True): "broadcast"}
        operation = flat.get((reducing, rooted), "sendrecv")
    elif abs(ratio - 1) <= slack and (ranks or 0) * slack < 0.5:
        operation = "reduce" if reducing else "sendrecv"
    elif ratio > 1:
        operation = "allreduce"
    elif reducing:
        operation = "reduce_scatter"
    else:
        operation = _gathers(rows)
    top = RATIOS.get(operation)
    if ranks is not None or top is None or not 0 < ratio < top:
        return operation, None
    low, high = top / (top - ratio + slack), top / max(top - ratio - slack, 1e-12)
    nearest = round(top / (top - ratio))
    alone = nearest - 1 < low <= nearest <= high < nearest + 1 and nearest > 1
    return operation, nearest if alone else None


def contradicted(rows: Sequence[TableRow], ranks: int, operation: str) -> list[LogFault]:
    """Return a fault where busbw/algbw contradicts the ranks of the header."""
    top = RATIOS.get(operation)
    pairs = [(t.algbw, t.busbw) for row in rows for t in row.timings if t.algbw > 0]
    if top is None or ranks < 2 or not pairs:
        return []
    due = top * (1 - 1 / ranks)
    if sum(abs(busbw - due * algbw) > 0.0051 * (1 + due) for algbw, busbw in pairs) < 2:
        return []  # both are printed to two digits
    algbw, busbw = max(pairs)
    about = round(top / (top - busbw / algbw)) if busbw < top * algbw else "more"
    complaint = (f"busbw/algbw is that of {about} ranks, and the device list has {ranks}: "
                 "the list is of another run, or lines of it are missing")  # fmt: skip
    return [LogFault(rows[0].line, "counts", complaint, "give the whole log of one run")]


def _gathers(rows: Sequence[TableRow]) -> str:
    """Tell an all-to-all, never checked in place, from an all-gather."""
    checks = {t.in_place: t.wrong for row in rows for t in row.timings}
    if checks.get(True) == "N/A" and checks.get(False, "N/A") != "N/A":
        return "alltoall"
    return "allgather" if checks.get(True, "N/A") != "N/A" else ""


def _facts(line: str, machine: dict[str, Any]) -> str:
    """Note facts of a line that is no row; return the operation of a program it names."""
    if match := _RCCL.search(line):
        machine["tool"] = f"rccl-tests {match[1]}"
    elif match := _VERSION.search(line):
        machine["tool"] = f"nccl-tests {match[1]}"
        if match[3]:
            machine["nccl"] = readable(int(match[3][:9]))
    if "NCCL version" in line and (match := _LIBRARY.search(line)):
        machine["nccl"] = match[1]
    if "date" not in machine:
        if match := _EPOCH.match(line):
            machine["date"] = datetime.fromtimestamp(int(match[1]), UTC).date().isoformat()
        elif "20" in line and (match := _DAY.search(line)):
            machine["date"] = match[1]
    if "_perf" in line and "concluded" not in line:
        for word in _PROGRAM.findall(line):
            if word in PROGRAMS:
                return PROGRAMS[word]
    return ""


def readable(code: int) -> str:
    """Return NCCL's version number with dots.

    >>> readable(2804), readable(22605)
    ('2.8.4', '2.26.5')
    """
    major, rest = divmod(code, 10_000) if code >= 10_000 else divmod(code, 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"
