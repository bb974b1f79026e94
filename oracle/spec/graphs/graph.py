"""Hosts, switches and links of a network, and the lines that say them.

    hosts n[0-15]          what a job's units are, in the order of their numbers
    n0 leaf0               a link, both ways, of the level's bandwidth
    leaf0 spine0 50 GB/s   one that has its own
    leaf0 spine0 50 GB/s x4

Without a line of hosts they are what has one neighbour alone; all, where nothing has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from oracle.spec import hostlist
from oracle.spec.document import Fault, Node, Place, SpecError
from oracle.spec.units import parse

MOST_LINKS, MOST_NAMES = 200_000, 50_000
_LINK = re.compile(r"(\S{1,255})\s+(\S{1,255})(?:\s+([^x]*?))?(?:\s*\bx(\d{1,4}))?")


class Unread(ValueError):
    """A line that cannot be read: where, why, and what to write instead."""

    def __init__(self, line: int, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.line, self.what, self.hint = line, what, hint

    def refusal(self, name: str, text: str) -> SpecError:
        """The same as an error of a file."""
        return SpecError(name, [Fault("E130", self.what, Place(self.line, 1), self.hint)], text)


@dataclass(frozen=True)
class Graph:
    """Hosts first, then switches, by name; links by their numbers, B/s each way."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[tuple[int, int, float], ...]  # 0 B/s: the level's

    @classmethod
    def from_node(cls, node: Node, reader: Any) -> Graph | None:
        """The graph of a list of lines; a file's name was put in their place before."""
        if node.kind == "mapping":
            reader.fault("E104", "`graph` takes lines, or a file", node, "- n0 leaf0 25 GB/s")
            return None
        items = node.items if node.kind == "sequence" else [node]
        if any(item.kind != "scalar" for item in items):
            reader.fault("E104", "`graph` takes lines of text", node, "- n0 leaf0 25 GB/s")
            return None
        try:
            return cls.of([item.text for item in items])
        except Unread as error:
            at = items[min(max(error.line, 1), len(items)) - 1] if items else node
            reader.fault("E105", error.what, at, error.hint)
            return None

    @classmethod
    def of(cls, lines: Iterable[str]) -> Graph:
        """The graph that lines say; `Unread` where one says none."""
        said: tuple[str, ...] | None = None
        between: dict[tuple[str, str], float] = {}
        bare: dict[tuple[str, str], int] = {}
        at = 0
        for at, raw in enumerate(lines, 1):
            line = raw.partition("#")[0].strip()
            if not line:
                continue
            if line.startswith("hosts "):
                said = (*(said or ()), *_names(line[6:], at))
                continue
            a, b, bandwidth, count = _link(line, at)
            pair = (a, b) if a <= b else (b, a)
            between[pair] = between.get(pair, 0.0) + bandwidth * count
            bare[pair] = bare.get(pair, 0) + (0 if bandwidth else count)
            if len(between) > MOST_LINKS:
                raise Unread(at, f"more than {MOST_LINKS:,} links")
        return cls._built(said, between, bare, at)

    @classmethod
    def _built(
        cls, said: tuple[str, ...] | None, between: Mapping[tuple[str, str], float],
        bare: Mapping[tuple[str, str], int], last: int,
    ) -> Graph:  # fmt: skip
        near: dict[str, set[str]] = {}
        for a, b in between:
            near.setdefault(a, set()).add(b)
            near.setdefault(b, set()).add(a)
        if not near:
            raise Unread(last or 1, "a graph without a link", "n0 leaf0 25 GB/s")
        if len(near) > MOST_NAMES:
            raise Unread(last, f"more than {MOST_NAMES:,} hosts and switches")
        if said is None:
            ends = tuple(name for name in near if len(near[name]) == 1)
            said = ends if 1 < len(ends) < len(near) else tuple(near)
        if lone := next((name for name in said if name not in near), ""):
            raise Unread(last, f"host `{lone[:40]}` has no link", "a line with its switch")
        if len(set(said)) < len(said):
            raise Unread(last, "a host is named twice", "once each")
        switches = tuple(name for name in near if name not in set(said))
        if len(said) < 2:
            raise Unread(last, f"{len(said)} host: nobody to talk to", "hosts n[0-15]")
        number = {name: at for at, name in enumerate((*said, *switches))}
        _all_reached(near, said, set(switches), last)
        some = {pair: count for pair, count in bare.items() if count}
        links = []
        for (a, b), bandwidth in between.items():
            # links of the level's own bandwidth beside others: told apart by their sign
            links += [(number[a], number[b], bandwidth)] * (bandwidth > 0)
            links += [(number[a], number[b], -float(some.get((a, b), 0)))] * ((a, b) in some)
        return cls(said, switches, tuple(links))

    def to_lines(self) -> list[str]:
        """The lines that say it."""
        names = (*self.hosts, *self.switches)
        return [f"hosts {hostlist.folded(self.hosts)}", *(
            f"{names[a]} {names[b]} " + (f"{rate / 1e9!r} GB/s" if rate > 0 else f"x{-rate:g}")
            for a, b, rate in self.links
        )]  # fmt: skip

    @classmethod
    def json_schema(cls, inner: Any) -> dict[str, Any]:
        """Lines, or the name of a file."""
        line = {"type": "string", "examples": ["n0 leaf0 25 GB/s x2", "hosts n[0-15]"]}
        return {"anyOf": [{"type": "string", "description": "a file beside this one"},
                          {"type": "array", "items": line}]}  # fmt: skip

    @cached_property
    def leaf(self) -> int:
        """Hosts in a row that share a switch, where all switches of hosts have as many; else 0."""
        first: dict[int, int] = {}
        for a, b, _ in self.links:
            host, switch = min(a, b), max(a, b)
            if host < len(self.hosts) <= switch:
                first.setdefault(host, switch)
        rows = [len([*run]) for _, run in groupby(range(len(self.hosts)), first.get)]
        return rows[0] if len(set(rows)) == 1 and 1 < rows[0] < len(self.hosts) else 0

    @cached_property
    def direct(self) -> bool:
        """Whether hosts are linked to each other without a switch, and pass messages on."""
        return not self.switches


