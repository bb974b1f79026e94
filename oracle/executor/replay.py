"""Messages of a plan without its work, in the order in which its operations send them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from oracle.executor.cuts import shard_of
from oracle.executor.expected import by_row, group_size, in_its_group
from oracle.executor.graph import OperationGraph
from oracle.executor.mesh import DeviceMesh
from oracle.executor.parts import Interval
from oracle.executor.supported import NotSupported
from oracle.executor.wire import Wire
from oracle.network.collectives import Message
from oracle.plan.crossings import crossings
from oracle.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class ReplayedMessage:
    """One message to send."""

    what: str
    op: str
    axes: tuple[str, ...]
    nbytes: float
    line: tuple[int, int] | None = None  # of its axis only devices in line: how many, how far apart


def messages_of(
    graph: OperationGraph, plan: Plan, stages: list[Interval], mesh: DeviceMesh, width: float
) -> list[ReplayedMessage]:
    """The messages of this device's stage in a step: of each micro-batch, then of its end."""
    shard = shard_of(graph.model, plan, width)
    segments = int(np.ravel(shard.segments)[0])
    if len(stages) > mesh.degree("pipeline"):
        raise NotSupported("the messages alone of a `pipeline` with interleave")
    own = stages[mesh.at["pipeline"]]
    operations = graph.of_units(*own)
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
            what = f"{axis.name}: {message.what}"

            def sent(size: float, what: str = what, m: Message = message) -> ReplayedMessage:
                line = m.line and (round(_first(m.line[0])), round(_first(m.line[1])))
                return ReplayedMessage(what, m.op, m.axes, size, line)

            if message.when in ("forward", "backward"):
                sends = [sent(nbytes[op.row]) for op in operations
                        if op.index == final[op.row] or not message.once
                        for _ in range(round(calls[op.row]))]  # fmt: skip
                (forth if message.when == "forward" else back).extend(sends)
            elif message.when.startswith("unit"):
                units = [
                    sum(nbytes[op.row] for op in graph.of_units(u, u + 1)) for u in range(*own)
                ]
                sends = [sent(size) for size in units if size > 0 and calls.max() > 0]
                (forth if message.when == "unit forward" else back).extend(sends)
            elif message.when == "step" and calls.max() > 0:
                ends.append(sent(sum(nbytes[row] for row in rows)))
            elif message.when == "border" and len(stages) > 1:
                p = len(stages)
                found = crossings(graph.model, np.array([[0, *(stop for _, stop in stages)]]),
                                  np.arange(p), p)  # fmt: skip
                size = float(found.received_ahead(found.values(nbytes[None])).max())
                forth.append(sent(size))
                back.append(sent(size))
    return [one for one in (forth + back) * segments + ends if one.nbytes > 0]


def _first(values: Any) -> float:
    return float(np.ravel(values)[0])


def send_all(messages: Sequence[ReplayedMessage], wire: Wire, device: torch.device) -> None:
    """Send messages one after the other."""
    for one in messages:
        mesh = wire.mesh
        group = mesh.line(one.axes[0], *one.line) if one.line else mesh.group(one.axes)
        share = max(int(one.nbytes / 4 / group.size), 1)
        if one.op == "allreduce":
            wire.allreduce(torch.zeros(max(int(one.nbytes / 4), 1), device=device), one.axes,
                           one.what)  # fmt: skip
        elif one.op == "allgather":
            wire.allgather(torch.zeros(share, device=device), one.axes, one.what)
        elif one.op == "reduce_scatter":
            wire.reduce_scatter(torch.zeros(group.size, share, device=device), one.axes, one.what)
        elif one.op == "alltoall":
            wire.alltoall(torch.zeros(group.size, share, device=device), one.axes, one.what)
        elif one.op == "sendrecv" and one.axes == ("context",):  # a ring
            buffer = torch.zeros(max(int(one.nbytes / 4), 1), device=device)
            wire.rotate(buffer, torch.empty_like(buffer), one.axes, one.what)()
        elif one.op in ("halo", "sendrecv"):
            buffer = torch.zeros(max(int(one.nbytes / 4), 1), device=device)
            before, after = group.place - 1, group.place + 1
            to = [after] if one.op == "sendrecv" else [before, after]
            of = [before] if one.op == "sendrecv" else [before, after]
            inside = range(group.size)
            given = {group.members[i]: buffer for i in to if i in inside}
            made = {group.members[i]: torch.empty_like(buffer) for i in of if i in inside}
            if given or made:
                wire.swap(given, made, one.axes, one.what)
        else:
            raise NotImplementedError(f"{one.op} is priced but not replayed")
