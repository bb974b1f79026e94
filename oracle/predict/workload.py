"""What the devices of a table of plans are left with: rows, their seconds, stages and peers.

Many plans of a table leave a device the same rows and micro-batches: they differ in how training
state is sharded. Rows are split and priced once for each kind of plan, and spread over the plans
when they have been added up. It names the `pipeline`, whose degree and chunks make the stages, and
`data`, whose `agreement` says how many a step waits for, `recompute` and `offload`, of which some
kinds look at the room that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.kernels.passes import Passes
from oracle.kernels.rows import passes
from oracle.kernels.slowest import in_step
from oracle.models import masks
from oracle.models.build import Segment
from oracle.models.model import Model
from oracle.models.shard import Array, Numbers, Shard, serial
from oracle.network.collectives import Message
from oracle.plan import curvature
from oracle.plan.mesh import Groups, Kinds, places
from oracle.plan.partition import balanced_cuts
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies import Strategy, agreement
from oracle.predict.ways import Cuts
from oracle.spec.options import MOMENT_BYTES, SLOTS, Options
from oracle.spec.system import System

Said = Sequence[tuple[Message, Strategy]]
# what lies beside the device
AWAY = ("weights_away", "state_away", "updated_away", "on_disk", "activations_away")
# what is of each plan
STATE = ("batch", "segments", "zero", "whole", "stored", "graded", "stated", *AWAY)


@dataclass(frozen=True)
class Rows:
    """Rows of each kind of plan, and the batch and training state of each plan."""

    kinds: Kinds
    plan: Plan  # one of each kind
    shard: Shard  # (kinds, rows)
    times: Passes  # (kinds, rows)
    groups: Groups
    state: Shard  # (plans, 1): batch, micro-batches and state; a mixture's has a second column,
    #               of its experts
    said: Said  # messages of each kind; how often state is sent is of each plan

    def take(self, plans: Array, way: Array) -> Rows:
        """Those of some plans, which are cut each its way; a plan may be there in several."""
        kind_numbers, kinds = self.kinds.take(plans, way)
        kind_count, every = len(self.kinds.first), len(self.kinds.row)
        if kinds is self.kinds and np.array_equal(plans, np.arange(every)):
            return self

        def cut(values: Any) -> Any:
            """What is of each kind, or of each plan; the rest is one for all."""
            if isinstance(values, tuple):
                return tuple(map(cut, values))
            if getattr(values, "ndim", 0) < 2 or len(values) == 1:
                return values
            return values[
                kind_numbers
                if len(values) == kind_count
                else plans
                if len(values) == every
                else ...
            ]

        def part(message: Message) -> Message:
            names = ("nbytes", "calls", "line", "share", "stands_for")
            cut_fields = {name: cut(getattr(message, name)) for name in names}
            if all(new is getattr(message, name) for name, new in cut_fields.items()):
                return message
            return replace(message, **cut_fields)

        axes = {id(axis): axis.mapped(cut) for _, axis in self.said}  # most send several messages
        cut_said = [(part(message), message, axes[id(axis)]) for message, axis in self.said]
        groups = self.groups.take(
            kind_numbers, {cut_message: uncut_message for cut_message, uncut_message, _ in cut_said}
        )
        shard, state = (
            column_owner.but(
                **{
                    name: cut(value)
                    for name, value in vars(column_owner).items()
                    if name != "model"
                }
            )
            for column_owner in (self.shard, self.state)
        )
        times = Passes(
            *(cut(getattr(self.times, column_owner.name)) for column_owner in fields(Passes))
        )
        return Rows(
            kinds, self.plan[kind_numbers], shard, times, groups, state,
            [(message, axis) for message, _, axis in cut_said if heard(message, groups)],
        )  # fmt: skip


@dataclass(frozen=True)
class Workload(Rows):
    """Rows, and the stages that they are dealt to."""

    stages: Stages

    def part(self, shards: Array) -> tuple[Workload, Array]:
        """(that of some distinct shards, which of them each is)."""
        shard_numbers, same = np.unique(shards, return_inverse=True)
        kinds, _ = self.kinds.take(shard_numbers, np.zeros(len(shard_numbers)))
        rows = self.take(shard_numbers, np.zeros(len(shard_numbers)))
        row_fields = {column.name: getattr(rows, column.name) for column in fields(Rows)}
        return Workload(**row_fields, stages=self.stages.take(kinds)), same

    def total(self, values: Array) -> Array:
        """(kinds, rows) → (plans, p): what each device of a pipeline has in all."""
        return self.kinds.spread(self.stages.total(values))

    def totals(self, values: Sequence[Array]) -> list[Array]:
        """The totals of several quantities, added up at once."""
        return [self.kinds.spread(stage_total) for stage_total in self.stages.totals(values)]

    def weights_of(self, name: str, per_weight: Numbers = 1.0) -> Array:
        """(plans, p): weights of a device by their share of state, `stored`, `graded`, `stated`.

        `per_weight` is what a weight of each row counts.
        """
        return sum(
            (self.total(w * per_weight) * share for w, share in self.shares(name)), np.zeros(1)
        )

    def gathered(self, trained: bool = False) -> Array:
        """(plans, p): weights of which a device keeps but a share, so that it gathers them."""
        parts = (self.total(w) * (share < 1) for w, share in self.shares("stored", trained))
        return sum(parts, np.zeros(1))

    def shares(self, name: str, trained: bool = False) -> list[tuple[Array, Array]]:
        """(kinds, rows) weights and the share of state that (plans, 1) devices keep of them.

        What is frozen is stored, and has no state.
        """
        w = self.shard.w if name == "stored" and not trained else self.shard.learned
        share = np.asarray(getattr(self.state, name))
        if share.ndim < 2 or share.shape[-1] == 1:
            return [(w, share)]
        experts = masks.experts(self.shard.model)
        return [(w * ~experts, share[:, :1]), (w * experts, share[:, 1:])]


def rows_of(model: Model, system: System, plan: Plan, options: Options) -> Rows:
    """Split plans and price their rows."""
    each_apart = options.ideal or len(plan) == 1
    alone = each_apart and not masks.experts(model).any()
    state = split(model if alone else _few_rows(model), plan, options)
    kinds = Kinds.apart(len(plan)) if each_apart else _kinds(plan, state)
    one_of_each = kinds.one_of_each(plan)
    shard = state if alone else split(model, one_of_each, options)
    times = passes(shard, system.device, options.precision, options.profile)
    if not options.ideal:
        waited = agreement.waited(one_of_each.axis("data"))
        times = in_step(times, model, system.device, one_of_each.devices, waited)
    groups = Groups(one_of_each)
    spoken = _messages(one_of_each, plan, shard, state, groups, system, options)
    return Rows(kinds, one_of_each, shard, times, groups, state, spoken)


def workload(rows: Rows, options: Options, edges: Array | None = None) -> Workload:
    """Deal rows to stages: those of each kind between these edges, or as their one plan says."""
    if edges is None:
        cuts = Cuts.of(rows.shard.model, rows.plan, options)
        edges = cuts.edges[cuts.begin]
    pipeline, times, model = rows.plan.axis("pipeline"), rows.times, rows.shard.model
    if (loose := edges[:, 0] < 0).any():  # as published, stages balance compute alone
        load = (times.forward + times.data + times.weight) @ model.units[0].T
        load, edges = np.broadcast_to(load, (len(edges), load.shape[1])), edges.copy()
        chunks = np.minimum(pipeline.degree * pipeline.interleave, load.shape[1]).astype(int)[:, 0]
        for parts in np.unique(chunks[loose]).tolist():
            of_parts = loose & (chunks == parts)
            edges[of_parts, : parts + 1] = balanced_cuts(load[of_parts], parts)
    return Workload(**vars(rows), stages=Stages.along(model, pipeline, edges))


def split(model: Model, plan: Plan, options: Options) -> Shard:
    """What one device of each plan is left with."""
    shard = serial(model, plan.batch, options.width, options.ideal)
    if not options.ideal:
        software, precision = options.software, options.precision
        dispatched, combined = software.experts.sent(precision)
        shard = shard.but(
            dispatched=dispatched, combined=combined,
            software=software, fed=software.state.fed(precision),
            gate=software.state.gate(precision, not model.training.full),
            summed=software.exchange.buffer(precision),
            wire=software.exchange.sent(precision),
            gathered=software.gather.sent(precision), turned=software.tensor.sent(precision),
            slots=slots_of(model, options), beside=host_slots(model, options),
        )  # fmt: skip
        if software.gather.pipelined == "whole":
            shard = shard.but(whole=1.0 * (plan.axis("pipeline").degree > 1))
    for axis in sorted(plan.lean, key=lambda axis: axis.nearness):
        shard = axis.split(shard)
    return shard


def slots_of(model: Model, options: Options) -> Array:
    """Bytes of a weight's optimizer state, by row, its fp32 copy beside 16-bit weights included."""
    state, precision = options.software.state, options.precision
    moment = MOMENT_BYTES.get(options.optimizer, state.moment(precision))
    return moment * values_of(model, options.optimizer) + state.master(precision)


