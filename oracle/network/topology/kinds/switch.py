"""Switches: one that joins all units, and stages of them that make a fat tree."""

from __future__ import annotations

from dataclasses import replace

from oracle.network.topology.fabric import Fabric
from oracle.spec.system import Level


class Switch(Fabric):
    """One switch (or a crossbar of any make) between the ports of all units."""

    kind = "switch"


class Pcie(Fabric):
    """A PCIe switch or a socket's root: all devices below share the unit's one way up.

    The ports of a unit are one pipe: what leaves it takes any of them.
    """

    kind = "pcie"
    usual_routing = "striped"


class FatTree(Fabric):
    """One more stage of a fat tree: each unit has `ports` links up, one to each switch above.

    Between switches routing is adaptive where the spec does not say: the links up fill evenly, so
    at full bisection no flow slows another, whichever ranks send to which. `routing: d-mod-k` is
    static [zahavi2012]: the switch above is the target's port number modulo the links up. Shifts
    of all ranks never collide then, but two of a few flows may, as on real static routes
    [hoefler2008]. Ports of a node are its adapters, which no switch balances.
    A level whose `shape` lists several arities stands for as many stages.
    """

    kind = "fat-tree"

    def default_routing(self, depth: int, switches: bool) -> str:
        return "striped" if switches else "d-mod-k"

    @classmethod
    def stages(cls, level: Level, unit: int) -> list[Level]:
        """Return a level for each stage where `shape` lists arities, the hosts of a leaf first."""
        if len(level.shape) < 2:
            return [replace(level, shape=())]
        stages, span = [], unit
        for number, arity in enumerate(level.shape, 1):
            span *= arity
            first, last = number == 1, number == len(level.shape)
            stages.append(replace(
                level, devices=span, shape=(), ports=level.ports if first else None,
                name=level.name if last else f"{level.name} stage {number}",
                oversubscription=1.0 if first else level.oversubscription,
            ))  # fmt: skip
        return stages
