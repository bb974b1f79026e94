"""Bytes per device by kind, at the worst moment of an iteration.

    M = weights + gradients + optimizer + activations in flight + workspace + buffers + reserve

Activations are what the backward pass wants, kept from the forward pass until it is used: a
tensor once, whoever wants it. A layer that runs back finds gone what those behind it kept
(pytorch/pytorch, torch/csrc/autograd/engine.cpp: `release_variables` after each node).
A 1F1B pipeline holds min(S, p - i) micro-batches on stage i.
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
from oracle.predict import encoding, second_order
from oracle.predict.played import orders
from oracle.predict.workload import Workload
from oracle.spec.device import Device
from oracle.spec.options import Options

SLACK = 0.05  # of what the allocator hands out: rounding and holes between blocks
ASSUMED = ("workspace", "buffers", "reserve")  # what nobody can count from shapes
# 1σ of each kind, relative: what is counted from shapes is known, what is kept depends on a
# framework's version, what libraries take nobody says; and of all together, holes between blocks
UNSURE = {"weights": 0.01, "gradients": 0.01, "optimizer": 0.01, "activations": 0.05,
          "workspace": 0.25, "buffers": 0.25, "reserve": 0.3}  # fmt: skip
TOGETHER = 0.045
KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "buffers", "reserve")


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes by kind on the worst device, (plans,) each, and which stage that is."""

    kinds: dict[str, Array]
    stage: Array
    cached: Array | float = 0.0  # what an allocator may keep beside, and gives up when asked
    doubt: float = 0.0  # relative 1σ for want of a framework that is known
    beside: Array | float = 0.0  # bytes that lie outside the device, of the fullest stage's
    on_disk: Array | float = 0.0  # where they lie on disks instead of in the host's memory

    @property
    def total(self) -> Array:
        return np.asarray(np.sum(list(self.kinds.values()), axis=0))

    @property
    def deviation(self) -> Array:
        """1σ of the total, bytes."""
        kinds = sum(((UNSURE[kind] * held) ** 2 for kind, held in self.kinds.items()), np.zeros(1))
        return np.asarray(np.sqrt(kinds + (np.hypot(TOGETHER, self.doubt) * self.total) ** 2))


def held(load: Workload, plan: Plan, same: Array, device: Device, options: Options) -> Held:
    """Peak bytes of the fullest stage of each plan, by kind.

    Distinct workloads are few; schedule and recomputation choose among what each may keep.
    """
    shard, stages = load.shard, load.stages
    spread, alike = load.kinds.spread, load.kinds.row[same]
    if options.ideal:
        found = _ideal(shard, stages, options.gamma)
        return Held({kind: values[same] for kind, values in found.kinds.items()}, found.stage[same])
    said, precision = options.software, options.precision
    width = said.state.kept(precision)
    # 16-bit weights have masters beside them; gradients are added up in a buffer of their own
    slots, state = shard.slots, load.state
    weights_here, state_here, updated_here = (
        1 - np.asarray(each) for each in (state.weights_away, state.state_away, state.updated_away)
    )
    graded_here = np.maximum(updated_here, 1.0 * (said.offload.sums == "device"))
    # the unit at work and those that come next
    ahead = 1 + said.gather.prefetch
    gathered = ahead * _gathered(load)
    recompute = plan.axis("recompute")
    trains = not shard.model.training.forward  # else nothing is kept, nor made again
    mode = recompute.mode[:, 0].astype(int) * trains
    kept, working = _activations(shard, stages, bool(mode.any()))
    flight, unfinished = _in_flight(plan, stages)
    chosen = np.stack(kept)[mode, alike]
    again = recompute.says("mode", "full") | recompute.says("mode", "operators")
    again = again & trains
    activations = chosen * flight
    if unfinished.any():
        activations = activations + again * unfinished * (kept[0][alike] - chosen)
    fixed = {
        "weights": load.held("stored") * width * weights_here + gathered * shard.gathered,
        "gradients": load.held("graded") * said.exchange.buffer(precision) * graded_here
        + encoding.held(load, options),
        "optimizer": load.held("stated", slots) * state_here,
    }
    if options.optimizer == "kfac":
        fixed["optimizer"] = fixed["optimizer"] + second_order.held(load, options)
    # beside the device gradients are fp32, of what is renewed there
    beside = load.held("stored") * width * (1 - weights_here) + (
        load.held("stated", shard.beside) * (1 - state_here)
        + load.held("stated", 4.0) * (1 - updated_here)
    )
    # three moments: the loss runs back, and all that was kept is there; or a layer does, with its
    # gradients on their way, and the loss's tensors are gone; or weights are updated
    loss = masks.losses(shard.model)
    gone, transient = stages.total(_kept(shard) * loss), _transient(shard)
    back = _worst(transient * ~loss, stages)[alike]
    late = unfinished.any(axis=-1) & (stages.p > 1)  # the gradient of the weights wants it still
    if (freeing := (mode < 2) & ~late).any():
        freed = _worst(transient * ~loss, stages, _freed(shard) * ~loss)[alike]
        back = np.where(freeing[:, None], freed, back)
    copies = load.total(shard.w) * said.state.copies(precision)
    taken = load.held("stated") * said.state.updating(precision) * updated_here
    buffers = ahead * _gathered(load, trained=True) * said.exchange.buffer(precision) + copies
    buffers = buffers + spread(_buckets(load.plan, stages.total(shard.learned), options))
    if options.optimizer == "kfac":
        buffers = buffers + second_order.unfolded(load)
    nothing = np.zeros((1, stages.p))
    moments = [
        {"activations": activations, "workspace": _worst(transient * loss, stages)[alike],
         "buffers": nothing},
        {"activations": activations + again * working[alike] - gone[alike],
         "workspace": back, "buffers": buffers[same]},
        {"activations": nothing, "workspace": nothing, "buffers": (copies + taken)[same]},
    ]  # fmt: skip
    base = np.sum(list(fixed.values()), axis=0)[same]
    totals = [base + sum(moment.values(), np.zeros(1)) for moment in moments]
    whole = np.maximum.reduce(totals)
    stage = np.argmax(whole, axis=-1)
    at = np.arange(len(plan)), stage
    which = np.argmax([total[at] for total in totals], axis=0)
    worst = {kind: values[same, stage] for kind, values in fixed.items()}
    worst |= {
        kind: np.choose(which, [np.broadcast_to(moment[kind], whole.shape)[at]
                                for moment in moments])
        for kind in moments[0]
    }  # fmt: skip
    worst["reserve"] = device.reserve + SLACK * whole[at]
    # the update's blocks are too large for what the passes leave free, so both stay allocated
    cached = np.maximum(totals[0], totals[1])[at] + taken[same][at] - whole[at]
    disk = np.broadcast_to(np.asarray(state.on_disk), (len(beside), 1))
    return Held({kind: worst[kind] for kind in KINDS}, stage, np.maximum(cached, 0.0),
                said.memory_doubt, beside[same].max(axis=-1), disk[same, 0])  # fmt: skip


