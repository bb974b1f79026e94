"""The network of a system's first devices, built once."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from weakref import WeakKeyDictionary

from oracle.network.topology.joined import Joined
from oracle.network.topology.topology import Topology
from oracle.spec.system import Level, System

KEPT = 2**22  # links of all networks that are kept of a system, and a larger one alone
_BUILT: WeakKeyDictionary[System, dict[object, Topology]] = WeakKeyDictionary()


def network_of(
    system: System, devices: int, reach: tuple[float, ...] = (), circuits: bool = False,
    beside: tuple[tuple[float, ...], ...] = (),
) -> Topology:  # fmt: skip
    """The network below the first `devices` devices of a system, built once.

    `reach` is the part of each level's datasheet bandwidth that messages get (all of it); with
    `circuits`, optical circuits are set. `beside` is the reach of the networks of other partitions,
    where they are one with this one.
    """
    built = _BUILT.setdefault(system, {})
    key = devices, reach, circuits, beside
    if key not in built:
        levels = [replace(level, bandwidth=level.bandwidth * part)
                  for level, part in zip_longest(system.levels, reach, fillvalue=1.0)
                  if isinstance(level, Level)]  # fmt: skip
        found = Topology(levels, devices, circuits=circuits)
        if system.regions:
            regions = [(one.system, one.slots) for one in system.regions if one.system is not None]
            each = [network_of(where, slots[-1] + 1, part, circuits) for (where, slots), part
                    in zip(regions, beside or [()] * len(regions), strict=True)]  # fmt: skip
            found = Joined(levels, devices, system.regions, each, circuits)
        # a sweep asks for every size once
        while built and sum(each.links for each in built.values()) + found.links > KEPT:
            del built[next(iter(built))]
        built[key] = found
    return built[key]


def node_ports(system: System) -> tuple[float, float]:
    """(B/s that a node sends over its ports to others, α of such a message); no limit of one node.

    Where units have a link to each neighbour and no ports, over all of these.
    """
    if system.inside >= len(system.levels):
        return float("inf"), 0.0
    level = system.levels[system.inside]
    room = min(2 * system.node, level.devices)
    fabric = next(each for each in network_of(system, room).fabrics if each.unit >= system.node)
    links = fabric.ports if fabric.has_ports else 2.0 * max(1, len(level.shape))
    return links * fabric.level.bandwidth * (level.share or 1.0), level.latency
