"""Cost of an operation by every algorithm on offer: measured where it can be, else modelled.

Calibrated entries of a system set α and β, and the network only says how much fuller its fullest
link gets than it was when they were measured. Elsewhere messages take the links that the datasheet
has, with NCCL's public constants [nccl] for the devices that it serves: then `origin` says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS, Algorithm, menu, named, plain
from oracle.network.contention.by_nodes import slowed
from oracle.network.contention.cached import Key, algorithm_costs, cache_of
from oracle.network.contention.counting.schedules import Cost
from oracle.network.contention.groups import (
    Pattern,
    RankGroups,
    closest_devices,
    seated,
    spanning_level,
)
from oracle.network.contention.in_switch import (
    NAMES,
    Way,
    bandwidth_shares,
    named_for,
    switch_lines,
    switch_menu,
)
from oracle.network.contention.library import as_tuned, factors, library_lines, terms
from oracle.network.contention.line import CostLine, Offer
from oracle.network.contention.measured import fitted, measured_at
from oracle.network.contention.offer_store import WORTH_STORING, store_of
from oracle.network.topology import Topology, network_of
from oracle.spec.document import SpecError
from oracle.spec.doubt import DATASHEET, SHORT
from oracle.spec.system import System

ALIASES = {"tree": "double_tree", "hd": "halving_doubling", "shd": "shifted_halving_doubling"}
NO_MESSAGE = Offer((CostLine("none", 0.0, 0.0, uncertainty=0.0, short=0.0, outside=False),))


def lines(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> Offer:
    """Return the line of every algorithm on offer to groups of `pattern` among `devices`.

    `algorithm` is a name, `best` or nothing for all on offer, `nccl` for what that library's public
    constants say, whatever is calibrated, or `nccl-2.17` for those of a version. Where a named
    algorithm does not serve, all are on offer.
    """
    cache = cache_of(system)
    key: Key = ("lines", op, pattern, devices, algorithm)
    if key not in cache:
        if devices < WORTH_STORING:
            cache[key] = _counted(system, op, pattern, devices, algorithm)
        else:
            store = cache.get("store") or cache.setdefault("store", store_of(system))
            question = json.dumps(key[1:])
            if (stored := store.get(question)) is None:
                stored = _counted(system, op, pattern, devices, algorithm)
                store.add(question, stored)
            cache[key] = stored
    offer: Offer = cache[key]
    return offer


def _counted(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None
) -> Offer:
    grown = with_room(system, devices)
    network, groups = seated(grown or system.bare, pattern, devices, op)
    if network is not grown and groups.device is None:  # the bare system remembers its own
        return lines(network, op, groups.pattern, devices, algorithm) if grown else Offer()
    if groups.p == 1:
        return NO_MESSAGE
    return Offer(_lines(_Call(network, op, groups, algorithm)) if grown else ())


def alone(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> Offer:
    """Return the ideal line: the ring's closed form at α and β of the level that spans the group.

    No other group talks (φ = 1), one link of that level carries each flow [kahira2021].
    """
    cache = cache_of(system)
    key: Key = ("alone", op, pattern, devices, algorithm)
    if key not in cache:
        grown = with_room(system, devices)
        network, groups = seated(grown or system.bare, pattern, devices, op)
        cache[key] = NO_MESSAGE if groups.p == 1 else Offer(
            [_ideal(network, op, groups, algorithm)] if grown else ())  # fmt: skip
    offer: Offer = cache[key]
    return offer


def with_room(system: System, devices: int) -> System | None:
    """Return the system, grown where a plan has more devices than it.

    Such a plan is refused, but not for being free. None where the shape of the network says how
    many devices there are: what reaches past it cannot be priced.
    """
    if devices <= system.devices:
        return system
    cache, key = cache_of(system), ("room", devices)
    if key not in cache:
        with suppress(SpecError):
            cache[key] = system.of_size(devices, grow=True)
    grown: System | None = cache.setdefault(key, None)
    return grown


def _ideal(system: System, op: str, groups: RankGroups, algorithm: str | None) -> CostLine:
    name = _fitting_name(op, algorithm, groups.p, 1)
    by = named(op, name) if name else plain(op)
    level = system.levels[spanning_level(system, groups)]
    start = float(by.steps(groups.p)) * level.latency
    per_byte = float(by.volume(groups.p)) / level.bandwidth
    return CostLine(by.name, start, per_byte, 1.0, (f"{level.name} links",))


@dataclass(frozen=True, eq=False)
class _Call:
    """An operation that groups of several ranks run, by the algorithm that a plan names, if any."""

    system: System
    op: str
    groups: RankGroups
    algorithm: str | None

    @cached_property
    def way(self) -> Way:
        inner = self.groups.inner(closest_devices(self.system))
        return Way(self.system, self.groups, inner)

    @cached_property
    def short(self) -> float:
        """1σ of what messages can only take longer, by what is known of the levels they cross."""
        crossed = self.system.levels[self.system.inside : self.way.last + 1]
        if not crossed:
            return SHORT["inside"]
        return SHORT["share" if all(level.share for level in crossed) else "between"]

    @cached_property
    def fixed(self) -> str | None:
        """The name of the algorithm that is taken whatever others cost; None: the fastest is."""
        return _fitting_name(self.op, self.algorithm, self.groups.p, self.way.inner)

    @cached_property
    def version(self) -> nccl.Version | None:
        return nccl.version_named(self.algorithm)

    @cached_property
    def by_constants(self) -> bool:
        """Whether the library's constants count alone, whatever was measured."""
        return self.algorithm == "nccl" or self.version is not None


