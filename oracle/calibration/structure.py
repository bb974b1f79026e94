"""Topology files merged into the levels of a system: what agrees, what changed, what was kept.

How many devices share a node, what joins them, and which switch is above which: a file knows that
better than a datasheet, so it is taken, and said. Speeds stay as the spec has them: a file gives
none, or the nominal ones that its tool counts on. Where a file needs a speed that the spec has
nowhere, it is refused; no number is made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oracle.calibration.spec_block import plain
from oracle.calibration.streams import links
from oracle.readers.logs import InputError, Reading
from oracle.spec.system import Level, System
from oracle.spec.units import parse, show

TREES = ("switch", "fat-tree", "rail")  # what a tree of switches may say something of
FIELDS = ("devices", "kind", "link", "ports", "wires")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact of a file beside the spec's: what became of it, and why."""

    level: str
    field: str
    spec: str  # "" where the spec says nothing
    file: str
    verdict: str  # "agrees", "added", "changed", "kept": the spec's
    source: str
    why: str = ""

    @property
    def words(self) -> str:
        """As one would say it."""
        head = f"{self.level}: {self.field} {self.file}"
        said = {"agrees": "as the spec says", "added": "added",
                "changed": f"changed, was {self.spec}", "kept": f"kept at {self.spec}"}  # fmt: skip
        why = f" ({self.why})" if self.why else ""
        return f"{head}: {said[self.verdict]}{why}; {self.source}"


@dataclass(frozen=True, eq=False)
class Structure:
    """A system with what was learned in its levels, and all that was found."""

    system: System
    findings: tuple[Finding, ...]
    dropped: tuple[str, ...] = ()  # levels that are gone; what was calibrated there goes with them

    def text(self) -> list[str]:
        """A line for each finding, and for what went with a level."""
        lines = [f"  {finding.words}" for finding in self.findings]
        lines += [f"  {name}: this level is gone, with what was calibrated at it"
                  for name in self.dropped]  # fmt: skip
        return ["", "structure:", *lines] if lines else []


def learned(readings: Iterable[Reading], system: System) -> Structure:
    """The system with what the readings say of its levels; itself where they say nothing."""
    readings = tuple(readings)
    levels, found = list(system.levels), list[Finding]()
    told = [reading for reading in readings if reading.levels]
    inside = system.inside
    for reading in told:
        inner = [said for said in reading.levels if "link" in said]
        if inner:
            levels = _node(levels, inside, inner, reading, system, found)
            inside = len(inner)
        for said in reading.levels:
            if said["name"] == "network":
                _ports(levels, inside, said, found)
    for reading in told:
        tree = [said for said in reading.levels if "nodes" in said]
        if tree:
            node = levels[inside - 1].devices if inside else 1
            levels[inside:] = _tree(levels[inside:], node, tree, reading, system, found)
    for reading in readings:
        if reading.interference:
            _slowed(levels, inside, reading, system, found)
    _streamed(levels, inside, readings, system, found)
    names = {level.name for level in levels}
    dropped = tuple(level.name for level in system.levels if level.name not in names)
    if levels == list(system.levels):
        return Structure(system, tuple(found))
    kept = tuple(entry for entry in system.collectives if entry.level in names)
    library = tuple(entry for entry in system.library if entry.level in names)
    learned = replace(
        system, levels=tuple(levels), collectives=kept, library=library, calibrated_on=()
    )
    return Structure(learned, tuple(found), dropped)


def _streamed(
    levels: list[Level], inside: int, readings: Sequence[Reading], system: System,
    found: list[Finding],
) -> None:  # fmt: skip
    """The part of the datasheet that streams of messages get, and a message's start-up."""
    for beyond, at in ((False, inside - 1), (True, inside)):
        if not 0 <= at < len(levels):
            continue
        told = links(readings, levels[at], beyond, system)
        facts = {"share": told.share, "latency": told.latency}
        facts = {name: value for name, value in facts.items() if value is not None}
        if facts:
            said = {"source": f"measured: {told.source}"}
            levels[at] = _changed(levels[at], levels[at].name, facts, said, found)


