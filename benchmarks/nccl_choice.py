"""NCCL's public cost model of ring and tree, and the choice that it makes from it.

    time = latency + bytes / bandwidth,   the least over algorithm × protocol

The constants are NCCL's own [nccl, src/graph/tuning.cc], of 2.8 and of 2.30. Predictions take its
constants only (`oracle.network.nccl`); here its choice is compared with logs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.network.arrays import Floats, Number
from oracle.network.nccl import BASE, HOP, PLATEAU, PROTOCOLS, US

LL_PAYLOAD = {"2.8": 0.25, "2.30": 0.5}  # of the ring's bandwidth that is payload
# GB/s by architecture and by nodes: 1, 2, 4 and more
LL_MOST = {"volta": (39, 39, 20.4), "ampere": (87.7, 22.5, 19), "hopper": (141, 45, 35),
           "blackwell": (282, 90, 70)}  # fmt: skip
TREE_MOST = {"volta": (26.5, 18.5, 10), "ampere": (24, 23.6, 17.8), "hopper": (38.7, 41.4, 36),
             "blackwell": (70, 42.8, 24)}  # fmt: skip
RING_LL128_MOST = {"volta": 20.0, "ampere": 20.0, "hopper": 36.7, "blackwell": 40.0}
# part of the model that trees reach at 64 B · 2^k
TREE_SHARE = (
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1),
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9),
)  # fmt: skip
# a channel is opened for so many bytes: threads × bytes a thread, × ranks in a ring
THREADS = {"LL": 512 * 8, "LL128": 640 * 8, "Simple": 512 * 64}
STEPS = {"allreduce": 2, "reduce_scatter": 1, "allgather": 1}  # times (p − 1)


@dataclass(frozen=True)
class NcclNetwork:
    """The result of NCCL's graph search: channels, and GB/s of one inside and between nodes."""

    ranks: int
    nodes: int
    channels: int
    inside: float
    between: float
    link: str = "nvlink"
    architecture: str = "volta"
    version: str = "2.8"
    ll128: bool = True  # off where the way between nodes is not direct from the devices
    delay: float = 0.0  # s of one network port

    @property
    def row(self) -> int:
        """Column of the tables by nodes: one, two, or four and more."""
        return min(2, int(np.log2(self.nodes)))


def model(op: str, net: NcclNetwork) -> dict[tuple[str, str], tuple[float, float]]:
    """Return {(algorithm, protocol): (seconds, bytes per second of the message)}."""
    p, n = net.ranks, net.nodes
    steps = STEPS[op] * (p - 1)
    between = STEPS[op] * (n - 1)
    if net.version == "2.8" and op == "allreduce" and n > 1:
        between = 2 * n  # as that version counts them
    bus = net.channels * (net.inside if n <= 2 else net.between)
    ll_most = LL_MOST[net.architecture][net.row]
    ring = (min(ll_most, LL_PAYLOAD[net.version] * bus),
            min(0.92 * bus, net.channels * RING_LL128_MOST[net.architecture]), bus)  # fmt: skip
    tree_bus = min(0.92 * bus, net.channels * TREE_MOST[net.architecture][net.row])
    tree = (min(tree_bus / 3.8, ll_most), tree_bus * (7 / 9 if n == 1 else 120 / 128), tree_bus)
    hops, base, out = HOP[net.version], BASE[net.version], {}
    for k, protocol in enumerate(PROTOCOLS):
        if protocol == "LL128" and not net.ll128:
            continue
        port = net.delay * (2 if protocol == "Simple" else 1)
        inner, outer = hops[net.link]["ring"][k], hops["network"]["ring"][k]
        seconds = (base["ring"][k] + (steps - between) * inner + between * outer) * US
        out["ring", protocol] = seconds + between * port, ring[k] * p / steps * 1e9
        if op == "allreduce":
            inner, outer = hops[net.link]["tree"][k], hops["network"]["tree"][k]
            depth = int(np.log2(n))
            seconds = base["tree"][k] + 2 * ((p / n - 1) * inner + depth * outer)
            out["tree", protocol] = seconds * US + 2 * depth * port, tree[k] / 2 * 1e9
    return out


def terms(
    op: str, net: NcclNetwork, nbytes: Number
) -> dict[tuple[str, str], tuple[Floats, Floats]]:
    """Return {(algorithm, protocol): (seconds of latency, seconds of transfer) of messages}."""
    m, out = np.asarray(nbytes, float), {}
    size = np.floor(np.log2(np.maximum(m, 64) / 64)).astype(int)
    for (algorithm, protocol), (latency, bandwidth) in model(op, net).items():
        wait, part = np.full_like(m, latency), np.ones_like(m)
        if algorithm == "tree":
            table = np.array(TREE_SHARE[PROTOCOLS.index(protocol)], float)
            part = table[np.minimum(size, len(table) - 1)]
        elif protocol == "Simple" and net.nodes > 1 and op == "allreduce":
            full = m / (net.channels * net.ranks) >= 64
            wait = np.where(full, latency * PLATEAU[net.version], latency)
        out[algorithm, protocol] = wait, m / (bandwidth * part)
    return out


def channels_opened(algorithm: str, protocol: str, net: NcclNetwork, nbytes: Number) -> Floats:
    """Return the part of all channels that NCCL opens for a message [nccl, enqueue.cc]."""
    bytes_a_channel = THREADS[protocol] * (
        net.ranks if (algorithm, protocol) == ("ring", "LL") else 1
    )
    opened = np.clip(np.floor(np.asarray(nbytes, float) / bytes_a_channel), 1, net.channels)
    return np.asarray(opened / net.channels)


def choice(op: str, net: NcclNetwork, nbytes: Number) -> tuple[NDArray[np.str_], Floats]:
    """Return the algorithm that NCCL would take, "ring/LL", and the seconds that it then needs.

    The choice counts on all channels; a short message then goes over fewer.
    """
    table = terms(op, net, nbytes)
    best = np.stack([wait + wire for wait, wire in table.values()]).argmin(axis=0)
    seconds = np.stack([wait + wire / channels_opened(*key, net, nbytes)
                        for key, (wait, wire) in table.items()])  # fmt: skip
    names = np.array(["/".join(key) for key in table])
    return names[best], np.take_along_axis(seconds, best[None], 0)[0]
