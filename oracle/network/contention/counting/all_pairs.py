"""Cost of a step in which all ranks send to all, in a tree, without listing the flows.

How many members of its group each unit holds says how many messages leave it, so p² flows are
never written down. A dragonfly on top counts them from router to router.
"""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives.schedule import Steps
from oracle.network.contention.counting.flows import BLOCK, groups_apart
from oracle.network.contention.counting.step_costs import StepCosts
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology
from oracle.network.topology.fabric import NOWHERE
from oracle.network.topology.kinds.dragonfly import Dragonfly

ROUTERS = 4096  # of a dragonfly whose pairs of routers are counted


def all_pairs_cost(topology: Topology, groups: RankGroups, steps: Steps) -> StepCosts:
    """Return the cost of one step in which every member of every group sends to every other."""
    listed_whole = groups.device is not None or not topology.tree
    p, bases = groups.p, groups.bases(None if listed_whole else groups_apart(topology, groups))
    first = np.repeat(bases, p)
    device = groups.devices_of((bases[:, None] + groups.offsets).ravel())
    load, key = np.zeros(topology.links + 1), device
    met = np.zeros(len(topology.latency) + 1)  # messages whose ends meet at this level or above
    for depth, fabric in enumerate(topology.fabrics):
        unit, start = device // fabric.unit, topology.starts[depth]
        leaving = p - _sharing(first, unit)
        met[depth] = leaving.sum()
        if fabric.port_links:
            down = start + fabric.port_links + fabric.port(device, key, key)
            load += np.bincount(down, leaving, len(load))
            if fabric.routing == "d-mod-k":
                load += _up_loads(first, unit, key % fabric.lanes, fabric.lanes, start, len(load))
            else:
                load += np.bincount(start + fabric.port(device, key, key), leaving, len(load))
        if isinstance(fabric, Dragonfly):
            start += 2 * fabric.port_links
            load[start : start + fabric.inner_links] += _between_routers(fabric, first, unit)
        elif fabric.inner_links:  # a link of its own between any two units
            a, copy = unit % fabric.width, unit // fabric.width
            base = start + 2 * fabric.port_links + copy * fabric.inner_links + a * fabric.width
            for offset in range(1, fabric.width):
                b = (a + offset) % fabric.width
                members = _members_in(first, unit, copy * fabric.width + b)
                load += np.bincount(base + b, members, len(load))
        key = fabric.port_number(device, key)
    busy = load * topology.seconds_per_byte
    fullest, share = int(busy.argmax()), float(steps.share[0])
    slowest = float(topology.seconds_per_byte[load > 0].max(initial=0.0))
    by_level = (-np.diff(met) / max(met[0], 1.0))[None]
    alpha = np.where(by_level > 0, topology.latency, 0.0).max(axis=1)
    shared = np.array([share * busy[fullest]])
    # alone, one way out carries a rank's messages, unless several are faster even in company
    solo = np.minimum((p - 1) * share * slowest, shared)
    return StepCosts(by_level, alpha, shared, solo, np.array([fullest]), steps.times)


def countable(topology: Topology) -> bool:
    """Whether loads need no list of flows: of a tree of equal units, or one dragonfly above it."""
    if topology.hop or topology.half or any(level.wires for level in topology.levels):
        return False
    *below, top = topology.fabrics
    lower = all(f.tree and f.routing != "ecmp" for f in below)
    if isinstance(top, Dragonfly):
        all_within = top.copies == 1 and top.level.routing != "valiant" and top.routing != "ecmp"
        return lower and all_within and top.extents[0] * top.extents[1] <= ROUTERS
    return topology.uniform


def _between_routers(fabric: Dragonfly, first: Ints, unit: Ints) -> Floats:
    """Messages on each link of a dragonfly, those of two routers counted together.

    A router that holds a members of a group sends a b of its messages to one that holds b.
    """
    routers, per = fabric.extents[0] * fabric.extents[1], fabric.extents[2]
    keys, members = np.unique(first * routers + unit // per, return_counts=True)
    group, router = keys // routers, keys % routers
    between = np.zeros(routers * routers)
    group_begin = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff(group_begin, append=len(group))
    for routers_of_group in np.unique(size).tolist():  # groups on as many routers at once
        rows = group_begin[size == routers_of_group][:, None] + np.arange(routers_of_group)
        for begin_row in range(0, len(rows), max(1, BLOCK // routers_of_group**2)):
            block = rows[begin_row : begin_row + max(1, BLOCK // routers_of_group**2)]
            pair = router[block][:, :, None] * routers + router[block][:, None, :]
            weight = members[block][:, :, None] * members[block][:, None, :]
            between += np.bincount(pair.ravel(), weight.ravel(), len(between))
    used = np.flatnonzero(between)
    used = used[used // routers != used % routers]
    load = np.zeros(fabric.inner_links + 1)
    for begin_row in range(0, len(used), BLOCK):
        block = used[begin_row : begin_row + BLOCK]
        for link in fabric.minimal(block // routers, block % routers):
            load += np.bincount(np.where(link == NOWHERE, fabric.inner_links, link), between[block],
                                len(load))  # fmt: skip
    return load[:-1]


def _sharing(first: Ints, unit: Ints) -> Ints:
    """How many members of each rank's group share its unit."""
    _, home, count = np.unique(first * (unit.max() + 1) + unit, return_inverse=True,
                                return_counts=True)  # fmt: skip
    return np.asarray(count[home])


def _members_in(first: Ints, unit: Ints, destination: Ints) -> Floats:
    """How many members of each rank's group are in another unit."""
    width = max(unit.max(), destination.max()) + 1
    keys, count = np.unique(first * width + unit, return_counts=True)
    destination_key = first * width + destination
    place = np.minimum(np.searchsorted(keys, destination_key), len(keys) - 1)
    return np.where(keys[place] == destination_key, count[place], 0).astype(float)


def _up_loads(first: Ints, unit: Ints, lane: Ints, lanes: int, start: int, size: int) -> Floats:
    """Messages on each way up when the target's port number picks the lane.

    A unit's members send to all members of their group outside it: for each group that a unit
    holds, members held × members of the group on that lane, less those inside.
    """
    load = np.zeros(size)
    groups, lane_count = np.unique(first * lanes + lane, return_counts=True)
    owner, group_lane = groups // lanes, groups % lanes
    width = int(unit.max()) + 1
    homes, members = np.unique(first * width + unit, return_counts=True)
    home_group, home_unit = homes // width, homes % width
    low, high = (np.searchsorted(owner, home_group, side=side) for side in ("left", "right"))
    used = high - low  # lanes that a unit's group has members on
    home = np.repeat(np.arange(len(members)), used)
    row = np.arange(used.sum()) - np.repeat(np.cumsum(used) - used - low, used)
    load += np.bincount(start + home_unit[home] * lanes + group_lane[row],
                        members[home] * lane_count[row], size)  # fmt: skip
    load -= np.bincount(start + unit * lanes + lane, _sharing(first, unit), size)
    return load
