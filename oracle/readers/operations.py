"""One operation of a traced graph: what it read, what it is, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INPUT = -1  # the sample, where the number of an operation stands
Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """What one call costs, for all samples traced; what an operator is without a layer kind."""

    op: str
    at: str  # the module's path and the line of source
    made: Dims
    flop: float = 0.0  # of the forward pass
    moves: float = 0.0  # elements read and written by it
    moves_back: float = 0.0  # and by the backward pass
    keeps: bool = False  # the backward pass wants what it was given
    kept: float = 0.0  # and so many elements besides
    each: bool = False  # every position by itself
    steps: int = 1  # one after the other


@dataclass(slots=True)
class Op:
    """One operation of a trace: what it read, and what a spec says of it."""

    kind: str  # a layer kind, or: pass multiply mean product softmax core table
    feeds: list[int]  # operations whose output it reads; INPUT is the sample
    given: Dims = ()  # of the tensor it read first, batch included
    fields: dict[str, Any] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    last: bool = True  # channels are the last dimension, not the second
    counted: Counted | None = None  # where the tracer counts
    beside: tuple[Op, ...] = ()  # norms of queries and keys, inside an attention
