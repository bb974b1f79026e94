"""Slurm's `topology.conf` and `topology.yaml`: the nodes and switches that each switch joins.

They give the number of nodes that each level joins (the largest switch of a level counts; uneven
ones are noted) and the graph, but no devices per node, bandwidth or latency: `nodes` takes the
place of a system spec's `devices`.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.logs import LONGEST_LINE, InputError, Reading
from oracle.spec import hostlist
from oracle.spec.document import Node, SpecError, load

TITLE = "Slurm topology.conf or topology.yaml"
PRECEDENCE = 3
MOST_NAMES = hostlist.MOST

_KEY = re.compile(r"([A-Za-z]+)=(\S+)")
_FIRST = re.compile(
    r"^[ \t]{0,99}(?:SwitchName|BlockName|BlockSizes)[ \t]{0,9}=", re.IGNORECASE | re.MULTILINE
)
_YAML = re.compile(r"^[ \t]{0,99}-?[ \t]{0,9}\"?topology\"?[ \t]{0,9}:", re.MULTILINE)


def recognises(text: str) -> bool:
    """Return whether a text has a line of either form."""
    head = text[: 2**20]
    return bool(_FIRST.search(head)) or bool(_YAML.search(head) and _parts(head))


def _parts(head: str) -> bool:
    return any(f"{word}:" in head for word in ("tree", "block", "flat"))


class Hosts:
    """An expander of host lists within a budget: `n[0-999999999]` is eleven bytes long."""

    def __init__(self, path: str) -> None:
        self.path, self.left = path, MOST_NAMES

    def expand(self, text: str, line: int) -> list[str]:
        """Return the names of `tux[0-3,12],login1`."""
        names: list[str] = []
        for part in filter(None, hostlist.commas(text)):
            try:
                expanded = hostlist.expand(part, self.left)
            except ValueError as error:
                complaint, _, hint = str(error).partition("; ")
                raise InputError(self.path, line, complaint, hint) from None
            self.left -= len(expanded)
            if self.left < 0:
                complaint = f"more than {MOST_NAMES:,} nodes"
                raise InputError(self.path, line, complaint, "is a range mistyped?")
            names += expanded
        return names


def parse(text: str, path: str) -> Reading:
    """Return levels and links of the default topology of the file."""
    skipped: list[tuple[int, str]] = []
    hosts = Hosts(path)
    plain = _FIRST.search(text) is not None
    read = _plain if plain else _yaml
    switches, sizes = read(text, path, hosts, skipped)
    if not switches:
        raise InputError(path, 1, "no switch and no block is defined", "SwitchName=s0 Nodes=n[0-3]")
    levels = _levels(switches, sizes, path)
    links = tuple(
        (child, name, "") for name, (_, children, _) in switches.items() for child in children
    )
    machine = {"tool": "Slurm topology", "nodes": levels[-1]["nodes"]}
    return Reading(path, TITLE, (), machine, tuple(skipped), levels, links)


# name -> (line, children, whether these are switches)
Switches = dict[str, tuple[int, list[str], bool]]


def _plain(
    text: str, path: str, hosts: Hosts, skipped: list[tuple[int, str]]
) -> tuple[Switches, list[int]]:
    switches: Switches = {}
    sizes: list[int] = []
    start, pending = 1, ""
    for line_number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        start = start if pending else line_number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        line, pending = (pending + line).strip(), ""
        if not line:
            continue
        if len(line) > 64 * LONGEST_LINE:
            skipped.append((start, "a line too long to be a switch"))
            continue
        settings = {key.lower(): value for key, value in _KEY.findall(line)}
        name = settings.get("switchname") or settings.get("blockname")
        if name:
            children = settings.get("switches") or settings.get("nodes")
            if children is None:
                skipped.append((start, "a switch or block without nodes or switches"))
                continue
            _add(switches, name, start, hosts.expand(children, start), "switches" in settings, path)
        elif "blocksizes" in settings:
            sizes = [
                int(s) for s in settings["blocksizes"].split(",") if s.isdecimal() and len(s) < 10
            ]
        else:
            skipped.append((start, "not a switch, block or block size"))
    return switches, sizes


def _add(
    switches: Switches, name: str, line: int, children: list[str], inner: bool, path: str
) -> None:
    if name in switches:
        first = switches[name][0]
        raise InputError(path, line, f"`{name[:40]}` is defined twice (first on line {first})")
    switches[name] = (line, children, inner)


def _yaml(
    text: str, path: str, hosts: Hosts, skipped: list[tuple[int, str]]
) -> tuple[Switches, list[int]]:
    try:
        root = load(text, path)
    except SpecError as error:
        fault = error.faults[0]
        raise InputError(path, fault.place.line, fault.what, fault.hint, text) from None
    entries = [node for node in root.items if node.kind == "mapping"]
    if root.kind != "sequence" or not entries:
        raise InputError(
            path, 1, "a topology.yaml is a list of topologies", "- topology: name", text
        )
    default = [e for e in entries if (d := e.entries.get("cluster_default")) and d.text == "true"]
    chosen = (default or entries)[0]
    skipped += [
        (e.place.line, "a topology that is not the default") for e in entries if e is not chosen
    ]
    switches: Switches = {}
    sizes: list[int] = []
    tree, block = chosen.entries.get("tree"), chosen.entries.get("block")
    if tree is not None:
        for node in _items(tree, "switches"):
            _from_node(switches, node, "switch", hosts, path, skipped)
    elif block is not None:
        for node in _items(block, "blocks"):
            _from_node(switches, node, "block", hosts, path, skipped)
        sizes = [int(n.text) for n in _items(block, "block_sizes") if n.text.isdecimal()]
        sizes = [size for size in sizes if size < 10**9]
    else:
        complaint = "the default topology is flat: it says nothing of the network"
        raise InputError(path, chosen.place.line, complaint, "describe a tree or blocks", text)
    return switches, sizes


def _items(node: Node, key: str) -> list[Node]:
    child = node.entries.get(key)
    return child.items if child is not None else []


def _from_node(
    switches: Switches,
    node: Node,
    key: str,
    hosts: Hosts,
    path: str,
    skipped: list[tuple[int, str]],
) -> None:
    name = node.entries.get(key)
    inner, leaves = node.entries.get("children"), node.entries.get("nodes")
    children = inner or leaves
    if name is None or children is None or not name.text or not children.text:
        skipped.append((node.place.line, "a switch or block without nodes or switches"))
        return
    names = hosts.expand(children.text, node.place.line)
    _add(switches, name.text, node.place.line, names, inner is not None, path)


def _levels(switches: Switches, sizes: list[int], path: str) -> tuple[dict[str, Any], ...]:
    """Return the levels, with the nodes under the largest switch of each height."""
    height: dict[str, int] = {}
    below: dict[str, int] = {}
    for top in switches:
        stack = [(top, False)]
        open_names: set[str] = set()
        while stack:
            name, ready = stack.pop()
            line, children, inner = switches[name]
            if ready:
                open_names.discard(name)
                counted = [c for c in children if c in below] if inner else []
                height[name] = 1 + max((height[c] for c in counted), default=0)
                below[name] = sum(below[c] for c in counted) if inner else len(children)
            elif name not in below:
                if name in open_names:
                    raise InputError(
                        path, line, f"`{name[:40]}` is above itself", "a tree has no cycle"
                    )
                open_names.add(name)
                stack.append((name, True))
                for child in children if inner else ():
                    if child not in switches:
                        complaint = (
                            f"`{child[:40]}` is a child, but no switch of that name is defined"
                        )
                        raise InputError(path, line, complaint)
                    if child not in below:
                        stack.append((child, False))
    source = f"Slurm topology, {path.rpartition('/')[2]}"
    levels: list[dict[str, Any]] = []
    for h in sorted(set(height.values())):
        counts = [below[name] for name in switches if height[name] == h]
        level = {"name": f"switches-{h}" if h > 1 else "leaf", "nodes": max(counts)}
        level |= {"kind": "switch", "switches": len(counts), "source": source}
        if min(counts) != max(counts):
            level["note"] = f"uneven: {min(counts)} to {max(counts)} nodes"
        levels.append(level)
    if sizes:
        levels[0]["block sizes"] = sizes
    return tuple(levels)
