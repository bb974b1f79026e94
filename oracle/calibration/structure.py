"""Merges topology files into the levels of a system, noting what agrees and what changed.

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

TREES = ("switch", "fat-tree", "rail")  # kinds of levels that a tree of switches tells of
FIELDS = ("devices", "kind", "link", "ports", "wires")
Facts = Mapping[str, Any]  # facts of a level in a file


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact of a file beside the spec's, and what became of it."""

    level: str
    field: str
    spec: str  # "" where the spec says nothing
    file: str
    verdict: str  # "agrees", "added", "changed", "kept": the spec's
    source: str
    why: str = ""

    @property
    def words(self) -> str:
        """The finding in a sentence."""
        head = f"{self.level}: {self.field} {self.file}"
        verdicts = {"agrees": "as the spec says", "added": "added", "kept": f"kept at {self.spec}",
                    "changed": f"changed, was {self.spec}"}  # fmt: skip
        why = f" ({self.why})" if self.why else ""
        return f"{head}: {verdicts[self.verdict]}{why}; {self.source}"


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
    levels, findings = list(system.levels), list[Finding]()
    with_levels = [reading for reading in readings if reading.levels]
    inside = system.inside
    for reading in with_levels:
        inner = [level for level in reading.levels if "link" in level]
        if inner:
            levels = _node(levels, inside, inner, reading, system, findings)
            inside = len(inner)
        for level in reading.levels:
            if level["name"] == "network":
                _ports(levels, inside, level, findings)
    for reading in with_levels:
        tree = [level for level in reading.levels if "nodes" in level]
        if tree:
            node = levels[inside - 1].devices if inside else 1
            levels[inside:] = _tree(levels[inside:], node, tree, reading, system, findings)
    for reading in readings:
        if reading.interference:
            _slowed(levels, inside, reading, system, findings)
    _streamed(levels, inside, readings, system, findings)
    names = {level.name for level in levels}
    dropped = tuple(level.name for level in system.levels if level.name not in names)
    if levels == list(system.levels):
        return Structure(system, tuple(findings))
    collectives = tuple(entry for entry in system.collectives if entry.level in names)
    library = tuple(entry for entry in system.library if entry.level in names)
    learned = replace(
        system, levels=tuple(levels), collectives=collectives, library=library, calibrated_on=()
    )
    return Structure(learned, tuple(findings), dropped)


def _streamed(
    levels: list[Level], inside: int, readings: Sequence[Reading], system: System,
    findings: list[Finding],
) -> None:  # fmt: skip
    """Set the share of the datasheet that streams get, and a message's start-up."""
    for beyond, number in ((False, inside - 1), (True, inside)):
        if not 0 <= number < len(levels):
            continue
        pairs_links = links(readings, levels[number], beyond, system)
        facts = {"share": pairs_links.share, "latency": pairs_links.latency}
        facts = {name: value for name, value in facts.items() if value is not None}
        if facts:
            source_facts = {"source": f"measured: {pairs_links.source}"}
            level = levels[number]
            levels[number] = _changed(level, level.name, facts, source_facts, findings)


