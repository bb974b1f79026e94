"""The messages that a plan was priced with, as bytes that its devices should send in a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.executor.cuts import shard_of
from oracle.executor.graph import Graph
from oracle.executor.parts import Interval
from oracle.models.model import Model
from oracle.models.shard import Shard
from oracle.network.collectives import Message
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import inside


@dataclass(frozen=True)
class Expected:
    """One kind of exchange: bytes of all devices together, and calls of one of them."""

    what: str
    op: str
    axes: tuple[str, ...]
    nbytes: float  # of all devices, in one step
    calls: float  # of the device that says it most often


def expected(graph: Graph, plan: Plan, delta: float, stages: list[Interval]) -> list[Expected]:
    """What `talk` predicts, summed over rows, micro-batches and devices."""
    model, shard = graph.model, shard_of(graph.model, plan, delta)
    found = []
    for axis in plan.axes:
        for message in axis.talk(shard):
            if talkers(message, plan) <= 1:
                continue
            nbytes, calls = _in_a_step(message, shard, plan, model, stages)
            if nbytes > 0:
                what = f"{axis.name}: {message.what}"
                found.append(Expected(what, message.op, message.axes, nbytes, calls))
    return found


def _in_a_step(
    message: Message, shard: Shard, plan: Plan, model: Model, stages: list[Interval]
) -> tuple[float, float]:
    rows = len(model)
    p = int(plan.axis("pipeline").degree[0, 0])
    devices = float(plan.devices[0, 0]) / p  # those that hold a row
    segments = float(np.ravel(shard.segments)[0])
    nbytes = np.broadcast_to(np.asarray(message.nbytes, float), (1, rows))[0]
    calls = np.broadcast_to(np.asarray(message.calls, float), (1, rows))[0]
    full = plan.axis("recompute").mode[0, 0] == 2
    again = np.where(inside(model) & full & (message.when == "forward"), 2.0, 1.0)
    counts, ends = model.units
    if message.when in ("forward", "backward"):
        times = calls * segments * (1.0 if message.once else model.repeat * again)
        total = float(devices * (nbytes * times).sum())
        said = max(float(((nbytes > 0) * times) @ _inside(counts, stages[i::p])) for i in range(p))
        return total * _faces(message, plan), said
    if message.when == "step":
        once = calls.max()
        return float(devices * (nbytes @ model.repeat) * once), float(once)
    if message.when.startswith("unit"):
        units = counts @ nbytes
        total = float(devices * units.sum() * segments * calls.max())
        return total, float((units > 0).sum() * segments * calls.max())
    borders = [int(ends[stop - 1]) for _, stop in stages[:-1]]
    total = float(devices * 2 * segments * sum(nbytes[row] for row in borders))
    return total, 2 * segments


def _inside(counts: np.ndarray, chunks: list[Interval]) -> np.ndarray:
    return np.asarray(sum(counts[a:b].sum(0) for a, b in chunks) > 0, float)


def talkers(message: Message, plan: Plan) -> int:
    """Devices of a group that says this message."""
    if message.line is not None:
        return round(float(np.ravel(message.line[0])[0]))
    return round(float(np.prod([plan.axis(name).degree[0, 0] for name in message.axes])))


def _faces(message: Message, plan: Plan) -> float:
    """Neighbours that a device has in its line, on average: 2(q - 1)/q."""
    q = talkers(message, plan)
    return 2 * (q - 1) / q if message.op == "halo" else 1.0
