"""Rails that never meet: a switch a rail, or a leaf-and-spine tree a rail [wang2023rail]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from oracle.network.designs.design import Design, Refusal, Trunk, Wanted, Wiring
from oracle.network.designs.fat_tree import RATIOS, two_tiers, wired


def build(wanted: Wanted) -> Iterator[Design | Refusal]:
    if wanted.nics < 2:
        yield Refusal("rail-only", "a node with one port has no rails")
        return
    if wanted.nodes > wanted.ports:
        yield Refusal("rail-only", f"a rail of {wanted.nodes:,} nodes needs a switch of as many "
                      f"ports, not {wanted.ports}")  # fmt: skip
        yield from _trees(wanted)
        return
    home = np.broadcast_to(np.arange(wanted.nics), (wanted.nodes, wanted.nics))
    level = wanted.level(wanted.nodes, 0, kind="rail-only", ports=wanted.nics)
    yield Design("rail-only", f"{wanted.nics} rails of one switch", Wiring(home, wanted.nics, {}),
                 (level,))  # fmt: skip


def _trees(wanted: Wanted) -> Iterator[Design | Refusal]:
    """A tree of two tiers for each rail."""
    rail = replace(wanted, nics=1)
    for ratio in RATIOS:
        name = f"rail trees {ratio}:1"
        sizes = min(two_tiers(rail, ratio), default=None)
        if sizes is None:
            yield Refusal(name, f"a rail of {wanted.nodes:,} nodes needs more than two tiers of "
                          f"{wanted.ports} ports")  # fmt: skip
            continue
        one = wired(rail, sizes)
        home = one.home + np.arange(wanted.nics) * one.switches
        trunks: list[Trunk] = [
            (a + j * one.switches, b + j * one.switches, count)
            for j in range(wanted.nics) for a, b, count in one.trunks["global"]
        ]  # fmt: skip
        wiring = Wiring(home, one.switches * wanted.nics, {"global": trunks})
        level = wanted.level(
            sizes.down * sizes.units, 2, kind="multi-plane", ports=wanted.nics,
            shape=(sizes.down,), oversubscription=sizes.down / sizes.up,
        )  # fmt: skip
        words = (f"{wanted.nics} rails of {sizes.units} leaves of {sizes.down} nodes, {sizes.up} "
                 f"cables up each, and {sizes.middle} spines")  # fmt: skip
        yield Design(name, words, wiring, (level,))