def _node(
    levels: list[Level], inside: int, file_levels: Sequence[Facts], reading: Reading,
    system: System, findings: list[Finding],
) -> list[Level]:  # fmt: skip
    """The levels inside a node as a file has them, at the speeds of the spec's levels."""
    old, new = levels[:inside], list[Level]()
    alike = [level.link for level in old] == [file_level["link"] for file_level in file_levels]
    for k, file_level in enumerate(file_levels):
        link = file_level["link"]
        like = old[k] if alike else next((x for x in old[::-1] if x.link == link), None)
        if like is None:
            problem = (f"{file_level['devices']} devices of a node are joined by {link}, and "
                       f"{system.name} has no such level to take bandwidth and latency "
                       "from")  # fmt: skip
            raise InputError(
                reading.path, 0, problem, f"put a level with `link: {link}` into it first"
            )
        name = like.name if like.name not in {x.name for x in new} else str(file_level["name"])
        facts = {field: file_level[field] for field in FIELDS if field in file_level}
        facts.setdefault("ports", like.ports if alike else None)
        facts.setdefault("wires", ())
        new.append(_changed(like, name, facts, file_level, findings))
    node, before = new[-1].devices, old[-1].devices
    outer = []
    for level in levels[inside:]:
        facts = {"devices": level.devices // before * node}
        outer.append(_changed(level, level.name, facts, file_levels[-1], findings, quiet=True))
    return new + outer


def _ports(levels: list[Level], inside: int, adapters: Facts, findings: list[Finding]) -> None:
    """Set the network ports of a node, unless the file may list others among them."""
    if inside >= len(levels):
        why = "the spec has no network"
        findings.append(Finding("network", "ports", "none", str(adapters["ports"]), "kept",
                                str(adapters["source"]), why))  # fmt: skip
        return
    level = levels[inside]
    if level.ports is not None and adapters["ports"] > level.ports:
        why = "adapters for storage and management may be among them"
        findings.append(Finding(level.name, "ports", f"{level.ports:g}", str(adapters["ports"]),
                                "kept", str(adapters["source"]), why))  # fmt: skip
        adapters = {**adapters, "ports": level.ports}
        levels[inside] = _changed(level, level.name, {}, adapters, findings)
    else:
        facts = {"ports": adapters["ports"]}
        levels[inside] = _changed(level, level.name, facts, adapters, findings)


def _tree(
    outer: list[Level], node: int, file_levels: Sequence[Facts], reading: Reading,
    system: System, findings: list[Finding],
) -> list[Level]:  # fmt: skip
    """The network's levels as a tree of switches has them, at the speeds of the spec's."""
    if not outer:
        problem = f"{system.name} has no network level to take bandwidth and latency from"
        hint = "put one with `link: network` into the spec first"
        raise InputError(reading.path, 0, problem, hint)
    odd = next((level for level in outer if level.kind not in TREES or level.shape), None)
    if odd is not None:
        findings.append(Finding(odd.name, "kind", odd.kind, "tree", "kept",
                                str(file_levels[0]["source"]),
                                "a tree of switches says nothing of it"))  # fmt: skip
        return outer
    spans = _spans(node, file_levels)
    if {span for span, _ in spans} <= {level.devices for level in outer}:
        for level in outer:
            for span, file_level in spans:
                if span == level.devices:
                    _changed(level, level.name, {"devices": span}, file_level, findings)
        return outer
    new: list[Level] = []
    for k, (span, file_level) in enumerate(spans):
        alike = len(spans) == len(outer)
        like = outer[k] if alike else next((x for x in outer if x.devices >= span), outer[-1])
        names_taken = {level.name for level in new}
        name = like.name if like.name not in names_taken else str(file_level["name"])
        facts: dict[str, Any] = {"devices": span}
        if not alike:  # the units below are others: how many links they have up is not in the file
            facts |= {"kind": "fat-tree" if k else outer[0].kind,
                      "ports": None if k else outer[0].ports}  # fmt: skip
            if k:
                findings.append(Finding(name, "oversubscription", f"{like.oversubscription:g}",
                                        "not said", "kept", str(file_level["source"])))  # fmt: skip
        new.append(_changed(like, name, facts, file_level, findings))
    return new


def _slowed(
    levels: list[Level], inside: int, reading: Reading, system: System, findings: list[Finding]
) -> None:
    """Set what other jobs cost on the level that joins as many nodes as were measured."""
    if inside >= len(levels):
        problem = f"{system.name} has no network whose congestion could be measured"
        raise InputError(reading.path, 0, problem, "name the system that was measured")
    node = levels[inside - 1].devices if inside else 1
    spanned = (reading.nodes or levels[-1].devices) * node
    outer = range(inside, len(levels))
    k = next((k for k in outer if levels[k].devices >= spanned), outer[-1])
    tool, row = reading.machine.get("tool", "a log"), reading.machine.get("congestion", "")
    source_facts = {"source": f"{tool} on {reading.nodes or 'all'} nodes, {row}",
                    "note": "average and 99 % under its congestors"}  # fmt: skip
    facts = {"interference": reading.interference, **reading.short}
    levels[k] = _changed(levels[k], levels[k].name, facts, source_facts, findings)


def _spans(node: int, file_levels: Sequence[Facts]) -> list[tuple[int, Facts]]:
    """Devices below each height of switches, which are whole copies of the height below."""
    spans: list[tuple[int, Facts]] = []
    for file_level in file_levels:
        below = spans[-1][0] if spans else node
        span = -(-int(file_level["nodes"]) * node // below) * below
        if span > below:
            spans.append((span, file_level))
    return spans


def _changed(
    like: Level, name: str, facts: Facts, source_facts: Facts,
    findings: list[Finding], quiet: bool = False,
) -> Level:  # fmt: skip
    """The level with a file's facts, all noted; its source names what changed."""
    source, words, why = str(source_facts["source"]), list[str](), str(source_facts.get("note", ""))
    same_name = name == like.name
    for field, value in facts.items():
        before = getattr(like, field) if same_name else None
        before = None if before == () else before
        if value in (None, ()) and before is None:
            continue
        verdict = "agrees" if value == before else "added" if before is None else "changed"
        if not (quiet and verdict == "agrees"):
            findings.append(Finding(name, field, _word(before), _word(value), verdict, source, why))
            why = ""
        if verdict != "agrees":
            was = f" (was {_word(before)})" if verdict == "changed" else ""
            words.append(f"{field} {_word(value)}{was}")
    if "bandwidth" in source_facts:
        nominal = parse(str(source_facts["bandwidth"]), "B/s")
        if abs(nominal / like.bandwidth - 1) > 1e-3:
            why = "the rate that a tool counts on is no measurement"
            findings.append(Finding(name, "bandwidth", show(like.bandwidth, "B/s"),
                                    show(nominal, "B/s"), "kept", source, why))  # fmt: skip
    if not same_name:
        words.append(f"bandwidth and latency as of `{like.name}`")
    if not words:
        return like
    source_text = plain(f"{like.source}; {', '.join(words)}: {source}")
    return replace(like, name=name, **facts, source=source_text)


def _word(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return f"{len(value)} between pairs"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_word, value))}]"
    return "not said" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
