"""The extended roofline of a plan: FLOP against bytes of memory, network and storage.

A row of a network, or a whole step, cannot be faster than each of its four roofs [williams2009;
farrell2021, §IV for network and storage]:

    t ≥ FLOP/peak,   t ≥ bytes through memory/bandwidth,   t ≥ bytes sent/what links give them,
    t ≥ bytes read/what storage gives a device

The highest of them binds. Bytes through memory are counted once for every operand of a kernel,
however often a kernel really moves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models.shard import Array
from oracle.network.collectives import plain
from oracle.predict.estimate import Estimate
from oracle.predict.exchange import Priced
from oracle.predict.local_work import local
from oracle.predict.workload import Workload, rows_of, workload
from oracle.spec.tabular import Tabular

ROOFS = ("compute", "memory", "network", "storage")


@dataclass(frozen=True, slots=True)
class Roofed:
    """A row of the network, or the whole step, on one device under its four roofs."""

    name: str
    kind: str  # of layer; `step` of all together
    shape: str  # of what goes in and comes out, uncut
    count: int  # rows alike, on the stage that sets the pace
    seconds: float  # predicted, in an iteration: of a row, its kernels alone
    amounts: dict[str, float]  # by roof: FLOP, then bytes
    roofs: dict[str, float]  # seconds that each roof leaves at least

    @property
    def binds(self) -> str:
        """The highest roof."""
        return max(self.roofs, key=lambda roof: self.roofs[roof])

    @property
    def share(self) -> float:
        """Of what its roof allows, what is reached: 1 at the roof.

        Beyond it only where an algorithm saves products, as Winograd's does.
        """
        roof = self.roofs[self.binds]
        taken = self.seconds if self.binds in ("compute", "memory") else max(self.seconds, roof)
        return roof / taken if taken else 0.0

    @property
    def attained(self) -> float:
        """FLOP a second."""
        return self.amounts["compute"] / self.seconds if self.seconds else 0.0

    def intensity(self, roof: str) -> float | None:
        """FLOP for each byte that passes under a roof; None where none does."""
        return self.amounts["compute"] / self.amounts[roof] if self.amounts[roof] else None

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        amounts = dict(zip(("flop", "memory", "network", "storage"), self.amounts.values(),
                           strict=True))  # fmt: skip
        return {
            "name": self.name, "kind": self.kind, "shape": self.shape, "count": self.count,
            "seconds": self.seconds,
            **amounts, "intensity": {roof: self.intensity(roof) for roof in ROOFS[1:]},
            "roofs": dict(self.roofs), "binds": self.binds, "share": self.share,
            "attained": self.attained,
        }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Roofline(Tabular):
    """A plan under its roofs: the whole step, and its rows, the longest first."""

    plan: str
    step: Roofed
    each: tuple[Roofed, ...]
    peak: float  # FLOP/s
    bandwidth: float  # B/s of a device's memory

    def says(self) -> str:
        """What binds the step, and how much of that roof it reaches."""
        return f"{self.plan}: bound by {self.step.binds}, {self.step.share:.0%} of that roof"

    def to_dict(self) -> list[dict[str, Any]]:
        """The step, then its rows."""
        return [one.to_dict() for one in (self.step, *self.each)]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for the step and for each row."""
        return [
            {"plan": self.plan, **{k: v for k, v in one.items() if not isinstance(v, dict)},
             **{f"roof.{roof}": seconds for roof, seconds in one["roofs"].items()}}
            for one in self.to_dict()
        ]  # fmt: skip


