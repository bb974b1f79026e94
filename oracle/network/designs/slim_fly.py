"""Slim Fly: 2 q² switches of (3q ± 1)/2 links, no two more than two apart [besta2014]."""

from __future__ import annotations

from collections.abc import Iterator

from oracle.network.designs.design import Design, Needs, Refusal, Trunk, Wiring, by_node
from oracle.network.topology.kinds.slim_fly import links

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)


def build(needs: Needs) -> Iterator[Design | Refusal]:
    hosts = {q: -(-needs.nodes // (2 * q * q)) for q in PRIMES}
    fitting = [q for q in PRIMES if hosts[q] * needs.nics + degree(q) <= needs.ports]
    if not fitting:
        fewest_ports = min(hosts[q] * needs.nics + degree(q) for q in PRIMES)
        why = f"its switches need {fewest_ports} ports or more, not {needs.ports}"
        yield Refusal("slim fly", why)
        return
    dense = fitting[0]
    if needs.nodes <= dense * dense:
        why = f"{needs.nodes} nodes leave half of {2 * dense**2} switches bare"
        yield Refusal("slim fly", why)
        return
    even = next((q for q in fitting if hosts[q] * needs.nics <= degree(q)), dense)
    for q in sorted({dense, even}):
        if needs.nodes > q * q:
            yield _graph(needs, q, hosts[q], "slim fly" if q == dense else "slim fly, more links")


def degree(q: int) -> int:
    """Return the links of a switch: (3q − δ)/2, q = 4w + δ."""
    return (3 * q - (1 if q % 4 == 1 else -1)) // 2


def _graph(needs: Needs, q: int, hosts: int, name: str) -> Design:
    switches = 2 * q * q
    trunks: dict[str, list[Trunk]] = {
        length: [(a, b, 1) for a, b in pairs]
        for length, pairs in zip(("group", "global"), links(q), strict=True)
    }
    wiring = Wiring(by_node(needs, hosts), switches, {**trunks})
    level = needs.level(switches * hosts, wiring.mean, kind="slim-fly", ports=needs.nics,
                         routing="adaptive", shape=(2, q, q, hosts))  # fmt: skip
    words = f"2 x {q}² switches of {hosts} nodes, {degree(q)} links each"
    return Design(name, words, wiring, (level,), routings=("valiant",))
