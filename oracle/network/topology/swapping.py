"""Assignment of a job's parts to nodes by swaps of two, as long as any swap helps.

What parts of a job send each other is laid on the distances between nodes, a quadratic assignment
[koopmans1957]. The pairs whose swap saves most are swapped first; then all pairs are looked at
again, until none saves anything.
"""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.topology.topology import Topology

SWEEPS = 12  # through all pairs, at most
WORK = 2**33  # multiplications in all, at most
LARGEST = 2048  # nodes whose distances are laid out
LEAST = 1e-6  # of the cost: a smaller saving is rounding


def distances(topology: Topology, first: Ints) -> Floats:
    """Return the links on the way between every two nodes, given by their first devices."""
    source, target = (nodes.ravel() for nodes in np.meshgrid(first, first, indexing="ij"))
    hops = np.empty(len(source))
    for begin in range(0, len(source), 2**18):
        part = slice(begin, begin + 2**18)
        route = topology.route(source[part], target[part])
        hops[part] = (route != topology.links).sum(axis=0)
    distance = hops.reshape(len(first), len(first))
    return np.asarray(distance + distance.T)


def savings(flow: Floats, distance: Floats, order: Ints) -> Floats:
    """Return by how much the cost changes if parts r and s swap nodes, for every r and s.

    Δ = Σ_k (F_rk − F_sk) (E_sk − E_rk),  k ≠ r, s;  E the distances of the nodes they sit on
    """
    seated = distance[np.ix_(order, order)]
    cost = flow @ seated
    diagonal = np.diag(cost)
    return np.asarray(cost + cost.T - diagonal[:, None] - diagonal[None, :] + 2 * flow * seated)


def swapped(flow: Floats, distance: Floats, order: Ints) -> Ints:
    """Return each part's node after all swaps that save something; flow and distance symmetric."""
    order, count = order.copy(), len(order)
    smallest = LEAST * float((flow * distance[np.ix_(order, order)]).sum())
    for _ in range(min(SWEEPS, max(1, WORK // max(1, 2 * count**3)))):
        change = np.triu(savings(flow, distance, order), 1)
        first, second = np.nonzero(change < -smallest)
        if not len(first):
            break
        best = np.argsort(change[first, second], kind="stable")[: 4 * count]
        for r, s in zip(first[best].tolist(), second[best].tolist(), strict=True):
            distance_r, distance_s = distance[order[r], order], distance[order[s], order]
            gain = (flow[r] - flow[s]) * (distance_s - distance_r)
            gain[[r, s]] = 0.0
            if gain.sum() < -smallest:
                order[r], order[s] = order[s], order[r]
    return order