def host_slots(model: Model, options: Options) -> Array:
    """Bytes of a weight's optimizer state and fp32 copy where the host renews it."""
    master = options.software.state.master(options.precision)
    return slots_of(model, options) + (0.0 if master else 4.0)


def values_of(model: Model, optimizer: str) -> Array:
    """Values that an optimizer keeps for a weight of each row."""
    values = np.full(len(model), float(SLOTS[optimizer]))
    if optimizer == "muon":
        values[~masks.matrices(model)] = SLOTS["adam"]
    return values


def chooses(plan: Plan) -> Array:
    """(n, 1) plans whose units choose what they do with their activations, by the room there is.

    What they do then depends on all that a device holds, the order of its passes included.
    """
    recompute, offload = plan.axis("recompute"), plan.axis("offload")
    return np.asarray(recompute.says("mode", "best") | offload.of("activations"))


def columns(plan: Plan, keep: Callable[[Strategy, str], bool] = lambda axis, knob: True) -> Array:
    """(n, k) numbers that tell apart what devices do, whenever it happens."""
    table = plan.columns(lambda axis, knob: knob not in axis.timing and keep(axis, knob))
    if (choosing := chooses(plan)).any():
        timed = plan.columns(lambda axis, knob: knob in axis.timing)
        table = np.hstack([table, choosing, choosing * timed])
    vee = plan.axis("pipeline").vee  # a matter of the schedule, but it says which stage has what
    return np.hstack([table, vee]) if vee.any() and not vee.all() else table


