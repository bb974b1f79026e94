"""Distributed loop networks: a ring of 2^q switches with shortcuts of every power of two.

Shifted halving and doubling sends over one length of shortcut a step [nguyen2021].
"""

from __future__ import annotations

from collections.abc import Iterator

from oracle.network.designs.design import (
    Design,
    Needs,
    Refusal,
    Trunk,
    Wiring,
    by_node,
    counted,
)


def build(needs: Needs) -> Iterator[Design | Refusal]:
    fitting = [q for q in range(1, needs.ports // needs.nics + 1)
               if q * needs.nics + degree(ring(needs, q)) <= needs.ports]  # fmt: skip
    name = "loop"
    if not fitting or ring(needs, fitting[-1]) < 4:
        switches = ring(needs, 1)
        why = "too few switches for a ring" if fitting else (
            f"a switch with a node of {counted(needs.nics)} in a loop of {switches} switches needs "
            f"{needs.nics + degree(switches)} ports, not {needs.ports}")  # fmt: skip
        yield Refusal(name, why)
        return
    dense = ring(needs, max(fitting))
    even = [q for q in fitting if q * needs.nics <= degree(ring(needs, q))][-1:]
    for count in sorted({dense, *(ring(needs, hosts) for hosts in even)}):
        yield _loop(needs, count, name if count == dense else f"{name}, more links")


def ring(needs: Needs, hosts: int) -> int:
    """Return the switches of a loop with `hosts` nodes each: the next power of two."""
    return 1 << (-(-needs.nodes // hosts) - 1).bit_length()


def degree(switches: int) -> int:
    """Return the cables of a switch: two of each length, but one of that half-way round."""
    return max(0, 2 * (switches.bit_length() - 1) - 1)


def _loop(needs: Needs, count: int, name: str) -> Design:
    hosts = -(-needs.nodes // count)
    trunks: dict[str, list[Trunk]] = {"group": [], "global": []}
    length = 1
    while length <= count // 2:
        last = count // 2 if 2 * length == count else count
        cables = [(switch, (switch + length) % count, 1) for switch in range(last)]
        trunks["group" if length == 1 else "global"] += cables
        length *= 2
    wiring = Wiring(by_node(needs, hosts), count, {**trunks})
    level = needs.level(count * hosts, wiring.mean, kind="loop", ports=needs.nics,
                         shape=(count, hosts))  # fmt: skip
    words = (f"{count} switches of {hosts} nodes in a ring, shortcuts of 2 to {count // 2}; "
             f"{degree(count)} links a switch")  # fmt: skip
    return Design(name, words, wiring, (level,), algorithms=("shd",))
