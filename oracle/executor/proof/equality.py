"""A plan trains as one device does: the same losses, and the same weights after some steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from oracle.executor.batch import inputs
from oracle.executor.cuts import Cuts
from oracle.executor.engines import engines
from oracle.executor.graph import OperationGraph, graph
from oracle.executor.local_model import GhostNorm, LocalModel
from oracle.executor.mesh import DeviceMesh
from oracle.executor.optimizer import Optimizer
from oracle.executor.parts import deal
from oracle.executor.plan_run import PlanRun
from oracle.executor.steps import Trainer
from oracle.executor.wire import Wire
from oracle.plan.plan import Plan, parse

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

STEPS, SEED, RATE = 2, 3, 0.005
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
    local = LocalModel(layers, plan, Wire(mesh), units=units, dtype=WIDE, device=rank.device,
                       seed=SEED)  # fmt: skip
    if not mesh.taking_part:
        return {"loss": [0.0] * STEPS, "alone": [], "weights": 0.0}
    alone = _one_device(layers, batch, _norms(mesh, plan, local.cuts))
    split, serial = (Trainer(each, Optimizer("momentum", RATE)) for each in (local, alone))
    losses, whole = _steps(split, serial, layers, batch, lambda x: x, text)
    if any(mesh.at.get(axis, 0) for axis in SAME_LOSS):
        losses = [0.0] * STEPS
    split.gathered()
    weights = max((_distance(held, alone) for held in local.held_weights), default=0.0)
    return {"loss": losses, "alone": whole, "weights": weights}


def trained_by(rank: Rank, engine: str, model: Any, text: str, batch: int) -> dict[str, Any]:
    """The same of an engine of PyTorch's."""
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
    losses, whole = _steps(training, serial, layers, batch, training.setting.held, text)
    if any(mesh.at.get(axis, 0) for axis in SAME_LOSS):
        losses = [0.0] * STEPS
    found = training.whole()
    wanted = {f"{one.op.index}.{one.name}": one.value.detach() for one in alone.held_weights}
    weights = max((_apart(value, wanted[name]) for name, value in found.items()), default=0.0)
    return {"loss": losses, "alone": whole, "weights": weights}


def _one_device(layers: OperationGraph, batch: int, ghost: GhostNorm) -> LocalModel:
    mesh = DeviceMesh(parse("serial", 1), 0, 1)
    return LocalModel(layers, parse("serial", batch), Wire(mesh), ghost=ghost, dtype=WIDE,
                      seed=SEED)  # fmt: skip


def _steps(
    split: Any, serial: Trainer, layers: OperationGraph, batch: int,
    held: Callable[[torch.Tensor], torch.Tensor], text: str,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Losses of the part of a batch that is held here, and of all of it, step by step."""
    losses, whole = [], []
    for step in range(STEPS):
        x, target = inputs(layers, batch, step, WIDE)
        losses.append(float(split.step(held(x), held(target))))
        whole.append(float(serial.step(x, target)))
        if not math.isfinite(losses[-1] + whole[-1]):
            raise ArithmeticError(f"{text}: the loss is {losses[-1]}, one device's {whole[-1]}")
    return losses, whole


def apart(ranks: Sequence[Mapping[str, Any]]) -> float:
    """The largest difference from one device, of what all ranks say: of a loss, of a weight."""
    alone = ranks[0]["alone"]
    losses = [sum(rank["loss"][step] for rank in ranks) for step in range(len(alone))]
    found: list[float] = [
        abs(split / whole - 1) for split, whole in zip(losses, alone, strict=True)
    ]
    weights = [float(rank["weights"]) for rank in ranks]
    return max(0.0, *found, *weights)


def _norms(mesh: DeviceMesh, plan: Plan, cuts: Cuts | None = None) -> GhostNorm:
    """Samples and extents that each device of a plan takes statistics over."""
    parts = [(0, int(plan.batch[0, 0]))]
    for axis in mesh.degrees:
        if axis in ("data", "sharded"):
            parts = [i for a, b in parts for i in deal(b - a, mesh.degree(axis), a)]
    pieces = int(plan.axis("pipeline").segments[0, 0] * plan.axis("data").accumulate[0, 0])
    parts = [i for a, b in parts for i in deal(b - a, pieces, a)]
    if cuts is None:
        return GhostNorm(tuple(parts))
    return GhostNorm(tuple(parts), cuts.grid, [bool(cut) for cut in cuts.spaced])


def _distance(held: Any, alone: LocalModel) -> float:
    """The largest difference of a weight that is held here, of the largest weight there is."""
    whole = alone.of[held.op.index, held.name].value.detach()
    return _apart(held.value.detach(), held.cut(whole))


def _apart(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    if not mine.numel():
        return 0.0
    return float((mine - theirs).abs().max()) / (float(theirs.abs().max()) + 1e-30)