def _messages(
    one_of_each: Plan, plan: Plan, shard: Shard, state: Shard, groups: Groups, system: System,
    options: Options,
) -> Said:  # fmt: skip
    """What axes send, and which of them sends it.

    An axis with knobs of the state has those of each plan, and speaks of each plan's state.
    """
    plan_shard = shard.but(**{name: getattr(state, name) for name in STATE})
    axes = [
        replace(axis, **{knob: getattr(plan_axis, knob) for knob in axis.state_knobs})
        for axis, plan_axis in zip(one_of_each.lean, plan.lean, strict=True)
        if axis.speaks_for_all or not axis.degrees or axis.wide
    ]
    ahead = shard.model.training.forward
    more = (
        curvature.messages(shard, one_of_each, options.kfac) if options.optimizer == "kfac" else ()
    )
    factors = [(message, axis) for message, axis in more if heard(message, groups)]
    return factors + [
        (_in_its_group(message, groups, system), axis)
        for axis in axes
        for message in axis.talk(plan_shard if axis.state_knobs else shard)
        if heard(message, groups)
        if not ahead or message.when.removeprefix("unit ") in ("forward", "border")
    ]


def heard(message: Message, groups: Groups) -> bool:
    """Whether any plan sends it to anybody."""
    talk = message.over != "mesh" or groups.of(message).talk
    return talk and bool(np.any(message.calls))


def _in_its_group(message: Message, groups: Groups, system: System) -> Message:
    """A message with the bytes that its groups, by their size and as they lie on nodes, send."""
    if message.thinned is None and message.sized is None:
        return message
    groups_of = groups.of(message)
    nbytes = message.nbytes
    if message.sized is not None:
        nbytes = nbytes * message.sized(groups_of.size)
    if message.thinned is not None:
        spread = np.array(
            [places(pattern, system.node) for pattern, _ in groups_of.patterns], float
        )
        nbytes = nbytes * message.thinned(spread[groups_of.row, None])
    return replace(message, nbytes=nbytes)


def _kinds(plan: Plan, state: Shard) -> Kinds:
    """Plans that leave a device the same rows and micro-batches."""
    left_out = {axis.name: (*axis.state_knobs, *axis.batch_knobs()) for axis in plan.axes}
    table = columns(plan, lambda axis, knob: knob not in left_out[axis.name])
    table[:, :1] = state.batch  # in place of that of all devices
    return Kinds.of(np.hstack([table, np.broadcast_to(state.segments, state.batch.shape)]))


@lru_cache(masks.MODELS)
def _few_rows(model: Model) -> Model:
    """The model's first row, and an expert where it has any: state is dealt out as of these."""
    rows = (*model.rows[:1], *(row for row in model.rows[1:] if row.experts))[:2]
    feeds = tuple((i - 1,) for i in range(len(rows)))
    return replace(model, rows=rows, feeds=feeds, segments=(Segment(0, len(rows)),))
