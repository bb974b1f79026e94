"""Load of every link while all groups run an operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.collectives import menu, named
from oracle.network.contention.counting import PART
from oracle.network.contention.flows import flows_of
from oracle.network.contention.groups import Pattern, closest_devices, seated
from oracle.network.contention.line import CostLine
from oracle.network.contention.price import lines
from oracle.network.contention.ring_sets import laid_out
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
        """What kind of link -> (mean, highest) use: the picture in a line a kind."""
        (words, number), longest = self.topology.kinds, self.longest
        found = {}
        for word in dict.fromkeys(words[kind] for kind in np.unique(number)):
            alike = [kind for kind, other in enumerate(words) if other == word]
            mine = self.seconds[np.any([number == kind for kind in alike], axis=0)]
            found[word] = float(mine.mean()) / longest, float(mine.max()) / longest
        return found


def loads(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None,
    nbytes: float = 64e6,
) -> Loads:  # fmt: skip
    """Bytes on every link when all groups run an operation: the named algorithm or the best."""
    offer = lines(system, op, pattern, devices, algorithm)
    line = min(offer, key=lambda each: each.start + each.per_byte * nbytes)
    system, groups = seated(system, pattern, devices, op)
    topology = network_of(system, groups.reach, circuits="circuits" in line.algorithm)
    total = np.zeros(topology.links + 1)
    if groups.p > 1:
        inner = groups.inner(closest_devices(system))
        name = line.algorithm.split("/")[0].split(" ")[0]
        fitting = {by.name: by for by in menu(op, groups.p, inner)}
        by = fitting.get(name) or named(op, name)
        by = by if by.fits(groups.p, inner) else named(op, "ring")
        for steps in laid_out(by, topology, groups, inner):
            for flows in flows_of(topology, groups, steps):
                for begin in range(0, len(flows.source), PART):
                    at = slice(begin, begin + PART)
                    ends = flows.source[at], flows.target[at]
                    route, _, part = topology.spread_route(*ends)
                    step = np.arange(begin, begin + route.shape[1]) // flows.per_step
                    sent = flows.share[at] * flows.times[step] * part[:, None]
                    np.add.at(total, route.ravel(), sent.ravel())
    total *= topology.seconds_per_byte
    return Loads(topology, line, total[:-1])
