"""Load of every link while all groups run an operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.contention.counting.flows import add_to_links, flows_of
from oracle.network.contention.counting.ring_sets import steps_of_line
from oracle.network.contention.groups import Pattern, closest_devices, seated
from oracle.network.contention.line import CostLine
from oracle.network.contention.price import lines
from oracle.network.topology import Topology, network_of
from oracle.spec.system import System


@dataclass(frozen=True, eq=False)
class Loads:
    """How full every link gets in one call of an operation, all groups at once."""

    topology: Topology
    line: CostLine
    seconds: Floats  # that each link works, per byte of the message

    @property
    def longest(self) -> float:
        """Seconds per byte that the exchange takes, or its fullest link."""
        return max(float(self.seconds.max(initial=0.0)), self.line.per_byte, 1e-300)

    @property
    def use(self) -> Floats:
        """Part of the exchange's time that each link works."""
        return self.seconds / self.longest

    def by_label(self) -> dict[str, tuple[float, float]]:
        """Return (mean, highest) use by kind of link."""
        (words, number), longest = self.topology.kinds, self.longest
        use_by_label = {}
        for word in dict.fromkeys(words[kind] for kind in np.unique(number)):
            alike = [kind for kind, label in enumerate(words) if label == word]
            seconds = self.seconds[np.any([number == kind for kind in alike], axis=0)]
            use_by_label[word] = float(seconds.mean()) / longest, float(seconds.max()) / longest
        return use_by_label


def loads(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None,
    nbytes: float = 64e6,
) -> Loads:  # fmt: skip
    """Return how full links are when all groups run an operation, as named or as is fastest."""
    offer = lines(system, op, pattern, devices, algorithm)
    line = min(offer, key=lambda line: line.start + line.per_byte * nbytes)
    system, groups = seated(system, pattern, devices, op)
    topology = network_of(system, groups.reach, circuits="circuits" in line.algorithm)
    total = np.zeros(topology.links + 1)
    if groups.p > 1:
        inner = groups.inner(closest_devices(system))
        for steps in steps_of_line(line.algorithm, op, topology, groups, inner):
            for flows in flows_of(topology, groups, steps):
                share = flows.share * np.repeat(flows.times, flows.per_step)
                add_to_links(total, topology, flows, share)
    total *= topology.seconds_per_byte
    return Loads(topology, line, total[:-1])
