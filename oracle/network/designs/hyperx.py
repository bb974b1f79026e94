"""HyperX: switches in a grid of two to four dimensions, those of a line all linked [ahn2009]."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod

from oracle.network.designs.design import Design, Refusal, Trunk, Wanted, Wiring, by_node, most
from oracle.network.designs.torus import extents


def build(wanted: Wanted) -> Iterator[Design | Refusal]:
    able = range(1, max(1, wanted.ports // wanted.nics) + 1)
    for rank in (2, 3, 4):
        fitting = [q for q in able if _fits(wanted, q, rank)]
        if fitting:
            break
    else:
        least = min(q * wanted.nics + degree(_shape(wanted, q, rank)) for q in able
                    for rank in (2, 3, 4))  # fmt: skip
        few = least <= wanted.ports
        yield Refusal("hyperx", "too few switches for a grid" if few else f"a switch of a grid "
                      f"needs {least} ports or more, not {wanted.ports}")  # fmt: skip
        return
    dense = _shape(wanted, max(fitting), rank)
    even = most(q for q in fitting if q * wanted.nics <= degree(_shape(wanted, q, rank)))
    yield _grid(wanted, dense, "hyperx")
    if even and (wide := _shape(wanted, even, rank)) != dense:
        yield _grid(wanted, wide, "hyperx, more links")


def degree(shape: tuple[int, ...]) -> int:
    """Cables of a switch: one to each other switch of its lines."""
    return sum(shape) - len(shape)


def _shape(wanted: Wanted, hosts: int, rank: int) -> tuple[int, ...]:
    return extents(-(-wanted.nodes // hosts), rank)


def _fits(wanted: Wanted, hosts: int, rank: int) -> bool:
    shape = _shape(wanted, hosts, rank)
    count = -(-wanted.nodes // hosts)
    return count >= 2**rank and hosts * wanted.nics + degree(shape) <= wanted.ports


def _grid(wanted: Wanted, shape: tuple[int, ...], name: str) -> Design:
    switches, stride = prod(shape), 1
    hosts = -(-wanted.nodes // switches)
    trunks: dict[str, list[Trunk]] = {}
    for number, extent in enumerate(shape):
        some = trunks.setdefault("global" if number else "group", [])
        for first in range(switches):
            if first // stride % extent == 0:
                line = [first + at * stride for at in range(extent)]
                some += [(a, b, 1) for a, b in combinations(line, 2)]
        stride *= extent
    wiring = Wiring(by_node(wanted, hosts), switches, {**trunks})
    level = wanted.level(
        switches * hosts, wiring.mean, kind="hyperx", ports=wanted.nics, routing="adaptive",
        shape=(*shape, hosts),
    )  # fmt: skip
    words = f"{' x '.join(map(str, shape))} switches of {hosts} nodes, {degree(shape)} links each"
    return Design(name, words, wiring, (level,), routings=("valiant",))
