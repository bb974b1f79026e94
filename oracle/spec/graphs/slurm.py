"""Slurm's topology.conf: which nodes and switches each switch joins; it knows no bandwidths."""

from __future__ import annotations

import re

from oracle.spec import hostlist
from oracle.spec.graphs.graph import Unread

TITLE = "Slurm's topology.conf"
_KEY = re.compile(r"([A-Za-z]+)=(\S+)")


def recognises(text: str) -> bool:
    """A line of a switch."""
    return re.search(r"^[ \t]*SwitchName[ \t]*=", text[: 2**16], re.I | re.M) is not None


def lines(text: str, name: str) -> list[str]:
    """The lines of an edge list."""
    found, hosts, seen = [], [], set()
    pending = ""
    for at, raw in enumerate(text.splitlines(), 1):
        line = pending + raw.partition("#")[0].strip()
        pending = line[:-1] + " " if line.endswith("\\") else ""
        if pending or not line:
            continue
        said = {key.lower(): value for key, value in _KEY.findall(line)}
        switch, below = said.get("switchname", ""), said.get("nodes") or said.get("switches")
        if not switch or not below:
            hint = "SwitchName=leaf0 Nodes=n[0-15]"
            raise Unread(at, "a line that is no switch with nodes or switches", hint)
        if switch in seen:
            raise Unread(at, f"`{switch[:40]}` is defined twice", "once each")
        seen.add(switch)
        try:
            children = hostlist.names(below)
        except ValueError as error:
            what, _, hint = str(error).partition("; ")
            raise Unread(at, what, hint) from None
        if "nodes" in said:
            hosts += [f"hosts {child}" for child in children]
        found += [f"{child} {switch}" for child in children]
        if len(found) > hostlist.MOST:
            raise Unread(at, f"more than {hostlist.MOST:,} links", "is a range mistyped?")
    return [*hosts, *found]
