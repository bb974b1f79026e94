"""Tori of switches in two or three dimensions, half of the ports to nodes [dally1987].

Of n switches in d dimensions with trunks of t: n d t cables between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, prod

from oracle.network.designs.design import Design, Needs, Refusal, Trunk, Wiring, by_node, counted
from oracle.spec.level import Level


def build(needs: Needs) -> Iterator[Design | Refusal]:
    for rank in (2, 3):
        yield _build(needs, f"{rank}-D torus", rank)


def extents(count: int, rank: int) -> tuple[int, ...]:
    """Return even extents that hold `count` switches and few more; each is 2 or more.

    >>> extents(64, 2), extents(64, 3), extents(67, 2)
    ((8, 8), (4, 4, 4), (7, 10))
    """
    if rank == 1:
        return (max(2, count),)
    side = max(2, ceil(count ** (1 / rank)))
    every = [(first, *extents(-(-count // first), rank - 1))
             for first in range(max(2, side // 2), side + 1)]  # fmt: skip
    return min(every, key=lambda shape: (prod(shape) * sum(shape), max(shape) - min(shape)))


def _build(needs: Needs, name: str, rank: int) -> Design | Refusal:
    hosts = max(1, needs.ports // 2 // needs.nics)
    trunk = (needs.ports - hosts * needs.nics) // (2 * rank)
    if trunk < 1:
        return Refusal(name, f"a switch with a node of {counted(needs.nics)} has no "
                       f"{2 * rank} of its {needs.ports} left for neighbours")  # fmt: skip
    count = -(-needs.nodes // hosts)
    if count < 2**rank:
        return Refusal(name, f"{count} switches of {hosts} nodes are no {name}")
    shape = extents(count, rank)
    switches = prod(shape)
    hosts = -(-needs.nodes // switches)
    trunks: list[Trunk] = []
    stride = 1
    for extent in shape:
        for unit in range(switches):
            place = unit // stride % extent
            trunks.append((unit, unit + ((place + 1) % extent - place) * stride, trunk))
        stride *= extent
    wiring = Wiring(by_node(needs, hosts), switches, {"group": trunks})
    outer = needs.level(hosts * switches, wiring.mean, "torus", kind="torus", shape=shape,
                         ports=trunk)  # fmt: skip
    levels: tuple[Level, ...] = (needs.level(hosts, 0, ports=needs.nics), outer)
    if hosts == 1:  # a node and its switch are one unit
        levels = (replace(outer, name=needs.name),)
    words = (f"{' x '.join(map(str, shape))} switches of {hosts} nodes, {trunk} cables to each "
             "neighbour")  # fmt: skip
    return Design(name, words, wiring, levels)
