"""Textbook networks by their sizes: crossbar, fat tree, torus, dragonfly, loop, nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from oracle.network.topology.topology import Topology
from oracle.spec.system import Level


def _level(name: str, devices: int, bandwidth: float, latency: float, **more: Any) -> Level:
    return Level(name, devices, bandwidth, latency, source="given", **more)


def crossbar(
    devices: int, bandwidth: float, latency: float = 1e-6, duplex: str = "full", hop: float = 0.0
) -> Topology:
    """One switch."""
    level = _level("switch", devices, bandwidth, latency, duplex=duplex)
    return Topology([level], devices, hop)


def fat_tree(
    down: Sequence[int], up: Sequence[float], bandwidth: float, latency: float = 1e-6,
    duplex: str = "full", hop: float = 0.0,
) -> Topology:  # fmt: skip
    """A fat tree by its arities: stage i has `down[i]` units a switch, `up[i]` links above each.

    The first stage is the hosts and their leaf, so `up[0]` is the links of one host (1), and
    `up[1]` those of one leaf switch; above, those of one switch of the stage. Routes are static,
    by D-mod-k [zahavi2012].
    """
    levels, span, ports = [], 1, 1.0
    for stage, (below, above) in enumerate(zip(down, up, strict=True)):
        span, ports = span * below, ports * above
        name = "leaf" if stage == 0 else "spine" if stage == len(down) - 1 else f"stage {stage}"
        kind, routing = ("fat-tree", "d-mod-k") if stage else ("switch", None)
        levels.append(_level(name, span, bandwidth, latency, kind=kind, ports=ports,
                             duplex=duplex, routing=routing))  # fmt: skip
    return Topology(levels, span, hop)


def torus(
    shape: Sequence[int], bandwidth: float, latency: float = 1e-6, hop: float = 0.0,
    kind: str = "torus",
) -> Topology:  # fmt: skip
    """A torus, ring or open grid of devices."""
    devices = math.prod(shape)
    level = _level(kind, devices, bandwidth, latency, kind=kind, shape=tuple(shape))
    return Topology([level], devices, hop)


def dragonfly(
    groups: int, routers: int, hosts: int, bandwidth: float, latency: float = 1e-6,
    hop: float = 0.0, routing: str | None = None, trunk: int = 1,
) -> Topology:  # fmt: skip
    """A dragonfly; `trunk` links between each two groups, taken as one."""
    devices = groups * routers * hosts
    level = _level("dragonfly", devices, bandwidth, latency, kind="dragonfly",
                   shape=(groups, routers, hosts, trunk), routing=routing)  # fmt: skip
    return Topology([level], devices, hop)


def loop(
    switches: int, hosts: int, bandwidth: float, latency: float = 1e-6, longest: int | None = None,
    duplex: str = "full", hop: float = 0.0,
) -> Topology:  # fmt: skip
    """A distributed loop network."""
    shape = (switches, hosts) + ((longest,) if longest else ())
    level = _level("loop", switches * hosts, bandwidth, latency, kind="loop", shape=shape,
                   duplex=duplex)  # fmt: skip
    return Topology([level], switches * hosts, hop)


def nodes(
    count: int, devices: int, ports: int, inner: float, outer: float, leaf: int, spines: float,
    latency: float = 1e-6,
) -> Topology:  # fmt: skip
    """Nodes of several devices behind shared ports, below leaf switches and spines."""
    levels = [_level("node", devices, inner, latency)]
    leaf = min(leaf, count)
    levels.append(_level("leaf", leaf * devices, outer, latency, ports=ports))
    if leaf < count:
        levels.append(_level("spine", count * devices, outer, latency, kind="fat-tree",
                             ports=spines, routing="d-mod-k"))  # fmt: skip
    return Topology(levels, count * devices)
