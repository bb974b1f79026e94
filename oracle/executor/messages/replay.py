"""The messages of a plan without its work, in the order in which its operations send them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from oracle.executor.local.cuts import shard_of
from oracle.executor.local.graph import OperationGraph
from oracle.executor.local.parts import Interval
from oracle.executor.messages.expected import by_row, group_size, in_its_group
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.supported import NotSupported
from oracle.network.collectives import Message
from oracle.plan.crossings import crossings
from oracle.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class ReplayedMessage:
    """One message to send."""

    label: str
    op: str
    axes: tuple[str, ...]
    nbytes: float
    line: tuple[int, int] | None = None  # devices in line along the axis: how many, how far apart


def messages_of(
    graph: OperationGraph, plan: Plan, stages: list[Interval], mesh: DeviceMesh, width: float
) -> list[ReplayedMessage]:
    """The messages of this device's stage in a step: those of micro-batches, then of the end."""
    shard = shard_of(graph.model, plan, width)
    segments = int(np.ravel(shard.segments)[0])
    if len(stages) > mesh.degree("pipeline"):
        raise NotSupported("the messages alone of a `pipeline` with interleave")
    units_here = stages[mesh.at["pipeline"]]
    operations = graph.of_units(*units_here)
    rows = [op.row for op in operations]
    final = {op.row: op.index for op in graph.operations}
    forth: list[ReplayedMessage] = []
    back: list[ReplayedMessage] = []
    ends: list[ReplayedMessage] = []
    for axis in plan.axes:
        for message in axis.talk(shard):
            if not np.any(message.calls):
                continue
            mesh.group(message.axes)
            if group_size(message, plan) == 1:
                continue
            message = in_its_group(message, plan)
            nbytes, calls = by_row(message, len(graph.model))
            label = f"{axis.name}: {message.what}"

            def sent(size: float, label: str = label, m: Message = message) -> ReplayedMessage:
                line = m.line and (round(_first(m.line[0])), round(_first(m.line[1])))
                return ReplayedMessage(label, m.op, m.axes, size, line)

            if message.when in ("forward", "backward"):
                sends = [sent(nbytes[op.row]) for op in operations
                         if op.index == final[op.row] or not message.once
                         for _ in range(round(calls[op.row]))]  # fmt: skip
                (forth if message.when == "forward" else back).extend(sends)
            elif message.when.startswith("unit"):
                units = [
                    sum(nbytes[op.row] for op in graph.of_units(u, u + 1))
                    for u in range(*units_here)
                ]
                sends = [sent(size) for size in units if size > 0 and calls.max() > 0]
                (forth if message.when == "unit forward" else back).extend(sends)
            elif message.when == "step" and calls.max() > 0:
                ends.append(sent(sum(nbytes[row] for row in rows)))
            elif message.when == "border" and len(stages) > 1:
                p = len(stages)
                crossed = crossings(graph.model, np.array([[0, *(stop for _, stop in stages)]]),
                                    np.arange(p), p)  # fmt: skip
                size = float(crossed.received_ahead(crossed.values(nbytes[None])).max())
                forth.append(sent(size))
                back.append(sent(size))
    return [message for message in (forth + back) * segments + ends if message.nbytes > 0]


def _first(values: Any) -> float:
    return float(np.ravel(values)[0])


def send_all(messages: Sequence[ReplayedMessage], wire: Wire, device: torch.device) -> None:
    """Send messages one after the other."""
    mesh, zeros = wire.mesh, partial(torch.zeros, device=device)
    for message in messages:
        axes, label = message.axes, message.label
        group = mesh.line(axes[0], *message.line) if message.line else mesh.group(axes)
        count = max(int(message.nbytes / 4), 1)
        share = max(int(message.nbytes / 4 / group.size), 1)
        if message.op == "allreduce":
            wire.allreduce(zeros(count), axes, label)
        elif message.op == "allgather":
            wire.allgather(zeros(share), axes, label)
        elif message.op == "reduce_scatter":
            wire.reduce_scatter(zeros(group.size, share), axes, label)
        elif message.op == "alltoall":
            wire.alltoall(zeros(group.size, share), axes, label)
        elif message.op == "sendrecv" and axes == ("context",):  # a ring
            buffer = zeros(count)
            wire.rotate(buffer, torch.empty_like(buffer), axes, label)()
        elif message.op in ("halo", "sendrecv"):
            buffer = zeros(count)
            before, after = group.place - 1, group.place + 1
            targets = [after] if message.op == "sendrecv" else [before, after]
            sources = [before] if message.op == "sendrecv" else [before, after]
            inside = range(group.size)
            outgoing = {group.members[i]: buffer for i in targets if i in inside}
            incoming = {group.members[i]: torch.empty_like(buffer) for i in sources if i in inside}
            if outgoing or incoming:
                wire.swap(outgoing, incoming, axes, label)
        else:
            raise NotImplementedError(f"{message.op} is priced but not replayed")
