"""What plans ask of storage: how much, in how many files, by how many nodes.

Of the ranks that share a sample one reads it and passes it on; those that need but a part of it
(of its extents) each read that part where a mode can, else the first of them reads it whole and
deals it out. Nodes that read are no more than ranks that do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from oracle.storage import loader
from oracle.storage.arrays import Floats, Number
from oracle.storage.shuffling import Shuffle
from oracle.storage.unknown import Machine, Samples


@dataclass(frozen=True, eq=False)
class Question:
    """What some plans ask of storage: a number of each plan (n,), or one number for all."""

    machine: Machine
    samples: Samples
    batch: Number  # samples of a step, all nodes together
    nodes: Number
    groups: Number  # of ranks that read other samples than all others
    parts: Number = 1.0  # into which the extents of a sample are cut
    shuffle: Shuffle = field(default_factory=Shuffle)
    scatter: Number = 0.0  # B/s by which a reader deals parts out; 0: the network's
    epochs: float | None = None  # of the training, where it is said

    @property
    def nobody_cuts(self) -> bool:
        return bool(np.all(np.asarray(self.parts) <= 1))

    def reading(self, slabs: bool = False) -> Floats:
        """Return N, the nodes that read."""
        ranks = self.groups * (self.parts if slabs else 1.0)
        return np.asarray(np.minimum(np.asarray(self.nodes, float), ranks))

    def nbytes(self, slabs: bool = False) -> Floats:
        """Return b, the bytes that one node reads in a step."""
        return self.batch * self.samples.each / self.reading(slabs)

    def files(self, slabs: bool = False) -> Floats:
        """Return q, the files that one node opens in a step."""
        cut = self.parts if slabs else 1.0
        return self.batch * self.samples.opens * cut / self.reading(slabs)

    def threads(self, slabs: bool = False) -> Floats:
        """Return w, a node's threads: all, or one for each rank that reads for others as well."""
        all_threads = loader.threads(self.machine.host) + 0.0 * np.asarray(self.parts)
        if slabs:
            return all_threads
        leaders = self.groups / self.reading()
        return np.where(np.asarray(self.parts) > 1, leaders, all_threads)

    def slowest(self, slabs: bool = False) -> Floats:
        """Return how many times as long as the mean node the node with the most bytes reads."""
        nodes = self.reading(slabs)
        return loader.slowest(nodes, self.batch / nodes, self.samples.spread)

    def alone(self) -> Floats:
        """Return the seconds of a step in which ranks that read deal out parts of their samples."""
        bandwidth = np.where(np.asarray(self.scatter) > 0, self.scatter, self.machine.ports)
        group_bytes = self.batch / self.groups * self.samples.each
        return np.asarray((1 - 1 / np.asarray(self.parts, float)) * group_bytes / bandwidth)

    def decode(self, slabs: bool = False, packed: bool = False) -> Number:
        """Return the seconds of a step that a node's cores need to make its samples."""
        data = self.samples
        core_seconds = data.decode + (data.each / data.unpack if packed else 0.0)
        return loader.decode(self.machine.host, self.batch / self.reading(slabs), core_seconds)

    @property
    def steps(self) -> Number:
        """The steps of an epoch."""
        return self.samples.count / self.batch
