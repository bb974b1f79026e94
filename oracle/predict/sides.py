"""What each partition of a job on unlike devices does in a step, and how long it waits.

It names `on`, which says the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.spec.device import Device
from oracle.spec.partitions import Part, parts
from oracle.spec.system import System


@dataclass(frozen=True, slots=True)
class Side:
    """One partition under one plan, where a plan has several."""

    number: int  # of the system's partitions
    name: str
    device: str
    devices: int
    samples: float  # of a replica's batch
    micro_batches: int
    busy: float  # seconds of a step in passes and update, of its busiest device
    mean: float  # and of all its devices on average
    waits: float  # the busiest one's rest: for messages, for other stages, for other partitions
    memory: float  # bytes of its fullest device
    capacity: float
    bounds: bool  # it is the busiest of all

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def jobs(system: System, plan: Plan) -> Iterator[tuple[Array, tuple[Part, ...]]]:
    """Rows of plans that run on the same partitions, and these, in the order of their ranks."""
    on = plan.axis("on")
    first, kind = distinct(np.hstack([on.parts, plan.devices]))
    for number, row in enumerate(first.tolist()):
        order = on.order(row)
        named_partitions = () if any(n > len(system.partitions) for n in order) else order
        every, devices = parts(system, named_partitions), plan.devices[row, 0]
        used = tuple(part.number for part in every if part.first < devices)
        yield np.flatnonzero(kind == number), parts(system, used)


def parts_of(system: System, plan: Plan) -> tuple[Part, ...]:
    """The partitions that one plan runs on, in the order of its ranks; of none nothing."""
    return next(jobs(system, plan))[1] if system.partitions else ()


def machine_of(system: System, plan: Callable[[], Plan], question: str) -> System:
    """The machine that one plan runs on: refused where what is asked is told of one alone."""
    job = parts_of(system, plan()) if system.partitions else ()
    if len(job) > 1:
        system.need_alike(question)
    return job[0].view if job else system


def peaks(system: System, plans: list[Plan], computed_in: Callable[[Device], str]) -> Array:
    """FLOP/s of the mean device of each plan, by its datasheet; one for all of equal devices."""
    if not system.partitions:
        return np.array(system.device.peak[computed_in(system.device)])
    mean_peaks = []
    for plan in plans:
        ((_, job),) = jobs(system, plan)
        count = [min(part.devices, plan.devices[0, 0] - part.first) for part in job]
        part_peaks = [part.view.device.peak[computed_in(part.view.device)] for part in job]
        mean_peaks.append(np.average(part_peaks, weights=count))
    return np.array(mean_peaks)
