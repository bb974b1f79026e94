"""From a document to frozen dataclasses, by their type hints.

Validation happens here, at the edge, once: every fault of a document is collected with its
place before anything is refused. Inside the house nothing is checked again.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from oracle.spec.document import SHOWN, Fault, Node, Place, SpecError, nearest, suggest
from oracle.spec.units import SMALLEST, Quantity, exact, parse, spelled_out

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Between:
    """The range a plain number must lie in, ends included."""

    low: float = -math.inf
    high: float = math.inf


Count = Annotated[int, Between(1, 2**53)]
Whole = Annotated[int, Between(0, 2**53)]
Fraction = Annotated[float, Between(0, 1)]
Ratio = Annotated[float, Between(0, 1e12)]


@dataclass(frozen=True, slots=True)
class Clash:
    """Values that are fine one by one but do not go together; raised by a `check` method."""

    field: str
    what: str
    hint: str = ""
    key: bool = False  # it is the field's name that is wrong


class Unread(Exception):
    """A check has looked at a value that could not be read."""


def _unread(*_: Any) -> Any:
    raise Unread


def _no_name(_: Any, name: str) -> Any:
    """Names that Python itself asks for are not there; any other is a look at the value."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise Unread


# stands in a record for what is at fault, so that everything else can still be checked: whoever
# looks at it is stopped
UNSOUND: Any = type("Unsound", (), dict.fromkeys((
    "__bool__", "__call__", "__contains__", "__eq__", "__format__", "__getitem__",
    "__hash__", "__iter__", "__len__", "__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__str__",
    *(f"__{side}{name}__" for side in ("", "r")
      for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")),
), _unread) | {"__getattr__": _no_name})()  # fmt: skip


class Reader:
    """Reads nodes as types and remembers every fault."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    @property
    def full(self) -> bool:
        """Whether more faults are known than are shown: advice and guesses are for those."""
        return len(self.faults) >= SHOWN

    def fault(self, code: str, what: str, node: Node, hint: str = "") -> None:
        self.faults.append(Fault(code, what, node.place, hint, node.length))

    def read(self, kind: Any, node: Node, label: str = "value") -> Any:
        """`node` as a `kind`, or None with the fault noted."""
        if node.kind == "refused":  # somebody noted why
            return UNSOUND
        if hasattr(kind, "from_node"):
            return kind.from_node(node, self)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.number(arguments, node, label)
        if origin in (Union, types.UnionType):
            return self.either(arguments, node, label)
        if origin is Literal:
            return self.choice(arguments, node, label)
        if origin is tuple:
            return self.sequence(arguments, node, label)
        if origin is dict:
            return self.mapping(arguments[1], node, label)
        if dataclasses.is_dataclass(kind):
            return self.record(cast(Any, kind), node, label)
        if kind in (int, float):
            return self.number((kind, Between()), node, label)
        return self.word(kind, node, label)

    def word(self, kind: Any, node: Node, label: str) -> Any:
        if node.kind != "scalar":
            self.fault("E104", f"`{label}` takes one word or line, not a {node.kind}", node)
        elif kind is bool:
            found = {"true": True, "false": False}.get(node.text.lower())
            if found is None or node.quoted:
                self.fault("E104", f"`{label}` is a yes-or-no", node, "write `true` or `false`")
            return found
        elif node.empty or not node.text.strip():
            self.fault("E104", f"`{label}` is empty", node, "write a word, or leave the field out")
        else:
            return node.text
        return None

    def number(self, hint: tuple[Any, ...], node: Node, label: str) -> float | int | None:
        kind, rule = hint[0], hint[1]
        if node.kind != "scalar":
            self.fault("E104", f"`{label}` takes one number, not a {node.kind}", node)
            return None
        try:
            if isinstance(rule, Quantity):
                return _quantity(node.text, rule)
            return _plain(kind, rule, node)
        except ValueError as error:
            example = getattr(rule, "example", "")
            self.fault("E105", f"`{label}`: {error}", node, f"e.g. `{example}`" if example else "")
            return None

    def either(self, options: tuple[Any, ...], node: Node, label: str) -> Any:
        rest = [o for o in options if o is not type(None)]
        if len(rest) < len(options) and node.empty:
            return None
        words = [o for o in rest if get_origin(o) is Literal]
        if node.kind == "scalar" and any(node.text in get_args(o) for o in words):
            return node.text
        wanted = {"scalar": _is_scalar, "sequence": _is_sequence, "mapping": _is_record}[node.kind]
        numbers = [o for o in rest if o not in words]
        return self.read(next((o for o in numbers if wanted(o)), rest[0]), node, label)

    def choice(self, options: tuple[Any, ...], node: Node, label: str) -> Any:
        if node.kind == "scalar" and node.text in options:
            return node.text
        given = f"`{node.text}`" if node.kind == "scalar" else f"a {node.kind}"
        known = [str(o) for o in options]
        hint = "" if self.full else suggest(node.text, known, "write one of")
        self.fault("E110", f"`{label}` cannot be {given}", node, hint)
        return None

    def sequence(self, arguments: tuple[Any, ...], node: Node, label: str) -> Any:
        if node.kind != "sequence":
            self.fault(
                "E104", f"`{label}` takes a list", node, "write `[..., ...]` or lines with `-`"
            )
            return None
        return tuple(self.part(arguments[0], item, label) for item in node.items)

    def mapping(self, kind: Any, node: Node, label: str) -> Any:
        if node.kind != "mapping":
            self.fault("E104", f"`{label}` takes `name: value` pairs", node)
            return None
        return {key: self.part(kind, value, key) for key, value in node.entries.items()}

    def part(self, kind: Any, node: Node, label: str) -> Any:
        """A piece of something larger, `UNSOUND` where it cannot be read."""
        before = len(self.faults)
        found = self.read(kind, node, label)
        return UNSOUND if found is None and len(self.faults) > before else found

    def record(self, kind: Any, node: Node, label: str) -> Any:
        if node.kind != "mapping":
            if shorthand := getattr(kind, "shorthand", None):
                entry = Node(node.place, "mapping", entries={shorthand: node})
                entry.keys[shorthand] = node.place
                return self.record(kind, entry, label)
            known = ", ".join(f"`{key}`" for key in list(fields_of(kind))[:4])
            self.fault(
                "E104", f"`{label}` takes fields, not a {node.kind}", node, f"such as {known}"
            )
            return None
        known_fields = fields_of(kind)
        meant: set[str] = set()  # what unknown fields may be
        # of a kind that keeps them, a field may bring its source along: {value: …, source: …}
        values: dict[str, Any] = {"sources": {}} if "sources" in kind.__dataclass_fields__ else {}
        for key, value in node.entries.items():
            if key not in known_fields:
                place = node.keys[key]
                gone = getattr(kind, "GONE", {}).get(key)
                what = f"no field is called `{key}` any more" if gone else f"unknown field `{key}`"
                hint = "" if self.full else gone or suggest(key, known_fields, "fields here")
                self.faults.append(Fault("E102", what, place, hint, len(key)))
                if gone:
                    continue
                near = "" if self.full else nearest(key, known_fields)
                meant |= {near} if near else set(known_fields)
                continue
            name, hint_type, _ = known_fields[key]
            if "sources" in values and set(value.entries) == {"value", "source"}:
                values["sources"][key] = self.part(str, value.entries["source"], "source")
                value = value.entries["value"]
            values[name] = self.part(hint_type, value, key)
        for key, (name, _, required) in known_fields.items():
            if name in values:
                continue
            if required:
                self.fault("E103", f"`{label}` lacks the field `{key}`", node)
            if required or key in meant:
                values[name] = UNSOUND
        try:
            built = kind(**values)
        except Unread:
            return None
        self.clashes(getattr(built, "check", list)(), node)
        return built

    def clashes(self, found: Iterable[Clash], node: Node) -> None:
        """Note what does not go together, as far as it can be read."""
        with suppress(Unread):
            for clash in found:
                self.clash(clash, node)

    def clash(self, clash: Clash, node: Node) -> None:
        at, rest, place = node, clash.field, node.place
        while rest:
            inside = at.entries or {str(i): item for i, item in enumerate(at.items)}
            # a key may have a dot in it, `tensor.sequence`
            steps = [step for step in inside if f"{rest}.".startswith(f"{step}.")]
            if not steps:
                break
            step = max(steps, key=len)
            place = at.keys.get(step, place)
            at, rest = inside[step], rest[len(step) + 1 :]
        named = Node(place, "scalar", clash.field.rpartition(".")[2])
        self.fault("E109", clash.what, named if clash.key else at, clash.hint)


_FLOAT = r"[-+]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][-+]?[0-9]{1,3})?"


def _quantity(text: str, rule: Quantity) -> float:
    if re.fullmatch(r"[-+]?\.?(nan|inf|infinity)\b.*", text.strip().lower()):
        raise ValueError(f"`{text.strip()[:60]}` is not a number")
    value = parse(text, rule.unit)
    if value < 0 or (value == 0 and not rule.zero):
        raise ValueError(
            f"`{text.strip()}` must be {'zero or more' if rule.zero else 'above zero'}"
        )
    return value


def _plain(kind: Any, rule: Between, node: Node) -> float | int:
    text = node.text.strip()
    pattern = r"[-+]?[0-9]{1,400}" if kind is int else _FLOAT
    if kind is int and re.fullmatch(r"[0-9]{1,400}(\.0*)?[eE][0-9]{1,2}|[0-9]{1,400}\.0+", text):
        text = str(int(float(text)))
    if node.quoted or not re.fullmatch(pattern, text) or re.fullmatch(r"[-+]?0[0-9]+", text):
        wanted = "a whole number" if kind is int else "a plain number"
        raise ValueError(f"`{node.text[:40]}` is not {wanted}{spelled_out(text)}")
    value = kind(text)
    # compared as it is: a whole number may be too large for a float
    if 0 < abs(value) < SMALLEST:
        raise ValueError(f"{text[:40]} is too small to be told from nothing")
    if abs(value) == math.inf or not rule.low <= value <= rule.high:
        top = f" to {rule.high:g}" if math.isfinite(rule.high) and rule.high < 2**53 else " or more"
        raise ValueError(f"{text[:40]} is out of range: {rule.low:g}{top}")
    return value  # type: ignore[no-any-return]


def _is_record(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or get_origin(kind) is dict


def _is_sequence(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _is_scalar(kind: Any) -> bool:
    return not _is_record(kind) and not _is_sequence(kind)


@cache
def fields_of(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """Key in a file -> (attribute, type hint, required)."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for f in dataclasses.fields(kind):
        if f.metadata.get("hidden"):
            continue
        missing = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        found[f.metadata.get("key", f.name)] = (f.name, hints[f.name], missing)
    return found


def to_data(spec: Any) -> dict[str, Any]:
    """A record as a file would say it: what is not as it would be anyway, numbers with units."""
    said = {}
    for key, (name, hint, _) in fields_of(cast(Any, type(spec))).items():
        value = getattr(spec, name)
        given = type(spec).__dataclass_fields__[name]
        if value != given.default and value is not None:
            said[key] = _said(value, hint)
    return said


def _said(value: Any, hint: Any) -> Any:
    if hasattr(value, "to_lines"):
        return value.to_lines()
    if dataclasses.is_dataclass(value):
        return to_data(value)
    if isinstance(value, dict | tuple | list):
        inner = [one for one in get_args(hint) if one not in (str, type(None), Ellipsis)]
        held = inner[0] if inner else None
        if isinstance(value, dict):
            return {key: _said(one, held) for key, one in value.items()}
        return [_said(one, held) for one in value]
    rules = [rule for one in (hint, *get_args(hint)) for rule in getattr(one, "__metadata__", ())]
    unit = next((rule.unit for rule in rules if isinstance(rule, Quantity)), "")
    return exact(value, unit) if unit and not isinstance(value, str) else value


def read(
    kind: type[T], node: Node, name: str, text: str = "", label: str = "file",
    also: Callable[[T], Iterable[Clash]] | None = None,
    beyond: Callable[[T], Iterable[Fault]] | None = None,
) -> T:  # fmt: skip
    """`node` as a `kind`; a SpecError with every fault, those that `also` finds too.

    Those of files that it names come first.

    `beyond` is asked of what has faults alone: for those that work on something sound would find.
    """
    reader = Reader()
    reader.faults += node.faults
    built = reader.read(kind, node, label)
    if also is not None and built is not None:
        reader.clashes(also(built), node)
    if reader.faults and beyond is not None and built is not None:
        reader.faults += beyond(built)
    if node.within and not reader.faults:
        *others, last = node.within
        raise SpecError(last.name, last.faults, last.text, [*others, *last.within])
    if reader.faults or built is None:
        faults = reader.faults or [Fault("E104", "nothing to read", Place())]
        raise SpecError(name, faults, text, node.within)
    return built  # type: ignore[no-any-return]
