"""Parameter servers: each has a part of the weights, takes gradients and gives weights back."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.algorithm import Algorithm
from oracle.network.collectives.schedule import Steps, pairs


class Servers(Algorithm):
    """k servers on nodes of the workers, spread evenly: all push at once, and all pull.

        T = 2α + 2 m β max((p − 1)/k, 1)          (p − 1)/p in place of 1 where k = p

    A server takes m/k from every other rank, a worker sends m in all: a single server is the
    bottleneck, as many servers as workers are an all-to-all. `servers:8` has eight.
    """

    op, name, source, menu = "allreduce", "servers", "li2014, §3; dean2012, §4", False
    number = "k"
    k = 2

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 1 and self.k <= p

    def steps(self, p: Number) -> Number:
        return 2 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return 2 * np.maximum((p - 1) / np.minimum(self.k, p), self._sent(p))

    def reduced(self, p: Number) -> Number:
        return (p - 1) / np.minimum(self.k, p)

    def copied(self, p: Number, connection: float | None, process: float | None) -> Number:
        """Seconds a byte where each process copies all that it sends and takes.

        2 max(1/min(k c, C), (p − 1)/(k C))         of a worker with k connections, of a server
        """
        rate = process or np.inf
        worker = self._sent(p) / np.minimum(self.k * (connection or np.inf), rate)
        return np.asarray(2 * np.maximum(worker, (np.asarray(p) - 1) / (self.k * rate)))

    def _sent(self, p: Number) -> Number:
        """Part of a message that a worker sends: all of it, unless it is a server too."""
        k = np.minimum(self.k, p)
        return np.where(np.asarray(p) > k, 1.0, (k - 1) / k)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        k = min(self.k, p)
        server = np.arange(k) * p // k
        worker, taker = (ends.ravel() for ends in np.meshgrid(np.arange(p), server))
        apart = worker != taker
        worker, taker = worker[apart], taker[apart]
        return [pairs(worker, taker, 1 / k), pairs(taker, worker, 1 / k)]
