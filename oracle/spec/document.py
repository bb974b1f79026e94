"""A document: YAML text (or the same content as a dict) as a tree that knows its places.

The loader is hardened: it reads events, not objects, so nothing is ever built from a tag, no
alias is followed, depth and size are bounded, and a duplicate key is a fault. A scalar stays
text until somebody who knows the wanted type reads it: `1e-6`, `010`, `yes` hold no surprise.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.spec.other_words import OURS

DEEPEST, MOST_NODES, SHOWN = 32, 100_000, 100  # SHOWN faults of one file

CODES = {
    "E100": "The file cannot be read: missing, a directory, too large, or not UTF-8 text.",
    "E101": "The text is not YAML: a bracket, quote or indentation is off at the place shown.",
    "E102": "A field that nobody knows. Fields are refused, not ignored: a typo would otherwise "
            "silently leave a default in force.",
    "E103": "A field that must be there is missing.",
    "E104": "The value is of the wrong kind: text where a list is due, a list where a number is.",
    "E105": "A quantity cannot be used: it has no unit, an ambiguous one (`Gb`), a wrong "
            "dimension, or it is negative, not a number, or out of range.",
    "E106": "The same key stands twice in one mapping; YAML would keep the last and say nothing.",
    "E107": "Anchors, aliases, merges and tags are off: spec files are plain data.",
    "E108": "The document is nested too deeply or has too many parts to be a spec.",
    "E109": "The values are each fine, but they do not go together.",
    "E110": "A name that is not among the known ones.",
    "E111": "A layer cannot be placed: its input's shape does not fit it.",
    "E130": "A log or table cannot be read as what it seems to be; nothing of it was used.",
    "E132": "A log contradicts the system it is calibrated onto, another log, or itself.",
    "E131": "An export format cannot take this plan, or a file that is there stays as it is.",
    "E112": "A plan cannot be read: unknown strategy, unknown knob, or a degree below one.",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a line and column of a file, or a path inside a dict."""

    line: int = 0  # from 1; 0 when there is no text
    column: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: what, where, and what to write instead."""

    code: str
    what: str
    place: Place
    hint: str = ""
    length: int = 1


class SpecError(ValueError):
    """A spec that cannot be used, with every fault found in it, and in the files that it names."""

    def __init__(
        self, name: str, faults: Sequence[Fault], text: str = "",
        within: Sequence[SpecError] = (),
    ) -> None:  # fmt: skip
        self.name, self.text, self.within = name, text, tuple(within)
        self.faults = tuple(sorted(faults, key=lambda f: (f.place.line, f.place.column)))
        super().__init__(self.explain())

    def every(self) -> Iterator[SpecError]:
        """Those of the files that it names, and of theirs; then itself."""
        for each in self.within:
            yield from each.every()
        yield self

    def explain(self) -> str:
        lines = self.text.splitlines()
        blocks = [_block(fault, self.name, lines) for fault in self.faults[:SHOWN]]
        count = len(self.faults)
        total = "1 problem" if count == 1 else f"{count} problems"
        total += f" (the first {SHOWN} are shown)" if count > SHOWN else ""
        own = "\n".join([*blocks, f"{total} in {self.name}. Nothing was computed."])
        return "\n\n".join([*(each.explain() for each in self.within), own])


def refusal(name: str, what: str, hint: str = "", code: str = "E109") -> SpecError:
    """One fault that stands in no text: of an option, a file's name, an argument."""
    return SpecError(name, [Fault(code, what, Place(), hint)])


def _block(fault: Fault, name: str, lines: list[str]) -> str:
    head = f"error[{fault.code}]: {fault.what}"
    place = fault.place
    if not 0 < place.line <= len(lines):
        where = f"  --> {name}" + (f" at `{place.path}`" if place.path else "")
        return "\n".join([head, where, *([f"   = help: {fault.hint}"] if fault.hint else [])])
    source = lines[place.line - 1].expandtabs(1)
    start, length = place.column - 1, max(1, fault.length)
    if len(source) > 100:  # keep a monster line readable
        left = max(0, start - 30)
        source, start = source[left : left + 100], start - left
    source = "".join(c if c.isprintable() else "·" for c in source)
    margin = " " * len(str(place.line))
    mark = " " * start + "^" * min(length, max(1, len(source) - start))
    return "\n".join(
        [
            head,
            f"{margin}--> {name}:{place.line}:{place.column}",
            f"{margin} |",
            f"{place.line} | {source}",
            f"{margin} | {mark}{' ' + fault.hint if fault.hint else ''}",
        ]
    )


