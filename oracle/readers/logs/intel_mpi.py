"""Intel MPI Benchmarks (IMB-MPI1, IMB-NBC): tables of one benchmark and number of processes each.

The time is that of the slowest process, `t_max`, as the tool itself counts bandwidth. `#bytes` is
one process's part for collectives that gather, scatter or exchange, and for Reduce_scatter since
2019; we count all parts. PingPong is half the round trip, PingPing and Biband are two messages at
once, Sendrecv is a ring. Of a non-blocking call `t_pure` counts, and the hidden share of it.
Mbytes/sec is not read: its unit changed between versions. Other parts (EXT, RMA, IO, P2P, MT) are
skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oracle.readers.closings import Runs
from oracle.readers.logs import (
    LARGEST_MESSAGE,
    MPI_CALLS,
    PARTS,
    Reading,
    Sample,
    lines_of,
    number,
    unknown_line,
    unprefixed,
    usable,
)

TITLE = "Intel MPI Benchmarks text"
OPERATIONS = {
    "pingpong": "sendrecv",
    "pingponganysource": "sendrecv",
    "pingpongspecificsource": "sendrecv",
    "pingping": "sendrecv",
    "pingpinganysource": "sendrecv",
    "pingpingspecificsource": "sendrecv",
    "sendrecv": "sendrecv",
    "uniband": "sendrecv",
    "biband": "sendrecv",
    "exchange": "halo",
    **MPI_CALLS,
}
READ = ("MPI-1 part", "MPI1 part", "MPI-NBC part")
SPLIT = 2018  # the last version in which Reduce_scatter dealt out `#bytes`
GIVEN_UP = ("time-out", "out-of-mem", "int-overflow")
WINDOW = 64  # messages in flight of Uniband and Biband

_BEGIN = re.compile(r"# Benchmarking (?!:)(Multi-)?(\S+)")
_PROCESSES = re.compile(r"#processes = (\d{1,9})")
_GROUPS = re.compile(r"\( *(\d{1,9}) groups of (\d{1,9}) processes")
_PART = re.compile(r"Intel ?\(R\) MPI Benchmark(?:s| Suite) V?(\d{1,4})(\S*), *(.*part)\b")
_UNIT = re.compile(r"\[[^\]]*\]")


@dataclass(slots=True)
class Benchmark:
    """One table: its benchmark, the number of processes, and its columns."""

    name: str
    operation: str = ""
    ranks: int | None = None
    groups: int = 1
    columns: tuple[str, ...] = ()
    why: str = ""  # reason to skip the table
    memory: str = "host"
    parts: bool = False  # `#bytes` is one process's


def recognises(text: str) -> bool:
    """Return whether a text has a benchmark's heading, and the columns of these tables."""
    if "#repetitions" not in text or "# Benchmarking:" in text:
        return False
    return _BEGIN.search(text) is not None


def parse(text: str, path: str) -> Reading:
    """Return the samples of every table in a log."""
    machine: dict[str, Any] = {"tool": "Intel MPI Benchmarks"}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    table, runs, part, memory = Benchmark("", why="no benchmark began"), Runs(), "", "host"
    year: int | None = None
    for line_number, line in lines_of(text, skipped):
        line = unprefixed(line)
        if match := _PART.search(line):
            machine["tool"] = f"Intel MPI Benchmarks {match[1]}{match[2]}"
            year, part = int(match[1]), match[3]
            memory = "device" if "GPU" in line else "host"
            runs.begin(line_number)
        elif "All processes entering MPI_Finalize" in line:
            runs.end()
        elif match := _BEGIN.search(line):
            table = _benchmark(match[2], part, year)
            table.memory = memory
        if "#repetitions" in line:
            words = line.replace("overlap", " overlap").split()
            table.columns = tuple(_UNIT.sub("", word).lstrip("#") for word in words)
        elif line.lstrip().startswith("#"):
            _processes(line, table)
        elif line.split()[0].isdecimal() and table.columns:
            runs.last = line_number
            reason = _row(line.split(), table, f"{path}:{line_number}", samples)
            if reason:
                skipped.append((line_number, reason))
        else:
            skipped.append((line_number, unknown_line(line)))
    runs.end(cut=True)
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(runs.faults))


