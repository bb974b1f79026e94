"""Plans whose rows are split and priced together, and the least that each can take.

It names the `pipeline`, over whose stages rows are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.mesh import Kinds
from oracle.plan.plan import Plan
from oracle.plan.schedule import NAMES
from oracle.plan.stages import Stages
from oracle.plan.strategies import Rule
from oracle.predict import memory
from oracle.predict.block import Block, block
from oracle.predict.limits import placed, rules_of
from oracle.predict.offers import Lines
from oracle.predict.played import CLOSED
from oracle.predict.reading import Loads
from oracle.predict.ways import Cuts
from oracle.predict.workload import Rows, columns, rows_of, workload
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
        whole_system: System | None = None,
    ) -> Shared:  # fmt: skip
        """Of plans on a system, which may be a partition of a whole."""
        kinds = Kinds.of(columns(plan))
        rows = rows_of(model, system, kinds.one_of_each(plan), options)
        rules, loads = rules_of(plan, model, options), Loads.of(model, system, plan, options)
        rules += placed(plan, whole_system or system)
        return cls(plan, kinds, rows, rules, system, options, lines, loads)

    @cached_property
    def share(self) -> Array:
        """Seconds of each plan's own passes, shared evenly by its stages.

        Nothing is sent, nothing waits but for samples, nothing is made again.
        """
        times, segments = self.rows.times, self.rows.state.segments
        pass_seconds = self._through(times.forward + times.data + times.weight) * segments
        work = self.kinds.spread(pass_seconds)[:, 0] / self.plan.axis("pipeline").degree[:, 0]
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
        least_bytes = self.rows.kinds.spread(
            memory.least_bytes(self.rows, device, self.options)[:, None]
        )
        least_bytes = self.kinds.spread(least_bytes) / float(
            self.options.max_memory or device.memory
        )
        return np.asarray(np.broadcast_to(least_bytes, (len(self.plan), 1))[:, 0])

    def _through(self, row_seconds: Array) -> Array:
        """(kinds, rows) → (plans, 1): the sum over all units."""
        units = self.rows.shard.model.units[0].sum(axis=0)[:, None]
        return self.rows.kinds.spread(row_seconds @ units)

    @cached_property
    def cuts(self) -> Cuts:
        """Ways to cut the pipelines of these plans."""
        return Cuts.of(self.rows.shard.model, self.plan, self.options)

    def bound(self, plans: Array, way: Array) -> Array:
        """Seconds that some plans take at least, each cut one way: of the fullest device."""
        rows, pipeline = self.rows, self.plan[plans].axis("pipeline")
        times, model = rows.times, rows.shard.model
        kind = self.kinds.row[plans]
        work = rows.kinds.spread((times.forward + times.data + times.weight) @ model.units[0].T)
        stages = Stages.along(model, pipeline, self.cuts.edges[way])
        device_seconds = stages.gather(self.kinds.spread(work)[plans])
        S = rows.state.segments * np.ones((len(self.kinds.first), 1))
        fullest = device_seconds.max(axis=-1)
        closed = np.isin(pipeline.schedule, [NAMES.index(name) for name in CLOSED])[:, 0]
        drained = closed * (device_seconds.sum(axis=-1) - fullest) / pipeline.interleave[:, 0]
        return np.asarray(S[kind, 0] * fullest + drained)

    def block(self, plans: Array, way: Array) -> Block:
        """The estimate of some of these plans, each cut one way."""
        shard_numbers, same = self.kinds.take(plans, way)
        shard_way = way[same.first]
        rows = self.rows.take(shard_numbers, shard_way)
        load = workload(rows, self.options, self.cuts.edges[shard_way[rows.kinds.first]])
        plan_rules = [rule.take(plans) for rule in self.rules]
        loads = None if self.loads is None else self.loads.take(plans)
        return block(load, self.plan[plans], same.row, plan_rules, self.system, self.options,
                     self.lines, loads)  # fmt: skip
