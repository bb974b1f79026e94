"""A node's memory as a cache of files: which reads it answers.

    h = min(1, cache / V_node)

whatever the policy: where samples come in another random order each epoch and not all fit, every
algorithm does as well as one at random. V_node is what a node may be asked for: all of the data
where any node may read any sample, its own part where each keeps to that.

Before that a node only has what it has read: of epoch k, with 1/N of all samples each epoch,

    h_k = min(h, 1 - (1 - 1/N)^(k-1))
"""

from __future__ import annotations

import numpy as np

from oracle.storage.arrays import Floats, Number


def hits(memory: Number, visited: Number) -> Floats:
    """The share of its reads that a node's memory answers in the long run."""
    return np.minimum(1.0, np.asarray(memory, float) / visited)


def mean_hits(steady: Number, share: Number, epochs: float) -> Floats:
    """The mean share over the first so many epochs, in each of which a node reads a `share`."""
    steady = np.minimum(np.asarray(steady, float), 1.0)
    left = np.clip(1.0 - np.asarray(share, float), 1e-300, 1 - 1e-16)
    with np.errstate(divide="ignore"):
        rises = np.minimum(epochs, np.ceil(np.log1p(-steady) / np.log(left)))
    seen = rises - (1 - left**rises) / (1 - left)  # the sum of 1 - left^k, k = 0 … rises - 1
    return np.asarray((seen + (epochs - rises) * steady) / epochs)
