"""A node's memory as a cache of files: which reads it answers.

    h = min(1, cache / V_node)

whatever the policy: where samples come in another random order each epoch and not all fit, every
algorithm does as well as one at random. V_node is what a node may be asked for: all of the data
where any node may read any sample, its own part where each keeps to that.

Before that a node only has what it has read: of epoch k, with 1/N of all samples each epoch,

    h_k = min(h, 1 - (1 - 1/N)^(k-1))

so that misses fade by the same factor from epoch to epoch (`oracle.storage.loader.slower`).
"""

from __future__ import annotations

import numpy as np

from oracle.storage.arrays import Floats, Number


def hits(memory: Number, visited: Number) -> Floats:
    """The share of its reads that a node's memory answers in the long run."""
    return np.minimum(1.0, np.asarray(memory, float) / visited)
