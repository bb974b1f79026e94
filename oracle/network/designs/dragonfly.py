"""Dragonflies: groups of routers that are all linked, cables between all groups [kim2008].

Balanced with a = 2p = 2h: p ports of nodes, h cables to other groups and a routers a group.
Tapered 2:1 half as many cables to other groups, and as many routers as ports are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

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
    for taper in (1, 2):
        yield _build(wanted, "dragonfly" if taper == 1 else f"dragonfly {taper}:1", taper)


def _sizes(wanted: Wanted, hosts: int, taper: int) -> tuple[int, int, int] | None:
    """(groups, routers of a group, cables to other groups of a router), so many nodes a router."""
    p = hosts * wanted.nics
    h, all_routers = -(-p // taper), -(-wanted.nodes // hosts)
    full = 2 * p // taper
    a = min(full, wanted.ports - p - h + 1, all_routers)
    if a < min(full if taper == 1 else h + 1, all_routers):
        return None
    groups = -(-all_routers // a)
    a = -(-all_routers // groups)
    return (groups, a, h) if groups == 1 or groups - 1 <= a * h else None


def _build(wanted: Wanted, name: str, taper: int) -> Design | Refusal:
    hosts = most(q for q in range(1, wanted.ports // wanted.nics + 1) if _sizes(wanted, q, taper))
    if not hosts:
        least = wanted.nics
        return Refusal(name, f"a router with a node of {counted(least)}, {2 * least // taper - 1} "
                       f"others of its group and {-(-least // taper)} cables to other groups has "
                       f"more than {wanted.ports} ports")  # fmt: skip
    found = _sizes(wanted, hosts, taper)
    assert found is not None
    groups, a, h = found
    if groups < 2:
        return Refusal(name, f"{wanted.nodes} nodes are one group")
    trunk = a * h // (groups - 1)
    local: list[Trunk] = [
        (g * a + x, g * a + y, 1) for g in range(groups) for x, y in combinations(range(a), 2)
    ]
    far: list[Trunk] = []
    used = [0] * groups  # cables to other groups, dealt to the routers in turn
    for g, other in combinations(range(groups), 2):
        for _ in range(trunk):
            far.append((g * a + used[g] % a, other * a + used[other] % a, 1))
            used[g] += 1
            used[other] += 1
    wiring = Wiring(by_node(wanted, hosts), groups * a, {"group": local, "global": far})
    level = wanted.level(
        groups * a * hosts, wiring.mean, kind="dragonfly", ports=wanted.nics, routing="adaptive",
        shape=(groups, a, hosts, trunk),
    )  # fmt: skip
    words = (f"{groups} groups of {a} routers, {hosts} nodes each; {trunk} cables between any two "
             "groups")  # fmt: skip
    return Design(name, words, wiring, (level,))
