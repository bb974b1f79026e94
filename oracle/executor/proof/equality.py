"""Proves that a plan trains as one device does: the same losses and weights after some steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from oracle.executor.engines import engines
from oracle.executor.local.batch import inputs
from oracle.executor.local.cuts import Cuts
from oracle.executor.local.graph import OperationGraph, graph
from oracle.executor.local.local_model import GhostNorm, LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.plan_run import PlanRun
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.schedule import micro_batches
from oracle.executor.steps.trainer import Trainer
from oracle.plan.plan import Plan, parse

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

STEPS, SEED, RATE = 2, 3, 0.005
WIDE = torch.float64  # rounding is then far below any real difference
SAME_LOSS = ("filter", "channel", "tensor")  # each of their ranks computes the full loss


def trained(
    rank: Rank, model: Any, text: str, batch: int, units: Sequence[str] = ()
) -> dict[str, Any]:
    """Losses of each step, of this rank's part and of one device, and how far off weights are.

    The one device takes the statistics of norms over the parts that the plan's devices have.
    """
    layers, plan = graph(model), parse(text, batch)
    mesh = DeviceMesh(plan, rank.rank, rank.size)
    local = LocalModel(layers, plan, Wire(mesh), units=units, dtype=WIDE, device=rank.device,
                       seed=SEED)  # fmt: skip
    if not mesh.taking_part:
        return {"loss": [0.0] * STEPS, "alone": [], "weights": 0.0}
    alone = _one_device(layers, batch, _norms(mesh, plan, local.cuts))
    split, serial = (Trainer(part, Optimizer("momentum", RATE)) for part in (local, alone))
    losses, serial_losses = _steps(split, serial, layers, batch, lambda x: x, text)
    if any(mesh.at.get(axis, 0) for axis in SAME_LOSS):
        losses = [0.0] * STEPS
    split.gathered()
    weights = max((_distance(weight, alone) for weight in local.held_weights), default=0.0)
    return {"loss": losses, "alone": serial_losses, "weights": weights}


def trained_by(rank: Rank, engine: str, model: Any, text: str, batch: int) -> dict[str, Any]:
    """Losses and distance of weights of a plan that an engine of PyTorch's trains."""
    job = PlanRun(model, text, batch, engine=engine, precision="fp64", seed=SEED)
    steps = engines()[engine].steps(rank, job)
    layers, plan, mesh = graph(model), steps.plan, steps.wire.mesh
    training = getattr(steps, "training", None)
    if training is None:
        return {"loss": [0.0] * STEPS, "alone": [], "weights": 0.0}
    for group in training.optimizer.param_groups:
        group["lr"] = RATE
    alone = _one_device(layers, batch, _norms(mesh, plan))
    serial = Trainer(alone, Optimizer("momentum", RATE))
    held_part = training.setting.held_part
    losses, serial_losses = _steps(training, serial, layers, batch, held_part, text)
    if any(mesh.at.get(axis, 0) for axis in SAME_LOSS):
        losses = [0.0] * STEPS
    serial_weights = {f"{w.op.index}.{w.name}": w.value.detach() for w in alone.held_weights}
    split_weights = training.full_weights().items()
    differences = [_relative_difference(w, serial_weights[name]) for name, w in split_weights]
    weights = max(differences, default=0.0)
    return {"loss": losses, "alone": serial_losses, "weights": weights}


def _one_device(layers: OperationGraph, batch: int, ghost: GhostNorm) -> LocalModel:
    mesh = DeviceMesh(parse("serial", 1), 0, 1)
    return LocalModel(layers, parse("serial", batch), Wire(mesh), ghost=ghost, dtype=WIDE,
                      seed=SEED)  # fmt: skip


def _steps(
    split: Any, serial: Trainer, layers: OperationGraph, batch: int,
    held_part: Callable[[torch.Tensor], torch.Tensor], text: str,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Losses of this device's part of a batch, and of all of it, step by step."""
    losses, serial_losses = [], []
    for step in range(STEPS):
        x, target = inputs(layers, batch, step, WIDE)
        losses.append(float(split.step(held_part(x), held_part(target))))
        serial_losses.append(float(serial.step(x, target)))
        if not math.isfinite(losses[-1] + serial_losses[-1]):
            losses_so_far = f"the loss is {losses[-1]}, one device's {serial_losses[-1]}"
            raise ArithmeticError(f"{text}: {losses_so_far}")
    return losses, serial_losses


def difference(ranks: Sequence[Mapping[str, Any]]) -> float:
    """The largest relative difference from one device of a loss, or of a weight."""
    alone = ranks[0]["alone"]
    losses = [sum(rank["loss"][step] for rank in ranks) for step in range(len(alone))]
    differences: list[float] = [
        abs(split / serial_loss - 1) for split, serial_loss in zip(losses, alone, strict=True)
    ]
    weights = [float(rank["weights"]) for rank in ranks]
    return max(0.0, *differences, *weights)


def _norms(mesh: DeviceMesh, plan: Plan, cuts: Cuts | None = None) -> GhostNorm:
    """Samples and extents over which each device of a plan takes statistics."""
    parts = [(0, int(plan.batch[0, 0]))]
    for axis in mesh.degrees:
        if axis in ("data", "sharded"):
            parts = [i for a, b in parts for i in deal(b - a, mesh.degree(axis), a)]
    parts = [i for a, b in parts for i in deal(b - a, micro_batches(plan), a)]
    if cuts is None:
        return GhostNorm(tuple(parts))
    return GhostNorm(tuple(parts), cuts.grid, [bool(cut) for cut in cuts.spaced])


def _distance(weight: Any, alone: LocalModel) -> float:
    """The largest difference of a weight, relative to its largest number."""
    full = alone.weight_of[weight.op.index, weight.name].value.detach()
    return _relative_difference(weight.value.detach(), weight.cut(full))


def _relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if not ours.numel():
        return 0.0
    return float((ours - theirs).abs().max()) / (float(theirs.abs().max()) + 1e-30)
