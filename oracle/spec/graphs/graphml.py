"""GraphML: nodes and edges as network editors and the Topology Zoo write them.

An edge's bandwidth is its `bandwidth` or `capacity`, with a unit (`25 GB/s`), or `LinkSpeedRaw` in
bit/s; `count` is how many links it stands for. A node is a host where its `type` or `kind` says
`host`, else by its neighbours. The text of a node's `label` names it where no other has the same.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.spec.graphs.graph import Unread
from oracle.spec.graphs.xml_events import events

TITLE = "GraphML"
SPEEDS = ("bandwidth", "capacity")


def recognises(text: str) -> bool:
    """Its outermost element, near the start."""
    return "<graphml" in text[:4096]


def lines(text: str, name: str) -> list[str]:
    """The lines of an edge list."""
    keys: dict[str, str] = {}
    nodes: dict[str, dict[str, str]] = {}
    edges: list[tuple[int, str, str, dict[str, str]]] = []
    open_: list[dict[str, str]] = []
    wanted = ""

    def start(element: str, said: dict[str, str], line: int) -> None:
        nonlocal wanted
        if element == "key":
            keys[said.get("id", "")] = said.get("attr.name", "")
        elif element == "node":
            if (own := said.get("id", "")) in nodes or not own:
                raise Unread(line, f"node `{own[:40]}` is there twice, or has no id", 'id="n0"')
            nodes[own] = {}
            open_.append(nodes[own])
        elif element == "edge":
            a, b = said.get("source", ""), said.get("target", "")
            edges.append((line, a, b, {}))
            open_.append(edges[-1][3])
        elif element == "data":
            wanted = keys.get(said.get("key", ""), said.get("key", ""))

    def end(element: str, inside: str, line: int) -> None:
        if element in ("node", "edge"):
            open_.pop()
        elif element == "data" and open_ and inside:
            open_[-1][wanted] = inside

    events(text, start, end)
    called = _called(nodes)
    found = [f"hosts {called[own]}" for own, said in nodes.items()
             if "host" in (said.get("type", "").lower(), said.get("kind", "").lower())]  # fmt: skip
    for line, a, b, told in edges:
        if a not in nodes or b not in nodes:
            lost = b if a in nodes else a
            raise Unread(line, f"an edge to `{lost[:40]}`, which is no node", "a <node> of that id")
        found.append(f"{called[a]} {called[b]} {_speed(told, line)}")
    return found


def _called(nodes: dict[str, dict[str, str]]) -> dict[str, str]:
    """Names of nodes that can stand in a line."""
    labels = [said.get("label", "") for said in nodes.values()]
    found = {}
    for own, said in nodes.items():
        label = said.get("label", "")
        name = label if label and labels.count(label) == 1 and len(nodes) < 5000 else own
        found[own] = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:200] or "-"
    if len(set(found.values())) < len(found):
        found = {own: f"{number}-{name}" for number, (own, name) in enumerate(found.items())}
    return found


def _speed(told: dict[str, Any], line: int) -> str:
    for key in SPEEDS:
        if key in told:
            if re.fullmatch(r"[0-9.eE+-]+", told[key]):
                what = f"`{key}` is {told[key][:40]}, of nobody says what"
                raise Unread(line, what, "with its unit: 25 GB/s or 200 Gbit/s")
            return f"{told[key]} {_count(told, line)}"
    if raw := told.get("LinkSpeedRaw", ""):
        if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?([eE]\+?[0-9]{1,2})?", raw):
            raise Unread(line, f"`LinkSpeedRaw` is `{raw[:40]}`", "bit/s, a number")
        return f"{float(raw) / 8e9:.9g} GB/s {_count(told, line)}"
    return _count(told, line)


def _count(told: dict[str, Any], line: int) -> str:
    count = told.get("count", "1")
    if not re.fullmatch(r"[0-9]{1,4}", count):
        raise Unread(line, f"`count` is `{count[:40]}`", "a whole number of links")
    return f"x{int(count)}"
