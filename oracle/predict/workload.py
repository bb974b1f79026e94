"""What the devices of a table of plans are left with: rows, their seconds, stages and peers.

Many plans of a table leave a device the same rows and micro-batches: they differ in how training
state is sharded. Rows are split and priced once for each kind of plan, and spread over the plans
when they have been added up. It names the `pipeline`, whose degree and chunks make the stages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oracle.kernels.passes import Passes
from oracle.kernels.rows import passes
from oracle.kernels.slowest import in_step
from oracle.models import masks
from oracle.models.build import Segment
from oracle.models.model import Model
from oracle.models.shard import Array, Shard, serial
from oracle.plan.mesh import Groups, Kinds
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies import Strategy
from oracle.spec.options import Options
from oracle.spec.system import System

STATE = ("batch", "segments", "zero", "stored", "graded", "stated")  # what is of each plan


@dataclass(frozen=True)
class Workload:
    """Rows of each kind of plan, and the batch and training state of each plan."""

    kinds: Kinds
    plan: Plan  # one of each kind
    shard: Shard  # (kinds, rows)
    times: Passes  # (kinds, rows)
    stages: Stages
    groups: Groups
    state: Shard  # (plans, 1): batch, micro-batches and state; of the rows it has the first
    axes: tuple[Strategy, ...]  # of each kind, with the state knobs of each plan

    def seen_by(self, axis: Strategy) -> Shard:
        """The shard that an axis speaks of: where its knobs are each plan's, so is the state."""
        if not axis.state_knobs:
            return self.shard
        return self.shard.but(**{name: getattr(self.state, name) for name in STATE})

    def total(self, values: Array) -> Array:
        """(kinds, rows) → (plans, p): what each device of a pipeline has in all."""
        return self.kinds.spread(self.stages.total(values))


def workload(model: Model, system: System, plan: Plan, options: Options) -> Workload:
    """Split and price plans that share a pipeline's shape."""
    apart = options.ideal or len(plan) == 1
    state = split(model if apart else _one_row(model), plan, options)
    kinds = Kinds.apart(len(plan)) if apart else _kinds(plan, state)
    few = kinds.one_of_each(plan)
    shard = state if apart else split(model, few, options)
    times = passes(shard, system.device, options.precision, options.profile)
    if not options.ideal:
        times = in_step(times, model, system.device, few.devices)
    axes = tuple(
        replace(axis, **{knob: getattr(each, knob) for knob in axis.state_knobs})
        for axis, each in zip(few.lean, plan.lean, strict=True)
    )
    stages = stages_of(few, model, times)
    return Workload(kinds, few, shard, times, stages, Groups(few), state, axes)


def split(model: Model, plan: Plan, options: Options) -> Shard:
    """What one device of each plan is left with."""
    shard = serial(model, plan.batch, options.width, options.ideal)
    for axis in sorted(plan.lean, key=lambda axis: axis.nearness):
        shard = axis.split(shard)
    return shard


def stages_of(plan: Plan, model: Model, times: Passes) -> Stages:
    """The stages of plans that share degree, interleave, cuts and placement of their pipeline."""
    pipeline = plan.axis("pipeline")
    p, v = int(pipeline.degree[0, 0]), int(pipeline.interleave[0, 0])
    load = times.forward + times.data + times.weight
    return Stages(model, p, v, not pipeline.cuts[0, 0], load, bool(pipeline.vee[0, 0]))


def _kinds(plan: Plan, state: Shard) -> Kinds:
    """Plans that leave a device the same rows and micro-batches."""
    others = {
        axis.name: (*axis.timing, *axis.state_knobs, *axis.batch_knobs()) for axis in plan.axes
    }
    table = plan.columns(lambda axis, knob: knob not in others[axis.name])
    table[:, :1] = state.batch  # in place of that of all devices
    return Kinds.of(np.hstack([table, np.broadcast_to(state.segments, state.batch.shape)]))


@lru_cache(masks.MODELS)
def _one_row(model: Model) -> Model:
    """The model's first row alone: batch and state are dealt out whatever the rows."""
    return replace(model, rows=model.rows[:1], feeds=model.feeds[:1], segments=(Segment(0, 1),))
