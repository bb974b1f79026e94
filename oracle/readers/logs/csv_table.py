"""A user's CSV: a line of column names, then one measured call a line.

The operation, the bytes and a time are needed; a column's name may have its unit:

    operation        op, operation, collective
    bytes            bytes, size, message_bytes, …, as `readers.logs.OPERATIONS` counts them
    time             seconds, s, ms, us, ns, time_us, latency_ms, latency[us], …; or a rate:
                     algbw_GBps, bandwidth_GBps, bandwidth_MBps (10^9 and 10^6 bytes a second)
    ranks (gpus, processes), nodes, ranks_per_node (ppn), pairs (groups), window, iterations
    in_place, dtype, memory ("device", "host"), library (backend), algorithm, direction
    device (gpu), system (machine, platform, host): facts that must be the same in every row
    busbw and names that end in _derived, note, source, locator, quality: not read

An unknown column is refused by name: it may change what the numbers mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oracle.readers.logs import (
    LARGEST_MESSAGE,
    OPERATIONS,
    InputError,
    Reading,
    Sample,
    number,
    usable,
)
from oracle.spec.document import SpecError, suggest
from oracle.spec.files import csv_of

TITLE = "CSV with named columns"
PRECEDENCE = 1
SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6,
           "usec": 1e-6, "ns": 1e-9}  # fmt: skip
RATES = {"gbps": 1e9, "gb/s": 1e9, "mbps": 1e6, "mb/s": 1e6}  # bytes per second, as all tools do
NAMES = {  # the names that a column may have
    "operation": ("op", "operation", "collective"),
    "bytes": ("bytes", "size", "nbytes", "message_bytes", "message_size", "size_bytes", "msg_size"),
    "ranks": ("ranks", "gpus", "processes", "nprocs", "np", "world_size"),
    "nodes": ("nodes",),
    "ranks_per_node": ("ranks_per_node", "ppn", "gpus_per_node"),
    "pairs": ("pairs", "groups"),
    "window": ("window",),
    "iterations": ("iterations", "iters", "n_samples", "repetitions"),
    "in_place": ("in_place",),
    "dtype": ("dtype", "datatype", "type"),
    "memory": ("memory",),
    "library": ("library", "backend"),
    "algorithm": ("algorithm",),
    "direction": ("direction",),
    "device": ("device", "gpu"),
    "system": ("system", "machine", "platform", "host", "cluster"),
    "nccl": ("nccl_version",),
    "": ("note", "notes", "source", "locator", "quality", "comment", "busbw", "busbw_gbps",
         "message_elements", "elements", "count", "date", "software", "interconnect"),
}  # fmt: skip
KNOWN = {name: meaning for meaning, names in NAMES.items() for name in names}
ALIASES = {"all_reduce": "allreduce", "all_gather": "allgather", "all_to_all": "alltoall",
           "all-reduce": "allreduce", "all-gather": "allgather", "all-to-all": "alltoall",
           "reduce-scatter": "reduce_scatter", "reducescatter": "reduce_scatter",
           "bcast": "broadcast", "send_recv": "sendrecv", "p2p": "sendrecv",
           "pingpong": "sendrecv"}  # fmt: skip
SAME_IN_ALL = ("device", "system", "nccl")  # facts, the same in every row

_WORD = re.compile(r"[A-Za-z_][\w ./%\[\]()#-]{0,60}")
_TIME = re.compile(r"(?:(?:time|latency|t|t_avg|avg|mean|median)[ _]?)?[\[(]?(\w+?)[\])]?")
_RATE = re.compile(r"(algbw|bandwidth|bw)[ _]?[\[(]?(\w+(?:/s)?)[\])]?")


def recognises(text: str) -> bool:
    """Return whether the first line has names of columns, one of them known, and no number."""
    first = text[:4096].lstrip("\n\r").split("\n", 1)[0]
    names = [cell.strip().strip('"') for cell in first.split(",")]
    if len(names) < 2 or not all(_WORD.fullmatch(name) for name in names):
        return False
    meanings = {KNOWN.get(name.lower(), "") for name in names}
    return bool(meanings & {"operation", "bytes"})


def parse(text: str, path: str) -> Reading:
    """Return a sample of every row."""
    head = text[: len(text) - len(text.lstrip("\n\r"))].count("\n")
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    facts: dict[str, tuple[str, int]] = {}
    try:
        names, rows = csv_of(text.lstrip("\n\r"), path)
        columns, time = _columns(names, path, head + 1, text)
        for line_number, row in rows:
            cells = {meaning: row.get(name, "").strip() for name, meaning in columns.items()}
            _facts(cells, facts, path, line_number + head, text)
            sample = _row(
                cells, number(row.get(time[0], "").strip()), time, f"{path}:{line_number + head}"
            )
            if isinstance(sample, str):
                skipped.append((line_number + head, sample))
            else:
                samples.append(sample)
    except InputError:
        raise
    except SpecError as error:
        (fault,) = error.faults
        raise InputError(path, fault.place.line, fault.what, fault.hint) from None
    machine: dict[str, Any] = {"tool": "CSV"} | {key: value for key, (value, _) in facts.items()}
    devices = (facts["device"],) if "device" in facts else ()
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), devices=devices)


def _columns(
    names: list[str], path: str, line_number: int, text: str
) -> tuple[dict[str, str], tuple[str, float, bool]]:
    """Return meanings of columns by name, and name, unit and kind of the column of times."""
    columns: dict[str, str] = {}
    times: list[tuple[str, float, bool]] = []
    for name in names:
        low = name.strip().lower()
        meaning = KNOWN.get(low)
        if meaning is None and low.endswith("_derived"):
            continue
        if meaning is not None:
            columns[name] = meaning
        elif (match := _TIME.fullmatch(low)) and match[1] in SECONDS:
            times.append((name, SECONDS[match[1]], False))
        elif (match := _RATE.fullmatch(low)) and match[2] in RATES:
            times.append((name, RATES[match[2]], True))
        else:
            known_names = sorted({*KNOWN, "seconds", "time_us", "latency_ms", "bandwidth_GBps"})
            hint = f"{suggest(low, known_names, 'known')}; or leave the column out"
            complaint = (
                f"nobody knows the column `{name[:40]}`: it may change what the numbers mean"
            )
            raise InputError(path, line_number, complaint, hint, text)
    meanings = [meaning for meaning in columns.values() if meaning]
    for needed in ("operation", "bytes"):
        if needed not in meanings:
            hint = f"one of: {', '.join(NAMES[needed])}"
            raise InputError(path, line_number, f"there is no column of the {needed}", hint, text)
    doubled = next((m for m in meanings if meanings.count(m) > 1), "")
    if doubled:
        raise InputError(path, line_number, f"two columns are the {doubled}", "leave one out", text)
    times.sort(key=lambda column: column[2])
    if not times:
        hint = "seconds, time_us, latency_ms, …, or bandwidth_GBps"
        raise InputError(path, line_number, "there is no column of times", hint, text)
    if len(times) > 1 and not times[1][2]:
        complaint = f"two columns are times: `{times[0][0]}` and `{times[1][0]}`"
        raise InputError(path, line_number, complaint, "leave one out", text)
    return columns, times[0]


def _facts(
    cells: Mapping[str, str], facts: dict[str, tuple[str, int]], path: str, line_number: int,
    text: str,
) -> None:  # fmt: skip
    """Keep the facts that every row shares; refuse two machines in one table."""
    for key in SAME_IN_ALL:
        if value := cells.get(key, "")[:80]:
            first, line = facts.setdefault(key, (value, line_number))
            if first != value:
                complaint = (
                    f"line {line} is of the {key} `{first[:40]}`, this one of `{value[:40]}`"
                )
                raise InputError(path, line_number, complaint, "one machine a file: split it", text)


def _row(
    cells: Mapping[str, str], value: float | None, time: tuple[str, float, bool], place: str
) -> Sample | str:
    """Return the sample of a row, or why there is none."""
    operation = cells["operation"].lower()
    operation = ALIASES.get(operation, operation)
    size = number(cells["bytes"])
    if operation not in OPERATIONS:
        return f"nothing that is priced: {operation[:30]}"
    if size is None or size > LARGEST_MESSAGE:
        return "a message size that cannot be"
    _, unit, rate = time
    seconds = (value or 0.0) * unit
    if rate:
        seconds = size / seconds if seconds > 0 else 0.0
    if value is None or not usable(seconds):
        return "no usable time"
    counts: dict[str, int | None] = {}
    for key in ("ranks", "nodes", "ranks_per_node", "pairs", "window", "iterations"):
        count = number(cells.get(key, "")) if cells.get(key) else None
        if cells.get(key) and (count is None or count != int(count) or not 0 < count < 2**31):
            return f"`{key}` is no whole number above 0"
        counts[key] = None if count is None else int(count)
    ranks, nodes, inner = counts["ranks"], counts["nodes"], counts["ranks_per_node"]
    if nodes is None and ranks and inner and ranks % inner == 0:
        nodes = ranks // inner
    if inner is None and ranks and nodes and ranks % nodes == 0:
        inner = ranks // nodes
    placed = {"true": True, "1": True, "false": False, "0": False}.get(
        cells.get("in_place", "").lower()
    )
    return Sample(
        operation, size, seconds, ranks, nodes, inner, placed, counts["iterations"],
        counts["pairs"] or 1, cells.get("dtype", "")[:20], counts["window"] or 1,
        library=cells.get("library", "").lower()[:20] or ("nccl" if cells.get("nccl") else ""),
        memory=cells.get("memory", "").lower()[:20], algorithm=cells.get("algorithm", "")[:20],
        where=place, direction=cells.get("direction", "")[:20],
    )  # fmt: skip
