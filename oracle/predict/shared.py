"""Plans whose rows are split and priced together, and the least that each can take.

It names the `pipeline`, over whose stages rows are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.mesh import Kinds
from oracle.plan.plan import Plan
from oracle.plan.schedule import NAMES
from oracle.plan.stages import device_of
from oracle.plan.strategies import Rule
from oracle.predict import memory
from oracle.predict.block import Block, block
from oracle.predict.fastest import fullest
from oracle.predict.limits import placed, rules_of
from oracle.predict.offers import Lines
from oracle.predict.played import CLOSED
from oracle.predict.reading import Loads
from oracle.predict.workload import Rows, columns, rows_of, ways, workload
from oracle.spec.options import Options
from oracle.spec.system import System


@dataclass(frozen=True)
class Shared:
    """Plans whose rows were split and priced together, whatever the shape of their pipelines."""

    plan: Plan
    kinds: Kinds
    rows: Rows
    rules: list[Rule]
    system: System
    options: Options
    lines: Lines
    loads: Loads | None

    @classmethod
    def of(
        cls, model: Model, system: System, plan: Plan, options: Options, lines: Lines,
        whole: System | None = None,
    ) -> Shared:  # fmt: skip
        """Of plans on a system, which may be a partition of a whole."""
        kinds = Kinds.of(columns(plan))
        rows = rows_of(model, system, kinds.one_of_each(plan), options)
        rules, loads = rules_of(plan, model, options), Loads.of(model, system, plan, options)
        rules += placed(plan, whole or system)
        return cls(plan, kinds, rows, rules, system, options, lines, loads)

    @cached_property
    def share(self) -> Array:
        """Seconds of each plan's own passes, shared evenly by its stages.

        Nothing is sent, nothing waits but for samples, nothing is made again.
        """
        times, segments = self.rows.times, self.rows.state.segments
        whole = self._through(times.forward + times.data + times.weight) * segments
        work = self.kinds.spread(whole)[:, 0] / self.plan.axis("pipeline").degree[:, 0]
        return np.asarray(work if self.loads is None else np.maximum(work, self.loads.least))

    @cached_property
    def least(self) -> Array:
        """Seconds that no plan is faster than: its share, or one micro-batch's way there and back.

        Gradients of weights may be made later, on all stages at once.
        """
        times = self.rows.times
        way = self.kinds.spread(self._through(times.forward + times.data))
        return np.asarray(np.maximum(self.share, np.broadcast_to(way, (len(self.plan), 1))[:, 0]))

    @cached_property
    def lightest(self) -> Array:
        """Share of a device's memory that each plan needs at least, whatever lies beside it."""
        device = self.system.device
        found = self.rows.kinds.spread(memory.least(self.rows, device, self.options)[:, None])
        found = self.kinds.spread(found) / float(self.options.max_memory or device.memory)
        return np.asarray(np.broadcast_to(found, (len(self.plan), 1))[:, 0])

    def _through(self, each: Array) -> Array:
        """(kinds, rows) → (plans, 1): the sum over all units."""
        units = self.rows.shard.model.units[0].sum(axis=0)[:, None]
        return self.rows.kinds.spread(each @ units)

    def ways(self, row: int) -> Sequence[tuple[int, ...]]:
        """Edges to choose from for the pipeline of plans that are like one of these in shape."""
        return ways(self.rows.shard.model, self.plan[[row]], self.options)

    def bound(self, rows: Array, ways: Sequence[tuple[int, ...]]) -> Array:
        """(plans, ways) seconds that some of these plans take at least, cut each way."""
        times, state, pipeline = self.rows.times, self.rows.state, self.plan.axis("pipeline")
        p, v = (int(knob[rows[0], 0]) for knob in (pipeline.degree, pipeline.interleave))
        model, vee = self.rows.shard.model, bool(pipeline.vee[rows[0], 0])
        each = (times.forward + times.data + times.weight) @ model.units[0].T
        most, all_ = fullest(each, np.array(ways), device_of(len(ways[0]) - 1, p, vee))
        most, all_ = (self.kinds.spread(self.rows.kinds.spread(x))[rows] for x in (most, all_))
        S = np.broadcast_to(self.kinds.spread(state.segments * np.ones((1, 1))),
                            (len(self.plan), 1))[rows]  # fmt: skip
        closed = np.isin(pipeline.schedule[rows], [NAMES.index(name) for name in CLOSED])
        return np.asarray(S * most + closed * (all_ - most) / v)

    def block(self, rows: Array, at: Array, edges: tuple[int, ...]) -> Block:
        """The estimate of some of these rows, their stages cut at these edges."""
        at = rows[at]
        few, same = self.kinds.take(at)
        options = replace(self.options, edges=edges)
        load = workload(self.rows.take(few), options)
        own = [rule.take(at) for rule in self.rules]
        loads = None if self.loads is None else self.loads.take(at)
        return block(load, self.plan[at], same.row, own, self.system, options, self.lines, loads)
