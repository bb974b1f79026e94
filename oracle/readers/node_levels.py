"""The levels inside a node, from which devices share NVLinks and which share a PCIe root.

NVLinks that join all devices make one level; bridges between some make a level of their own, with
PCIe above: a socket's root, then the whole node. What is uneven is told, not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

Pairs = Mapping[tuple[str, str], int]


def node_levels(
    devices: Sequence[str], nvlinks: Pairs, switched: Mapping[str, int],
    sockets: Mapping[str, Any], source: str,
) -> list[dict[str, Any]]:  # fmt: skip
    """Levels as a system spec writes them, innermost first; none of one device alone.

    `nvlinks` counts direct links of a pair, `switched` a device's links into NVSwitches,
    `sockets` names each device's root; a device that is not in it has none that is known.
    """
    count, found = len(devices), []
    if count < 2:
        return []
    linked = [pair for pair, links in nvlinks.items() if links]
    bundles = [list(devices)] if all(map(switched.get, devices)) else _joined(devices, linked)
    sizes = sorted({len(bundle) for bundle in bundles})
    size = sizes[0] if len(sizes) == 1 else 1
    if size > 1:
        level = _bundle(bundles, nvlinks, switched)
        found.append({"name": "node" if size == count else "bridge", "devices": size, **level})
    if size < count:
        uneven = f"NVLinks join {' or '.join(map(str, sizes))} devices, unevenly"
        note = {"note": uneven} if len(sizes) > 1 else {} if size > 1 else {"note": "no NVLink"}
        first = {root: name for name, root in reversed([*sockets.items()])}
        roots = _joined(devices, [(first[root], name) for name, root in sockets.items()])
        width = len(roots[0])
        even = size < width < count and {len(root) for root in roots} == {width}
        below = {"kind": "switch", "link": "pcie", "ports": size, **note}
        if even:
            found.append({"name": "socket", "devices": width, **below})
            found.append({"name": "node", "devices": count, "kind": "pcie", "link": "pcie"})
        else:
            found.append({"name": "node", "devices": count, **below})
    return [level | {"source": source} for level in found]


def _bundle(
    bundles: list[list[str]], nvlinks: Pairs, switched: Mapping[str, int]
) -> dict[str, Any]:
    """How NVLinks join each bundle: by switches, every pair alike, or some pairs only."""
    level: dict[str, Any] = {"kind": "switch", "link": "nvlink"}
    if switched:
        return level | {"ports": min(switched.values())}
    each = {name: 0 for bundle in bundles for name in bundle}
    for (a, b), links in nvlinks.items():
        each[a] += links
        each[b] += links
    counts = {
        nvlinks.get((a, b), 0) + nvlinks.get((b, a), 0)
        for bundle in bundles for a in bundle for b in bundle if a != b
    }  # fmt: skip
    level["ports"] = min(each.values())
    if len(counts) == 1:
        return level | {"kind": "mesh"}
    alike, *others = (_wires(bundle, nvlinks) for bundle in bundles)
    if alike and all(wires == alike for wires in others):
        return level | {"kind": "mesh", "ports": max(each.values()), "wires": alike}
    # as a switch would join them: messages have some way between any two
    return level | {"note": "not every pair has the same NVLinks: taken as switched"}


def _wires(bundle: list[str], nvlinks: Pairs) -> tuple[str, ...]:
    """A word for each link of a bundle; none where two have no one between them."""
    pairs = [*combinations(range(len(bundle)), 2)]
    links = {(a, b): nvlinks.get((bundle[a], bundle[b]), 0) + nvlinks.get((bundle[b], bundle[a]), 0)
             for a, b in pairs}  # fmt: skip
    near = [{a} | {b for pair in pairs if links[pair] and a in pair for b in pair}
            for a in range(len(bundle))]  # fmt: skip
    if any(not near[a] & near[b] for a, b in pairs):
        return ()
    return tuple(f"{a}-{b}" for (a, b), many in links.items() for _ in range(many))


def _joined(names: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Names in groups, two of a pair in the same."""
    group = {name: [name] for name in names}
    for a, b in pairs:
        if a in group and b in group and group[a] is not group[b]:
            merged = group[a] + group[b]
            for name in merged:
                group[name] = merged
    return list({id(one): one for one in group.values()}.values())
