"""Fat trees of one, two or three tiers, full or oversubscribed at the leaves [alfares2008].

Port j of every node of a unit is on the unit's leaf j (rails). A leaf of d nodes has ⌈d / ratio⌉
cables up; above it nothing is oversubscribed. A full one of k ports: 5k²/4 switches, k³/4 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from oracle.network.designs.design import Design, Needs, Refusal, Trunk, Wiring, counted, divisor_of
from oracle.spec.level import Level

RATIOS = (1, 2, 3)


class Sizes(NamedTuple):
    """Sizes of a tree of tiers: the fewer switches, and then cables, the better."""

    switches: int
    cables: int  # between switches
    down: int  # nodes of a leaf
    up: int  # cables up of a leaf
    units: int  # of as many leaves as a node has ports
    near: int  # units of a pod; all of them where there are two tiers
    middle: int  # switches above the leaves: of a pod, or spines
    core: int = 0  # switches above each of a pod's


def build(needs: Needs) -> Iterator[Design | Refusal]:
    if needs.nodes * needs.nics <= needs.ports:
        yield one_switch(needs)
        return
    for ratio in RATIOS:
        name = f"fat tree {ratio}:1"
        sizes = smallest(needs, ratio)
        yield _tree(needs, name, sizes) if sizes else Refusal(name, _why(needs))


def smallest(needs: Needs, ratio: int) -> Sizes | None:
    """Return the tree of two tiers with the fewest switches, or of three where two do not do."""
    return min(two_tiers(needs, ratio), default=None) or min(
        three_tiers(needs, ratio), default=None
    )


def _why(needs: Needs) -> str:
    if needs.nics * 2 > needs.ports:
        return (f"a pod has {needs.nics} leaves or more, one for each port of a node, and half "
                f"of the {needs.ports} ports of a switch above them")  # fmt: skip
    return (f"three tiers of {needs.ports} ports do not hold {needs.nodes:,} nodes of "
            f"{counted(needs.nics)}")  # fmt: skip


def one_switch(needs: Needs) -> Design:
    home = np.zeros((needs.nodes, needs.nics), np.int64)
    level = needs.level(needs.nodes, 0, ports=needs.nics)
    return Design("one switch", f"{home.size} of its {needs.ports} ports in use",
                  Wiring(home, 1, {}), (level,))  # fmt: skip


def two_tiers(needs: Needs, ratio: int) -> Iterator[Sizes]:
    """Yield trees of leaves and spines; every leaf has as many cables to each spine."""
    for down in range(1, needs.ports):
        up, units = -(-down // ratio), -(-needs.nodes // down)
        leaves = units * needs.nics
        if down + up > needs.ports or leaves > needs.ports:
            continue
        spines = divisor_of(up, -(-leaves * up // needs.ports))
        yield Sizes(leaves + spines, leaves * up, down, up, units, units, spines)


def three_tiers(needs: Needs, ratio: int) -> Iterator[Sizes]:
    """Yield trees of pods; each switch above the leaves of a pod has a group of cores."""
    half = needs.ports // 2
    for down, near in product(range(1, needs.ports), range(1, half // needs.nics + 1)):
        up, units = -(-down // ratio), -(-needs.nodes // down)
        pods, leaves = -(-units // near), near * needs.nics
        if down + up > needs.ports or pods > needs.ports or pods < 2:
            continue
        middle = divisor_of(up, -(-up * leaves // half))
        cables_a_switch = up // middle * leaves  # cables down, and up, of a switch above leaves
        core = divisor_of(cables_a_switch, -(-pods * cables_a_switch // needs.ports))
        switches = units * needs.nics + (pods + core) * middle
        cables = units * needs.nics * up + pods * middle * cables_a_switch
        yield Sizes(switches, cables, down, up, units, near, middle, core)


def wired(needs: Needs, sizes: Sizes) -> Wiring:
    """Return the wiring: leaves unit by unit, then switches above them pod by pod, then cores."""
    nodes, rails = np.arange(needs.nodes), np.arange(needs.nics)
    home = (nodes // sizes.down * needs.nics)[:, None] + rails
    leaves, pods = sizes.units * needs.nics, -(-sizes.units // sizes.near)
    trunk = sizes.up // sizes.middle
    low: list[Trunk] = [
        (leaf, leaves + leaf // (sizes.near * needs.nics) * sizes.middle + j, trunk)
        for leaf in range(leaves) for j in range(sizes.middle)
    ]  # fmt: skip
    first = leaves + pods * sizes.middle
    cables_up = sizes.near * needs.nics * trunk
    high: list[Trunk] = [
        (leaves + pod * sizes.middle + j, first + j * sizes.core + k, cables_up // sizes.core)
        for pod in range(pods) for j in range(sizes.middle) for k in range(sizes.core)
    ] if sizes.core else []  # fmt: skip
    trunks = {"group": low, "global": high} if sizes.core else {"global": low}
    return Wiring(home, first + sizes.middle * sizes.core, trunks)


def _tree(needs: Needs, name: str, sizes: Sizes) -> Design:
    leaves, pods = sizes.units * needs.nics, -(-sizes.units // sizes.near)
    ratio = sizes.down / sizes.up
    rail = {"kind": "rail", "routing": "affinity"} if needs.nics > 1 else {}
    levels: list[Level] = [needs.level(sizes.down, 0, ports=needs.nics, **rail)]

    def tier(units: int, hops: int, called: str, over: float) -> Level:
        return needs.level(sizes.down * units, hops, called, kind="fat-tree", routing="adaptive",
                            oversubscription=over)  # fmt: skip

    words = f"{leaves} leaves of {sizes.down} nodes, {sizes.up} cables up each; "
    if not sizes.core:
        levels.append(tier(sizes.units, 2, "spine", ratio))
        words += f"{sizes.middle} spines"
    else:
        if sizes.near > 1:
            levels.append(tier(sizes.near, 2, "pod", ratio))
        levels.append(tier(sizes.near * pods, 4, "core", 1.0 if sizes.near > 1 else ratio))
        words += (f"{pods} pods of {sizes.middle} switches above them; "
                  f"{sizes.middle * sizes.core} cores")  # fmt: skip
    if needs.nics > 1:
        words = f"{words}; a leaf a rail"
    return Design(name, words, wired(needs, sizes), tuple(levels))