def _node(
    levels: list[Level], inside: int, said: Sequence[Mapping[str, Any]], reading: Reading,
    system: System, found: list[Finding],
) -> list[Level]:  # fmt: skip
    """The levels inside a node as a file has them, at the speeds of the spec's of the same link."""
    old, new = levels[:inside], list[Level]()
    alike = [level.link for level in old] == [one["link"] for one in said]
    for k, one in enumerate(said):
        like = old[k] if alike else next((x for x in old[::-1] if x.link == one["link"]), None)
        if like is None:
            link = one["link"]
            what = (f"{one['devices']} devices of a node are joined by {link}, and {system.name} "
                    "has no such level to take bandwidth and latency from")  # fmt: skip
            raise InputError(
                reading.path, 0, what, f"put a level with `link: {link}` into it first"
            )
        name = like.name if like.name not in {x.name for x in new} else str(one["name"])
        facts = {field: one[field] for field in FIELDS if field in one}
        facts.setdefault("ports", like.ports if alike else None)
        facts.setdefault("wires", ())
        new.append(_changed(like, name, facts, one, found))
    node, before = new[-1].devices, old[-1].devices
    outer = []
    for level in levels[inside:]:
        facts = {"devices": level.devices // before * node}
        outer.append(_changed(level, level.name, facts, said[-1], found, quiet=True))
    return new + outer


def _ports(levels: list[Level], inside: int, said: Mapping[str, Any], found: list[Finding]) -> None:
    """Network ports of a node: a list of adapters holds them all, and some that only store."""
    if inside >= len(levels):
        why = "the spec has no network"
        found.append(Finding("network", "ports", "none", str(said["ports"]), "kept",
                             str(said["source"]), why))  # fmt: skip
        return
    level = levels[inside]
    if level.ports is not None and said["ports"] > level.ports:
        why = "adapters for storage and management may be among them"
        found.append(Finding(level.name, "ports", f"{level.ports:g}", str(said["ports"]), "kept",
                             str(said["source"]), why))  # fmt: skip
        said = {**said, "ports": level.ports}
        levels[inside] = _changed(level, level.name, {}, said, found)
    else:
        facts = {"ports": said["ports"]}
        levels[inside] = _changed(level, level.name, facts, said, found)


def _tree(
    outer: list[Level], node: int, said: Sequence[Mapping[str, Any]], reading: Reading,
    system: System, found: list[Finding],
) -> list[Level]:  # fmt: skip
    """The network's levels as a tree of switches has them, at the speeds of those of the spec."""
    if not outer:
        what = f"{system.name} has no network level to take bandwidth and latency from"
        raise InputError(reading.path, 0, what, "put one with `link: network` into the spec first")
    odd = next((level for level in outer if level.kind not in TREES or level.shape), None)
    if odd is not None:
        found.append(Finding(odd.name, "kind", odd.kind, "tree", "kept", str(said[0]["source"]),
                             "a tree of switches says nothing of it"))  # fmt: skip
        return outer
    spans = _whole(node, said)
    if {span for span, _ in spans} <= {level.devices for level in outer}:
        for level in outer:
            for span, one in spans:
                if span == level.devices:
                    _changed(level, level.name, {"devices": span}, one, found)
        return outer
    new: list[Level] = []
    for k, (span, one) in enumerate(spans):
        alike = len(spans) == len(outer)
        like = outer[k] if alike else next((x for x in outer if x.devices >= span), outer[-1])
        taken = {level.name for level in new}
        name = like.name if like.name not in taken else str(one["name"])
        facts: dict[str, Any] = {"devices": span}
        if not alike:  # the units below are others: how many links they have up is not in the file
            facts |= {"kind": "fat-tree" if k else outer[0].kind,
                      "ports": None if k else outer[0].ports}  # fmt: skip
            if k:
                found.append(Finding(name, "oversubscription", f"{like.oversubscription:g}",
                                     "not said", "kept", str(one["source"])))  # fmt: skip
        new.append(_changed(like, name, facts, one, found))
    return new


def _slowed(
    levels: list[Level], inside: int, reading: Reading, system: System, found: list[Finding]
) -> None:
    """What other jobs cost, onto the level that joins as many nodes as were measured."""
    if inside >= len(levels):
        what = f"{system.name} has no network whose congestion could be measured"
        raise InputError(reading.path, 0, what, "name the system that was measured")
    node = levels[inside - 1].devices if inside else 1
    spanned = (reading.nodes or levels[-1].devices) * node
    outer = range(inside, len(levels))
    k = next((k for k in outer if levels[k].devices >= spanned), outer[-1])
    tool, row = reading.machine.get("tool", "a log"), reading.machine.get("congestion", "")
    said = {"source": f"{tool} on {reading.nodes or 'all'} nodes, {row}",
            "note": "average and 99 % under its congestors"}  # fmt: skip
    facts = {"interference": reading.interference, **reading.short}
    levels[k] = _changed(levels[k], levels[k].name, facts, said, found)


def _whole(node: int, said: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Devices below each height of switches: whole copies of the height below, each larger."""
    spans: list[tuple[int, Mapping[str, Any]]] = []
    for one in said:
        below = spans[-1][0] if spans else node
        span = -(-int(one["nodes"]) * node // below) * below
        if span > below:
            spans.append((span, one))
    return spans


def _changed(
    like: Level, name: str, facts: Mapping[str, Any], said: Mapping[str, Any],
    found: list[Finding], quiet: bool = False,
) -> Level:  # fmt: skip
    """A level with facts of a file, all noted; its source names what was added or changed."""
    source, words, why = str(said["source"]), list[str](), str(said.get("note", ""))
    own = name == like.name
    for field, value in facts.items():
        before = getattr(like, field) if own else None
        before = None if before == () else before
        if value in (None, ()) and before is None:
            continue
        verdict = "agrees" if value == before else "added" if before is None else "changed"
        if not (quiet and verdict == "agrees"):
            found.append(Finding(name, field, _word(before), _word(value), verdict, source, why))
            why = ""
        if verdict != "agrees":
            was = f" (was {_word(before)})" if verdict == "changed" else ""
            words.append(f"{field} {_word(value)}{was}")
    if "bandwidth" in said:
        given = parse(str(said["bandwidth"]), "B/s")
        if abs(given / like.bandwidth - 1) > 1e-3:
            why = "the rate that a tool counts on is no measurement"
            found.append(Finding(name, "bandwidth", show(like.bandwidth, "B/s"),
                                 show(given, "B/s"), "kept", source, why))  # fmt: skip
    if not own:
        words.append(f"bandwidth and latency as of `{like.name}`")
    if not words:
        return like
    told = plain(f"{like.source}; {', '.join(words)}: {source}")
    return replace(like, name=name, **facts, source=told)


def _word(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return f"{len(value)} between pairs"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_word, value))}]"
    return "not said" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
