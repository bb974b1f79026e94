"""A machine of whose units a job uses a part: units of as many devices, where the job sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from oracle.spec.level import PORTLESS, Level
from oracle.spec.seats import Ints, Seats
from oracle.spec.system import System

ALIGNED, PACKED = "aligned", "packed"
LARGEST_HOST = 16  # devices: no machine that is sold has more in one host
Counts = tuple[int, ...]  # devices of a unit of each level that a job uses

_VIEWS: WeakKeyDictionary[System, dict[Counts, System]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Unit:
    """A level's units as a launcher sees them."""

    devices: int
    most: int  # of them, that a job of several units may use
    host: int  # devices that are given together
    placement: str  # whether groups lie whole in units
    shrinks: bool  # whether fewer units of the level below are joined alike


def units_of(system: System) -> tuple[Unit, ...]:
    """The units of each level."""
    units = []
    for depth, level in enumerate(system.levels):
        host = host_of(system, depth)
        inside = depth < system.inside and level.devices > host
        placement = level.placement or (ALIGNED if inside else PACKED)
        fixed = bool(level.shape or level.wires) or level.graph is not None
        units.append(Unit(level.devices, min(level.used or level.devices, level.devices),
                          host if inside else 1, placement, not fixed))  # fmt: skip
    return tuple(units)


def host_of(system: System, depth: int) -> int:
    """Devices of one host of a level's unit; where nobody says, of a large unit one each."""
    level = system.levels[depth]
    if level.hosts:
        return level.devices // level.hosts
    return level.devices if level.devices <= LARGEST_HOST else 1


def counts_of(system: System) -> Counts:
    """Devices of a unit of each level."""
    return tuple(level.devices for level in system.levels)


def using(system: System, counts: Counts) -> System:
    """The system with units of as many devices as a job uses; itself where that is all of them."""
    if counts == counts_of(system):
        return system
    views = _VIEWS.setdefault(system, {})
    if counts not in views:
        views[counts] = _with(system, counts)
    return views[counts]


def _with(system: System, counts: Counts) -> System:
    if system.seats is not None:
        return using(system.bare, counts).seated(_seats(system, system.seats, counts))
    levels, below, used_below = [], 1, 1
    for level, count in zip(system.levels, counts, strict=True):
        levels.append(_level(level, below, used_below, count))
        below, used_below = level.devices, count
    return replace(system, levels=tuple(levels), nodes="")


def _level(level: Level, below: int, used_below: int, count: int) -> Level:
    """A level that joins `count` devices, in units of which `used_below` of `below` are used."""
    ports = level.ports
    if ports is not None and level.kind in PORTLESS:  # a link to each other unit
        units, used_units = level.devices // below, count // used_below
        ports = ports * max(used_units - 1, 1) / max(units - 1, 1)
    elif ports is not None and ports % below == 0:  # of each device its own
        ports = ports / below * used_below
    hosts = level.hosts and max(1, level.hosts * count // level.devices)
    return replace(level, devices=count, ports=ports, hosts=hosts, used=None)


def _seats(system: System, seats: Seats, counts: Counts) -> Seats:
    """Seats of a job on given nodes, of whose devices as many are used; others stay."""
    if not seats.slots:
        return seats
    slots = np.array(seats.slots, np.int64)
    places, used_devices = renumbered(system, counts, slots)
    return replace(seats, slots=tuple(places[used_devices].tolist()))


def renumbered(system: System, counts: Counts, devices: Ints) -> tuple[Ints, Ints]:
    """Numbers of a machine's devices among those that are used, and which of them are."""
    numbers, used_devices = np.zeros_like(devices), np.ones(len(devices), bool)
    below, used_below = 1, 1
    for level, count in zip(system.levels, counts, strict=True):
        place = devices // below % (level.devices // below)
        used_devices &= place < count // used_below
        numbers += place * used_below
        below, used_below = level.devices, count
    return numbers, used_devices


def numbered(system: System, counts: Counts, numbers: Ints) -> Ints:
    """Numbers, among a machine's devices, of those that are used."""
    devices = np.zeros_like(numbers)
    below, used_below = 1, 1
    for level, count in zip(system.levels, counts, strict=True):
        last = level is system.levels[-1]
        place = numbers // used_below
        devices += (place if last else place % (count // used_below)) * below
        below, used_below = level.devices, count
    return devices