def _lines(call: _Call) -> Iterator[CostLine]:
    """Yield a call's lines: in switches where those are named, as measured, or as modelled."""
    system, op, groups, way = call.system, call.op, call.groups, call.way
    if by := named_for(op, ALIASES.get(call.algorithm or "", call.algorithm or ""), way):
        yield from switch_lines(op, way, [by], nccl.NEWEST, call.short)
        return
    if call.by_constants:
        yield from _modelled(call)
        return
    corrected = nccl.serves(system) and factors(system, way.leaves) and not call.fixed
    if not corrected or measured_at(system, op, groups):
        measured = list(fitted(system, op, groups, way.inner, call.fixed))
        if measured:
            yield from measured
            return

    def model(system: System, op: str, groups: RankGroups) -> Iterator[CostLine]:
        return _modelled(_Call(system, op, groups, call.algorithm))

    yield from slowed(system, op, groups, model)


def _modelled(call: _Call) -> Iterator[CostLine]:
    """Yield the library's lines, or the datasheet's, of groups that have the network alone."""
    system, op, groups, way, short = call.system, call.op, call.groups, call.way, call.short
    version, corrected = call.version or nccl.NEWEST, factors(system, way.leaves)
    served = nccl.serves(system) or call.by_constants
    shares = bandwidth_shares(system, served)
    region_shares = tuple(bandwidth_shares(region.system, served) for region in system.regions
                          if region.system is not None)  # fmt: skip
    network = network_of(system, groups.reach, shares, region_shares=region_shares)
    offer = _offer(call, served)
    two_way = ALGORITHMS[op].get("bidirectional_ring")
    if two_way and not call.fixed and not network.tree and two_way.fits(groups.p):
        offer = [*offer, two_way]  # neighbours have a link each way there

    def priced(
        costs: list[Cost], network: Topology, version: nccl.Version = nccl.NEWEST
    ) -> Iterator[CostLine]:
        if not served:
            return (_by_datasheet(by, cost, network, short)
                    for by, cost in zip(offer, costs, strict=True))  # fmt: skip
        every_term = [
            term for by, cost in zip(offer, costs, strict=True)
            for term in terms(by, cost, network, groups.p, system.inside, way.leaves, version)
        ]  # fmt: skip
        return library_lines(system, op, every_term, groups.p, way.leaves, short)

    costs = algorithm_costs(system, network, groups, way.inner, offer, shares)
    if served and not corrected:
        costs = as_tuned(offer, costs, groups.p)
    yield from priced(costs, network, version)
    if nccl.serves(system) and not call.fixed and (call.by_constants or not corrected):
        yield from switch_lines(op, way, switch_menu(op, way, version), version, short)
    optical = [fabric for fabric in network.fabrics if fabric.kind == "optical"]
    if optical:  # and once more with circuits set, for what is worth the wait
        lit = network_of(system, groups.reach, shares, True, region_shares)
        wait = sum(getattr(fabric, "setting", 0.0) for fabric in optical)
        costs = algorithm_costs(system, lit, groups, way.inner, offer, (*shares, True))
        for line in priced(costs, lit):
            yield replace(line, algorithm=f"{line.algorithm} on circuits", start=line.start + wait)


def _fitting_name(op: str, name: str | None, p: int, inner: int) -> str | None:
    """The name of an algorithm where the operation has it and it fits; None otherwise.

    One name is given for a whole plan, whose operations need not all have it; a name that no
    operation has is a mistake.
    """
    if name in (None, "best", "nccl") or nccl.version_named(name):
        return None
    name = ALIASES.get(name, name)
    if name in NAMES:  # `named_for` has looked for switches that can
        return None
    names = {name for table in ALGORITHMS.values() for name in table}
    family, colon, number = name.partition(":")
    if family not in names:
        raise ValueError(f"no algorithm is called {name!r}; known: best, nccl, nccl-2.17, "
                         f"{', '.join(sorted(names | set(ALIASES)))}")  # fmt: skip
    by = ALGORITHMS.get(op, {}).get(family)
    if by is None:
        return None
    by = by.with_number(int(number)) if colon else by
    return name if by.fits(p, inner) else None


def _offer(call: _Call, served: bool) -> list[Algorithm]:
    """Algorithms to choose from."""
    if call.fixed:
        return named(call.op, call.fixed).choices(call.groups.p)
    offer = menu(call.op, call.groups.p, call.way.inner)
    return nccl.offered(offer, call.way.leaves) or offer if served else offer


def _by_datasheet(by: Algorithm, cost: Cost, topology: Topology, short: float) -> CostLine:
    latency = topology.latency
    start = cost.start if topology.hop else cost.start_at(latency, by.pipelined)
    return CostLine(by.name, start, cost.per_byte, cost.phi, cost.full, "datasheet", DATASHEET,
                    short)  # fmt: skip
