"""Whether logs can be of a system at all: refused if not, with warnings where it is doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.calibration import trust
from oracle.calibration.storage import kind_of
from oracle.calibration.trust import TOLERANCE, Concern
from oracle.readers.logs import Reading
from oracle.readers.storage_samples import StorageSample
from oracle.spec.catalogue import system
from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.system import System
from oracle.spec.units import show

DOUBTFUL, REFUSED = 1.5, 3.0  # factors between equal samples that warn, and that refuse


def believed(readings: Sequence[Reading], onto: Any, files: str = "") -> str:
    """Warnings about logs, a line each; a SpecError where they are not of this system."""
    target = system(onto)
    concerns = [*trust.concerns(readings, target), *storage_concerns(readings, target, files)]
    faults = [Fault("E132", concern.words, Place()) for concern in concerns
              if concern.severity == "refuse"]  # fmt: skip
    if faults:
        raise SpecError(onto if isinstance(onto, str) else target.name, faults)
    return "\n".join(f"warning: {concern.words}" for concern in concerns)


def storage_concerns(readings: Sequence[Reading], system: System, files: str = "") -> list[Concern]:
    """Rates of files that cannot be of the system's storage, or not of one storage.

    Rates are of `files`, "shared" or "local", where the readings do not say.
    """
    concerns = []
    for reading in readings:
        shared = kind_of(reading, files) == "shared"
        for sample in reading.storage:
            concerns += _of_sample(sample, system, shared)
    return concerns + _disagreements([sample for reading in readings for sample in reading.storage])


def _of_sample(sample: StorageSample, system: System, shared: bool) -> list[Concern]:
    """What speaks against one sample: too many nodes, or more bytes than ports carry."""
    path, _, line = sample.where.rpartition(":")
    nodes = max(1, system.devices // system.node)
    if sample.nodes and sample.nodes > nodes:
        problem = f"it ran on {sample.nodes} nodes, and {system.name} has {nodes}"
        return [Concern(problem, path, int(line), "refuse", "name the system that was measured")]
    level = next((level for level in system.levels if level.link == "network"), None)
    if not shared or level is None or not sample.nodes or sample.cached:
        return []
    if sample.operation == "write":
        return []
    ports = level.bandwidth * max(1.0, level.ports or system.node)
    if sample.rate / sample.nodes > ports * (1 + TOLERANCE):
        problem = (f"{show(sample.rate / sample.nodes, 'B/s')} came to a node, whose network "
                   f"carries {show(ports, 'B/s')}")  # fmt: skip
        advice = "memory served it, or its own disks: read more, or say --files local"
        return [Concern(problem, path, int(line), "refuse", advice)]
    return []


def _disagreements(samples: Sequence[StorageSample]) -> list[Concern]:
    """Equal samples whose rates are far apart: two storages, or others at work on one."""
    alike: dict[tuple[Any, ...], list[StorageSample]] = {}
    for sample in samples:
        if sample.threads is not None and not sample.least:
            key = (sample.operation, round(sample.size), sample.threads, sample.nodes,
                   sample.cached)  # fmt: skip
            alike.setdefault(key, []).append(sample)
    concerns = []
    for equal in alike.values():
        low, high = (pick(equal, key=lambda sample: sample.per_second) for pick in (min, max))
        times = high.per_second / low.per_second
        if times > DOUBTFUL:
            path, _, line = high.where.rpartition(":")
            problem = f"{high.words}, {times:.1f} times what {low.where} has of the same"
            severity = "refuse" if times > REFUSED else "warn"
            advice = "two storages, or others at work: give each its own"
            concerns.append(Concern(problem, path, int(line), severity, advice))
    return concerns
