"""What `oracle measure storage` wrote: JSON lines, appended as samples are measured.

The first line is the header, `{"oracle-storage": 1, ...}`: tool, date, kind ("shared" files, or
the "local" disks of a node), file_system, machine (an object of facts). Every other line is a
sample with the fields of `StorageSample`, or the end mark `{"end": "complete"}`. NaN, a negative
number, an unknown key: the file is refused, with the line. A last line that was cut off is skipped.
"""

from __future__ import annotations

from typing import Any

from oracle.readers.logs import InputError, Reading
from oracle.readers.storage_samples import OPERATIONS, StorageSample, usable
from oracle.spec.strict_json import Unfit, loads

TITLE = "an oracle measurement of storage"
PRECEDENCE = 1
MARK = "oracle-storage"
HEADER = frozenset((MARK, "tool", "date", "kind", "file_system", "machine"))
KEYS = frozenset(StorageSample._fields) - {"where"} | {"repeats"}


def recognises(text: str) -> bool:
    """A first line that is our header."""
    return f'"{MARK}"' in text[:4096].split("\n", 1)[0]


def parse(text: str, path: str) -> Reading:
    """Every sample of the file."""
    lines = text.split("\n")
    header = _object(lines[0], path, 1) or {}
    if header.get(MARK) != 1:
        raise InputError(path, 1, "this is not version 1 of our measurements", "update oracle")
    _known(header, HEADER, path, 1)
    machine = {key: value for key, value in header.items()
               if key != MARK and isinstance(value, str)}  # fmt: skip
    if machine.get("kind", "shared") not in ("shared", "local"):
        raise InputError(path, 1, "`kind` is shared or local", "measure it again")
    samples: list[StorageSample] = []
    skipped: list[tuple[int, str]] = []
    ended = False
    for at, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        data = _object(line, path, at, last=at == len(lines))
        if data is None:
            skipped.append((at, "the line is cut off: the run was killed while it was written"))
        elif "end" in data:
            ended = data["end"] == "complete"
        else:
            _known(data, KEYS, path, at)
            samples.append(_sample(data, path, at))
    if not ended:
        skipped.append((len(lines), "no end mark: the run did not finish"))
    return Reading(path, TITLE, machine=machine, skipped=tuple(skipped), storage=tuple(samples))


def _object(line: str, path: str, at: int, last: bool = False) -> dict[str, Any] | None:
    try:
        data = loads(line)
    except Unfit as error:
        raise InputError(path, at, str(error), "a measurement holds finite numbers") from None
    except (ValueError, RecursionError):
        if last:
            return None
        raise InputError(path, at, "this line is not JSON", "one object a line") from None
    if not isinstance(data, dict):
        raise InputError(path, at, "this line is not an object", "one object a line")
    return data


def _known(data: dict[str, Any], keys: frozenset[str], path: str, at: int) -> None:
    for key in data:
        if key not in keys:
            hint = f"known: {', '.join(sorted(keys))}"
            raise InputError(path, at, f"nobody knows the key `{key[:40]}`", hint)


def _sample(data: dict[str, Any], path: str, at: int) -> StorageSample:
    said = {key: value for key, value in data.items() if key != "repeats"}
    numbers = {key: said.get(key) for key in ("per_second", "size", "latency") if key in said}
    counts = {key: said.get(key) for key in ("threads", "nodes")}
    marks = {key: said.get(key, False) for key in ("cached", "least")}
    good = (
        said.get("operation") in OPERATIONS
        and "per_second" in said
        and all(type(each) in (int, float, type(None)) for each in numbers.values())
        and all(type(each) in (int, type(None)) for each in counts.values())
        and all(type(each) is bool for each in marks.values())
        and None not in (said["per_second"], said.get("size", 0.0))
    )
    one = StorageSample(**said, where=f"{path}:{at}") if good else None
    if one is None or not usable(one):
        raise InputError(path, at, "this is no rate of storage", "measure it again")
    return one