def _benchmark(name: str, part: str, year: int | None) -> Benchmark:
    low = name.lower()
    table = Benchmark(low)
    plain = low.removesuffix("_pure")
    operation = OPERATIONS.get(plain) or OPERATIONS.get(plain.removeprefix("i"), "")
    if part and not part.startswith(READ):
        table.why = f"the {part} of these benchmarks is not priced"
    elif not operation:
        table.why = f"nothing that is priced: {name[:40]}"
    elif plain == "reduce_scatter" and year is None:
        table.why = "whose bytes Reduce_scatter counts depends on the version: keep the first lines"
    table.parts = operation in PARTS or plain == "reduce_scatter_block"
    if plain == "reduce_scatter":
        table.parts = year is not None and year > SPLIT
    table.operation = operation
    return table


def _processes(line: str, table: Benchmark) -> None:
    """Note the number of processes of a table, from its heading."""
    if match := _GROUPS.search(line):
        table.groups, table.ranks = int(match[1]), int(match[2])
    elif match := _PROCESSES.search(line):
        table.ranks = int(match[1])
    if "threads:" in line:
        table.why = "several threads of a process talk at once"
    if "MODE: AGGREGATE" in line:
        table.why = "calls in aggregate are not timed one by one"


def _row(fields: list[str], table: Benchmark, place: str, samples: list[Sample]) -> str:
    """Add the sample of a row, or say why there is none."""
    if table.why:
        return table.why
    if any(mark in " ".join(fields) for mark in GIVEN_UP):
        return "the tool gave the row up"
    if len(fields) < len(table.columns):
        return "the row ends before its number"
    values = dict(zip(table.columns, (number(field) for field in fields), strict=False))
    if not table.ranks:
        return "the heading with the number of processes is missing"
    if table.ranks < 2:
        return "one process has nobody to talk to"
    size = values.get("bytes") if table.operation != "barrier" else 0.0
    parts = table.ranks if table.parts else 1
    if size is None or size * parts > LARGEST_MESSAGE:
        return "a message size that cannot be"
    pairs, window = table.groups, 1
    if "Msg/sec" in values:
        rate = values["Msg/sec"] or 0.0
        pairs, window = table.ranks // 2, WINDOW
        ways = 2 if table.name == "biband" else 1
        seconds = pairs * ways / rate if rate else 0.0
    else:
        time = next((values[name] for name in ("t_pure", "t_max", "t") if values.get(name)), None)
        seconds = (time or 0.0) * 1e-6
    if not usable(seconds):
        return "no usable time"
    if table.operation == "halo" and table.ranks < 3:
        return "two processes are both neighbours of each other: each message goes twice"
    low, high, mean = values.get("t_min"), values.get("t_max"), values.get("t_avg")
    hidden = values.get("overlap")
    paired = table.operation == "sendrecv" and (table.ranks == 2 or window > 1)
    samples.append(Sample(
        table.operation,
        size * parts,
        seconds,
        2 if window > 1 else table.ranks,
        iterations=int(min(values.get("repetitions") or 0, 1e9)) or None,
        groups=pairs,
        window=window,
        spread=max(0.0, (high - low) / mean / 2) if low and high and mean else None,
        library="mpi",
        memory=table.memory,
        where=place,
        direction=_direction(table.name) if paired else "",
        overlap=None if hidden is None else min(1.0, hidden / 100),
        adjacent=table.groups > 1,
    ))  # fmt: skip
    return ""


def _direction(name: str) -> str:
    return "one way" if name.startswith(("pingpong", "uniband")) else "both ways"
