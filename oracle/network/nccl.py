"""NCCL's public constants of ring and tree, and of collectives in switches.

They are those of [nccl, src/graph/tuning.cc] 2.8, which hold up to 2.17, and of 2.30. NCCL assumes
that nobody else talks; `contention` puts φ on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.collectives import Algorithm
from oracle.spec.system import Level, System

PROTOCOLS = ("LL", "LL128", "Simple")
US = 1e-6
Three: TypeAlias = tuple[float, float, float]
Hops: TypeAlias = dict[str, dict[str, Three]]
Version: TypeAlias = tuple[int, int]
NEWEST: Version = (2, 30)
RENEWED: Version = (2, 18)  # from which on its constants are those of 2.30

# seconds · 10⁶ by protocol
BASE: dict[str, dict[str, Three]] = {
    "2.8": {"tree": (4.4, 4.4, 0.0), "ring": (3.6, 10.0, 8.4)},
    "2.30": {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)},
}
HOP: dict[str, Hops] = {
    "2.8": {
        "nvlink": {"tree": (0.52, 1.25, 28.0), "ring": (0.47, 1.9, 3.4)},
        "pcie": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
        "network": {"tree": (5.0, 8.5, 28.0), "ring": (2.7, 4.0, 9.6)},
    },
    "2.30": {
        "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
        "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
        "network": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
    },
}
PLATEAU = {"2.8": 1.9, "2.30": 1.4}  # ring Simple between nodes, from 64 B a channel and rank
CHANNEL = 15e9  # bytes a second that one moves


# the algorithms of ours that NCCL has
SUPPORTED = frozenset(("ring", "rings", "double_tree", "scattered", "direct", "pairwise", "chain"))
# part of a link's datasheet bandwidth that messages get
LINK_SHARE = {"nvlink": 20 / 25, "pcie": 12 / 16, "network": 12 / 12.5}
# of the part of a message that a rank has already, what it copies as if it were sent: the mean of
# A100, H100 and B200 nodes, each fitted to its own logs
OWN = 0.66
# part of what messages get, by protocol
PROTOCOL_SHARE = {"ring": (0.5, 0.92, 1.0), "double_tree": (0.92 / 3.8, 0.92 * 120 / 128, 0.92)}


def serves(system: System) -> bool:
    """Whether the library runs on a system's devices."""
    return system.device.library == "nccl"


def slowdown(system: System, processors: int = 0) -> float:
    """Return the seconds by which each byte sent or received slows the work beside it.

        3 / memory bandwidth + 1 / (channel · processors)

    A byte goes to memory and back and is added to something [nccl, issue 1428], and each channel
    has a processor to itself, 24 of them for the 360 GB/s of an H100 [tail2025]. At an A100's
    230 GB/s that is half of the time hidden. Measured, on average: work goes 18.9 % slower beside
    messages, and one after the other takes 10.2 % more than both at once; so messages that last
    31 % of the work cost 19 % of it: three fifths [lee2025]. Messages that are said to take so many
    `processors` take those, and no channel.
    """
    device = system.device
    if processors:
        return float(3 / device.memory_bandwidth)
    if not serves(system):
        return 0.0
    return float(3 / device.memory_bandwidth + 1 / (CHANNEL * device.processors))


def bandwidth_shares(system: System) -> tuple[float, ...]:
    """Return the part of each level's bandwidth that messages get, as measured or as a rule."""
    return tuple(level.share or LINK_SHARE[level.link] for level in system.levels)


def offered(menu: Sequence[Algorithm], outside: bool) -> list[Algorithm]:
    """Return the algorithms of a menu that NCCL has: rings by all ways out of a node, and trees.

    Inside a node its tree is a chain [nccl, tuning.cc]: a ring's steps, and more bytes.
    """
    rings = any(by.name == "rings" for by in menu)
    drop = {"ring"} if rings else set[str]()
    drop |= set() if outside else {"double_tree"}
    return [by for by in menu if by.name in SUPPORTED - drop]


def protocols(algorithm: str) -> tuple[str, ...]:
    """Return the protocols of an algorithm: point-to-point traffic knows no LL128."""
    return (
        PROTOCOLS
        if algorithm in ("ring", "rings", "bidirectional_ring", "double_tree")
        else ("LL", "Simple")
    )


