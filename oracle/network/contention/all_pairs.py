"""Cost of a step in which all ranks send to all, in a tree, without listing the flows.

How many members of its group each unit holds says how many messages leave it, so p² flows are
never written down.
"""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives.schedule import Steps
from oracle.network.contention.flows import groups_apart
from oracle.network.contention.groups import RankGroups
from oracle.network.contention.step_costs import StepCosts
from oracle.network.topology import Topology


def all_pairs_cost(topology: Topology, groups: RankGroups, steps: Steps) -> StepCosts:
    """Cost of one step in which every member of every group sends to every other."""
    p, bases = groups.p, groups.bases(None if groups.device is not None
                                      else groups_apart(topology, groups))  # fmt: skip
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
        if fabric.inner_links:  # a link of its own between any two units
            a, copy = unit % fabric.width, unit // fabric.width
            base = start + 2 * fabric.port_links + copy * fabric.inner_links + a * fabric.width
            for apart in range(1, fabric.width):
                b = (a + apart) % fabric.width
                there = _members_in(first, unit, copy * fabric.width + b)
                load += np.bincount(base + b, there, len(load))
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


def _sharing(first: Ints, unit: Ints) -> Ints:
    """How many of each rank's group share its unit."""
    _, where, count = np.unique(first * (unit.max() + 1) + unit, return_inverse=True,
                                return_counts=True)  # fmt: skip
    return np.asarray(count[where])


def _members_in(first: Ints, unit: Ints, other: Ints) -> Floats:
    """How many of each rank's group are in another unit."""
    width = max(unit.max(), other.max()) + 1
    keys, count = np.unique(first * width + unit, return_counts=True)
    wanted = first * width + other
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, count[at], 0).astype(float)


def _up_loads(first: Ints, unit: Ints, lane: Ints, lanes: int, start: int, size: int) -> Floats:
    """Messages on each way up when the target's port number picks the lane.

    A unit's members send to all members of their group outside it: for each group that a unit
    holds, members held × members of the group on that lane, less those inside.
    """
    load = np.zeros(size)
    groups, lane_count = np.unique(first * lanes + lane, return_counts=True)
    owner, which = groups // lanes, groups % lanes
    width = int(unit.max()) + 1
    homes, held = np.unique(first * width + unit, return_counts=True)
    home_group, home_unit = homes // width, homes % width
    low, high = (np.searchsorted(owner, home_group, side=side) for side in ("left", "right"))
    many = high - low
    home = np.repeat(np.arange(len(held)), many)
    row = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many - low, many)
    load += np.bincount(start + home_unit[home] * lanes + which[row],
                        held[home] * lane_count[row], size)  # fmt: skip
    load -= np.bincount(start + unit * lanes + lane, _sharing(first, unit), size)
    return load
