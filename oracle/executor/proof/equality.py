"""A plan trains as one device does: the same losses, and the same weights after some steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from oracle.executor.batch import inputs
from oracle.executor.graph import graph
from oracle.executor.local_model import GhostNorm, LocalModel
from oracle.executor.mesh import DeviceMesh
from oracle.executor.optimizer import Optimizer
from oracle.executor.parts import deal
from oracle.executor.steps import Trainer
from oracle.executor.wire import Wire
from oracle.plan.plan import Plan, parse

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

STEPS = 2
WIDE = torch.float64  # rounding is then far below any real difference
SAME_LOSS = ("filter", "channel", "tensor")  # their ranks each have all of the loss


def trained(
    rank: Rank, model: Any, text: str, batch: int, units: Sequence[str] = ()
) -> dict[str, Any]:
    """Losses of each step, this rank's part and one device's, and how far off its weights are.

    One device takes the statistics of norms over the parts that the others have.
    """
    layers, plan = graph(model), parse(text, batch)
    mesh = DeviceMesh(plan, rank.rank, rank.size)
    made = {"dtype": WIDE, "device": rank.device, "seed": 3}
    local = LocalModel(layers, plan, Wire(mesh), units=units, **made)
    if not mesh.taking_part:
        return {"loss": [0.0] * STEPS, "alone": [], "weights": 0.0}
    ghost = _norms(local, plan, batch)
    alone = LocalModel(layers, parse("serial", batch), Wire(_lone()), ghost=ghost, **made)
    split, serial = (Trainer(each, Optimizer("momentum", 0.005)) for each in (local, alone))
    counts = not any(mesh.at.get(axis, 0) for axis in SAME_LOSS)
    losses, whole = [], []
    for step in range(STEPS):
        x, target = inputs(layers, batch, step, WIDE)
        loss = float(split.step(x, target))
        losses.append(loss if counts else 0.0)
        whole.append(float(serial.step(x, target)))
        if not math.isfinite(losses[-1] + whole[-1]):
            raise ArithmeticError(f"{text}: the loss is {loss}, one device's {whole[-1]}")
    split.gathered()
    weights = max((_distance(held, alone) for held in local.held_weights), default=0.0)
    return {"loss": losses, "alone": whole, "weights": weights}


def apart(ranks: Sequence[Mapping[str, Any]]) -> float:
    """The largest difference from one device, of what all ranks say: of a loss, of a weight."""
    alone = ranks[0]["alone"]
    losses = [sum(rank["loss"][step] for rank in ranks) for step in range(len(alone))]
    found: list[float] = [
        abs(split / whole - 1) for split, whole in zip(losses, alone, strict=True)
    ]
    weights = [float(rank["weights"]) for rank in ranks]
    return max(0.0, *found, *weights)


def _norms(local: LocalModel, plan: Plan, batch: int) -> GhostNorm:
    """Samples and extents that each device of a plan takes statistics over."""
    parts = [(0, batch)]
    for axis in local.mesh.degrees:
        if axis in ("data", "sharded"):
            parts = [i for a, b in parts for i in deal(b - a, local.mesh.degree(axis), a)]
    pieces = int(plan.axis("pipeline").segments[0, 0] * plan.axis("data").accumulate[0, 0])
    parts = [i for a, b in parts for i in deal(b - a, pieces, a)]
    return GhostNorm(tuple(parts), local.cuts.grid, [bool(cut) for cut in local.cuts.spaced])


def _lone() -> DeviceMesh:
    return DeviceMesh(parse("serial", 1), 0, 1)


def _distance(held: Any, alone: LocalModel) -> float:
    """The largest difference of a weight that is held here, of the largest weight there is."""
    whole = alone.of[held.op.index, held.name].value.detach()
    mine, theirs = held.value.detach(), held.cut(whole)
    if not mine.numel():
        return 0.0
    return float((mine - theirs).abs().max()) / (float(theirs.abs().max()) + 1e-30)
