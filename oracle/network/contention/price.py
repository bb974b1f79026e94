"""Cost of an operation by every algorithm on offer: measured where it can be, else modelled.

Where a system carries calibrated entries they set α and β, and the network only says how much
fuller its fullest link gets than it was when measured. Elsewhere the datasheet's links are laid
out, with NCCL's public constants [nccl] for the devices that it serves: then `origin` says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS, Algorithm, menu, named, plain
from oracle.network.contention.by_nodes import slowed
from oracle.network.contention.cached import Key, algorithm_costs, cache_of
from oracle.network.contention.cost import Cost
from oracle.network.contention.groups import (
    Pattern,
    RankGroups,
    closest_devices,
    seated,
    spanning_level,
)
from oracle.network.contention.in_switch import NAMES, Way, by_itself, named_for, switch_lines
from oracle.network.contention.kept import FROM, kept_of
from oracle.network.contention.library import as_tuned, factors, library_lines, terms
from oracle.network.contention.line import CostLine, Offer
from oracle.network.contention.measured import fitted, holds
from oracle.network.topology import Topology, network_of
from oracle.spec.document import SpecError
from oracle.spec.doubt import DATASHEET, SHORT
from oracle.spec.system import System

NO_MESSAGE = Offer((CostLine("none", 0.0, 0.0, uncertainty=0.0, short=0.0, outside=False),))


def lines(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> Offer:
    """Every algorithm on offer (or the named one) for groups of `pattern` among `devices`.

    `algorithm` is a name, `best` or nothing for all on offer, `nccl` for what that library's public
    constants say, whatever is calibrated, or `nccl-2.17` for those of a version. Where the named
    one does not serve, all do.
    """
    known = cache_of(system)
    key: Key = ("lines", op, pattern, devices, algorithm)
    if key not in known:
        if devices < FROM:
            known[key] = _counted(system, op, pattern, devices, algorithm)
        else:
            kept = known.get("kept") or known.setdefault("kept", kept_of(system))
            asked = json.dumps(key[1:])
            offer = kept.get(asked)
            if offer is None:
                offer = _counted(system, op, pattern, devices, algorithm)
                kept.put(asked, offer)
            known[key] = offer
    found: Offer = known[key]
    return found


def _counted(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None
) -> Offer:
    room = with_room(system, devices)
    where, groups = seated(room or system.bare, pattern, devices, op)
    if where is not room and groups.device is None:  # as others of the bare system are
        return lines(where, op, groups.pattern, devices, algorithm) if room else Offer()
    return NO_MESSAGE if groups.p == 1 else Offer(
        _lines(where, op, groups, algorithm) if room else ())  # fmt: skip


def alone(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> Offer:
    """The ideal: the ring's closed form with α and β of the lowest level that spans the group.

    No other group talks (φ = 1), one link of that level carries each flow [kahira2021].
    """
    known = cache_of(system)
    key: Key = ("alone", op, pattern, devices, algorithm)
    if key not in known:
        room = with_room(system, devices)
        where, groups = seated(room or system.bare, pattern, devices, op)
        known[key] = NO_MESSAGE if groups.p == 1 else Offer(
            [_ideal(where, op, groups, algorithm)] if room else ())  # fmt: skip
    found: Offer = known[key]
    return found


def with_room(system: System, devices: int) -> System | None:
    """The system, grown where a plan has more devices: it is refused, but not for being free.

    Nothing where a shape says how many there are: what reaches past it cannot be priced.
    """
    if devices <= system.devices:
        return system
    known, key = cache_of(system), ("room", devices)
    if key not in known:
        with suppress(SpecError):
            known[key] = system.of_size(devices, grow=True)
    found: System | None = known.setdefault(key, None)
    return found


def _ideal(system: System, op: str, groups: RankGroups, algorithm: str | None) -> CostLine:
    asked = _asked(op, algorithm, groups.p, 1)
    by = named(op, asked) if asked else plain(op)
    level = system.levels[spanning_level(system, groups)]
    start = float(by.steps(groups.p)) * level.latency
    per_byte = float(by.volume(groups.p)) / level.bandwidth
    return CostLine(by.name, start, per_byte, 1.0, (f"{level.name} links",))


def _lines(
    system: System, op: str, groups: RankGroups, algorithm: str | None
) -> Iterator[CostLine]:
    inner = groups.inner(closest_devices(system))
    way, short = Way(system, groups, inner), SHORT[_way(system, groups)]
    if by := named_for(op, ALIASES.get(algorithm or "", algorithm or ""), way):
        yield from switch_lines(op, way, [by], nccl.NEWEST, short)
        return
    version = nccl.version_asked(algorithm)
    asked = _asked(op, algorithm, groups.p, inner)
    outside = spanning_level(system, groups) >= system.inside
    beyond = nccl.serves(system) and factors(system, outside) and not asked
    library = algorithm == "nccl" or version is not None
    own = not library and (not beyond or holds(system, op, groups))
    known = list(fitted(system, op, groups, inner, asked)) if own else []
    if known:
        yield from known
        return

    def modelled(system: System, op: str, groups: RankGroups) -> Iterator[CostLine]:
        return _modelled(system, op, groups, algorithm)

    yield from modelled(system, op, groups) if library else slowed(system, op, groups, modelled)


def _modelled(
    system: System, op: str, groups: RankGroups, algorithm: str | None
) -> Iterator[CostLine]:
    """The library's lines, or the datasheet's, of groups that have the network to themselves."""
    inner = groups.inner(closest_devices(system))
    way, short = Way(system, groups, inner), SHORT[_way(system, groups)]
    version = nccl.version_asked(algorithm)
    asked = _asked(op, algorithm, groups.p, inner)
    outside = spanning_level(system, groups) >= system.inside
    library = algorithm == "nccl" or version is not None
    served = nccl.serves(system) or library
    reach = _reach(system, served)
    beside = tuple(_reach(one.system, served) for one in system.regions if one.system is not None)
    bare = network_of(system, groups.reach, reach, beside=beside)
    offer = _offer(op, groups.p, inner, asked, served, outside)
    two_way = ALGORITHMS[op].get("bidirectional_ring")
    if two_way and not asked and not bare.tree and two_way.fits(groups.p):
        offer = [*offer, two_way]  # neighbours have a link each way there
    found = algorithm_costs(system, bare, groups, inner, offer, reach)
    if served:
        if not factors(system, outside):
            found = as_tuned(offer, found, groups.p)
        of = version or nccl.NEWEST
        every = [term for by, cost in zip(offer, found, strict=True)
                 for term in terms(by, cost, bare, groups.p, system.inside, outside, of)
                 ]  # fmt: skip
        yield from library_lines(system, op, every, groups.p, outside, short)
        if nccl.serves(system) and not asked and (library or not factors(system, outside)):
            yield from switch_lines(op, way, by_itself(op, way, of), of, short)
    else:
        yield from (_by_datasheet(by, cost, bare, short)
                    for by, cost in zip(offer, found, strict=True))  # fmt: skip
    optical = [f for f in bare.fabrics if f.kind == "optical"]
    if optical:  # and once more with circuits set, for what is worth the wait
        lit = network_of(system, groups.reach, reach, circuits=True, beside=beside)
        wait = sum(getattr(f, "setting", 0.0) for f in optical)
        found = algorithm_costs(system, lit, groups, inner, offer, (*reach, True))
        for by, cost in zip(offer, found, strict=True):
            every = [*terms(by, cost, lit, groups.p, system.inside, outside)]
            priced = library_lines(system, op, every, groups.p, outside, short) if served else [
                _by_datasheet(by, cost, lit, short)]  # fmt: skip
            for line in priced:
                yield replace(line, algorithm=f"{line.algorithm} on circuits",
                              start=line.start + wait)  # fmt: skip


ALIASES = {"tree": "double_tree", "hd": "halving_doubling", "shd": "shifted_halving_doubling"}


def _reach(system: System, served: bool) -> tuple[float, ...]:
    """Part of each level's bandwidth that messages get: by a library, or as measured there."""
    if served:
        return nccl.bandwidth_shares(system)
    return tuple(level.share or 1.0 for level in system.levels)


