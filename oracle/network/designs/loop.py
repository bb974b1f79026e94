"""Distributed loop networks: a ring of 2^q switches with shortcuts of every power of two.

Shifted halving and doubling sends over one length of shortcut a step [nguyen2021].
"""

from __future__ import annotations

from collections.abc import Iterator

from oracle.network.designs.design import (
    Design,
    Refusal,
    Trunk,
    Wanted,
    Wiring,
    by_node,
    counted,
    most,
)


def build(wanted: Wanted) -> Iterator[Design | Refusal]:
    fitting = [q for q in range(1, wanted.ports // wanted.nics + 1)
               if q * wanted.nics + degree(ring(wanted, q)) <= wanted.ports]  # fmt: skip
    name = "loop"
    if not fitting or ring(wanted, fitting[-1]) < 4:
        some = ring(wanted, 1)
        what = "too few switches for a ring" if fitting else (
            f"a switch with a node of {counted(wanted.nics)} in a loop of {some} switches needs "
            f"{wanted.nics + degree(some)} ports, not {wanted.ports}")  # fmt: skip
        yield Refusal(name, what)
        return
    dense = ring(wanted, max(fitting))
    even = most(q for q in fitting if q * wanted.nics <= degree(ring(wanted, q)))
    for count in sorted({dense, ring(wanted, even)} if even else {dense}):
        yield _loop(wanted, count, name if count == dense else f"{name}, more links")


def ring(wanted: Wanted, hosts: int) -> int:
    """Switches: the next power of two."""
    return 1 << (-(-wanted.nodes // hosts) - 1).bit_length()


def degree(switches: int) -> int:
    """Cables of a switch: both ways along each length, but for the one half-way round."""
    return max(0, 2 * (switches.bit_length() - 1) - 1)


def _loop(wanted: Wanted, count: int, name: str) -> Design:
    hosts = -(-wanted.nodes // count)
    trunks: dict[str, list[Trunk]] = {"group": [], "global": []}
    length = 1
    while length <= count // 2:
        last = count // 2 if 2 * length == count else count
        some = [(switch, (switch + length) % count, 1) for switch in range(last)]
        trunks["group" if length == 1 else "global"] += some
        length *= 2
    wiring = Wiring(by_node(wanted, hosts), count, {**trunks})
    level = wanted.level(count * hosts, wiring.mean, kind="loop", ports=wanted.nics,
                         shape=(count, hosts))  # fmt: skip
    words = (f"{count} switches of {hosts} nodes in a ring, shortcuts of 2 to {count // 2}; "
             f"{degree(count)} links a switch")  # fmt: skip
    return Design(name, words, wiring, (level,), algorithms=("shd",))
