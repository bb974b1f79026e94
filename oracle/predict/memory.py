"""Bytes per device by kind, at the worst moment of an iteration.

    M = weights + gradients + optimizer + activations in flight + workspace + buffers + reserve

Activations are what the backward pass wants, kept from the forward pass until it is used: a
tensor once, whoever wants it. A 1F1B pipeline holds min(S, p - i) micro-batches on stage i.
It names `recompute`, whose kinds choose what is kept, and `data`, whose gradients are in buckets.
The published M = 2γδ Σ (B(|x| + |y|) + |w|) is the *ideal* form [kahira2021, Table III].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.models import masks
from oracle.models.shard import Array, Shard
from oracle.plan.plan import Plan
from oracle.plan.schedule import most_in_flight, most_unfinished
from oracle.plan.stages import Stages
from oracle.predict.played import orders
from oracle.predict.workload import Workload
from oracle.spec.device import Device
from oracle.spec.options import SLOTS, Options

SLACK = 0.05  # of what the allocator hands out: rounding and holes between blocks
ASSUMED = ("workspace", "buffers", "reserve")  # what nobody can count from shapes
KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "buffers", "reserve")


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes by kind on the worst device, (plans,) each, and which stage that is."""

    kinds: dict[str, Array]
    stage: Array

    @property
    def total(self) -> Array:
        return np.asarray(np.sum(list(self.kinds.values()), axis=0))


def held(load: Workload, plan: Plan, same: Array, device: Device, options: Options) -> Held:
    """Peak bytes of the fullest stage of each plan, by kind.

    Distinct workloads are few; schedule and recomputation choose among what each may keep.
    """
    shard, stages = load.shard, load.stages
    spread, alike = load.kinds.spread, load.kinds.row[same]
    if options.ideal:
        found = _ideal(shard, stages, options.gamma)
        return Held({kind: values[same] for kind, values in found.kinds.items()}, found.stage[same])
    width = 2.0 if options.mixed else 4.0
    # masters and slots are fp32 whatever the precision; mixed gradients are added up in fp32
    slots = 4.0 * (SLOTS[options.optimizer] + options.mixed)
    gathered = 2 * _gathered(load)  # the unit at work and the one that comes next
    recompute = plan.axis("recompute")
    mode = recompute.mode[:, 0].astype(int)
    kept, working = _activations(shard, stages, bool(mode.any()))
    flight, unfinished = _in_flight(plan, stages)
    chosen = np.stack(kept)[mode, alike]
    again = recompute.says("mode", "full") | recompute.says("mode", "operators")
    activations = chosen * flight
    if unfinished.any():
        activations = activations + again * unfinished * (kept[0][alike] - chosen)
    fixed = {
        "weights": load.held("stored") * width + gathered * width,
        "gradients": load.held("graded") * (4.0 if options.mixed else width),
        "optimizer": load.held("stated") * slots,
    }
    # two moments: the loss runs back, and all that was kept is there; or a layer does, with its
    # gradients on their way, and the loss's tensors are gone
    loss = masks.losses(shard.model)
    gone, transient = stages.total(_kept(shard) * loss), _transient(shard)
    buffers = gathered * 4.0 + spread(_buckets(load.plan, stages.total(shard.w)))
    moments = [
        {"activations": activations, "workspace": _worst(transient * loss, stages)[alike],
         "buffers": np.zeros((1, stages.p))},
        {"activations": activations + again * working[alike] - gone[alike],
         "workspace": _worst(transient * ~loss, stages)[alike], "buffers": buffers[same]},
    ]  # fmt: skip
    base = np.sum(list(fixed.values()), axis=0)[same]
    first, second = (base + sum(moment.values(), np.zeros(1)) for moment in moments)
    whole = np.maximum(first, second)
    stage = np.argmax(whole, axis=-1)
    worst = {kind: values[same, stage] for kind, values in fixed.items()}
    at, later = (np.arange(len(plan)), stage), (second > first)[np.arange(len(plan)), stage]
    worst |= {kind: np.where(later, *(np.broadcast_to(moment[kind], whole.shape)[at]
                                      for moment in reversed(moments)))
              for kind in moments[0]}  # fmt: skip
    worst["reserve"] = device.reserve + SLACK * whole[at]
    return Held({kind: worst[kind] for kind in KINDS}, stage)


