"""The network of a system's first devices, built once."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from weakref import WeakKeyDictionary

from oracle.network.topology.joined import Joined
from oracle.network.topology.topology import Topology
from oracle.spec.system import Level, System

REMEMBERED = 2**22  # links of all networks that are kept of a system, and a larger one alone
_BUILT: WeakKeyDictionary[System, dict[object, Topology]] = WeakKeyDictionary()


def network_of(
    system: System, devices: int, shares: tuple[float, ...] = (), circuits: bool = False,
    region_shares: tuple[tuple[float, ...], ...] = (),
) -> Topology:  # fmt: skip
    """Return the network below the first `devices` devices of a system, built once.

    `shares` are the parts of each level's datasheet bandwidth that messages get, all of it where
    they are not given; `region_shares` those of other partitions, whose networks are one with this
    one. With `circuits`, optical circuits are set.
    """
    built = _BUILT.setdefault(system, {})
    key = devices, shares, circuits, region_shares
    if key not in built:
        levels = [replace(level, bandwidth=level.bandwidth * part)
                  for level, part in zip_longest(system.levels, shares, fillvalue=1.0)
                  if isinstance(level, Level)]  # fmt: skip
        network = Topology(levels, devices, circuits=circuits)
        if system.regions:
            partitions = [(region.system, region.slots) for region in system.regions
                          if region.system is not None]  # fmt: skip
            networks = [
                network_of(partition, slots[-1] + 1, parts, circuits)
                for (partition, slots), parts in zip(
                    partitions, region_shares or [()] * len(partitions), strict=True)
            ]  # fmt: skip
            network = Joined(levels, devices, system.regions, networks, circuits)
        # a sweep asks for every size once
        while built and sum(old.links for old in built.values()) + network.links > REMEMBERED:
            del built[next(iter(built))]
        built[key] = network
    return built[key]


def node_ports(system: System) -> tuple[float, float]:
    """Return (B/s that a node sends to others over its ports, α of such a message).

    A single node has no limit. Where units have no ports, all links to neighbours count.
    """
    if system.inside >= len(system.levels):
        return float("inf"), 0.0
    level = system.levels[system.inside]
    room = min(2 * system.node, level.devices)
    fabrics = network_of(system, room).fabrics
    fabric = next(fabric for fabric in fabrics if fabric.unit >= system.node)
    links = fabric.ports if fabric.has_ports else 2.0 * max(1, len(level.shape))
    return links * fabric.level.bandwidth * (level.share or 1.0), level.latency
