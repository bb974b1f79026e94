"""oneCCL's benchmark, text and CSV: one collective a table, on so many processes.

The time is that of the slowest process, `t_max`. `#bytes` is one process's part for what gathers
and exchanges; we count the whole. With several buffers (`buf_count`) so many calls are started
at once, and each row holds them all: it is kept as a stream of single calls.
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
    """What a run was asked for."""

    operation: str = ""
    ranks: int | None = None
    buffers: int = 1
    dtype: str = ""
    memory: str = ""
    in_place: bool | None = None
    why: str = "no table began"


def recognises(text: str) -> bool:
    """The heading of a table with its count of elements, or the columns of the CSV."""
    return (BEGIN in text and "#processes:" in text) or text.startswith(CSV)


def parse(text: str, path: str) -> Reading:
    """Samples of every table in a log."""
    if text.startswith(CSV):
        return _table(text, path)
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    options, columns, runs = Options(), tuple[str, ...](), Runs()
    for at, line in lines_of(text, skipped):
        line = unprefixed(line)
        fields = line.split()
        if line.startswith(BEGIN):
            runs.begin(at)
            names = line[len(BEGIN) :].split()
            known = OPERATIONS.get(names[0], "") if names else ""
            options.operation = known
            options.why = "" if known else f"nothing that is priced: {' '.join(names)[:40]}"
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
        elif found := _OPTION.match(line):
            _option(found[1], found[2], options)
        elif fields[0].isdecimal() and columns:
            runs.last = at
            said = dict(zip(columns, map(number, fields), strict=False))
            reason = "the row ends before its number" if len(fields) < 6 else ""
            reason = reason or _add(said, options, f"{path}:{at}", samples)
            if reason:
                skipped.append((at, reason))
        elif not line.lstrip().startswith("#") and ":" not in line:
            skipped.append((at, unknown_line(line)))
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


def _add(said: dict[str, float | None], options: Options, where: str, samples: list[Sample]) -> str:
    """Add the sample of a row, or say why there is none."""
    size, time = said.get("bytes"), said.get("t_max")
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
    deviation = said.get("stddev")
    samples.append(Sample(
        options.operation,
        size / options.buffers * parts,
        seconds,
        options.ranks,
        in_place=options.in_place,
        iterations=int(min(said.get("repetitions") or 0, 1e9)) or None,
        dtype=options.dtype,
        window=options.buffers,
        spread=None if deviation is None else deviation / 100,
        library="ccl",
        memory=options.memory,
        where=where,
    ))  # fmt: skip
    return ""


def _table(text: str, path: str) -> Reading:
    """Samples of the CSV."""
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    try:
        _, rows = csv_of(text, path)
        for at, row in rows:
            said = {_UNIT.sub("", key).lstrip("#"): number(value) for key, value in row.items()}
            ranks, buffers = said.get("ranks"), said.get("buffers") or 1.0
            options = Options(
                OPERATIONS.get(row.get("collective", ""), ""),
                int(ranks) if ranks and ranks < 2**31 else None,
                int(max(1.0, min(buffers, 1e6))),
                row.get("dtype", "")[:20],
                why="" if row.get("collective", "") in OPERATIONS else "nothing that is priced",
            )
            size = said.get("message_size")
            said["bytes"] = None if size is None else size * options.buffers
            if reason := _add(said, options, f"{path}:{at}", samples):
                skipped.append((at, reason))
    except SpecError as error:
        (fault,) = error.faults
        raise InputError(path, fault.place.line, fault.what, fault.hint) from None
    machine: dict[str, Any] = {"tool": "oneCCL benchmark"}
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped))
