"""A formula in a spec file: numbers of plans and model, compared or computed.

Arithmetic, comparisons, `and`, `or`, `not`, `min` and `max` over the names that `NAMES` lists.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.spec.document import Node, suggest

Value: TypeAlias = NDArray[Any] | float
# what a formula may speak of: degrees of the plan, its micro-batches and knobs, shapes of the model
NAMES = (
    "data", "sharded", "pipeline", "context", "tensor", "expert", "spatial", "filter", "channel",
    "devices", "batch", "micro", "segments", "interleave", "zero", "sequence", "offload",
    "activations", "disk", "recompute",
    "layers", "heads", "groups", "experts", "tokens", "hidden", "vocab",
)  # fmt: skip
LONGEST = 400  # characters
LARGEST = 1e30  # number
BINARY: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide, ast.Mod: np.mod, ast.Pow: np.power,
}  # fmt: skip
COMPARED: dict[type, Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
CALLS: dict[str, Callable[..., Any]] = {"max": np.maximum, "min": np.minimum}


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression that has been read, checked, and can be worked out for a table of plans."""

    text: str
    tree: ast.expr = field(compare=False)

    @classmethod
    def of(cls, text: str) -> Formula:
        """A formula as written; a ValueError says what cannot be part of one."""
        if len(text) > LONGEST:
            raise ValueError(f"a formula has {LONGEST} characters at most")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"`{text[:60]}` is not a formula") from None
        _check(tree)
        return cls(text.strip(), tree)

    @classmethod
    def from_node(cls, node: Node, reader: Any) -> Formula | None:
        """A formula in a file, with its faults at their place."""
        if node.kind != "scalar" or not node.text.strip():
            reader.fault("E104", "a formula is wanted here", node, "e.g. `heads % tensor == 0`")
            return None
        try:
            return cls.of(node.text)
        except ValueError as error:
            reader.fault("E105", str(error), node)
            return None

    @classmethod
    def json_schema(cls, schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """A formula as JSON Schema has it: text or a number."""
        text = "a formula of " + ", ".join(NAMES)
        return {"anyOf": [{"type": "string"}, {"type": "number"}], "description": text}

    def __call__(self, values: Mapping[str, Value]) -> Value:
        """What it comes to, where the names have these values."""
        with np.errstate(all="ignore"):  # what is divided by nothing keeps no rule
            found: Value = _value(self.tree, values)
        return found

    @property
    def names(self) -> set[str]:
        """What it speaks of."""
        return {part.id for part in ast.walk(self.tree) if isinstance(part, ast.Name)} - set(CALLS)


def _check(part: ast.expr) -> None:
    """A ValueError where an expression is none of ours."""
    match part:
        case ast.Constant(value=bool()) | ast.Constant(value=str()):
            raise ValueError(f"`{part.value!r}` is no number")
        case ast.Constant(value=int() | float() as number):
            if abs(number) > LARGEST:
                raise ValueError(f"a formula has numbers up to {LARGEST:g}")
        case ast.Name(id=name):
            if name not in NAMES:
                hint = suggest(name, NAMES, "names are")
                raise ValueError(f"`{name}` is nothing that plan or model has: {hint}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            _check(left)
            _check(right)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inner):
            _check(inner)
        case ast.BoolOp(values=values):
            for value in values:
                _check(value)
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(
            type(op) in COMPARED for op in ops
        ):
            for each in (left, *rest):
                _check(each)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as given, keywords=[]) if name in CALLS:
            for each in given:
                _check(each)
        case _:
            what = ast.unparse(part)
            raise ValueError(f"`{what[:60]}` cannot be part of a formula: numbers, names, "
                             "arithmetic, comparisons, and, or, not, min, max")  # fmt: skip


def _value(part: ast.expr, values: Mapping[str, Value]) -> Any:
    match part:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=arithmetic, right=right):
            # a truth counts as a number, 1 or 0
            return BINARY[type(arithmetic)](1 * _value(left, values), 1 * _value(right, values))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return np.logical_not(_value(inner, values))
        case ast.UnaryOp(operand=inner):
            return -1 * _value(inner, values)
        case ast.BoolOp(op=joined, values=inner):
            both = np.logical_and if isinstance(joined, ast.And) else np.logical_or
            found = _value(inner[0], values)
            for each in inner[1:]:
                found = both(found, _value(each, values))
            return found
        case ast.Compare(left=left, ops=ops, comparators=rest):
            found, before = True, _value(left, values)
            for op, right in zip(ops, rest, strict=True):
                after = _value(right, values)
                found = np.logical_and(found, COMPARED[type(op)](before, after))
                before = after
            return found
        case ast.Call(func=ast.Name(id=name), args=given):
            found = _value(given[0], values)
            for each in given[1:]:
                found = CALLS[name](found, _value(each, values))
            return found
    raise TypeError(f"a formula with {ast.dump(part)} was not checked")
