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
    LONGEST,
    MOST,
    Reading,
    Refusal,
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
class Test:
    """One table: what it measures and what its header said."""

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
    test: Test | None = None
    for at, line in enumerate(text.splitlines(), 1):
        if not line or line.isspace():
            continue
        if len(line) > LONGEST:
            skipped.append((at, f"a line of more than {LONGEST} characters"))
            continue
        if "[" in line or ":" in line:
            line = _PREFIX.sub("", line)
        if "#" in line[:2]:
            test = _header(line, test, machine)
        elif test is None:
            skipped.append((at, unknown_line(line)))
        else:
            _row(line.split(), test, path, at, samples, skipped)
    if test is None:
        raise Refusal(path, 1, "no table began: the title line is missing", "keep the whole log")
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped))


def _header(line: str, test: Test | None, machine: dict[str, Any]) -> Test | None:
    if match := _TITLE.match(line):
        return _title(match, machine)
    if "Size" in line or "(us)" in line:
        test = test or Test("", operation="")
        _columns(line, test)
    elif test is not None:
        if found := _PAIRS.search(line):
            test.pairs = int(found[1])
        if found := _WINDOW.search(line):
            test.window = int(found[1])
        if "Buffer on" in line:
            test.memory = "host" if "HOST" in line and "DEVICE" not in line else "device"
    return test


def _title(match: re.Match[str], machine: dict[str, Any]) -> Test:
    library, flavour, name = match[1].lower(), match[2] or "", match[3]
    if version := _VERSION.search(name):
        machine["tool"] = f"OSU micro-benchmarks {version[1]}"
        name = name[: version.start()]
    if "OMB-Py" in match[0]:
        machine["tool"] = "OMB-Py"
    words = name.lower().replace("-", " ").replace("/", " ").split()
    library = "nccl" if library in ("nccl", "rccl") else library
    test = Test(" ".join(words), library=library)
    # a plain MPI test uses host buffers; one that can use a device's says which it took
    test.memory = "device" if flavour or library == "nccl" else "host"
    collective = next((COLLECTIVES[w.removeprefix("i")] if w.removeprefix("i") in COLLECTIVES
                       else COLLECTIVES[w] for w in words
                       if w in COLLECTIVES or w.removeprefix("i") in COLLECTIVES), "")  # fmt: skip
    if collective:
        test.operation, test.pairs = collective, 1
    elif "bandwidth" in words or "latency" in words:
        one_sided = {"put", "get", "accumulate", "fop", "cas"} & set(words)
        test.operation = "" if one_sided else "sendrecv"
        test.ranks = 2
        if "bandwidth" in words:
            test.window = 64
            test.kind = (
                "bidirectional" if "bi" in words or "bidirectional" in words else "bandwidth"
            )
        if "multi" in words or "multiple" in words:
            test.pairs = None
    return test


def _columns(line: str, test: Test) -> None:
    """Which column is the time, its bounds and its count; names are two blanks or more apart."""
    names = [n for n in re.split(r"\s{2,}|\t", line.lstrip("# \t").rstrip().lower()) if n]
    names = ["size", *names[1:]] if names and names[0].startswith("size") else names
    test.least = test.most = test.iterations = None
    for k, name in enumerate(names):
        if name in ("mb/s", "bandwidth (mb/s)") or name.startswith(_TIMES):
            test.column = k
        elif name.startswith("min lat"):
            test.least = k
        elif name.startswith("max lat"):
            test.most = k
        elif name.startswith("iteration"):
            test.iterations = k
    if "mb/s" in line.lower() and test.kind == "latency":
        test.kind, test.window = "bandwidth", 64


def _row(
    fields: list[str],
    test: Test,
    path: str,
    at: int,
    samples: list[Sample],
    skipped: list[tuple[int, str]],
) -> None:
    barrier = test.operation == "barrier"
    first = number(fields[0]) if fields else None
    if first is None or (not barrier and not fields[0].isdecimal()):
        skipped.append((at, unknown_line(" ".join(fields))))
        return
    column = test.column if not barrier or test.column < len(fields) else 0
    value = _value(fields, column)
    size = 0.0 if barrier else first
    if not test.operation:
        skipped.append((at, f"nothing that is priced: {test.name[:40] or 'no title'}"))
    elif not value or size > MOST:
        skipped.append(
            (at, "the row ends before its number" if value is None else "no usable time")
        )
    elif test.kind != "latency" and size == 0:
        skipped.append((at, "0 bytes have no bandwidth"))
    else:
        seconds = value * 1e-6
        if test.kind != "latency":
            streams = (test.pairs or 1) * (2 if test.kind == "bidirectional" else 1)
            seconds = size * streams / (value * 1e6)
        if not usable(seconds):
            skipped.append((at, "no usable time"))
            return
        low, high = _value(fields, test.least), _value(fields, test.most)
        spread = (high - low) / value / 2 if low is not None and high is not None else None
        count = _value(fields, test.iterations)
        samples.append(
            Sample(
                test.operation,
                size,
                seconds,
                test.ranks,
                iterations=int(count) if count else None,
                groups=test.pairs,
                window=test.window,
                per_rank=test.operation in PARTS,
                spread=spread if spread is None or spread >= 0 else None,
                library=test.library,
                memory=test.memory,
                where=f"{path}:{at}",
            )
        )


def _value(fields: list[str], column: int | None) -> float | None:
    """The number in a column, where there is such a column and it holds one."""
    return number(fields[column]) if column is not None and column < len(fields) else None
