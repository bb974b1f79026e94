"""Which of some nodes each part of a job had best sit on: swaps of two, while any helps.

What parts of a job send each other is laid on the distances between nodes, a quadratic assignment
[koopmans1957]. Of all pairs those whose swap saves most are swapped first; what is left of it is
looked at again, until none saves anything.
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
    """Links on the way between every two nodes, of which these are the first devices."""
    here, there = (each.ravel() for each in np.meshgrid(first, first, indexing="ij"))
    found = np.empty(len(here))
    for at in range(0, len(here), 2**18):
        part = slice(at, at + 2**18)
        route = topology.route(here[part], there[part])
        found[part] = (route != topology.links).sum(axis=0)
    apart = found.reshape(len(first), len(first))
    return np.asarray(apart + apart.T)


def savings(flow: Floats, apart: Floats, order: Ints) -> Floats:
    """What the cost changes by if parts r and s swap nodes, for every r and s.

    Δ = Σ_k (F_rk − F_sk) (E_sk − E_rk),  k ≠ r, s;  E the distances of the nodes they sit on
    """
    now = apart[np.ix_(order, order)]
    both = flow @ now
    own = np.diag(both)
    return np.asarray(both + both.T - own[:, None] - own[None, :] + 2 * flow * now)


def swapped(flow: Floats, apart: Floats, order: Ints) -> Ints:
    """The node of each part after all swaps that save something; flow and distances symmetric."""
    order, count = order.copy(), len(order)
    least = LEAST * float((flow * apart[np.ix_(order, order)]).sum())
    for _ in range(min(SWEEPS, max(1, WORK // max(1, 2 * count**3)))):
        change = np.triu(savings(flow, apart, order), 1)
        first, second = np.nonzero(change < -least)
        if not len(first):
            break
        best = np.argsort(change[first, second], kind="stable")[: 4 * count]
        for r, s in zip(first[best].tolist(), second[best].tolist(), strict=True):
            mine, other = apart[order[r], order], apart[order[s], order]
            gain = (flow[r] - flow[s]) * (other - mine)
            gain[[r, s]] = 0.0
            if gain.sum() < -least:
                order[r], order[s] = order[s], order[r]
    return order
