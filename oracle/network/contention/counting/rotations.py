"""Cost of steps in which all ranks of a torus move on alike, without listing a flow.

A shift by k of ranks that fill whole rings is, digit by digit, a turn of each ring: routed ring
after ring, all flows on one line of links have gone as far in the rings before and go the same
way on it. A ring that is turned by d carries min(d, e − d) messages over each of its links, in
one direction; whether a digit is carried over from the ring before is the same along a line, and
both happen somewhere. So the fullest link is the furthest turn, and no flow need be laid.

Groups that fill the first rings and a part of m of the last turn that part: its lines are laid
once, one for each of the m turns that there are.
"""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.collectives.schedule import Shift, Steps
from oracle.network.contention.counting.step_costs import StepCosts
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology
from oracle.network.topology.kinds.torus import RingNetwork, Torus


def turned(topology: Topology, groups: RankGroups, steps: Steps) -> tuple[int, ...]:
    """Return the rings that groups fill, the last in part; none where steps are no such turn."""
    fabric = topology.fabrics[0]
    single = len(topology.fabrics) == 1 and type(fabric) in (Torus, RingNetwork)
    if not single or groups.device is not None or not isinstance(steps, Shift) or topology.half:
        return ()
    if len(groups.pattern) != 1 or not fabric.width == topology.devices == groups.devices:
        return ()
    left, rings = groups.block, list[int]()
    for extent in getattr(fabric, "extents", ()):
        if left == 1:
            break
        if left % extent and extent % left:
            return ()
        rings.append(min(left, extent))
        left //= rings[-1]
    return tuple(rings) if left == 1 else ()


def turn_costs(
    topology: Topology, groups: RankGroups, steps: Shift, rings: tuple[int, ...]
) -> StepCosts:
    """Cost of each shift, by the furthest turn of any ring."""
    ((_, stride),) = groups.pattern
    extents = topology.fabrics[0].extents  # type: ignore[attr-defined]
    by = steps.by * stride % groups.block
    never = np.full(len(by), -1.0)
    # links of the longest way so far, where nothing is carried into the next ring, and where 1 is
    hops_before = np.where(by >= 0, 0.0, never), never
    fullest, dimension_of = np.zeros(len(by)), np.zeros(len(by), np.int64)
    for dimension, part in enumerate(rings):
        digit, by = by % part, by // part
        load, hops = _line(int(extents[dimension]), part)
        after = [never, never]
        for carried, before in enumerate(hops_before):
            turn = (digit + carried) % part
            possible = before >= 0
            fuller = possible & (load[turn] > fullest)
            fullest = np.where(fuller, load[turn], fullest)
            dimension_of = np.where(fuller, dimension, dimension_of)
            way = np.where(possible, before + hops[turn], -1.0)
            stays, goes = digit + carried < part, digit + carried > 0
            after[0] = np.where(stays, np.maximum(after[0], way), after[0])
            after[1] = np.where(goes, np.maximum(after[1], way), after[1])
        hops_before = after[0], after[1]
    seconds_per_byte = topology.seconds_per_byte[: topology.links].max(initial=0.0)
    moved = fullest > 0
    levels = np.zeros((len(dimension_of), len(topology.latency)))
    levels[moved, 0] = levels[~moved, -1] = 1.0
    wide = np.maximum(hops_before[0], hops_before[1])
    alpha = wide * topology.hop if topology.hop else np.where(moved, topology.latency[0], 0.0)
    link = np.where(moved, 2 * dimension_of, topology.links)
    shared, solo = (steps.share * load * seconds_per_byte for load in (fullest, moved))
    return StepCosts(levels, alpha, shared, solo, link, steps.times)


def _line(extent: int, part: int) -> tuple[Floats, Floats]:
    """Return (messages on the fullest link, links of the longest way) by turn of a line's parts.

    A message takes the shorter way round, forward where both are as long.
    """
    turn = np.arange(part)
    if part == extent:
        far = np.minimum(turn, extent - turn).astype(float)
        return far, far
    start = np.arange(part)
    ahead = ((start + turn[:, None]) % part - start) % extent  # (turns, units of a part)
    forward = ahead <= extent // 2
    hops = np.where(forward, ahead, extent - ahead)
    load = np.zeros((2, part, extent))
    for way in (0, 1):
        for hop in range(int(hops.max(initial=0))):
            goes = (hops > hop) & (forward if way == 0 else ~forward)
            rows, units = np.nonzero(goes)
            np.add.at(load[way], (rows, (units + (hop if way == 0 else -hop)) % extent), 1.0)
    copies = load.reshape(2, part, extent // part, part).sum(axis=2)  # of all parts of the ring
    return copies.max(axis=(0, 2)), hops.max(axis=1).astype(float)
