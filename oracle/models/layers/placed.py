"""A layer as it stands in a file: `- kind: {fields}`, or a block of layers that recurs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

from oracle.models.layers.base import Layer
from oracle.models.layers.plain import Activation
from oracle.spec.document import Node, suggest
from oracle.spec.schema import Between, Reader, fields_of

FIELDS = ("name", "repeat", "layers", "shared")  # of a block
_ACTIVATIONS = ("relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish")


def kinds() -> dict[str, type[Layer]]:
    """Return every layer kind by its word in a spec file, new subclasses included."""
    return {cls.__name__.lower(): cls for cls in Layer.__subclasses__()}


@dataclass(frozen=True, slots=True)
class Placed:
    """A layer as it stands in a file: the layer, or a block of layers, and where it stands."""

    node: Node
    layer: Layer | None = None
    repeat: int = 1
    block: tuple[Placed, ...] = ()
    name: str = ""  # of a block: what its last layer made
    stack: bool = False  # of a block: one of a stack of layers, even where it doesn't recur
    shared: bool = False  # of a block: all its copies use the weights of the first

    @classmethod
    def from_node(cls, node: Node, reader: Reader) -> Placed | None:
        """Return the layer; None where it has a fault of its own, outside its block."""
        faults_before = len(reader.faults)
        placed = cls._read(node, reader)
        faulty = len(reader.faults) > faults_before
        return None if placed is None or (faulty and placed.layer is not None) else placed

    @classmethod
    def _read(cls, node: Node, reader: Reader) -> Placed | None:
        if node.kind == "scalar" and not node.empty:  # `- relu`: a kind with nothing to say
            entry = Node(node.place, "mapping", entries={node.text: Node(node.place, "mapping")})
            entry.keys[node.text] = node.place
            return cls._read(entry, reader)
        if node.kind != "mapping" or not node.entries:
            reader.fault("E104", "a layer is written `- kind: {fields}`", node)
            return None
        if "layers" in node.entries:
            return cls._block(node, reader)
        word, *rest = node.entries
        kind_of = kinds()
        if word in _ACTIVATIONS and not rest:  # `relu: {name: here}` says an activation's op
            body = node.entries[word]
            if body.kind != "mapping" and not body.empty:
                complaint = f"`{word}` takes fields such as `name`, not a {body.kind}"
                reader.fault("E104", complaint, body, f"write `- {word}`")
                return None
            inner = Node(body.place, "mapping", entries={**body.entries}, keys={**body.keys})
            inner.entries["op"] = Node(node.keys[word], "scalar", word)
            plain = reader.record(Activation, inner, word)
            return cls(node, plain) if plain is not None else None
        if word not in kind_of:
            hint = suggest(word, [*kind_of, *_ACTIVATIONS, "layers"], "layer kinds")
            place = node.keys[word]
            word_node = Node(place, "scalar", word)
            reader.fault("E110", f"no layer kind is called `{word}`", word_node, hint)
            return None
        if rest:
            word_node = Node(node.keys[rest[0]], "scalar", rest[0])
            reader.fault(
                "E102", f"`{rest[0]}` stands beside `{word}`", word_node, "indent it under the kind"
            )
            return None
        inner = node.entries[word]
        if inner.empty:
            inner = Node(inner.place, "mapping")
        layer = reader.record(kind_of[word], inner, word)
        return cls(node, layer) if layer is not None else None

    @classmethod
    def _block(cls, node: Node, reader: Reader) -> Placed | None:
        for key in node.entries:
            if key not in FIELDS:
                key_node = Node(node.keys[key], "scalar", key)
                reader.fault("E102", f"unknown field `{key}`", key_node, suggest(key, FIELDS))
        times = 1
        if "repeat" in node.entries:
            hint = Annotated[int, Between(1, 10_000)]
            times = reader.part(hint, node.entries["repeat"], "repeat")
        name = reader.read(str, node.entries["name"], "name") if "name" in node.entries else ""
        inner = reader.read(tuple[Placed, ...], node.entries["layers"], "layers") or ()
        block = tuple(p for p in inner if p is not None)
        shared = "shared" in node.entries and reader.read(bool, node.entries["shared"], "shared")
        return cls(node, None, times, block, name or "", shared=bool(shared))

    @classmethod
    def json_schema(cls, schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        options: list[dict[str, Any]] = [
            {"type": "object", "properties": {word: _schema_of(kind, schema)}, "required": [word],
             "additionalProperties": False}
            for word, kind in {**kinds(), **dict.fromkeys(_ACTIVATIONS, Activation)}.items()
        ]  # fmt: skip
        blocks = {"type": "object", "required": ["layers"], "additionalProperties": False,
                  "properties": {"name": {"type": "string"}, "repeat": {"type": "integer"},
                                 "shared": {"type": "boolean"},
                                 "layers": {"type": "array"}}}  # fmt: skip
        plain = sorted({*_ACTIVATIONS, *(w for w, k in kinds().items() if _plain(k))})
        return {"anyOf": [*options, blocks, {"enum": plain}]}


def _schema_of(kind: type[Layer], schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a kind: all fields, the shorthand field, or null if none is needed."""
    forms = [schema(kind)]
    if shorthand := getattr(kind, "shorthand", None):
        forms.append(schema(fields_of(cast(Any, kind))[shorthand][1]))
    return {"anyOf": [*forms, *([{"type": "null"}] if _plain(kind) else [])]}


def _plain(kind: type) -> bool:
    return not any(required for _, _, required in fields_of(cast(Any, kind)).values())
