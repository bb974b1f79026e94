"""JSON Schema of the spec types, from their type hints."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from oracle.spec.schema import fields_of
from oracle.spec.units import Quantity


def json_schema(kind: Any, title: str = "") -> dict[str, Any]:
    """The JSON Schema of a spec type, for editors that complete and check as one types."""
    definitions: dict[str, Any] = {}
    body = _schema(kind, definitions)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, **body, "$defs": definitions}


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hasattr(kind, "json_schema"):
        return kind.json_schema(lambda inner: _schema(inner, definitions))  # type: ignore[no-any-return]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _number_schema(arguments)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(a, definitions) for a in arguments]}
    if kind is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if dataclasses.is_dataclass(kind):
        name = kind.__name__  # type: ignore[union-attr]
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = dict(_record_schema(kind, definitions))
        reference = {"$ref": f"#/$defs/{name}"}
        if shorthand := getattr(kind, "shorthand", ""):
            field = fields_of(kind)[shorthand]  # type: ignore[arg-type]
            return {"anyOf": [reference, _schema(field[1], definitions)]}
        return reference
    return {"type": {bool: "boolean", int: "integer", float: "number"}.get(kind, "string")}


def _record_schema(kind: Any, definitions: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    known = fields_of(kind)
    yield "type", "object"
    yield "description", (kind.__doc__ or "").split("\n")[0]
    given = {f.metadata.get("key", f.name) for f in dataclasses.fields(kind)
             if f.metadata.get("named")}  # fmt: skip
    bodies = {key: _schema(hint, definitions) for key, (_, hint, _) in known.items()}
    bodies |= {key: _or_named(bodies[key]) for key in given}
    if "sources" in kind.__dataclass_fields__:
        bodies |= {key: _or_sourced(bodies[key]) for key in bodies if key != "source"}
    yield "properties", bodies
    needed = [key for key, (_, _, required) in known.items() if required]
    # what another field may say in their place
    other = {f.name: f.metadata["or"] for f in dataclasses.fields(kind) if "or" in f.metadata}
    yield "required", [key for key in needed if key not in other]
    if other:
        yield "anyOf", [{"required": [*other]}, {"required": [*dict.fromkeys(other.values())]}]
    yield "additionalProperties", False


def _or_named(body: dict[str, Any]) -> dict[str, Any]:
    """Or the name of a shipped file, which stands for its content."""
    name = {"type": "string", "description": "a shipped file, or a path"}
    if body.get("type") == "array":
        body = {**body, "items": {"anyOf": [name, body["items"]]}}
    return {"anyOf": [name, body]}


def _or_sourced(body: dict[str, Any]) -> dict[str, Any]:
    """Or with a source of its own."""
    pair = {"value": body, "source": {"type": "string"}}
    return {"anyOf": [body, {"type": "object", "properties": pair, "required": [*pair],
                             "additionalProperties": False}]}  # fmt: skip


def _number_schema(arguments: tuple[Any, ...]) -> dict[str, Any]:
    kind, rule = arguments[0], arguments[1]
    if isinstance(rule, Quantity):
        return {"type": "string", "description": f"a quantity in {rule.unit}",
                "examples": [rule.example] if rule.example else []}  # fmt: skip
    body: dict[str, Any] = {"type": "integer" if kind is int else "number"}
    if math.isfinite(rule.low):
        body["minimum"] = rule.low
    if math.isfinite(rule.high):
        body["maximum"] = rule.high
    return body
