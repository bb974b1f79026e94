"""Whether rates of files can be those of a system's storage, and of one and the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.calibration.storage import kind_of
from oracle.calibration.trust import TOLERANCE, Concern
from oracle.readers.logs import Reading
from oracle.readers.storage_samples import StorageSample
from oracle.spec.system import System
from oracle.spec.units import show

APART = (1.5, 3.0)  # times between equal samples, from which it is warned, refused


def concerns(readings: Sequence[Reading], system: System, told: str = "") -> list[Concern]:
    """What of these rates cannot be this system's storage, or not one and the same."""
    found = []
    for reading in readings:
        shared = kind_of(reading, told) == "shared"
        for one in reading.storage:
            found += _alone(one, system, shared)
    found += _apart([one for reading in readings for one in reading.storage])
    return found


def _alone(one: StorageSample, system: System, shared: bool) -> list[Concern]:
    path, _, line = one.where.rpartition(":")
    nodes = max(1, system.devices // system.node)
    if one.nodes and one.nodes > nodes:
        what = f"it ran on {one.nodes} nodes, and {system.name} has {nodes}"
        return [Concern(what, path, int(line), "refuse", "name the system that was measured")]
    level = next((each for each in system.levels if each.link == "network"), None)
    if not shared or level is None or not one.nodes or one.cached or one.operation == "write":
        return []
    ports = level.bandwidth * max(1.0, level.ports or system.node) * (1 + TOLERANCE)
    if one.rate / one.nodes > ports:
        what = (f"{show(one.rate / one.nodes, 'B/s')} came to a node, whose network carries "
                f"{show(ports / (1 + TOLERANCE), 'B/s')}")  # fmt: skip
        advice = "memory served it, or its own disks: read more, or say --files local"
        return [Concern(what, path, int(line), "refuse", advice)]
    return []


def _apart(samples: Sequence[StorageSample]) -> list[Concern]:
    """Equal questions with answers far apart: two storages, or others at work on it."""
    by: dict[tuple[Any, ...], list[StorageSample]] = {}
    for one in samples:
        if one.threads is not None and not one.least:
            key = (one.operation, round(one.size), one.threads, one.nodes, one.cached)
            by.setdefault(key, []).append(one)
    found = []
    for equal in by.values():
        low, high = (pick(equal, key=lambda each: each.per_second) for pick in (min, max))
        times = high.per_second / low.per_second
        if times > APART[0]:
            path, _, line = high.where.rpartition(":")
            what = f"{high.words}, {times:.1f} times what {low.where} has of the same"
            severity = "refuse" if times > APART[1] else "warn"
            advice = "two storages, or others at work: give each its own"
            found.append(Concern(what, path, int(line), severity, advice))
    return found
