"""OSU micro-benchmarks (4 to 7) and OMB-Py: latency, bandwidth, multi-pair and collective tables.

A bandwidth of b MB/s at m bytes is kept as the m/b seconds between two messages, with the window
of messages in flight; of a bidirectional test half the sum is one direction's. A collective's
log does not say how many ranks took part: `Reading.given(ranks=...)` supplies it. OSU counts
one rank's part for what gathers, scatters and exchanges; we count the whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oracle.readers.logs import (
    LARGEST_MESSAGE,
    LONGEST_LINE,
    InputError,
    Reading,
    Sample,
    number,
    unknown_line,
    usable,
)

TITLE = "OSU micro-benchmark text"
COLLECTIVES = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "allgatherv": "allgather",
    "alltoall": "alltoall",
    "alltoallv": "alltoall",
    "alltoallw": "alltoall",
    "bcast": "broadcast",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter",
    "gather": "gather",
    "gatherv": "gather",
    "scatter": "scatter",
    "scatterv": "scatter",
    "barrier": "barrier",
}
PARTS = frozenset(("allgather", "alltoall", "gather", "scatter"))  # OSU's size is one rank's

_TIMES = ("avg lat", "latency", "overall", "pure comm")  # the last one there is the time
_TITLE = re.compile(r"# *(?:OSU|OMB-Py) (MPI|NCCL|RCCL|UPC\+?\+?|OpenSHMEM)(-[A-Z]+)? *(.+)")
_VERSION = re.compile(r"v(\d+\.\d+(?:\.\d+)?)")
_PAIRS = re.compile(r"pairs: (\d{1,6})")
_WINDOW = re.compile(r"window size: (\d{1,6})")
_PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\](?:<std(?:out|err)>)?:?|\d{1,6}:)\s*")


@dataclass(slots=True)
class OsuTable:
    """What a table measures, and what its header said."""

    name: str
    operation: str = ""
    kind: str = "latency"  # "latency", "bandwidth", "bidirectional"
    library: str = "mpi"
    memory: str = ""
    pairs: int | None = 1
    window: int = 1
    ranks: int | None = None
    column: int = 1
    least: int | None = None
    most: int | None = None
    iterations: int | None = None
    scale: float = 1e-6


def recognises(text: str) -> bool:
    """A title, or a column header that only these tests print."""
    head = text if len(text) < 2**20 else text[: 2**20]
    if "# OSU " in head or "#OSU " in head or "# OMB-Py" in head:
        return True
    return "# Size" in head and ("Latency (us)" in head or "Bandwidth (MB/s)" in head)


def parse(text: str, path: str) -> Reading:
    """Samples of every table in a log."""
    machine: dict[str, Any] = {"tool": "OSU micro-benchmarks"}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    table: OsuTable | None = None
    for at, line in enumerate(text.splitlines(), 1):
        if not line or line.isspace():
            continue
        if len(line) > LONGEST_LINE:
            skipped.append((at, f"a line of more than {LONGEST_LINE} characters"))
            continue
        if "[" in line or ":" in line:
            line = _PREFIX.sub("", line)
        if "#" in line[:2]:
            table = _header(line, table, machine)
        elif table is None:
            skipped.append((at, unknown_line(line)))
        else:
            _row(line.split(), table, path, at, samples, skipped)
    if table is None:
        raise InputError(path, 1, "no table began: the title line is missing", "keep the whole log")
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped))


def _header(line: str, table: OsuTable | None, machine: dict[str, Any]) -> OsuTable | None:
    if match := _TITLE.match(line):
        return _title(match, machine)
    if "Size" in line or "(us)" in line:
        table = table or OsuTable("", operation="")
        _columns(line, table)
    elif table is not None:
        if found := _PAIRS.search(line):
            table.pairs = int(found[1])
        if found := _WINDOW.search(line):
            table.window = int(found[1])
        if "Buffer on" in line:
            table.memory = "host" if "HOST" in line and "DEVICE" not in line else "device"
    return table


def _title(match: re.Match[str], machine: dict[str, Any]) -> OsuTable:
    library, flavour, name = match[1].lower(), match[2] or "", match[3]
    if version := _VERSION.search(name):
        machine["tool"] = f"OSU micro-benchmarks {version[1]}"
        name = name[: version.start()]
    if "OMB-Py" in match[0]:
        machine["tool"] = "OMB-Py"
    words = name.lower().replace("-", " ").replace("/", " ").split()
    library = "nccl" if library in ("nccl", "rccl") else library
    table = OsuTable(" ".join(words), library=library)
    # a plain MPI test uses host buffers; one that can use a device's says which it took
    table.memory = "device" if flavour or library == "nccl" else "host"
    collective = next((COLLECTIVES[w.removeprefix("i")] if w.removeprefix("i") in COLLECTIVES
                       else COLLECTIVES[w] for w in words
                       if w in COLLECTIVES or w.removeprefix("i") in COLLECTIVES), "")  # fmt: skip
    if collective:
        table.operation, table.pairs = collective, 1
    elif "bandwidth" in words or "latency" in words:
        one_sided = {"put", "get", "accumulate", "fop", "cas"} & set(words)
        table.operation = "" if one_sided else "sendrecv"
        table.ranks = 2
        if "bandwidth" in words:
            table.window = 64
            table.kind = (
                "bidirectional" if "bi" in words or "bidirectional" in words else "bandwidth"
            )
        if "multi" in words or "multiple" in words:
            table.pairs = None
    return table


def _columns(line: str, table: OsuTable) -> None:
    """Which column is the time, its bounds and its count; names are two blanks or more apart."""
    names = [n for n in re.split(r"\s{2,}|\t", line.lstrip("# \t").rstrip().lower()) if n]
    names = ["size", *names[1:]] if names and names[0].startswith("size") else names
    table.least = table.most = table.iterations = None
    for k, name in enumerate(names):
        if name in ("mb/s", "bandwidth (mb/s)") or name.startswith(_TIMES):
            table.column = k
        elif name.startswith("min lat"):
            table.least = k
        elif name.startswith("max lat"):
            table.most = k
        elif name.startswith("iteration"):
            table.iterations = k
    if "mb/s" in line.lower() and table.kind == "latency":
        table.kind, table.window = "bandwidth", 64


def _row(
    fields: list[str],
    table: OsuTable,
    path: str,
    at: int,
    samples: list[Sample],
    skipped: list[tuple[int, str]],
) -> None:
    barrier = table.operation == "barrier"
    first = number(fields[0]) if fields else None
    if first is None or (not barrier and not fields[0].isdecimal()):
        skipped.append((at, unknown_line(" ".join(fields))))
        return
    column = table.column if not barrier or table.column < len(fields) else 0
    value = _value(fields, column)
    size = 0.0 if barrier else first
    if not table.operation:
        skipped.append((at, f"nothing that is priced: {table.name[:40] or 'no title'}"))
    elif not value or size > LARGEST_MESSAGE:
        skipped.append(
            (at, "the row ends before its number" if value is None else "no usable time")
        )
    elif table.kind != "latency" and size == 0:
        skipped.append((at, "0 bytes have no bandwidth"))
    else:
        seconds = value * 1e-6
        if table.kind != "latency":
            streams = (table.pairs or 1) * (2 if table.kind == "bidirectional" else 1)
            seconds = size * streams / (value * 1e6)
        if not usable(seconds):
            skipped.append((at, "no usable time"))
            return
        low, high = _value(fields, table.least), _value(fields, table.most)
        spread = (high - low) / value / 2 if low is not None and high is not None else None
        count = _value(fields, table.iterations)
        samples.append(
            Sample(
                table.operation,
                size,
                seconds,
                table.ranks,
                iterations=int(count) if count else None,
                groups=table.pairs,
                window=table.window,
                per_rank=table.operation in PARTS,
                spread=spread if spread is None or spread >= 0 else None,
                library=table.library,
                memory=table.memory,
                where=f"{path}:{at}",
            )
        )


def _value(fields: list[str], column: int | None) -> float | None:
    """The number in a column, where there is such a column and it holds one."""
    return number(fields[column]) if column is not None and column < len(fields) else None