def _asked(op: str, name: str | None, p: int, inner: int) -> str | None:
    """The named algorithm where this operation has it and it fits; nothing otherwise.

    One name is given for a whole plan, whose operations need not all have it; a name that no
    operation has is a mistake.
    """
    if name in (None, "best", "nccl") or nccl.version_asked(name):
        return None
    name = ALIASES.get(name, name)
    if name in NAMES:  # switches that can have been looked for
        return None
    every = {known for table in ALGORITHMS.values() for known in table}
    bare, colon, number = name.partition(":")
    if bare not in every:
        raise ValueError(f"no algorithm is called {name!r}; known: best, nccl, nccl-2.17, "
                         f"{', '.join(sorted(every | set(ALIASES)))}")  # fmt: skip
    by = ALGORITHMS.get(op, {}).get(bare)
    if by is None:
        return None
    by = by.of(int(number)) if colon else by
    return name if by.fits(p, inner) else None


def _offer(
    op: str, p: int, inner: int, asked: str | None, served: bool, outside: bool
) -> list[Algorithm]:  # fmt: skip
    """Algorithms to choose from; `outside`: the groups leave their nodes."""
    if asked:
        return named(op, asked).choices(p)
    offer = menu(op, p, inner)
    if not served:
        return offer
    return nccl.offered(offer, outside) or offer


def _way(system: System, groups: RankGroups) -> str:
    """What is known of the way that groups take: a key of `SHORT`."""
    crossed = system.levels[system.inside : spanning_level(system, groups) + 1]
    if not crossed:
        return "inside"
    return "share" if all(level.share for level in crossed) else "between"


def _by_datasheet(by: Algorithm, cost: Cost, topology: Topology, short: float) -> CostLine:
    latency = topology.latency
    start = cost.start if topology.hop else cost.start_at(latency, by.pipelined)
    return CostLine(by.name, start, cost.per_byte, cost.phi, cost.full, "datasheet", DATASHEET,
                    short)  # fmt: skip