def fingerprint(node: Node, without: Sequence[str] = ()) -> str:
    """A hash of what a document says, whatever its comments, order of fields and quotes."""

    def said(one: Node) -> Any:
        if one.kind == "scalar":
            return one.text
        return [said(item) for item in one.items] or {k: said(v) for k, v in one.entries.items()}

    kept = {key: said(value) for key, value in node.entries.items() if key not in without}
    text = json.dumps(kept, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Node:
    """A scalar (text), a sequence (items) or a mapping (entries) with its place."""

    place: Place
    kind: str  # "scalar", "sequence", "mapping"
    text: str = ""
    quoted: bool = False
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    # of a root: what the rest can be read beside; and of files that it names
    faults: list[Fault] = field(default_factory=list)
    within: list[SpecError] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.text) + 2 * self.quoted if self.kind == "scalar" else 1

    def at(self, path: str) -> Node:
        """What stands at `levels.0.bandwidth`, or the nearest above it that the text has."""
        node = self
        for step in path.split("."):
            inner = node.entries or {str(i): item for i, item in enumerate(node.items)}
            if step not in inner:
                break
            node = inner[step]
        return node

    @property
    def empty(self) -> bool:
        return self.kind == "scalar" and not self.quoted and self.text in ("", "~", "null")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that `word` was probably meant to be, or nothing."""
    return next(iter(_meant(word, known)), "")


def suggest(word: str, known: Iterable[str], otherwise: str = "known") -> str:
    """`did you mean ...?`, or the list when nothing is near."""
    options = list(known)
    if meant := _meant(word, options):
        *most, last = [f"`{name}`" for name in meant[:3]]
        return f"did you mean {', '.join(most)}{' or ' if most else ''}{last}?"
    shown = ", ".join(f"`{o}`" for o in options[:12])
    return f"{otherwise}: {shown}{', …' if len(options) > 12 else ''}" if options else ""


def _meant(word: str, known: Iterable[str]) -> list[str]:
    """The known names that a word may stand for, the likeliest first.

    One that is spelled nearly so; what other tools say for it; those that have all its parts, or
    whose parts it has; one that is spelled a little like it.
    """
    folded = {_folded(name): name for name in reversed(list(known))}
    wanted = _folded(word)
    if near := difflib.get_close_matches(wanted, folded, n=1, cutoff=0.9):
        return [folded[near[0]]]
    ours = OURS.get(wanted, OURS.get(wanted.rpartition(".")[2]))
    if ours in folded:
        return [folded[ours]]
    said = set(wanted.split("_"))
    parts = {name: set(name.split("_")) for name in folded}
    longer = [name for name, has in parts.items() if said <= has and len(wanted) > 2]
    shorter = [name for name, has in parts.items() if has <= said and len(name) > 2]
    if longer or shorter:
        found = sorted(longer, key=lambda name: (len(parts[name]), len(name)))
        return [folded[name] for name in found or sorted(shorter, key=len, reverse=True)]
    return [folded[name] for name in difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)]


def _folded(word: str) -> str:
    """A name without the differences that nobody means."""
    return word.lower().replace("-", "_").strip("_")


def load(text: str, name: str, partly: bool = False) -> Node:
    """The tree of a YAML text; a SpecError if it is not plain, bounded YAML.

    `partly`: keys that stand twice are left to whoever reads on, and finds what else is wrong.
    """
    reader = _Reader(name, text)
    root = reader.read()
    if reader.faults and not (partly and all(fault.code == "E106" for fault in reader.faults)):
        raise SpecError(name, reader.faults, text)
    root.faults = reader.faults
    return root


# what makes a text look other than it is: bidirectional marks, controls, halves of characters
_HIDING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HIDING_INSIDE = re.compile(_HIDING.pattern.replace(r"\x0e", r"\r\x0e"))  # of one word or line


def _hides(char: str) -> str:
    return f"a control character (U+{ord(char):04X}) that hides what is written"


class _Reader:
    """Turns YAML events into nodes, iteratively: depth never reaches the C stack."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.faults: list[Fault] = []

    def stop(self, code: str, what: str, place: Place, hint: str = "") -> SpecError:
        return SpecError(self.name, [*self.faults, Fault(code, what, place, hint)], self.text)

    def read(self) -> Node:
        import yaml

        if found := _HIDING.search(self.text):
            before = self.text[: found.start()]
            place = Place(before.count("\n") + 1, found.start() - before.rfind("\n"))
            raise self.stop("E101", _hides(found.group()), place, "delete it")
        if sum(map(self.text.count, ",:\n")) > MOST_NODES:  # at a glance, before any parsing
            raise self.stop("E108", f"more than {MOST_NODES} values", Place(1, 1))
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        root: Node | None = None
        stack: list[tuple[Node, list[Node]]] = []  # an open mapping keeps its pending key
        count = 0
        try:
            for event in yaml.parse(self.text, Loader=loader):
                mark = event.start_mark
                place = Place(mark.line + 1, mark.column + 1) if mark else Place()
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                    raise self.stop(
                        "E107", "anchors and aliases are not read", place, "write it out"
                    )
                if getattr(event, "tag", None):
                    raise self.stop("E107", "tags are not read", place, "write plain data")
                if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    raise self.stop("E104", "a second document", place, "one document per file")
                if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                    node, _ = stack.pop()
                elif isinstance(event, yaml.ScalarEvent):
                    if found := _HIDING_INSIDE.search(event.value):  # written as an escape
                        raise self.stop("E101", _hides(found.group()), place, "delete it")
                    node = Node(place, "scalar", event.value, event.style in ("'", '"'))
                elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                    is_map = isinstance(event, yaml.MappingStartEvent)
                    node = Node(place, "mapping" if is_map else "sequence")
                    stack.append((node, []))
                    if len(stack) > DEEPEST:
                        raise self.stop("E108", f"nested more than {DEEPEST} deep", place)
                    continue
                else:
                    continue
                count += 1
                if count > MOST_NODES:
                    raise self.stop("E108", f"more than {MOST_NODES} values", place)
                if stack:
                    self.put(*stack[-1], node)
                else:
                    root = node
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
            what = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
            if "nesting depth" in str(what):  # libyaml's own limit, before its first event
                raise self.stop("E108", f"nested more than {DEEPEST} deep", place) from None
            raise self.stop("E101", str(what), place, self._tab(place)) from None
        if root is None:
            raise self.stop("E103", "the file is empty", Place(1, 1))
        return root

    def _tab(self, place: Place) -> str:
        """Advice where a line is indented by a tab."""
        line = self.text.splitlines()[place.line - 1 : place.line] or [""]
        blank = line[0][: len(line[0]) - len(line[0].lstrip())]
        return "indent with spaces: YAML takes no tabs" if "\t" in blank else ""

    def put(self, parent: Node, pending: list[Node], node: Node) -> None:
        if parent.kind == "sequence":
            parent.items.append(node)
        elif not pending:
            pending.append(node)
        else:
            key = pending.pop()
            if key.kind != "scalar":
                self.faults.append(Fault("E104", "a key must be a plain word", key.place))
            elif key.text == "<<" and not key.quoted:
                self.faults.append(Fault("E107", "merges are not read", key.place, "write it out"))
            elif key.text in parent.entries:
                first = parent.keys[key.text].line
                what = f"`{key.text}` stands twice (first on line {first})"
                self.faults.append(Fault("E106", what, key.place, "keep one", key.length))
            else:
                parent.entries[key.text], parent.keys[key.text] = node, key.place


def from_data(data: Any, path: str = "", depth: int = 0) -> Node:
    """The same tree from Python data: a dict as `yaml.safe_load` would give it."""
    place = Place(path=path)
    if depth > DEEPEST:
        at = Place(path=path[:60])
        raise SpecError("spec", [Fault("E108", f"nested more than {DEEPEST} deep", at)])
    if isinstance(data, Mapping):
        node = Node(place, "mapping")
        for key, value in data.items():
            word = from_data(str(key), path, depth + 1).text
            inner = f"{path}.{word}" if path else word
            node.entries[word] = from_data(value, inner, depth + 1)
            node.keys[word] = Place(path=inner)
        return node
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        items = [from_data(value, f"{path}[{i}]", depth + 1) for i, value in enumerate(data)]
        return Node(place, "sequence", items=items)
    if data is None:
        return Node(place, "scalar", "")
    if isinstance(data, bool):
        return Node(place, "scalar", "true" if data else "false")
    text = str(data)
    if found := _HIDING_INSIDE.search(text):
        raise SpecError("spec", [Fault("E101", _hides(found.group()), place, "delete it")])
    return Node(place, "scalar", text, quoted=isinstance(data, str) and not data)
