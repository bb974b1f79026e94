"""One operation of a traced graph: its inputs, its kind, and its cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INPUT = -1  # the sample, in place of the number of an operation
Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """The cost of one call for all samples traced, as an operator without a layer kind has it."""

    op: str
    at: str  # the module's path and the line of source
    made: Dims
    flop: float = 0.0  # of the forward pass
    moves: float = 0.0  # elements read and written by it
    moves_back: float = 0.0  # and by the backward pass
    keeps: bool = False  # the backward pass needs its inputs
    kept: float = 0.0  # further elements that the backward pass needs
    each: bool = False  # every position by itself
    steps: int = 1  # one after the other


@dataclass(slots=True)
class Op:
    """One operation of a trace: its inputs, and its fields in a spec."""

    kind: str  # a layer kind, or: pass multiply mean product softmax core table
    feeds: list[int]  # operations whose output it reads; INPUT is the sample
    input_dims: Dims = ()  # of the tensor it read first, batch included
    fields: dict[str, Any] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    last: bool = True  # channels are the last dimension, not the second
    counted: Counted | None = None  # where the tracer counts
    norms: tuple[Op, ...] = ()  # of queries and keys, inside an attention