def _gathered(load: Workload, trained: bool = False) -> Array:
    """(plans, p): weights of the largest unit that is gathered before it is used."""
    stages, spread = load.stages, load.kinds.spread
    (rest, share), *experts = load.shares("stored", trained)
    away = load.state.updated_away if trained else load.state.weights_away
    apart = np.asarray(away) > 0
    found = spread(stages.most(stages.units(np.atleast_2d(rest)))) * ((share < 1) | apart)
    for w, alone in experts:  # whole where one device holds them, however many share the rest
        both = spread(stages.most(stages.units(np.atleast_2d(rest + w))))
        found = np.where((alone < 1) | apart, both, found)
    return found


def _kept(shard: Shard) -> Array:
    """Bytes of a micro-batch that each row keeps."""
    width = np.where(shard.model.fed, shard.fed, shard.delta)
    if shard.model.training.forward:
        return np.zeros((*np.shape(shard.micro)[:-1], len(shard.model)))
    return shard.micro * (shard.kept * width + shard.kept_bytes) * np.ones_like(shard.batch)


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
    block = stages.counts @ model.blocks > 0
    inputs = stages.gather(np.where(block, given, 0.0))
    full = stages.gather(np.where(block, 0.0, units)) + inputs
    working = stages.most(np.where(block, units, 0.0))
    # operators: the core's tensors and every other matrix's output
    again = model.blocks & model.folded.any()
    share = np.where(again, core, 1.0)
    half = 0.5 * outputs * (model.weighted & again)
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


def _freed(shard: Shard) -> Array:
    """Bytes of each row that are given up before those ahead of it run back.

    All that it keeps, but for an attention core, of which recomputation may have kept less.
    """
    return _kept(shard) * ~masks.attention(shard.model)


def _worst(rows: Array, stages: Stages, freed: Array | None = None) -> Array:
    """The largest row of the fullest unit of each device.

    Less what rows behind it in its chunk have `freed`, where that is given: the backward pass
    gives up what it has used, and of a repeated block's copies the last has least behind it.
    """
    ends = np.stack([stages.begin, stages.stop], axis=-1).ravel()
    padded = np.concatenate([rows, np.zeros((len(rows), 1))], axis=-1)
    if freed is None:
        return stages.most(np.maximum.reduceat(padded, ends, axis=-1)[:, ::2])
    until = np.cumsum(np.broadcast_to(freed, rows.shape), axis=-1)
    padded[:, :-1] += until
    units = np.maximum.reduceat(padded, ends, axis=-1)[:, ::2]
    return stages.most_behind(units, until[:, stages.stop - 1])


def _buckets(plan: Plan, weights: Array, options: Options) -> Array:
    """Gradient buckets beside the gradients, where replicas exchange them."""
    said, degree = options.software, plan.axis("data").degree
    buffer = said.exchange.buffer(options.precision) * weights
    if not said.state.buckets:
        return np.zeros((len(plan), 1))
    size = said.exchange.piece(
        said.exchange.sent(options.precision), {"data": degree, "devices": plan.devices}
    )
    return np.where(degree > 1, np.minimum(buffer, said.state.buckets * size), 0.0)


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
