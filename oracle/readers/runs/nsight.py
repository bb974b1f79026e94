"""Exports of Nsight Systems as SQLite: `nsys export --type sqlite`.

`CUPTI_ACTIVITY_KIND_KERNEL` has kernels (`_MEMCPY` and `_MEMSET` have copies), `StringIds` their
names, `NVTX_EVENTS` the ranges that the program marked. Times are nanoseconds. Steps are ranges
whose names differ only in a number, `step 7` or `ProfilerStep#7`: those that cover most time.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from oracle.readers.logs import InputError
from oracle.readers.runs import RunLog
from oracle.readers.runs.timeline import Event, Span, measured
from oracle.spec.files import database

TITLE = "an Nsight Systems export (SQLite)"
PRECEDENCE = 1
BINARY = True
KERNELS, NVTX, STRINGS = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "StringIds"
COPIES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "memset"}
LARGEST = 2**22  # rows of a table that are read
_NUMBER = re.compile(r"\d+")
_STEP = re.compile(r"step|iter|batch", re.I)


def recognises(data: bytes) -> bool:
    return bytes(data[:15]) == b"SQLite format 3"


def parse(data: bytes, path: str) -> RunLog:
    try:
        with database(data) as connection:
            return _read(connection, path)
    except (sqlite3.Error, ValueError, OverflowError, TypeError) as error:
        complaint = f"this database cannot be read: {str(error)[:80]}"
        raise InputError(path, 0, complaint, "export it again") from None


def _read(connection: sqlite3.Connection, path: str) -> RunLog:
    tables = {
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
    }
    if KERNELS not in tables or STRINGS not in tables:
        raise InputError(path, 0, "no kernels are in this database", "profile with `-t cuda,nvtx`")
    strings = dict(_rows(connection, STRINGS, ("id", "value")))
    columns = _columns(connection, KERNELS)
    name_column = "demangledName" if "demangledName" in columns else "shortName"
    has_device = "deviceId" in columns
    devices: set[int] = set()
    events = []
    for begin, end, name, *device in _rows(
        connection, KERNELS, ("start", "end", name_column, *(["deviceId"] * has_device))
    ):
        devices.update(device)
        events.append(Event(str(strings.get(name, "")), *_span(begin, end)))
    for table, word in COPIES.items():
        if table in tables:
            events += [
                Event(word, *_span(*row)) for row in _rows(connection, table, ("start", "end"))
            ]
    if len(devices) > 1:
        raise InputError(path, 0, f"kernels of {len(devices)} devices in one export",
                         "one export of one rank")  # fmt: skip
    steps = _steps(connection, strings, tables)
    if not steps or not events:
        hint = 'torch.cuda.nvtx.range_push(f"step {i}") around each iteration'
        raise InputError(path, 0, "no steps are marked in this export", hint)
    return measured(path, TITLE, events, steps)


def _steps(connection: sqlite3.Connection, strings: dict[int, str], tables: set[str]) -> list[Span]:
    if NVTX not in tables:
        return []
    columns = _columns(connection, NVTX)
    wanted_columns = ["start", "end", "text", *(["textId"] * ("textId" in columns))]
    kinds: dict[str, list[Span]] = defaultdict(list)
    for begin, end, text, *number in _rows(connection, NVTX, wanted_columns):
        name = str(text or strings.get(number[0] if number else -1, ""))
        if end is not None and _NUMBER.search(name):
            kinds[_NUMBER.sub("#", name)].append(_span(begin, end))
    repeated = {name: spans for name, spans in kinds.items() if len(spans) > 1}
    step_like = {name: spans for name, spans in repeated.items() if _STEP.search(name)} or repeated
    return max(step_like.values(), key=lambda spans: sum(e - b for b, e in spans), default=[])


def _span(begin: float, end: float) -> Span:
    if not 0 <= begin <= end < 2**63:
        raise ValueError("a time that cannot be")
    return begin * 1e-9, end * 1e-9


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield columns of a table; the names are ours, never the file's."""
    yield from connection.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT {LARGEST}")
