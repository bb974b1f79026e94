"""Rails that never meet: a switch a rail, or a leaf-and-spine tree a rail [wang2023rail]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from oracle.network.designs.design import Design, Needs, Refusal, Trunk, Wiring
from oracle.network.designs.fat_tree import RATIOS, two_tiers, wired


def build(needs: Needs) -> Iterator[Design | Refusal]:
    if needs.nics < 2:
        yield Refusal("rail-only", "a node with one port has no rails")
        return
    if needs.nodes > needs.ports:
        yield Refusal("rail-only", f"a rail of {needs.nodes:,} nodes needs a switch of as many "
                      f"ports, not {needs.ports}")  # fmt: skip
        yield from _trees(needs)
        return
    home = np.broadcast_to(np.arange(needs.nics), (needs.nodes, needs.nics))
    level = needs.level(needs.nodes, 0, kind="rail-only", ports=needs.nics)
    yield Design("rail-only", f"{needs.nics} rails of one switch", Wiring(home, needs.nics, {}),
                 (level,))  # fmt: skip


def _trees(needs: Needs) -> Iterator[Design | Refusal]:
    """A tree of two tiers for each rail."""
    rail = replace(needs, nics=1)
    for ratio in RATIOS:
        name = f"rail trees {ratio}:1"
        sizes = min(two_tiers(rail, ratio), default=None)
        if sizes is None:
            yield Refusal(name, f"a rail of {needs.nodes:,} nodes needs more than two tiers of "
                          f"{needs.ports} ports")  # fmt: skip
            continue
        first_rail = wired(rail, sizes)
        home = first_rail.home + np.arange(needs.nics) * first_rail.switches
        trunks: list[Trunk] = [
            (a + j * first_rail.switches, b + j * first_rail.switches, count)
            for j in range(needs.nics) for a, b, count in first_rail.trunks["global"]
        ]  # fmt: skip
        wiring = Wiring(home, first_rail.switches * needs.nics, {"global": trunks})
        level = needs.level(
            sizes.down * sizes.units, 2, kind="multi-plane", ports=needs.nics,
            shape=(sizes.down,), oversubscription=sizes.down / sizes.up,
        )  # fmt: skip
        words = (f"{needs.nics} rails of {sizes.units} leaves of {sizes.down} nodes, {sizes.up} "
                 f"cables up each, and {sizes.middle} spines")  # fmt: skip
        yield Design(name, words, wiring, (level,))
