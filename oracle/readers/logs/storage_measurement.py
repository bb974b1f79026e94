"""Measurements of `oracle measure storage`: JSON lines, appended one by one.

The first line is the header, `{"oracle-storage": 1, ...}`: tool, date, kind ("shared" files, or
the "local" disks of a node), file_system, machine (an object of facts). Every other line is a
sample with the fields of `StorageSample`, or the end mark `{"end": "complete"}`. NaN, a negative
number, an unknown key: the file is refused, with the line. A last line that was cut off is skipped.
"""

from __future__ import annotations

from typing import Any

from oracle.readers.json_lines import check_keys, object_of
from oracle.readers.logs import InputError, Reading
from oracle.readers.storage_samples import OPERATIONS, StorageSample, usable

TITLE = "an oracle measurement of storage"
PRECEDENCE = 1
MARK = "oracle-storage"
HEADER = frozenset((MARK, "tool", "date", "kind", "file_system", "machine"))
KEYS = frozenset(StorageSample._fields) - {"where"} | {"repeats"}


def recognises(text: str) -> bool:
    """Return whether the first line is our header."""
    return f'"{MARK}"' in text[:4096].split("\n", 1)[0]


def parse(text: str, path: str) -> Reading:
    """Return every sample of the file."""
    lines = text.split("\n")
    header = object_of(lines[0], path, 1) or {}
    if header.get(MARK) != 1:
        raise InputError(path, 1, "this is not version 1 of our measurements", "update oracle")
    check_keys(header, HEADER, path, 1)
    machine = {key: value for key, value in header.items()
               if key != MARK and isinstance(value, str)}  # fmt: skip
    if machine.get("kind", "shared") not in ("shared", "local"):
        raise InputError(path, 1, "`kind` is shared or local", "measure it again")
    samples: list[StorageSample] = []
    skipped: list[tuple[int, str]] = []
    ended = False
    for line_number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        data = object_of(line, path, line_number, may_be_cut=line_number == len(lines))
        if data is None:
            skipped.append(
                (line_number, "the line is cut off: the run was killed while it was written")
            )
        elif "end" in data:
            ended = data["end"] == "complete"
        else:
            check_keys(data, KEYS, path, line_number)
            samples.append(_sample(data, path, line_number))
    if not ended:
        skipped.append((len(lines), "no end mark: the run did not finish"))
    return Reading(path, TITLE, machine=machine, skipped=tuple(skipped), storage=tuple(samples))


def _sample(data: dict[str, Any], path: str, line_number: int) -> StorageSample:
    fields = {key: value for key, value in data.items() if key != "repeats"}
    numbers = {key: fields.get(key) for key in ("per_second", "size", "latency") if key in fields}
    counts = {key: fields.get(key) for key in ("threads", "nodes")}
    marks = {key: fields.get(key, False) for key in ("cached", "least")}
    good = (
        fields.get("operation") in OPERATIONS
        and "per_second" in fields
        and all(type(value) in (int, float, type(None)) for value in numbers.values())
        and all(type(value) in (int, type(None)) for value in counts.values())
        and all(type(value) is bool for value in marks.values())
        and None not in (fields["per_second"], fields.get("size", 0.0))
    )
    sample = StorageSample(**fields, where=f"{path}:{line_number}") if good else None
    if sample is None or not usable(sample):
        raise InputError(path, line_number, "this is no rate of storage", "measure it again")
    return sample
