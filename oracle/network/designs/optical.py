"""A packet switch and optical circuits: most ports of a node on circuits to a ring of neighbours.

Of c ports ⌊(c − 1)/2⌋ are circuits a side, each side's on an optical switch of its own, and the
others are on a full tree of packet switches [nguyen2019optical].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oracle.network.designs.design import Design, Needs, Refusal, Wiring
from oracle.network.designs.fat_tree import one_switch, smallest, wired

MIRRORS = 128  # ports of an optical switch that are used: TPU v4's [jouppi2023]
SETTING = 25_000  # µs, assumed of micro-mirrors


def build(needs: Needs) -> Iterator[Design | Refusal]:
    name, sides = "optical circuits", (needs.nics - 1) // 2
    if sides < 1:
        yield Refusal(name, "a node needs three ports: for packets, and a circuit either way")
        return
    if needs.nodes > MIRRORS:
        yield Refusal(name, f"an optical switch joins {MIRRORS} nodes, not {needs.nodes:,}")
        return
    rest = replace(needs, nics=needs.nics - 2 * sides)
    if rest.nodes * rest.nics <= rest.ports:
        packets, hops = one_switch(rest).wiring, 0
    else:
        sizes = smallest(rest, 1)
        if sizes is None:
            yield Refusal(name, f"three tiers of {needs.ports} ports do not hold "
                          f"{needs.nodes:,} nodes")  # fmt: skip
            return
        packets, hops = wired(rest, sizes), 4 if sizes.core else 2
    circuits = 2 * sides
    wiring = Wiring(packets.home, packets.switches, packets.trunks, circuits * needs.nodes)
    level = needs.level(needs.nodes, hops, kind="optical", ports=rest.nics,
                         shape=(sides, SETTING))  # fmt: skip
    words = (f"{rest.nics} ports of a node on {packets.switches} packet switches, {circuits} on "
             f"as many optical ones of {MIRRORS} ports")  # fmt: skip
    yield Design(name, words, wiring, (level,), optical=circuits)
