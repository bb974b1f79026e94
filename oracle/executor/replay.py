"""Only the messages of a plan, in the order in which its operations would say them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from oracle.executor.cuts import shard_of
from oracle.executor.graph import Graph
from oracle.executor.mesh import DeviceMesh
from oracle.executor.parts import Interval
from oracle.executor.schedule import talkers
from oracle.executor.supported import NotSupported
from oracle.executor.wire import Wire
from oracle.network.collectives import Message
from oracle.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to say."""

    what: str
    op: str
    axes: tuple[str, ...]
    nbytes: float
    line: tuple[int, int] | None = None  # of its axis only devices in line: how many, how far apart


def script(
    graph: Graph, plan: Plan, stages: list[Interval], mesh: DeviceMesh, width: float
) -> list[Line]:
    """The lines of this device's stage, for one step: each micro-batch forth, back, then ends."""
    shard = shard_of(graph.model, plan, width)
    segments = int(np.ravel(shard.segments)[0])
    if len(stages) > mesh.degree("pipeline"):
        raise NotSupported("the messages alone of a `pipeline` with interleave")
    own = stages[mesh.at["pipeline"]]
    operations = graph.of_units(*own)
    rows = [op.row for op in operations]
    final = {op.row: op.index for op in graph.operations}
    forth: list[Line] = []
    back: list[Line] = []
    ends: list[Line] = []
    for axis in plan.axes:
        for message in axis.talk(shard):
            mesh.group(message.axes)
            if talkers(message, plan) == 1:
                continue
            nbytes, calls = _by_row(message, len(graph.model))
            what = f"{axis.name}: {message.what}"

            def line(size: float, what: str = what, m: Message = message) -> Line:
                line = m.line and (round(_first(m.line[0])), round(_first(m.line[1])))
                return Line(what, m.op, m.axes, size, line)

            if message.when in ("forward", "backward"):
                said = [line(nbytes[op.row]) for op in operations
                        if op.index == final[op.row] or not message.once
                        for _ in range(round(calls[op.row]))]  # fmt: skip
                (forth if message.when == "forward" else back).extend(said)
            elif message.when.startswith("unit"):
                units = [
                    sum(nbytes[op.row] for op in graph.of_units(u, u + 1)) for u in range(*own)
                ]
                said = [line(size) for size in units if size > 0 and calls.max() > 0]
                (forth if message.when == "unit forward" else back).extend(said)
            elif message.when == "step" and calls.max() > 0:
                ends.append(line(sum(nbytes[row] for row in rows)))
            elif message.when == "border" and len(stages) > 1:
                _, last = graph.model.units
                size = max(nbytes[int(last[stop - 1])] for _, stop in stages[:-1])
                forth.append(line(size))
                back.append(line(size))
    return [one for one in (forth + back) * segments + ends if one.nbytes > 0]


def _first(values: Any) -> float:
    return float(np.ravel(values)[0])


def _by_row(message: Message, rows: int) -> tuple[Any, Any]:
    nbytes = np.broadcast_to(np.asarray(message.nbytes, float), (1, rows))[0]
    return nbytes, np.broadcast_to(np.asarray(message.calls, float), (1, rows))[0]


def play(lines: list[Line], wire: Wire, device: Any) -> None:
    """Say them all."""
    for line in lines:
        mesh = wire.mesh
        group = mesh.line(line.axes[0], *line.line) if line.line else mesh.group(line.axes)
        share = max(int(line.nbytes / 4 / group.size), 1)
        if line.op == "allreduce":
            wire.allreduce(torch.zeros(max(int(line.nbytes / 4), 1), device=device), line.axes,
                           line.what)  # fmt: skip
        elif line.op == "allgather":
            wire.allgather(torch.zeros(share, device=device), line.axes, line.what)
        elif line.op == "reduce_scatter":
            wire.reduce_scatter(torch.zeros(group.size, share, device=device), line.axes, line.what)
        elif line.op == "alltoall":
            wire.alltoall(torch.zeros(group.size, share, device=device), line.axes, line.what)
        elif line.op == "sendrecv" and line.axes == ("context",):  # round and round
            buffer = torch.zeros(max(int(line.nbytes / 4), 1), device=device)
            wire.rotate(buffer, torch.empty_like(buffer), line.axes, line.what)()
        elif line.op in ("halo", "sendrecv"):
            buffer = torch.zeros(max(int(line.nbytes / 4), 1), device=device)
            before, after = group.place - 1, group.place + 1
            to = [after] if line.op == "sendrecv" else [before, after]
            of = [before] if line.op == "sendrecv" else [before, after]
            inside = range(group.size)
            given = {group.members[i]: buffer for i in to if i in inside}
            made = {group.members[i]: torch.empty_like(buffer) for i in of if i in inside}
            if given or made:
                wire.swap(given, made, line.what)
        else:
            raise NotImplementedError(f"{line.op} is priced but not replayed")
