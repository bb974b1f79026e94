"""A table of plans: which strategies, how wide, outermost first; one row is one way to train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from oracle.models.shard import Array
from oracle.plan.grammar import read, write
from oracle.plan.strategies import Strategy, strategies


@dataclass(frozen=True)
class Plan:
    """Columns of equal length n, each shaped (n, 1): one row is one way to train."""

    batch: Array  # global batch, samples per iteration
    axes: tuple[Strategy, ...]  # every known strategy, outermost first; degree 1 if not asked for

    @classmethod
    def of(cls, batch: Array | float, *axes: Strategy) -> Plan:
        """Axes outermost first; those not named have degree 1 and move nobody, so sit innermost.

        Any number may be an array; all are broadcast to one length.
        """
        named_axes = {type(axis) for axis in axes}
        axes = (*axes, *(new() for new in strategies().values() if new not in named_axes))
        values = [batch, *(getattr(a, f.name) for a in axes for f in fields(a))]
        columns = [np.reshape(np.asarray(value, float), (-1, 1)) for value in values]
        plans = max(map(len, columns))
        column = iter([value if len(value) == plans else np.broadcast_to(value, (plans, 1)).copy()
                       for value in columns])  # fmt: skip
        return cls(next(column), tuple(a.mapped(lambda _: next(column)) for a in axes))

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, rows: Any) -> Plan:
        return Plan(self.batch[rows], tuple(a.mapped(lambda c: c[rows]) for a in self.axes))

    def axis(self, name: str) -> Any:
        return next(axis for axis in self.axes if axis.name == name)

    @cached_property
    def lean(self) -> tuple[Strategy, ...]:
        """The axes, with one number for a column of equal ones: what does not vary costs once."""
        if len(self) == 1:
            return self.axes
        return tuple(a.mapped(lambda c: c[:1] if (c == c[0]).all() else c) for a in self.axes)

    @property
    def devices(self) -> Array:
        return np.asarray(np.prod([a.degree for a in self.axes if a.multiplies], axis=0))

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def columns(self, keep: Callable[[Strategy, str], bool] = lambda axis, knob: True) -> Array:
        """(n, k) numbers that tell the rows apart: the batch, and knobs that `keep` wants."""
        knob_columns = [getattr(axis, name) for axis in self.lean for name in axis.names()
                  if keep(axis, name)]  # fmt: skip
        return np.hstack(
            [self.batch, *(column for column in knob_columns if len(column) == len(self) > 1)]
        )

    def text(self, row: int = 0) -> str:
        """One row in the form the command line reads."""
        return write(axis.mapped(lambda c: c[row, 0]) for axis in self.axes)

    def __str__(self) -> str:
        return self.text()


def parse(text: str, batch: float) -> Plan:
    """The plan a text says, for one global batch; a SpecError with every fault otherwise."""
    return _parse(text, float(batch))


@lru_cache(maxsize=4096)
def _parse(text: str, batch: float) -> Plan:
    return Plan.of(batch, *read(text))


def table(
    plans: Iterable[str | Plan], batch: float | Sequence[float]
) -> Iterator[tuple[Plan, list[int]]]:
    """Plans as text, gathered into tables of equal nesting, with the rows each came from."""
    texts = list(plans)
    batches = np.broadcast_to(np.asarray(batch, float), (len(texts),))
    groups: dict[tuple[str, ...], list[tuple[int, Plan]]] = {}
    for row, (text, size) in enumerate(zip(texts, batches, strict=True)):
        plan = text if isinstance(text, Plan) else parse(text, float(size))
        groups.setdefault(plan.order, []).append((row, plan))
    for members in groups.values():
        yield join([plan for _, plan in members]), [row for row, _ in members]


def even(plan: Plan) -> Plan:
    """The same plan with the axes that are 1 wide sorted in, so that plans make one table."""
    wide = [axis.nearness for axis in plan.axes if axis.degrees and np.max(axis.degree) > 1]
    if wide != sorted(wide):
        return plan
    return Plan(plan.batch, tuple(sorted(plan.axes, key=lambda axis: axis.nearness)))


def join(plans: Sequence[Plan]) -> Plan:
    """Tables of equal nesting, one under the other."""
    batch = np.concatenate([plan.batch for plan in plans])
    axes = []
    for i, axis in enumerate(plans[0].axes):
        columns = {
            f.name: np.concatenate([getattr(plan.axes[i], f.name) for plan in plans])
            for f in fields(axis)
        }
        axes.append(replace(axis, **columns))
    return Plan(batch, tuple(axes))