def roofline(shown: Estimate, row: int = 0) -> Roofline:
    """One plan of an estimate under its roofs."""
    work, system, options = shown.work[row], shown.machine("a roofline", row), shown.options
    model = shown.model.under(options.software.kernels)
    load = workload(rows_of(model, system, work.plan, options), options, work.edges)
    seconds, flop, moved = local(load)
    talks = [priced for priced, _ in work.messages if priced.meshed]
    sent, sending = _sent(load, talks, work.at)
    read, reading = _read(shown, row, model)
    peak = system.device.peak[shown.computed_in(system.device)]
    amounts = np.array([flop, moved, sent, read])
    roofs = np.array([flop / peak, moved / system.device.memory_bandwidth, sending, reading])
    stage = int(work.block.step.stage[work.row])
    counts = np.array([load.stages.total(np.eye(len(model))[i : i + 1])[0, stage]
                       for i in range(len(model))])  # fmt: skip
    borders = _borders(talks, work.at, stage)
    step = Roofed(
        "step", "step", "", 1, float(shown.seconds[row]), _by_roof(amounts @ counts + borders[0]),
        _by_roof(roofs @ counts + borders[1]),
    )  # fmt: skip
    rows = [
        Roofed(one.name, one.kind, f"{one.given} → {one.made}", int(count),
               float(seconds[i] * count), _by_roof(amounts[:, i] * count),
               _by_roof(roofs[:, i] * count))
        for i, (one, count) in enumerate(zip(model.rows, counts, strict=True))
        if count
    ]  # fmt: skip
    longest = sorted((one for one in rows if one.seconds), key=lambda one: -one.seconds)
    return Roofline(shown.plans[row], step, tuple(longest), peak, system.device.memory_bandwidth)


def _by_roof(values: Array) -> dict[str, float]:
    return dict(zip(ROOFS, map(float, values), strict=True))


def _sent(load: Workload, talks: list[Priced], at: int) -> tuple[Array, Array]:
    """Bytes each row sends in an iteration, and the seconds that links need for them."""
    size = len(load.shard.model)
    sent, seconds = np.zeros(size), np.zeros(size)
    S = float(np.max(load.state.segments))
    for one in talks:
        line, message = one.line(at), one.message
        if line is None or one.when == "border":
            continue
        nbytes, calls = (_of_plan(values, at, size) for values in (message.nbytes, message.calls))
        often = S if message.when in ("forward", "backward") else 1.0
        each = nbytes * calls * often
        sent += each * _volume(one, at)
        seconds += each * line.per_byte
    return sent, seconds


def _borders(talks: list[Priced], at: int, stage: int) -> tuple[Array, Array]:
    """What a stage of a pipeline gets and gives at its borders, by roof: amounts and seconds."""
    sent = seconds = 0.0
    for one in talks:
        line = one.line(at)
        if line is not None and one.when == "border":
            whole = float(one.calls[at, min(stage, one.calls.shape[-1] - 1)])
            each = float(one.nbytes[at].max()) * whole
            sent, seconds = sent + each, seconds + each * line.per_byte
    return np.array([0.0, 0.0, sent, 0.0]), np.array([0.0, 0.0, seconds, 0.0])


def _of_plan(values: Any, at: int, size: int) -> Array:
    """One plan's row of values that are the same for all, or one row a plan."""
    rows = np.atleast_2d(values)
    return np.broadcast_to(rows[min(at, len(rows) - 1)], size)


def _volume(one: Priced, at: int) -> float:
    """Parts of a message that pass through a rank."""
    group = np.ravel(one.group)
    return float(plain(one.message.op).volume(max(float(group[min(at, len(group) - 1)]), 1.0)))


def _read(shown: Estimate, row: int, model: Any) -> tuple[Array, Array]:
    """Bytes of samples that a device's share of the batch has on disk, and seconds to get them."""
    read, seconds = np.zeros(len(model)), np.zeros(len(model))
    data, store = shown.model.dataset, shown.system.storage
    if data is not None and data.size and store is not None and store.shared is not None:
        devices = float(shown.devices[row])
        read[0] = float(shown.batch[row]) * data.size / data.samples / devices
        seconds[0] = read[0] * devices / store.shared.bandwidth
    return read, seconds
