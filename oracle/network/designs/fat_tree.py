"""Fat trees of one, two or three tiers, full or oversubscribed at the leaves [alfares2008].

Port j of every node of a unit is on the unit's leaf j (rails). A leaf of d nodes has ⌈d / ratio⌉
cables up; above it nothing is oversubscribed. A full one of k ports: 5k²/4 switches, k³/4 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from oracle.network.designs.design import Design, Refusal, Trunk, Wanted, Wiring, counted, enough
from oracle.spec.level import Level

RATIOS = (1, 2, 3)


class Sizes(NamedTuple):
    """Numbers of a tree of tiers: the fewer switches, and then cables, the better."""

    switches: int
    cables: int  # between switches
    down: int  # nodes of a leaf
    up: int  # cables up of a leaf
    units: int  # of as many leaves as a node has ports
    near: int  # units of a pod; all of them where there are two tiers
    middle: int  # switches above the leaves: of a pod, or spines
    core: int = 0  # switches above each of a pod's


def build(wanted: Wanted) -> Iterator[Design | Refusal]:
    if wanted.nodes * wanted.nics <= wanted.ports:
        yield one_switch(wanted)
        return
    for ratio in RATIOS:
        name = f"fat tree {ratio}:1"
        found = min(two_tiers(wanted, ratio), default=None)
        found = found or min(three_tiers(wanted, ratio), default=None)
        yield _tree(wanted, name, found) if found else Refusal(name, _why(wanted))


def _why(wanted: Wanted) -> str:
    if wanted.nics * 2 > wanted.ports:
        return (f"a pod has {wanted.nics} leaves or more, one for each port of a node, and half "
                f"of the {wanted.ports} ports of a switch above them")  # fmt: skip
    return (f"three tiers of {wanted.ports} ports do not hold {wanted.nodes:,} nodes of "
            f"{counted(wanted.nics)}")  # fmt: skip


def one_switch(wanted: Wanted) -> Design:
    home = np.zeros((wanted.nodes, wanted.nics), np.int64)
    level = wanted.level(wanted.nodes, 0, ports=wanted.nics)
    return Design("one switch", f"{home.size} of its {wanted.ports} ports in use",
                  Wiring(home, 1, {}), (level,))  # fmt: skip


def two_tiers(wanted: Wanted, ratio: int) -> Iterator[Sizes]:
    """Leaves and spines: every leaf has as many cables to each spine."""
    for down in range(1, wanted.ports):
        up, units = -(-down // ratio), -(-wanted.nodes // down)
        leaves = units * wanted.nics
        if down + up > wanted.ports or leaves > wanted.ports:
            continue
        spines = enough(up, -(-leaves * up // wanted.ports))
        yield Sizes(leaves + spines, leaves * up, down, up, units, units, spines)


def three_tiers(wanted: Wanted, ratio: int) -> Iterator[Sizes]:
    """Pods of leaves and switches above them, each of which has a group of cores of its own."""
    half = wanted.ports // 2
    for down, near in product(range(1, wanted.ports), range(1, half // wanted.nics + 1)):
        up, units = -(-down // ratio), -(-wanted.nodes // down)
        pods, leaves = -(-units // near), near * wanted.nics
        if down + up > wanted.ports or pods > wanted.ports or pods < 2:
            continue
        middle = enough(up, -(-up * leaves // half))
        each = up // middle * leaves  # cables down, and up, of a switch above leaves
        core = enough(each, -(-pods * each // wanted.ports))
        switches = units * wanted.nics + (pods + core) * middle
        cables = units * wanted.nics * up + pods * middle * each
        yield Sizes(switches, cables, down, up, units, near, middle, core)


def wired(wanted: Wanted, sizes: Sizes) -> Wiring:
    """The switches: leaves unit by unit, then those above them pod by pod, then the cores."""
    nodes, rails = np.arange(wanted.nodes), np.arange(wanted.nics)
    home = (nodes // sizes.down * wanted.nics)[:, None] + rails
    leaves, pods = sizes.units * wanted.nics, -(-sizes.units // sizes.near)
    trunk = sizes.up // sizes.middle
    low: list[Trunk] = [
        (leaf, leaves + leaf // (sizes.near * wanted.nics) * sizes.middle + j, trunk)
        for leaf in range(leaves) for j in range(sizes.middle)
    ]  # fmt: skip
    first = leaves + pods * sizes.middle
    each = sizes.near * wanted.nics * trunk
    high: list[Trunk] = [
        (leaves + pod * sizes.middle + j, first + j * sizes.core + k, each // sizes.core)
        for pod in range(pods) for j in range(sizes.middle) for k in range(sizes.core)
    ] if sizes.core else []  # fmt: skip
    trunks = {"group": low, "global": high} if sizes.core else {"global": low}
    return Wiring(home, first + sizes.middle * sizes.core, trunks)


def _tree(wanted: Wanted, name: str, sizes: Sizes) -> Design:
    leaves, pods = sizes.units * wanted.nics, -(-sizes.units // sizes.near)
    ratio = sizes.down / sizes.up
    rail = {"kind": "rail", "routing": "affinity"} if wanted.nics > 1 else {}
    levels: list[Level] = [wanted.level(sizes.down, 0, ports=wanted.nics, **rail)]

    def tier(units: int, hops: int, called: str, over: float) -> Level:
        return wanted.level(sizes.down * units, hops, called, kind="fat-tree", routing="adaptive",
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
    if wanted.nics > 1:
        words = f"{words}; a leaf a rail"
    return Design(name, words, wired(wanted, sizes), tuple(levels))
