"""The bytes and calls of each message that the devices of a plan should send in a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oracle.executor.local.cuts import shard_of
from oracle.executor.local.graph import OperationGraph
from oracle.executor.local.parts import Interval
from oracle.models.model import Model
from oracle.models.shard import Shard
from oracle.network.collectives import Message
from oracle.plan.crossings import crossings
from oracle.plan.mesh import Groups
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import inside
from oracle.spec.options import SLOTS

LINKS = ("host", "disk")  # links of one device, whose copies are counted


@dataclass(frozen=True)
class ExpectedMessage:
    """One kind of message: bytes of all devices together, and calls of one of them."""

    label: str
    op: str
    axes: tuple[str, ...]
    nbytes: float  # of all devices, in one step
    calls: float  # of the device that sends most often


def expected_messages(
    graph: OperationGraph, plan: Plan, delta: float, stages: list[Interval],
    words: Sequence[str] = (), optimizer: str = "momentum",
) -> list[ExpectedMessage]:  # fmt: skip
    """The messages of the strategies, summed over rows, micro-batches and devices.

    `words` say what each unit does with its activations; without them all that may leave do.
    """
    model, shard = graph.model, shard_of(graph.model, plan, delta)
    shard = shard.but(beside=(1 + SLOTS[optimizer]) * delta)  # and weights
    messages = []
    for axis in plan.axes:
        for message in axis.talk(shard):
            copied = message.op == "copy" and message.over in LINKS
            if not np.any(message.calls) or (group_size(message, plan) <= 1 and not copied):
                continue
            message = in_its_group(message, plan)
            nbytes, calls = _in_a_step(message, shard, plan, model, stages, words)
            if nbytes > 0:
                label = f"{axis.name}: {message.what}"
                messages.append(ExpectedMessage(label, message.op, message.axes, nbytes, calls))
    return messages


def _in_a_step(
    message: Message, shard: Shard, plan: Plan, model: Model, stages: list[Interval],
    words: Sequence[str],
) -> tuple[float, float]:  # fmt: skip
    rows = len(model)
    p = int(plan.axis("pipeline").degree[0, 0])
    devices = float(plan.devices[0, 0]) / p  # those that hold a row
    segments = float(np.ravel(shard.segments)[0])
    nbytes, calls = by_row(message, rows)
    nbytes = nbytes * np.broadcast_to(np.asarray(message.share, float), (1, rows))[0]
    full = plan.axis("recompute").mode[0, 0] == 2
    reruns = np.where(inside(model) & full & (message.when == "forward"), 2.0, 1.0)
    counts, _ = model.units
    if message.when in ("forward", "backward"):
        times = calls * segments * (1.0 if message.once else model.repeat * reruns)
        total = float(devices * (nbytes * times).sum())
        calls_of_stage = [((nbytes > 0) * times) @ _rows_in(counts, stages[i::p]) for i in range(p)]
        return total * _neighbours(message, plan), float(max(calls_of_stage))
    if message.when == "step":
        once = calls.max()
        return float(devices * (nbytes @ model.repeat) * once), float(once)
    if message.when.startswith("unit"):
        units = counts @ nbytes
        if message.what.startswith("activations "):  # of a sample
            units = units * float(np.ravel(shard.micro)[0])
            if words:
                units = units * np.array([word == "offload" for word in words])
        total = float(devices * units.sum() * segments * calls.max())
        return total, float((units > 0).sum() * segments * calls.max())
    sent = crossings(model, np.array([[0, *(stop for _, stop in stages)]]),
                     np.arange(len(stages)) % p, p)  # fmt: skip
    total = float(devices * 2 * segments * sent.values(nbytes[None]).sum())
    calls_by_stage = sum(np.bincount(end[0, sent.sent[0]] % p, minlength=p)
                         for end in (sent.source, sent.target))  # fmt: skip
    return total, float(segments * np.max(calls_by_stage))


def _rows_in(counts: NDArray[np.float64], chunks: list[Interval]) -> NDArray[np.float64]:
    return np.asarray(sum(counts[a:b].sum(0) for a, b in chunks) > 0, float)


def by_row(message: Message, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes and calls of a message for each row."""
    nbytes = np.broadcast_to(np.asarray(message.nbytes, float), (1, rows))[0]
    return nbytes, np.broadcast_to(np.asarray(message.calls, float), (1, rows))[0]


def in_its_group(message: Message, plan: Plan) -> Message:
    """The message with the bytes that a group of its size sends."""
    if message.sized is None:
        return message
    size = np.full((1, 1), float(group_size(message, plan)))
    return replace(message, nbytes=message.nbytes * message.sized(size))


def group_size(message: Message, plan: Plan) -> int:
    """How many devices a group has that sends this message."""
    if message.line is not None:
        return round(float(np.ravel(message.line[0])[0]))
    return round(float(np.prod([Groups(plan).sizes[name][0, 0] for name in message.axes])))


def _neighbours(message: Message, plan: Plan) -> float:
    """Mean number of neighbours of a device in its line of q: 2(q - 1)/q."""
    q = group_size(message, plan)
    return 2 * (q - 1) / q if message.op == "halo" else 1.0
