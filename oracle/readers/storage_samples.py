"""Measured rates of files and of operations on them, printed by tools of storage.

| operation | what is counted |
| `read`, `write` | blocks of open files |
| `files` | files opened, read whole and closed: samples, as a loader reads them |
| `stat`, `open`, `create`, `remove` | operations on names; `open` closes again and reads nothing |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from oracle.spec.units import show

OPERATIONS = ("read", "write", "files", "stat", "open", "create", "remove")
DATA = ("read", "write", "files")  # operations that move bytes
FASTEST, LARGEST = 1e15, 2.0**62  # operations a second, and bytes of one: larger numbers are noise

_QUANTITY = re.compile(
    r"(\d{1,18}(?:\.\d{1,9})?)\s*([kKMGTP]?)(i?)(B|bit|b)?(?:/s(?:ec)?)?", re.ASCII
)
_SCALE = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class StorageSample(NamedTuple):
    """A rate of all nodes and threads together."""

    operation: str  # of OPERATIONS
    per_second: float
    size: float = 0.0  # bytes of one
    threads: int | None = None  # of one node, each waiting for its own; None: nobody says
    nodes: int | None = None
    latency: float | None = None  # seconds of one, as the tool timed it
    cached: bool = False  # the memory of the node may have served it
    least: bool = False  # the tool waited for something else: storage may have more
    where: str = ""  # file:line

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.per_second * self.size

    @property
    def words(self) -> str:
        """Return the measurement in a line."""
        subject = f"{self.operation} of {show(self.size, 'B')}" if self.size else self.operation
        concurrency = "" if self.threads is None else f", {self.threads} at once"
        on_nodes = "" if self.nodes is None else f" on {self.nodes} node" + "s" * (self.nodes > 1)
        return f"{subject}{concurrency}{on_nodes}: {self.per_second:.4g}/s"


def usable(sample: StorageSample) -> bool:
    """Return whether the numbers of a sample can be a rate of storage."""
    counts = (sample.threads, sample.nodes)
    return (
        1e-9 < sample.per_second < FASTEST
        and (1 <= sample.size < LARGEST if sample.operation in DATA else sample.size == 0)
        and all(count is None or 0 < count < 2**31 for count in counts)
        and (sample.latency is None or 1e-12 < sample.latency < 1e9)
        and sample.rate < FASTEST * 1e3
    )


def quantity(text: str, plain: int = 1000) -> float | None:
    """Return a number as storage tools print it, bits as bytes: `78.2MiB/s`, `20.0k`; or None.

    A prefix without `i` counts in thousands, or in `plain` for tools that count otherwise.

    >>> quantity("4KiB"), quantity("20.0k"), quantity("2007KB/s", 1024), quantity("nan")
    (4096.0, 20000.0, 2055168.0, None)
    """
    match = _QUANTITY.fullmatch(text.strip()[:60])
    if match is None:
        return None
    number, prefix, binary, unit = match.groups(default="")
    base = 1024 if binary else plain
    value = float(number) * float(base) ** _SCALE[prefix]
    return value / 8 if unit in ("bit", "b") else value


def joined(samples: Iterable[StorageSample]) -> StorageSample:
    """Return jobs that ran at once as one sample: rates and threads add up, latencies do not."""
    parts = list(samples)
    first, total = parts[0], sum(part.per_second for part in parts)
    threads = [part.threads for part in parts if part.threads is not None]
    timed = [(part.latency, part.per_second) for part in parts if part.latency is not None]
    latency = sum(t * n for t, n in timed) / sum(n for _, n in timed) if timed else None
    return first._replace(
        per_second=total,
        size=sum(part.rate for part in parts) / total,
        threads=sum(threads) if len(threads) == len(parts) else None,
        latency=latency if len(timed) == len(parts) else None,
        cached=any(part.cached for part in parts),
    )


def finite(value: object) -> float:
    """Return a number of a JSON document if it is above zero, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < math.inf else 0.0
