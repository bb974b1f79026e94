"""Switches: one that joins all units, and stages of them that make a fat tree."""

from __future__ import annotations

from oracle.topology.fabric import Fabric


class Switch(Fabric):
    """One switch (or a crossbar of any make) between the ports of all units."""

    kind = "switch"


class Pcie(Fabric):
    """A PCIe switch or a socket's root: all below share the unit's one way up.

    The ports of a unit are one pipe: what leaves it takes any of them.
    """

    kind = "pcie"
    spread = "striped"


class FatTree(Fabric):
    """One more stage of a fat tree: each unit has `ports` links up, one to each switch above.

    Deterministic routing by D-mod-k [zahavi2012]: the switch above is the target's port number
    modulo the links up, so shifts never collide in a tree that is not oversubscribed. A level
    whose `shape` lists several arities stands for as many stages.
    """

    kind = "fat-tree"
    spread = "d-mod-k"