def _names(text: str, line: int) -> tuple[str, ...]:
    try:
        return hostlist.names(text)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise Unread(line, what, hint) from None


def _link(line: str, at: int) -> tuple[str, str, float, int]:
    match = _LINK.fullmatch(line) if len(line) < 1000 else None
    if match is None:
        raise Unread(at, f"`{line[:40]}` is no link", "two names, as in n0 leaf0 25 GB/s x2")
    a, b, speed, count = match[1], match[2], (match[3] or "").strip(), int(match[4] or 1)
    if a == b:
        raise Unread(at, f"`{a[:40]}` is linked to itself", "two names")
    if not count:
        raise Unread(at, "a link that is there no times", "x1 or more")
    try:
        bandwidth = parse(speed, "B/s") if speed else 0.0
    except ValueError as error:
        raise Unread(at, str(error), "e.g. 25 GB/s or 200 Gbit/s") from None
    if speed and not 0 < bandwidth < 1e18:
        raise Unread(at, f"a link of {speed[:40]}", "e.g. 25 GB/s")
    return a, b, bandwidth, count


def _all_reached(
    near: Mapping[str, set[str]], hosts: tuple[str, ...], switches: set[str], last: int
) -> None:
    """Refuse a graph in which some host cannot be reached from the first."""
    seen, todo = {hosts[0]}, [hosts[0]]
    while todo:
        at = todo.pop()
        if at != hosts[0] and switches and at not in switches:
            continue  # a host passes nothing on where there are switches
        for name in near[at] - seen:
            seen.add(name)
            todo.append(name)
    if lost := next((name for name in hosts if name not in seen), ""):
        what = f"no way leads from host `{hosts[0][:40]}` to `{lost[:40]}`"
        raise Unread(last, what, "the links between their switches")
