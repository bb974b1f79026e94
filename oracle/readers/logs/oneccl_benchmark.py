"""oneCCL's benchmark, text and CSV: one collective a table, on a number of processes.

The time is that of the slowest process, `t_max`. `#bytes` is one process's part for collectives
that gather and exchange; we count all parts. With several buffers (`buf_count`) that many calls
start at once, and a row holds them all: it becomes a stream of single calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oracle.readers.closings import Runs
from oracle.readers.logs import (
    LARGEST_MESSAGE,
    PARTS,
    InputError,
    Reading,
    Sample,
    lines_of,
    number,
    unknown_line,
    unprefixed,
    usable,
)
from oracle.spec.document import SpecError
from oracle.spec.files import csv_of

TITLE = "oneCCL benchmark text or CSV"
PRECEDENCE = 1
OPERATIONS = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "allgatherv": "allgather",
    "alltoall": "alltoall",
    "alltoallv": "alltoall",
    "bcast": "broadcast",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
}
BEGIN = "# Benchmarking:"
CSV = "#ranks,collective,"

_UNIT = re.compile(r"\[[^\]]*\]")
_OPTION = re.compile(r"^\s+(backend|buf_count|inplace|sycl_mem_type): +(\S{1,40})\s*$")


@dataclass(slots=True)
class Options:
    """The options of a run."""

    operation: str = ""
    ranks: int | None = None
    buffers: int = 1
    dtype: str = ""
    memory: str = ""
    in_place: bool | None = None
    why: str = "no table began"


def recognises(text: str) -> bool:
    """Return whether a text has the heading of a table, or the columns of the CSV."""
    return (BEGIN in text and "#processes:" in text) or text.startswith(CSV)


def parse(text: str, path: str) -> Reading:
    """Return the samples of every table in a log."""
    if text.startswith(CSV):
        return _table(text, path)
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    options, columns, runs = Options(), tuple[str, ...](), Runs()
    for line_number, line in lines_of(text, skipped):
        line = unprefixed(line)
        fields = line.split()
        if line.startswith(BEGIN):
            runs.begin(line_number)
            names = line[len(BEGIN) :].split()
            operation = OPERATIONS.get(names[0], "") if names else ""
            options.operation = operation
            options.why = "" if operation else f"nothing that is priced: {' '.join(names)[:40]}"
            if len(names) > 1:
                options.why = "several collectives at once: a row is the sum of them"
        elif line.startswith("# #processes:"):
            options.ranks = int(fields[-1]) if re.fullmatch(r"\d{1,9}", fields[-1]) else None
        elif "#repetitions" in line:
            columns = tuple(_UNIT.sub("", word).lstrip("#") for word in fields)
        elif "# All done" in line:
            runs.end()
        elif line.startswith("datatype:"):
            options.dtype = fields[-1][:20]
        elif option := _OPTION.match(line):
            _option(option[1], option[2], options)
        elif fields[0].isdecimal() and columns:
            runs.last = line_number
            values = dict(zip(columns, map(number, fields), strict=False))
            reason = "the row ends before its number" if len(fields) < 6 else ""
            reason = reason or _add(values, options, f"{path}:{line_number}", samples)
            if reason:
                skipped.append((line_number, reason))
        elif not line.lstrip().startswith("#") and ":" not in line:
            skipped.append((line_number, unknown_line(line)))
    runs.end(cut=True)
    machine: dict[str, Any] = {"tool": "oneCCL benchmark"}
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(runs.faults))


def _option(name: str, value: str, options: Options) -> None:
    if name == "backend":
        options.memory = "device" if value == "sycl" else "host"
    elif name == "buf_count" and value.isdecimal():
        options.buffers = max(1, int(value[:6]))
    elif name == "inplace":
        options.in_place = value == "1"


def _add(
    values: dict[str, float | None], options: Options, place: str, samples: list[Sample]
) -> str:
    """Add the sample of a row, or say why there is none."""
    size, time = values.get("bytes"), values.get("t_max")
    if options.why:
        return options.why
    if not options.ranks:
        return "the heading with the number of processes is missing"
    parts = options.ranks if options.operation in PARTS else 1
    if size is None or size * parts > LARGEST_MESSAGE:
        return "a message size that cannot be"
    seconds = (time or 0.0) * 1e-6 / options.buffers
    if not usable(seconds):
        return "no usable time"
    deviation = values.get("stddev")
    samples.append(Sample(
        options.operation,
        size / options.buffers * parts,
        seconds,
        options.ranks,
        in_place=options.in_place,
        iterations=int(min(values.get("repetitions") or 0, 1e9)) or None,
        dtype=options.dtype,
        window=options.buffers,
        spread=None if deviation is None else deviation / 100,
        library="ccl",
        memory=options.memory,
        where=place,
    ))  # fmt: skip
    return ""


def _table(text: str, path: str) -> Reading:
    """Return the samples of the CSV."""
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    try:
        _, rows = csv_of(text, path)
        for line_number, row in rows:
            values = {_UNIT.sub("", key).lstrip("#"): number(value) for key, value in row.items()}
            ranks, buffers = values.get("ranks"), values.get("buffers") or 1.0
            options = Options(
                OPERATIONS.get(row.get("collective", ""), ""),
                int(ranks) if ranks and ranks < 2**31 else None,
                int(max(1.0, min(buffers, 1e6))),
                row.get("dtype", "")[:20],
                why="" if row.get("collective", "") in OPERATIONS else "nothing that is priced",
            )
            size = values.get("message_size")
            values["bytes"] = None if size is None else size * options.buffers
            if reason := _add(values, options, f"{path}:{line_number}", samples):
                skipped.append((line_number, reason))
    except SpecError as error:
        (fault,) = error.faults
        raise InputError(path, fault.place.line, fault.what, fault.hint) from None
    machine: dict[str, Any] = {"tool": "oneCCL benchmark"}
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped))