def constants(
    algorithm: str, protocol: str, levels: Sequence[Level], version: Version = NEWEST
) -> tuple[float, float, Floats]:
    """Return (seconds of a call, part of the bandwidth, seconds of a hop at each level and none).

    A level's hop is that of its link; a latency beyond the LL128 ring's comes on top.
    """
    tree = "tree" if algorithm == "double_tree" else "ring"
    k, constants_of = PROTOCOLS.index(protocol), "2.8" if version < RENEWED else "2.30"
    hops = []
    for level in levels:
        link_hops = HOP[constants_of][level.link]
        beyond = max(0.0, level.latency - link_hops["ring"][1] * US)
        slower = (tree, protocol, level.link) == ("ring", "Simple", "network")
        hops.append((link_hops[tree][k] * US + beyond) * (PLATEAU[constants_of] if slower else 1))
    part = PROTOCOL_SHARE["double_tree" if tree == "tree" else "ring"][k]
    return BASE[constants_of][tree][k] * US, part, np.array([*hops, 0.0])


# what it takes from switches by itself: since which version, for which operations
SINCE: dict[str, Version] = {"nvls": (2, 17), "nvlstree": (2, 18)}
IN_SWITCH = {"nvls": ("allreduce", "allgather", "reduce_scatter"), "nvlstree": ("allreduce",)}
HEADS = 32  # ranks of a node that pull for the others, at most: NCCL_MAX_NVLS_ARITY
COLLNET = ("sharp", "collnet")
# of the bandwidth that messages get of NVLinks, what switches that reduce get. Hopper: tuning.cc's
# nvlsEfficiency, at which eight H100 reach the 476 GB/s of bus bandwidth that NVIDIA measures;
# Blackwell: 512 MiB on eight B200, the mean of two runs (0.62, 0.57), where tuning.cc has 0.74
NVLS_SHARE = {"hopper": 0.85, "blackwell": 0.6}
COLLNET_SHARE = 0.85  # from Hopper on, of the same file
# seconds · 10⁶: (since, inside a node, a hop between nodes)
SWITCH_HOPS: dict[str, tuple[tuple[Version, float, float], ...]] = {
    "nvls": (((2, 29), 25, 18), ((2, 21), 25, 18), ((2, 18), 23, 18), ((2, 17), 40, 0)),
    "nvlstree": (((2, 29), 25, 20.9), ((2, 21), 25, 14), ((2, 19), 23, 14), ((2, 18), 23, 19)),
}
PIECE, ARITY, COLLNET_HOP = 3.7, 0.4, 31.0  # of CollNetDirect: inside, for each peer, between


def switch_share(name: str, reduces: str, generation: str) -> float:
    """Return the part of messages' bandwidth that collectives in a level's switches get."""
    part = NVLS_SHARE.get(generation, NVLS_SHARE["hopper"]) if reduces == "nvls" else 1.0
    return part * COLLNET_SHARE if name in COLLNET and generation in NVLS_SHARE else part


def switch_start(
    name: str, levels: Sequence[Level], inner: int, nodes: int, version: Version
) -> float:
    """Return the seconds before the first byte, with the latency of levels beyond NCCL's own."""
    beyond = [max(0.0, level.latency - HOP["2.30"][level.link]["ring"][1] * US) for level in levels]
    if name == "collnet" or (name == "sharp" and inner == 1):
        inside = 2 * (min(1, inner - 1) * PIECE + (inner - 1) * ARITY) * US
        return inside + COLLNET_HOP * US + 2 * max(beyond)
    table = SWITCH_HOPS["nvlstree" if name == "nvlstree" else "nvls"]
    _, inside, hop = next((row for row in table if version >= row[0]), table[-1])
    if nodes == 1:
        return inside * US + max(beyond)
    if name == "sharp":
        return (inside + hop) * US + 2 * max(beyond)
    return inside * US + 2 * int(np.ceil(np.log2(nodes))) * (hop * US + 2 * max(beyond))


def version_named(name: str | None) -> Version | None:
    """Return the version that `nccl-2.17` names; None for any other name."""
    head, _, tail = (name or "").partition("nccl-")
    major, dot, minor = tail.partition(".")
    if head or not dot or not (major.isdecimal() and minor.isdecimal()) or len(tail) > 8:
        return None
    return int(major), int(minor)