def _gathered(load: Workload) -> Array:
    """(plans, p): weights of the largest unit that is gathered before it is used."""
    stages, spread = load.stages, load.kinds.spread
    (rest, share), *experts = load.shares("stored")
    found = spread(stages.most(stages.units(np.atleast_2d(rest)))) * (share < 1)
    for w, alone in experts:  # whole where one device holds them, however many share the rest
        both = spread(stages.most(stages.units(np.atleast_2d(rest + w))))
        found = np.where(alone < 1, both, found)
    return found


def _kept(shard: Shard) -> Array:
    """Bytes of a micro-batch that each row keeps."""
    return shard.micro * (shard.kept * shard.delta + shard.kept_bytes) * np.ones_like(shard.batch)


def _activations(shard: Shard, stages: Stages, some: bool) -> tuple[list[Array], Array]:
    """(kept per micro-batch under each kind of recomputation, working set of a unit) by stage."""
    model, micro = shard.model, shard.micro
    kept = _kept(shard)
    none = stages.total(kept)
    if not some:
        return [none], np.zeros_like(none)
    core = masks.attention(model)
    outputs = micro * shard.y * shard.delta  # q, k, v in and the result stay
    selective = none - stages.total(np.maximum(kept - outputs, 0) * core)
    # full: each unit keeps the tensor it was given; what it makes again lives while it runs back
    given = (micro * shard.x * shard.delta * np.ones(len(model)))[:, stages.begin]
    units = stages.units(kept)
    block = (stages.counts @ model.folded > 0) | (~model.folded).all()
    inputs = stages.gather(np.where(block, given, 0.0))
    full = stages.gather(np.where(block, 0.0, units)) + inputs
    working = stages.most(np.where(block, units, 0.0))
    # operators: the core's tensors and every other matrix's output
    share = np.where(model.folded, core, 1.0)
    half = 0.5 * outputs * (model.weighted & model.folded)
    return [none, selective, full, stages.total(kept * share + half) + inputs], working


def _in_flight(plan: Plan, stages: Stages) -> tuple[Array, Array]:
    """(micro-batches whose activations a stage keeps at once, unfinished ones), (plans, p) each.

    As the turns of the schedule have it. Where the backward pass is in two, all activations are
    kept until the gradient of the weights, and until then those made again are kept as well.
    """
    p, v = stages.p, stages.v
    names, kind = orders(plan, stages)
    flight, unfinished = (
        np.array([[most(name, i, p, segments, v) for i in range(p)] for name, segments in names])
        for most in (most_in_flight, most_unfinished)
    )
    return flight[kind], unfinished[kind]


def _transient(shard: Shard) -> Array:
    """Bytes that live only while a row runs back: gradients of its two tensors."""
    own = shard.micro * shard.delta * (shard.x + shard.y) * masks.moved(shard.model)
    return np.atleast_2d(
        np.broadcast_to(own, np.broadcast_shapes(own.shape, (1, len(shard.model))))
    )


def _worst(rows: Array, stages: Stages) -> Array:
    """The largest row of the fullest unit of each device."""
    ends = np.stack([stages.begin, stages.stop], axis=-1).ravel()
    padded = np.concatenate([rows, np.zeros((len(rows), 1))], axis=-1)
    return stages.most(np.maximum.reduceat(padded, ends, axis=-1)[:, ::2])


def _buckets(plan: Plan, weights: Array) -> Array:
    """Gradient buckets beside the gradients, where replicas exchange them."""
    return np.where(plan.axis("data").degree > 1, np.minimum(4 * weights, 2 * 25e6), 0.0)


def _ideal(shard: Shard, stages: Stages, gamma: float) -> Held:
    delta = shard.delta
    tensors = (
        2 * gamma * delta * stages.total(shard.batch * (shard.x + shard.y) * shard.model.layers)
    )
    weights = gamma * delta * stages.total(shard.w * shard.stored * np.ones_like(shard.batch))
    whole = tensors + 2 * weights
    stage = np.argmax(whole, axis=-1)
    kinds = {"weights": weights, "gradients": weights, "activations": tensors}
    worst = {
        k: np.take_along_axis(v + 0 * whole, stage[:, None], -1)[:, 0] for k, v in kinds.items()
    }
    return Held({k: worst.get(k, np.zeros(len(stage))) for k in KINDS}, stage)
