"""The network of a system's first devices, built once."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from weakref import WeakKeyDictionary

from oracle.network.topology.topology import Topology
from oracle.spec.system import Level, System

KEPT = 2**22  # links of all networks that are kept of a system, and a larger one alone
_BUILT: WeakKeyDictionary[System, dict[object, Topology]] = WeakKeyDictionary()


def network_of(
    system: System, devices: int, reach: tuple[float, ...] = (), circuits: bool = False
) -> Topology:
    """The network below the first `devices` devices of a system, built once.

    `reach` is the part of each level's datasheet bandwidth that messages get (all of it); with
    `circuits`, optical circuits are set.
    """
    built = _BUILT.setdefault(system, {})
    key = devices, reach, circuits
    if key not in built:
        levels = [replace(level, bandwidth=level.bandwidth * part)
                  for level, part in zip_longest(system.levels, reach, fillvalue=1.0)
                  if isinstance(level, Level)]  # fmt: skip
        found = Topology(levels, devices, circuits=circuits)
        # a sweep asks for every size once
        while built and sum(each.links for each in built.values()) + found.links > KEPT:
            del built[next(iter(built))]
        built[key] = found
    return built[key]
