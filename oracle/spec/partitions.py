"""Partitions of a system as one job sees them: the machine that each would be if all were alike.

A job that spans partitions has the first of its ranks on the first of them, and so on. What
devices of one kind compute, and what they say to each other, is priced on a machine of that kind
alone: its nodes and its network, with as many copies of it beside as the other partitions need,
joined by the links between them. Who waits for whom is the step's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oracle.spec.document import SpecError
from oracle.spec.level import Level
from oracle.spec.seats import Seats
from oracle.spec.system import Joint, Partition, Region, System

_KNOWN: WeakKeyDictionary[System, dict[tuple[int, ...], tuple[Part, ...]]] = WeakKeyDictionary()
_PLACES: WeakKeyDictionary[System, tuple[tuple[int, ...], int, str]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Part:
    """A partition with the ranks that it has in a job, and the machine that they seem to be on."""

    number: int  # of the system's partitions, from 1
    name: str
    first: int  # rank
    devices: int
    view: System
    across: System  # the same for groups with members on several: all networks are one graph


def parts(system: System, order: tuple[int, ...] = ()) -> tuple[Part, ...]:
    """Partitions by number, in the order in which ranks fill them; all where nobody says which."""
    order = order or tuple(range(1, len(system.partitions) + 1))
    known = _KNOWN.setdefault(system, {})
    if order not in known:
        chosen = [system.partitions[number - 1] for number in order]
        found: list[Part] = []
        first = 0
        for number, one in zip(order, chosen, strict=True):
            view = _slowed(one) if len(chosen) == 1 else _view(system, chosen, one)
            found.append(Part(number, one.name, first, one.devices, view, view))
            first += one.devices
        known[order] = tuple(_across(system, chosen, found) if len(chosen) > 1 else found)
        for place, part in enumerate(known[order]):
            _PLACES[part.across] = order, place, "across"
            _PLACES[part.view] = order, place, "view"
    return known[order]


def counterpart(system: System, view: System) -> System:
    """The view of a system where another has this one: of the same partitions, otherwise made."""
    order, place, which = _PLACES[view]
    found: System = getattr(parts(system, order)[place], which)
    return found


def _slowed(one: Partition) -> System:
    """The system of a partition, with devices as slow as these are."""
    if one.slower == 1:
        return one.system
    return replace(one.system, device=one.system.device.slowed(one.slower))


def _view(system: System, chosen: list[Partition], mine: Partition) -> System:
    """What the job would run on if all its devices were as those of one partition."""
    alone, joint = _slowed(mine), system.joint
    if joint is None or all(one.system is mine.system for one in chosen):
        return alone  # one network
    with suppress(SpecError):  # where a shape says how many there are others take several copies
        alone = alone.of_size(max(one.devices for one in chosen), grow=True)
    return _copied(alone, joint, [np.arange(one.devices) for one in chosen])


def _across(system: System, chosen: list[Partition], found: list[Part]) -> list[Part]:
    """Parts with the graph of all networks, where there are several.

    A node of another partition takes a whole one of those that count it, or several.
    """
    joint = system.joint
    if joint is None or any(one.view.seats is None for one in found):
        return found
    alone = [replace(one.view.bare, levels=one.view.levels[:-1]) for one in found]
    views = []
    for mine in alone:
        places = []
        for one in chosen:
            each, ranks = one.system.node, np.arange(one.devices)
            room = -(-each // mine.node) * mine.node
            places.append(ranks // each * room + ranks % each)
        views.append(_copied(mine, joint, places))
    across = []
    for number in range(len(found)):
        regions = tuple(
            Region(part.name, part.devices, _slots(view), None if at == number else view.bare)
            for at, (part, view) in enumerate(zip(found, views, strict=True))
        )
        mine = replace(views[number].bare, regions=regions).seated(views[number].seats)
        across.append(replace(found[number], across=mine))
    return across


def _slots(view: System) -> tuple[int, ...]:
    assert view.seats is not None
    return view.seats.slots


def _copied(alone: System, joint: Joint, places: Sequence[NDArray[np.int64]]) -> System:
    """A machine with as many copies of its network as partitions need, joined."""
    unit = alone.levels[-1].devices
    slots: list[int] = []
    copies = 0
    for place in places:
        slots += (copies * unit + place).tolist()
        copies += -(-(int(place[-1]) + 1) // unit)
    level = Level(
        _named(alone), copies * unit, joint.bandwidth, joint.latency, joint.source,
        link="network", ports=joint.ports, routing="striped",
    )  # fmt: skip
    whole = replace(alone, levels=(*alone.levels, level))
    return whole.seated(Seats(tuple(slots), how="partition by partition"))


def _named(system: System) -> str:
    """A name for the links between partitions that no level has."""
    names = {level.name for level in system.levels}
    return "joint" if "joint" not in names else "joint of partitions"
