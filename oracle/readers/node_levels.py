"""The levels inside a node, from the devices that share NVLinks or a PCIe root.

NVLinks that join all devices make one level; bridges between some make a level of their own, with
PCIe above: a socket's root, then the node. Uneven links become a note, not a level.
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
    """Return levels as a system spec writes them, innermost first; none for one device.

    `nvlinks` counts direct links of a pair, `switched` a device's links into NVSwitches, and
    `sockets` names the known root of a device.
    """
    count, levels = len(devices), []
    if count < 2:
        return []
    linked = [pair for pair, links in nvlinks.items() if links]
    bundles = [list(devices)] if all(map(switched.get, devices)) else _joined(devices, linked)
    sizes = sorted({len(bundle) for bundle in bundles})
    size = sizes[0] if len(sizes) == 1 else 1
    if size > 1:
        level = _bundle(bundles, nvlinks, switched)
        levels.append({"name": "node" if size == count else "bridge", "devices": size, **level})
    if size < count:
        uneven = f"NVLinks join {' or '.join(map(str, sizes))} devices, unevenly"
        note = {"note": uneven} if len(sizes) > 1 else {} if size > 1 else {"note": "no NVLink"}
        first = {root: name for name, root in reversed([*sockets.items()])}
        roots = _joined(devices, [(first[root], name) for name, root in sockets.items()])
        width = len(roots[0])
        even = size < width < count and {len(root) for root in roots} == {width}
        below = {"kind": "switch", "link": "pcie", "ports": size, **note}
        if even:
            levels.append({"name": "socket", "devices": width, **below})
            levels.append({"name": "node", "devices": count, "kind": "pcie", "link": "pcie"})
        else:
            levels.append({"name": "node", "devices": count, **below})
    return [level | {"source": source} for level in levels]


def _bundle(
    bundles: list[list[str]], nvlinks: Pairs, switched: Mapping[str, int]
) -> dict[str, Any]:
    """Return how NVLinks join each bundle: by switches, all pairs alike, or only some pairs."""
    level: dict[str, Any] = {"kind": "switch", "link": "nvlink"}
    if switched:
        return level | {"ports": min(switched.values())}
    links_of = {name: 0 for bundle in bundles for name in bundle}
    for (a, b), links in nvlinks.items():
        links_of[a] += links
        links_of[b] += links
    counts = {
        nvlinks.get((a, b), 0) + nvlinks.get((b, a), 0)
        for bundle in bundles for a in bundle for b in bundle if a != b
    }  # fmt: skip
    level["ports"] = min(links_of.values())
    if len(counts) == 1:
        return level | {"kind": "mesh"}
    alike, *other_wires = (_wires(bundle, nvlinks) for bundle in bundles)
    if alike and all(wires == alike for wires in other_wires):
        return level | {"kind": "mesh", "ports": max(links_of.values()), "wires": alike}
    # as a switch would join them: messages have a way between any two
    return level | {"note": "not every pair has the same NVLinks: taken as switched"}


def _wires(bundle: list[str], nvlinks: Pairs) -> tuple[str, ...]:
    """Return a word for each link of a bundle; none where two devices share no neighbour."""
    pairs = [*combinations(range(len(bundle)), 2)]
    links = {(a, b): nvlinks.get((bundle[a], bundle[b]), 0) + nvlinks.get((bundle[b], bundle[a]), 0)
             for a, b in pairs}  # fmt: skip
    near = [{a} | {b for pair in pairs if links[pair] and a in pair for b in pair}
            for a in range(len(bundle))]  # fmt: skip
    if any(not near[a] & near[b] for a, b in pairs):
        return ()
    return tuple(f"{a}-{b}" for (a, b), count in links.items() for _ in range(count))


def _joined(names: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return names in groups, with both names of a pair in one group."""
    group = {name: [name] for name in names}
    for a, b in pairs:
        if a in group and b in group and group[a] is not group[b]:
            merged = group[a] + group[b]
            for name in merged:
                group[name] = merged
    return list({id(members): members for members in group.values()}.values())
