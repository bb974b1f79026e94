"""Bytes per device by kind, at the worst moment of an iteration.

    M = weights + gradients + optimizer + activations in flight + workspace + buffers + reserve

Activations are what the backward pass wants, kept from the forward pass until it is used: a
tensor once, whoever wants it. A 1F1B pipeline holds min(S, p - i) micro-batches on stage i.
The published M = 2γδ Σ (B(|x| + |y|) + |w|) is the *ideal* form [kahira2021, Table III].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.plan import Plan
from oracle.shard import Array, Shard, product
from oracle.specs import Device
from oracle.stages import Stages

SLOTS = {"sgd": 0, "momentum": 1, "adam": 2, "lars": 1, "lamb": 2}  # fp32 values per weight
SLACK = 0.05  # of what the allocator hands out: rounding and holes between blocks
KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "buffers", "reserve")


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes by kind on the worst device, (plans,) each, and which stage that is."""

    kinds: dict[str, Array]
    stage: Array

    @property
    def total(self) -> Array:
        return sum(self.kinds.values())


def held(
    shard: Shard, plan: Plan, stages: Stages, device: Device, mixed: bool, optimizer: str,
    gamma: float = 1.0,
) -> Held:  # fmt: skip
    """Peak bytes of the fullest stage, by kind."""
    if shard.ideal:
        return _ideal(shard, stages, optimizer, gamma)
    weights = stages.total(shard.w)
    width = 2.0 if mixed else 4.0
    # masters and slots are fp32 whatever the precision; mixed gradients are added up in fp32
    state = 4.0 * (SLOTS[optimizer] + mixed)
    unit = stages.units(np.atleast_2d(shard.w))  # what a gather brings at once
    gathered = np.where(shard.stored < 1, 2 * stages.most(unit), 0.0)
    micro = shard.micro
    kept = micro * (shard.kept * shard.delta + shard.kept_bytes)
    recompute = plan.axis("recompute").mode
    activations, working = _activations(shard, stages, plan, kept, recompute)
    kinds = {
        "weights": weights * width * shard.stored + gathered * width,
        "gradients": weights * (4.0 if mixed else width) * shard.graded,
        "optimizer": weights * state * shard.stated,
        "activations": activations * _in_flight(plan, stages) + working,
        "workspace": _worst(_transient(shard), stages),
        "buffers": np.where(shard.stored < 1, gathered * 4.0, 0.0) + _buckets(plan, weights),
        "reserve": np.full_like(weights, device.reserve),
    }
    whole = sum(kinds.values())
    slack = SLACK * (whole - kinds["reserve"])
    kinds["reserve"] = kinds["reserve"] + slack
    stage = np.argmax(whole, axis=-1)
    worst = {k: np.take_along_axis(v, stage[:, None], -1)[:, 0] for k, v in kinds.items()}
    return Held(worst, stage)


def _activations(
    shard: Shard, stages: Stages, plan: Plan, kept: Array, recompute: Array
) -> tuple[Array, Array]:
    """(kept per micro-batch, working set of the unit whose backward pass runs) by stage."""
    model, micro = shard.model, shard.micro
    none = stages.total(kept)
    if not np.any(recompute > 0):
        return none, np.zeros_like(none)
    core = model.mask(lambda row: row.work == "attention")
    inner = micro * (shard.kept * shard.delta + shard.kept_bytes - micro * 0) * core
    outputs = micro * shard.y * shard.delta * core  # q, k, v in and the result stay
    selective = stages.total(kept - np.maximum(inner - outputs, 0))
    # full: each unit keeps the tensor it was given; what it makes again lives while it runs back
    given = np.atleast_2d(micro * shard.x * shard.delta)[:, stages.begin]
    units = stages.units(np.atleast_2d(kept))
    block = (stages.counts @ model.folded > 0) | (~model.folded).all()
    full = stages.gather(np.where(block, given, units))
    working = stages.most(np.where(block, units, 0.0))
    matrices = model.weighted & model.folded
    operators = stages.total(kept * np.where(model.folded, np.where(core, 1, 0), 1)
                             + 0.5 * micro * shard.y * shard.delta * matrices)  # fmt: skip
    operators = operators + stages.gather(np.where(block, given, 0.0))
    chosen = np.where(recompute == 2, full, np.where(recompute == 1, selective, none))
    chosen = np.where(recompute == 3, operators, chosen)
    return chosen, np.where(recompute >= 2, working, 0.0)


def _in_flight(plan: Plan, stages: Stages) -> Array:
    """Micro-batches whose activations a stage keeps at once, (plans, p)."""
    pipeline = plan.axis("pipeline")
    p, v = stages.p, stages.v
    stage = np.arange(p)[None, :]
    S = pipeline.segments
    if v > 1:  # chunks, each 1/v of a stage's layers
        return np.minimum(S * v, (p - stage - 1) * 2 + (v - 1) * p + 1) / v
    return np.where(pipeline.schedule == 1, np.minimum(S, p - stage), S)


def _transient(shard: Shard) -> Array:
    """Bytes that live only while a row runs back: gradients of its two tensors."""
    moved = shard.model.mask(lambda row: row.kind not in ("flatten", "reshape"))
    own = shard.micro * shard.delta * (shard.x + shard.y) * moved
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


def _ideal(shard: Shard, stages: Stages, optimizer: str, gamma: float) -> Held:
    delta = shard.delta
    tensors = (
        2 * gamma * delta * stages.total(shard.batch * (shard.x + shard.y) * shard.model.layers)
    )
    weights = gamma * delta * stages.total(shard.w * np.ones_like(shard.batch)) * shard.stored
    whole = tensors + 2 * weights
    stage = np.argmax(whole, axis=-1)
    kinds = {"weights": weights, "gradients": weights, "activations": tensors}
    worst = {
        k: np.take_along_axis(v + 0 * whole, stage[:, None], -1)[:, 0] for k, v in kinds.items()
    }
    return Held({k: worst.get(k, np.zeros(len(stage))) for k in KINDS}, stage)


__all__ = ["KINDS", "SLOTS", "Held", "held", "product"]
