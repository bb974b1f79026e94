"""Dragonflies: groups of routers that are all linked, cables between all groups [kim2008].

Balanced with a = 2p = 2h: p ports of nodes, h cables to other groups and a routers a group.
Tapered 2:1 half as many cables to other groups, and as many routers as ports are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

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
    for taper in (1, 2):
        yield _build(needs, "dragonfly" if taper == 1 else f"dragonfly {taper}:1", taper)


def _sizes(needs: Needs, hosts: int, taper: int) -> tuple[int, int, int] | None:
    """Return (groups, routers of a group, cables of a router to other groups); None if none fit."""
    p = hosts * needs.nics
    h, all_routers = -(-p // taper), -(-needs.nodes // hosts)
    full = 2 * p // taper
    a = min(full, needs.ports - p - h + 1, all_routers)
    if a < min(full if taper == 1 else h + 1, all_routers):
        return None
    groups = -(-all_routers // a)
    a = -(-all_routers // groups)
    return (groups, a, h) if groups == 1 or groups - 1 <= a * h else None


def _build(needs: Needs, name: str, taper: int) -> Design | Refusal:
    fitting = {hosts: sizes for hosts in range(1, needs.ports // needs.nics + 1)
               if (sizes := _sizes(needs, hosts, taper))}  # fmt: skip
    if not fitting:
        nics = needs.nics
        return Refusal(name, f"a router with a node of {counted(nics)}, {2 * nics // taper - 1} "
                       f"others of its group and {-(-nics // taper)} cables to other groups has "
                       f"more than {needs.ports} ports")  # fmt: skip
    hosts = max(fitting)
    groups, a, h = fitting[hosts]
    if groups < 2:
        return Refusal(name, f"{needs.nodes} nodes are one group")
    trunk = a * h // (groups - 1)
    local: list[Trunk] = [
        (g * a + x, g * a + y, 1) for g in range(groups) for x, y in combinations(range(a), 2)
    ]
    far: list[Trunk] = []
    used = [0] * groups  # cables to other groups, dealt to the routers in turn
    for g, h_group in combinations(range(groups), 2):
        for _ in range(trunk):
            far.append((g * a + used[g] % a, h_group * a + used[h_group] % a, 1))
            used[g] += 1
            used[h_group] += 1
    wiring = Wiring(by_node(needs, hosts), groups * a, {"group": local, "global": far})
    level = needs.level(
        groups * a * hosts, wiring.mean, kind="dragonfly", ports=needs.nics, routing="adaptive",
        shape=(groups, a, hosts, trunk),
    )  # fmt: skip
    words = (f"{groups} groups of {a} routers, {hosts} nodes each; {trunk} cables between any two "
             "groups")  # fmt: skip
    return Design(name, words, wiring, (level,))
