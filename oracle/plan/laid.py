"""How many devices of each unit a plan's job takes, so that groups of ranks lie in whole units.

A launcher lays a job on whole blocks: of racks of eighteen nodes it takes sixteen, where groups of
64 devices would straddle racks of 72 [NVIDIA-NeMo/Megatron-Bridge, @067f987df
scripts/performance/utils/executors.py:168-177: Slurm's `--segment` is the largest divisor of the
nodes that a rack holds]. Groups that fit a unit lie whole in one, jobs fill units evenly where they
can and half of each is used at least; else units are filled one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

import numpy as np

from oracle.models.shard import Array
from oracle.plan.mesh import Groups, distinct
from oracle.plan.plan import Plan
from oracle.spec.seats import Ints, Seats
from oracle.spec.system import System
from oracle.spec.used import ALIGNED, Unit, counts_of, numbered, units_of, using

EVEN = 0.5  # of a unit, that a job which fills units evenly uses at least


@dataclass(frozen=True, slots=True)
class Taken:
    """What a job takes of the units of one level."""

    level: str
    devices: int  # of a unit
    used: int  # of them, by a job of several units
    units: int  # that the job lies on
    idle: str  # which devices of the job's units have no rank, in words

    def to_dict(self) -> dict[str, object]:
        return {"level": self.level, "devices": self.devices, "used": self.used,
                "units": self.units, "idle": self.idle}  # fmt: skip


def laid(system: System, plan: Plan) -> Iterator[tuple[Array | None, System]]:
    """Rows of plans that use as much of each unit (None: all), and the system as they use it."""
    kinds = list(_used(system, plan))
    for rows, counts in kinds:
        yield (None if len(kinds) == 1 else rows), using(system, counts)


def as_used(system: System, plan: Plan) -> System:
    """The system as one plan uses it."""
    return system if system.partitions else next(laid(system, plan[:1]))[1]


def devices_of(system: System, plan: Plan) -> Ints:
    """The device of a machine that each rank of a plan sits on."""
    used, count = as_used(system, plan), int(plan.devices[0, 0])
    ranks = np.arange(count)
    places = ranks if used.seats is None else used.seats.devices_of(ranks, count)
    return numbered(system, counts_of(used), places)


def laid_out(system: System, plan: Plan) -> System:
    """The whole machine, with a plan's ranks on the devices that they use."""
    if as_used(system, plan) is system:
        return system
    return system.bare.seated(Seats(tuple(devices_of(system, plan).tolist())))


def numbers_of(system: System, used: System, slots: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers, among a machine's devices, of some of those that a job uses."""
    if used is system:
        return slots
    return tuple(numbered(system, counts_of(used), np.array(slots, np.int64)).tolist())


def _used(system: System, plan: Plan) -> Iterator[tuple[Array, tuple[int, ...]]]:
    """Rows of plans, and the devices of a unit of each level that their jobs use."""
    units, all_devices = units_of(system), counts_of(system)
    rows = np.arange(len(plan))
    if not any(unit.placement == ALIGNED or unit.most < unit.devices for unit in units):
        yield rows, all_devices
        return
    blocks = np.hstack([plan.devices, *_blocks(plan)])
    first, kind = distinct(blocks)
    counts = [used_of(units, int(line[0]), tuple(sorted({int(size) for size in line[1:]})),
                      system.devices)
              for line in blocks[first].tolist()]  # fmt: skip
    for count in dict.fromkeys(counts):
        chosen = np.array([counted == count for counted in counts])
        yield rows[chosen[kind]], count


def _blocks(plan: Plan) -> Iterator[Array]:
    """Ranks after which the groups along each axis, or a part of it, begin anew."""
    groups = Groups(plan)
    for name, size in groups.sizes.items():
        if name in groups.strides:
            yield np.where(size > 1, size * groups.strides[name], 1)


@lru_cache(4096)
def used_of(
    units: tuple[Unit, ...], devices: int, blocks: tuple[int, ...], most: int
) -> tuple[int, ...]:
    """Devices of a unit of each level that a job uses, of a machine of `most` devices.

    Where not all groups can lie whole in units, those of the most ranks are let straddle first.
    """
    for count in range(len(blocks), -1, -1) if devices <= most else ():
        for even in (True, False):
            used = next(_filled(units, devices, blocks[:count], even), None)
            if used is not None:
                return used
    return tuple(unit.devices for unit in units)


def _filled(
    units: tuple[Unit, ...], devices: int, blocks: Sequence[int], even: bool,
    below: tuple[int, ...] = (),
) -> Iterator[tuple[int, ...]]:  # fmt: skip
    """Ways to use units from level `len(below)` outward, the fullest first."""
    depth = len(below)
    inner, inner_used = (units[depth - 1].devices, below[-1]) if below else (1, 1)
    if depth == len(units):
        if devices <= inner_used:
            yield below
        return
    unit = units[depth]
    full = unit.devices // inner * inner_used
    if devices <= min(full, unit.most):  # all in one unit
        yield from _filled(units, devices, blocks, even, (*below, full))
        return
    if depth == len(units) - 1:  # nothing lies around it
        if devices <= full:
            yield (*below, full)
        return
    step = lcm(inner_used, unit.host if inner_used < unit.host else 1)
    full = min(full, unit.most // step * step)
    if unit.placement == ALIGNED:
        step = lcm(step, *(block for block in blocks if block <= unit.most))
    if not unit.shrinks:
        step = max(step, full)
    for used in range(full // step * step, 0, -step):
        evenly = devices % used == 0 and used >= EVEN * unit.devices
        if used > inner_used and (evenly or not even or unit.placement != ALIGNED):
            yield from _filled(units, devices, blocks, even, (*below, used))
        if all(around.placement != ALIGNED for around in units[depth:]):
            return  # nothing is gained by fewer


def taken(system: System, plan: Plan) -> tuple[Taken, ...]:
    """What one plan's job takes of the units of each level on which devices stay idle for it."""
    used, devices = as_used(system, plan), int(plan.devices[0, 0])
    of_levels = []
    for used_level, level, unit in zip(used.levels, system.levels, units_of(system), strict=True):
        count = -(-devices // used_level.devices)
        last = devices - (count - 1) * used_level.devices
        partly = used_level.devices < level.devices
        if count == 1 or not (partly or (unit.placement == ALIGNED and last < used_level.devices)):
            continue
        idle = f"{used_level.devices} to {level.devices - 1} of each {level.name}" if partly else ""
        if last < used_level.devices:
            begin = f"{idle}, and " if idle else ""
            idle = f"{begin}{last} to {level.devices - 1} of the last {level.name}"
        of_levels.append(Taken(level.name, level.devices, used_level.devices, count, idle))
    return tuple(of_levels)


def units_taken(system: System, plan: Plan) -> dict[str, list[dict[str, object]]]:
    """The same as data; nothing where no device stays idle."""
    units = [unit.to_dict() for unit in taken(system, plan)]
    return {"units": units} if units else {}
