"""Slim Fly: 2 q² switches of (3q ± 1)/2 links, no two more than two apart [besta2014]."""

from __future__ import annotations

from collections.abc import Iterator

from oracle.network.designs.design import Design, Refusal, Trunk, Wanted, Wiring, by_node
from oracle.network.topology.kinds.slim_fly import generators

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)


def build(wanted: Wanted) -> Iterator[Design | Refusal]:
    each = {q: -(-wanted.nodes // (2 * q * q)) for q in PRIMES}
    fitting = [q for q in PRIMES if each[q] * wanted.nics + degree(q) <= wanted.ports]
    if not fitting:
        least = min(each[q] * wanted.nics + degree(q) for q in PRIMES)
        yield Refusal("slim fly", f"its switches need {least} ports or more, not {wanted.ports}")
        return
    dense = fitting[0]
    if wanted.nodes <= dense * dense:
        what = f"{wanted.nodes} nodes leave half of {2 * dense**2} switches bare"
        yield Refusal("slim fly", what)
        return
    even = next((q for q in fitting if each[q] * wanted.nics <= degree(q)), dense)
    for q in sorted({dense, even}):
        if wanted.nodes > q * q:
            yield _graph(wanted, q, each[q], "slim fly" if q == dense else "slim fly, more links")


def degree(q: int) -> int:
    """Links of a switch: (3q − δ)/2, q = 4w + δ."""
    return (3 * q - (1 if q % 4 == 1 else -1)) // 2


def _graph(wanted: Wanted, q: int, hosts: int, name: str) -> Design:
    near, far = generators(q)
    lines: list[Trunk] = [
        (part * q * q + x * q + y, part * q * q + x * q + (y + step) % q, 1)
        for part, steps in ((0, near), (1, far)) for x in range(q) for y in range(q)
        for step in steps if (y + step) % q > y
    ]  # fmt: skip
    across: list[Trunk] = [
        (x * q + (m * x + c) % q, q * q + m * q + c, 1)
        for x in range(q) for m in range(q) for c in range(q)
    ]  # fmt: skip
    switches = 2 * q * q
    wiring = Wiring(by_node(wanted, hosts), switches, {"group": lines, "global": across})
    level = wanted.level(switches * hosts, wiring.mean, kind="slim-fly", ports=wanted.nics,
                         routing="adaptive", shape=(2, q, q, hosts))  # fmt: skip
    words = f"2 x {q}² switches of {hosts} nodes, {degree(q)} links each"
    return Design(name, words, wiring, (level,), routings=("valiant",))
