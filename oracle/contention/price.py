"""Lines: the price of an operation by every algorithm on offer, on a system as it is known.

Where a system carries calibrated entries they set α and β, and the network only says how much
fuller its fullest link gets than it was when measured. Elsewhere the datasheet's links are laid
out, with NCCL's public constants [nccl] for the devices that it serves: then `origin` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from math import log
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from oracle import nccl
from oracle.collectives import ALGORITHMS, Algorithm, Steps, menu, named
from oracle.contention.groups import Groups, Pattern
from oracle.contention.loads import toll
from oracle.contention.toll import Toll
from oracle.specs import Calibrated, System
from oracle.topology import Topology, of


@dataclass(frozen=True, slots=True)
class Line:
    """The price of one operation by one algorithm: start + per_byte · m seconds."""

    algorithm: str
    start: float
    per_byte: float  # seconds per byte of the message
    phi: float = 1.0  # how many times slower than if each flow had its links to itself
    full: tuple[str, ...] = ()  # names of the links that set the pace
    origin: str = "datasheet"  # or "fitted", "assumed"
    uncertainty: float = 0.3  # relative, one standard deviation


@dataclass(frozen=True, eq=False)
class Cost:
    """What a schedule costs on a network, before any latency is put in."""

    tolls: Sequence[Toll]
    start: float
    per_byte: float
    phi: float
    full: tuple[str, ...]
    again: float = 1.0  # how often the schedule is run

    def waits(self, latency: Any, chases: bool) -> float:
        """Seconds to start at the given α of each level."""
        once = (t.chased(latency) if chases else t.stepped(latency) for t in self.tolls)
        return self.again * sum(once)

    def times(self, count: float) -> Cost:
        """The same schedule run so many times."""
        if count == 1.0:
            return self
        return replace(self, start=self.start * count, per_byte=self.per_byte * count,
                       again=self.again * count)  # fmt: skip


def trace(
    topology: Topology, groups: Groups, schedule: Sequence[Steps], reduce: bool = True
) -> Cost:
    """What a schedule costs, every group running it at once.

        T = Σ_steps times · (max α + m · max over links of load / capacity)

    `full` names the links that set the pace of a tenth of the time or more.
    """
    return traces(topology, groups, [schedule], reduce)[0]


def traces(
    topology: Topology, groups: Groups, schedules: Sequence[Sequence[Steps]], reduce: bool = True
) -> list[Cost]:
    """Several schedules of the same groups, counted in one go."""
    tolls = iter(toll(topology, groups, [s for each in schedules for s in each], reduce))
    return [_cost(topology, [next(tolls) for _ in each]) for each in schedules]


def _cost(topology: Topology, tolls: list[Toll]) -> Cost:
    start = sum(float(t.times @ t.alpha) for t in tolls)
    solo = sum(float(t.times @ t.solo) for t in tolls)
    shared = np.concatenate([t.times * t.shared for t in tolls])
    worst = np.concatenate([t.worst for t in tolls])
    per_byte = float(shared.sum())
    full: dict[str, float] = {}
    for link, seconds in zip(worst.tolist(), shared.tolist(), strict=True):
        if link < topology.links:
            name = topology.labels[link]
            full[name] = full.get(name, 0.0) + seconds
    pace = sorted(full, key=lambda name: -full[name])
    return Cost(tolls, start, per_byte, per_byte / solo if solo else 1.0,
                tuple(name for name in pace if full[name] >= 0.1 * per_byte))  # fmt: skip


_KNOWN: WeakKeyDictionary[System, dict[object, Any]] = WeakKeyDictionary()
NOTHING = (Line("none", 0.0, 0.0, uncertainty=0.0),)
Key: TypeAlias = tuple[object, ...]


def lines(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> tuple[Line, ...]:
    """Every algorithm on offer (or the named one) for groups of `pattern` among `devices`."""
    known = _KNOWN.setdefault(system, {})
    key: Key = ("lines", op, pattern, devices, algorithm)
    if key not in known:
        groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
        known[key] = tuple(_lines(system, op, groups, algorithm)) if groups.p > 1 else NOTHING
    found: tuple[Line, ...] = known[key]
    return found


def alone(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> tuple[Line, ...]:
    """The ideal: the ring's closed form with α and β of the lowest level that spans the group.

    No other group talks (φ = 1), one link of that level carries each flow [kahira2021].
    """
    known = _KNOWN.setdefault(system, {})
    key: Key = ("alone", op, pattern, devices, algorithm)
    if key not in known:
        groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
        known[key] = (_ideal(system, op, groups, algorithm),) if groups.p > 1 else NOTHING
    found: tuple[Line, ...] = known[key]
    return found


def _ideal(system: System, op: str, groups: Groups, algorithm: str | None) -> Line:
    plain = {"alltoall": "pairwise", "sendrecv": "direct", "halo": "pairwise"}
    by = named(op, algorithm or plain.get(op, "ring"))
    level = system.levels[spanning(system, groups)]
    return Line(by.name, float(by.steps(groups.p)) * level.latency,
                float(by.volume(groups.p)) / level.bandwidth, 1.0, (level.name,))  # fmt: skip


def spanning(system: System, groups: Groups) -> int:
    """The lowest level that holds every group whole."""
    reach, last = int(groups.offsets[-1]), len(system.levels) - 1
    for depth, level in enumerate(system.levels):
        even = level.devices % groups.block == 0 or groups.devices <= level.devices
        if reach < level.devices and even:
            return depth
    return last


def node(system: System) -> int:
    """Devices that share a node: those of the innermost level, unless that is a network."""
    inner = system.levels[0]
    return inner.devices if inner.kind in ("switch", "mesh", "pcie") else 1


def _lines(system: System, op: str, groups: Groups, algorithm: str | None) -> Iterator[Line]:
    inner = groups.inner(node(system))
    fitted = list(_fitted(system, op, groups, inner, algorithm))
    if fitted:
        yield from fitted
        return
    served = nccl.serves(system)
    reach = nccl.reach(system) if served else ()
    bare = of(system, groups.devices, reach)
    offer = _offer(op, groups.p, inner, algorithm, served)
    both = ALGORITHMS[op].get("bidirectional_ring")
    if both and not algorithm and not bare.tree and both.fits(groups.p):
        offer = [*offer, both]  # neighbours have a link each way there
    costs = _costs(system, bare, groups, inner, offer, reach)
    if served:
        costs = _as_chosen(offer, costs, groups.p)
    for by, cost in zip(offer, costs, strict=True):
        yield from _priced(system, op, by, cost, bare, served)
    optical = [f for f in bare.fabrics if f.kind == "optical"]
    if optical:  # and once more with circuits set, for what is worth the wait
        lit = of(system, groups.devices, reach, circuits=True)
        wait = sum(getattr(f, "setting", 0.0) for f in optical)
        costs = _costs(system, lit, groups, inner, offer, (*reach, True))
        for by, cost in zip(offer, costs, strict=True):
            for line in _priced(system, op, by, cost, lit, served):
                yield replace(line, algorithm=f"{line.algorithm} on circuits",
                              start=line.start + wait)  # fmt: skip


def _as_chosen(offer: Sequence[Algorithm], costs: list[Cost], p: int) -> list[Cost]:
    """Trees at no more than the bandwidth that NCCL's tuner grants them.

    It takes 0.92 of a ring's bus bandwidth and half of that for the way up and down, so large
    messages go round rings also where a tree between two nodes would be faster [nccl].
    """
    rings = [cost for by, cost in zip(offer, costs, strict=True) if by.name in ("ring", "rings")]
    if not rings:
        return costs
    least = min(cost.per_byte for cost in rings) * p / (p - 1) / 0.92
    return [
        replace(cost, per_byte=max(cost.per_byte, least)) if by.name == "double_tree" else cost
        for by, cost in zip(offer, costs, strict=True)
    ]


def _costs(
    system: System, topology: Topology, groups: Groups, inner: int, offer: Sequence[Algorithm],
    which: Key,
) -> list[Cost]:  # fmt: skip
    """What each algorithm costs; schedules that several operations share are counted once."""
    known = _KNOWN.setdefault(system, {})
    keys = [("cost", by.like[0] or by.op, by.name, groups.pattern, groups.devices, which)
            for by in offer]  # fmt: skip
    new = [k for k, key in enumerate(keys) if key not in known]
    bases = [ALGORITHMS[by.like[0]][by.name] if by.like[0] else by for by in offer]
    fresh = (
        traces(topology, groups, [bases[k].schedule(groups.p, inner) for k in new]) if new else []
    )
    for k, cost in zip(new, fresh, strict=True):
        known[keys[k]] = cost
    return [known[key].times(by.like[1]) for by, key in zip(offer, keys, strict=True)]


def _offer(op: str, p: int, inner: int, algorithm: str | None, served: bool) -> list[Algorithm]:
    if algorithm:
        by = named(op, algorithm)
        if not by.fits(p, inner):
            raise ValueError(f"{op} by {algorithm} does not serve {p} ranks, {inner} to a node")
        return [by]
    offer = menu(op, p, inner)
    if not served:
        return offer
    # NCCL knows rings and trees only, and its rings use every way out of a node
    drop = {"ring"} if any(by.name == "rings" for by in offer) else set()
    return [by for by in offer if by.name in nccl.KNOWN - drop] or offer


def _priced(
    system: System, op: str, by: Algorithm, cost: Cost, topology: Topology, served: bool
) -> Iterator[Line]:
    if not served:
        latency = topology.latency
        start = cost.start if topology.hop else cost.waits(latency, by.chases)
        yield Line(by.name, start, cost.per_byte, cost.phi, cost.full, "datasheet", 0.3)
        return
    for protocol in nccl.offered(by.name):
        base, part, hops = nccl.constants(by.name, protocol, topology.levels)
        yield Line(f"{by.name}/{protocol}", base + cost.waits(hops, by.chases),
                   cost.per_byte / part, cost.phi, cost.full, "assumed", 0.25)  # fmt: skip


def _fitted(
    system: System, op: str, groups: Groups, inner: int, algorithm: str | None
) -> Iterator[Line]:
    """Lines from calibrated entries: measured α and β, and the φ of these groups on top."""
    p = groups.p
    for entry, doubt in _entries(system, op, groups, algorithm):
        form = named(op, entry.algorithm)
        now = _load(system, op, _as_run(system, op, entry.algorithm, p, inner), groups, inner)
        was, packed = _measured(system, op, entry, p)
        start = entry.base + _counted(form, "steps", p, inner) * entry.latency
        slope = _counted(form, "volume", p, packed) / entry.bandwidth * now.per_byte / was.per_byte
        known = [entry.uncertainty.get(name, 0.0) for name in ("bandwidth", "residual")]
        yield Line(entry.algorithm, start, slope, now.phi, now.full, "fitted",
                   min(1.0, doubt + max(0.03, *known)))  # fmt: skip


def _measured(system: System, op: str, entry: Calibrated, p: int) -> tuple[Cost, int]:
    """What an entry's algorithm cost as it was measured: packed on whole nodes, nobody else.

    With `concurrency` groups at once they were dealt round the ranks.
    """
    apart = max(1, round(entry.concurrency))
    known = _KNOWN.setdefault(system, {})
    key: Key = ("measured", op, entry.algorithm, p, apart)
    if key not in known:
        then = Groups(((p, apart),), p * apart)
        packed = then.inner(node(system))
        by = _as_run(system, op, entry.algorithm, p, packed)
        known[key] = _load(system, op, by, then, packed), packed
    found: tuple[Cost, int] = known[key]
    return found


def _load(system: System, op: str, by: Algorithm, groups: Groups, inner: int) -> Cost:
    """What an algorithm costs on the bare network, remembered."""
    return _costs(system, of(system, groups.devices), groups, inner, [by], ())[0]


def _as_run(system: System, op: str, name: str, p: int, inner: int) -> Algorithm:
    """The schedule behind a measured name.

    Rings take every way out of a node that they can; where the library is known to have rings
    and trees only, a line that some other form fits best was a tree.
    """
    by, offer = named(op, name), ALGORITHMS[op]
    if name not in ("ring", "rings") and "double_tree" in offer and nccl.serves(system):
        by = offer["double_tree"]
    elif name in ("ring", "rings"):
        by = offer.get("rings", by)
    return by if by.fits(p, inner) else offer.get("ring", by)


@cache
def _by_node(kind: type[Algorithm]) -> bool:
    return "q" in signature(kind.steps).parameters


def _counted(by: Algorithm, what: str, p: int, inner: int) -> float:
    """Steps or volume among p ranks, `inner` of them to a node."""
    count = getattr(by, what)
    return float(count(p, inner) if _by_node(type(by)) and what != "reduced" else count(p))


def _entries(
    system: System, op: str, groups: Groups, algorithm: str | None
) -> Iterator[tuple[Calibrated, float]]:
    """Entries that speak for these groups, one a protocol, and how much to doubt them besides.

    An entry of a level serves that level and those above without their own; what was measured
    inside a node says nothing of the way out of it. A ring of another operation that runs the
    same way round serves an operation that has no entry.
    """
    names = [level.name for level in system.levels]
    at = spanning(system, groups)
    kin = {"allgather": "allreduce", "reduce_scatter": "allreduce"}
    for source, doubt in ((op, 0.0), (kin.get(op, ""), 0.1)):
        mine = [e for e in system.collectives if e.op == source and names.index(e.level) <= at]
        if algorithm:
            mine = [e for e in mine if e.algorithm == algorithm]
        if doubt:
            mine = [e for e in mine if e.algorithm in ("ring", "rings")]
        highest = max((names.index(e.level) for e in mine), default=-1)
        if highest < 0 or (highest == 0 and at > 0):
            continue
        best: dict[str, tuple[float, Calibrated]] = {}
        for entry in mine:
            if names.index(entry.level) != highest:
                continue
            low, high = (*entry.ranks, groups.p, groups.p)[:2]
            away = max(0.0, log(low / groups.p), log(groups.p / high))
            key = f"{entry.algorithm} {entry.protocol}"
            if key not in best or away < best[key][0]:
                best[key] = away, entry
        for away, entry in best.values():
            yield entry, doubt + 0.05 * away + 0.05 * (at - highest)
        return
