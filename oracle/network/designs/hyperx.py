"""HyperX: switches in a grid of two to four dimensions, those of a line all linked [ahn2009]."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from oracle.network.designs.design import Design, Needs, Refusal, Trunk, Wiring, by_node
from oracle.network.designs.torus import extents
from oracle.network.topology.kinds.hyperx import links


def build(needs: Needs) -> Iterator[Design | Refusal]:
    able = range(1, max(1, needs.ports // needs.nics) + 1)
    for rank in (2, 3, 4):
        fitting = [q for q in able if _fits(needs, q, rank)]
        if fitting:
            break
    else:
        fewest_ports = min(q * needs.nics + degree(_shape(needs, q, rank)) for q in able
                    for rank in (2, 3, 4))  # fmt: skip
        why = f"a switch of a grid needs {fewest_ports} ports or more, not {needs.ports}"
        if fewest_ports <= needs.ports:
            why = "too few switches for a grid"
        yield Refusal("hyperx", why)
        return
    dense = _shape(needs, max(fitting), rank)
    even = max((q for q in fitting if q * needs.nics <= degree(_shape(needs, q, rank))), default=0)
    yield _grid(needs, dense, "hyperx")
    if even and (wide := _shape(needs, even, rank)) != dense:
        yield _grid(needs, wide, "hyperx, more links")


def degree(shape: tuple[int, ...]) -> int:
    """Return the cables of a switch: one to each other switch of its lines."""
    return sum(shape) - len(shape)


def _shape(needs: Needs, hosts: int, rank: int) -> tuple[int, ...]:
    return extents(-(-needs.nodes // hosts), rank)


def _fits(needs: Needs, hosts: int, rank: int) -> bool:
    shape = _shape(needs, hosts, rank)
    count = -(-needs.nodes // hosts)
    return count >= 2**rank and hosts * needs.nics + degree(shape) <= needs.ports


def _grid(needs: Needs, shape: tuple[int, ...], name: str) -> Design:
    switches = prod(shape)
    hosts = -(-needs.nodes // switches)
    trunks: dict[str, list[Trunk]] = {"group": [], "global": []}
    for dimension, a, b in links(shape):
        trunks["global" if dimension else "group"].append((a, b, 1))
    wiring = Wiring(by_node(needs, hosts), switches, {**trunks})
    level = needs.level(
        switches * hosts, wiring.mean, kind="hyperx", ports=needs.nics, routing="adaptive",
        shape=(*shape, hosts),
    )  # fmt: skip
    words = f"{' x '.join(map(str, shape))} switches of {hosts} nodes, {degree(shape)} links each"
    return Design(name, words, wiring, (level,), routings=("valiant",))
