"""Cuts of each row of a model under a plan, as its strategies say."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oracle.executor.local.graph import Operation, OperationGraph
from oracle.executor.local.parts import Interval, deal
from oracle.executor.messages.mesh import EXPERTS, DeviceMesh
from oracle.executor.passes.operators import filters_of, weights_of
from oracle.executor.supported import NotSupported, unsupported
from oracle.models.layers import Mlp, Moe
from oracle.models.model import Model
from oracle.models.shard import Shard, serial
from oracle.plan.cuts import even_cuts
from oracle.plan.partition import balanced_cuts
from oracle.plan.plan import Plan
from oracle.plan.strategies.filter import cut_rows


def shard_of(model: Model, plan: Plan, delta: float) -> Shard:
    """The shard that a plan leaves on one device, as predicted."""
    shard = serial(model, plan.batch, delta)
    for axis in sorted(plan.axes, key=lambda axis: axis.nearness):
        shard = axis.split(shard)
    return shard


@dataclass(frozen=True)
class Cuts:
    """Cuts of each row: filters, channels, extents, and the weights that are kept."""

    plan: Plan
    mesh: DeviceMesh
    filtered: NDArray[np.bool_]  # rows whose filters are cut
    channeled: NDArray[np.bool_]  # rows whose channels are cut
    spaced: NDArray[np.bool_]  # rows whose extents are cut
    grid: tuple[int, ...]
    gathered: NDArray[np.bool_]  # filter: rows whose output is gathered again
    sequence: bool
    scattered: bool  # filter: of dL/dx only this device's channels are added up
    expert_cut: bool = False  # tensor: experts are cut, as any MLP

    @classmethod
    def from_plan(cls, graph: OperationGraph, plan: Plan, mesh: DeviceMesh) -> Cuts:
        if why := unsupported(graph.model, plan):
            raise NotSupported("; ".join(why))
        model, none = graph.model, np.zeros(len(graph.model), bool)
        channel, spatial, tensor = (plan.axis(name) for name in ("channel", "spatial", "tensor"))
        filtered = cut_rows(model) if mesh.degree("filter") > 1 else none
        channeled = channel.cut(model) if mesh.degree("channel") > 1 else none
        spaced, grid = none, (1, 1, 1)
        if mesh.degree("spatial") > 1:
            shard = serial(model, plan.batch, 4.0)
            spaced = np.broadcast_to(spatial.cut(shard), (1, len(model)))[0].astype(bool)
            grid = tuple(int(np.ravel(q)[0]) for q in spatial.parts(shard))  # type: ignore[assignment]
        scattered = bool(filtered.any() and plan.axis("filter").back[0, 0])
        mixing = {"layer", "rms", "group", "softmax"}
        for op in graph.operations if scattered else ():
            if getattr(op.layer, "op", "") in mixing:
                raise NotSupported(f"{op.label} mixes channels: back=scatter is not run through it")
        last = np.flatnonzero(filtered)[-1] if filtered.any() else -1
        gathered = filtered.copy()
        # the last output is never gathered if only the loss reads it
        if last >= 0 and all(row.kind == "loss" for row in model.rows[last + 1 :]):
            gathered[last] = False
        sequence = mesh.degree("tensor") > 1 and bool(tensor.sequence[0, 0])
        cut = mesh.degree("tensor") > 1 and not plan.axis("expert").uncut.any()
        return cls(
            plan, mesh, filtered, channeled, spaced, grid, gathered, sequence, scattered, cut
        )

    def role(self, op: Operation) -> str:
        """How tensor parallelism cuts the operation, "" when it does not."""
        return op.shape.role if self.mesh.degree("tensor") > 1 else ""

    def weight_intervals(self, op: Operation) -> dict[str, list[list[Interval]]]:
        """The intervals of each weight that this device holds, by axis."""
        intervals: dict[str, list[list[Interval]]] = {}
        for name, shape in weights_of(op).items():
            intervals[name] = [[(0, n)] for n in shape]
        role, mesh = self.role(op), self.mesh
        if op.shape.experts:
            self._experts(op, intervals)
        elif role:
            p, i = mesh.degree("tensor"), mesh.at["tensor"]
            if role == "column":
                rows = [deal(n, p, begin)[i] for begin, n in blocks_of(op, p)]
                for name in intervals:
                    intervals[name][0] = rows
            elif role == "row":
                intervals["weight"][1] = [deal(op.shape.given.channels, p)[i]]
                if "bias" in intervals:
                    intervals["bias"][0] = [deal(op.shape.made.channels, p)[i]]
            elif role == "vocab":
                for name, shape in weights_of(op).items():
                    intervals[name][0] = [deal(shape[0], p)[i]]
        if self.filtered[op.row]:
            p, i = mesh.degree("filter"), mesh.at["filter"]
            groups = op.shape.groups
            if groups > 1 and groups % p:
                raise NotSupported(f"{op.label}: {groups} groups over {p} devices")
            for name in intervals:
                dim = filters_of(op) if name == "weight" else 0
                intervals[name][dim] = [deal(op.shape.made.channels, p)[i]]
        if self.channeled[op.row]:
            p, i = mesh.degree("channel"), mesh.at["channel"]
            intervals["weight"][1 - filters_of(op)] = [deal(op.shape.given.channels, p)[i]]
            if "bias" in intervals:
                (begin, end), *_ = intervals["bias"][0]
                intervals["bias"][0] = [deal(end - begin, p, begin)[i]]
        return intervals

    def _experts(self, op: Operation, intervals: dict[str, list[list[Interval]]]) -> None:
        """Cut the intervals of a mixture's weights to the experts, and their parts, dealt here."""
        group = self.mesh.group(EXPERTS)
        for axes in intervals.values():
            axes[0] = [deal(op.shape.experts, group.size)[group.place]]
        if not self.expert_cut or not intervals:
            return
        p, i = self.mesh.degree("tensor"), self.mesh.at["tensor"]
        if op.shape.role == "column":
            for axes in intervals.values():
                axes[1] = [deal(n, p, begin)[i] for begin, n in blocks_of(op, p)]
            return
        intervals["weight"][2] = [deal(op.shape.given.channels, p)[i]]
        if "bias" in intervals:
            intervals["bias"][1] = [deal(op.shape.made.channels, p)[i]]


def blocks_of(op: Operation, p: int) -> list[tuple[int, int]]:
    """Blocks of a matrix's columns that are cut separately: q, k and v; gate and up."""
    if op.part == "kv":
        half = op.shape.made.channels // 2
        return [(0, half), (half, half)]
    if op.part == "qkv":
        layer, width = op.layer, op.shape.made.channels
        heads = layer.heads  # type: ignore[attr-defined]
        kv_heads = layer.kv_heads or heads  # type: ignore[attr-defined]
        if kv_heads % p or heads % p:
            raise NotSupported(f"{op.label}: {kv_heads} key-value heads over {p} devices")
        head_width = width // (heads + 2 * kv_heads)
        q, k = heads * head_width, kv_heads * head_width
        return [(0, q), (q, k), (q + k, k)]
    if isinstance(op.layer, Mlp | Moe) and op.layer.gated:
        half = op.shape.made.channels // 2
        return [(0, half), (half, half)]
    return [(0, op.shape.made.channels)]


def stages_of(graph: OperationGraph, plan: Plan, chosen: list[int] | None) -> list[Interval]:
    """The units of each chunk: as chosen, in equal numbers, or balanced by FLOP.

    Chunk c sits on stage c mod p of the pipeline; without interleave there is one a stage.
    """
    pipeline = plan.axis("pipeline")
    p = int(pipeline.degree[0, 0])
    if p == 1:
        return [(0, graph.units)]
    chunks = p * int(pipeline.interleave[0, 0])
    if chunks > graph.units:
        raise NotSupported(f"{chunks} stages of a model that can be cut into {graph.units} units")
    boundaries = chosen or list(pipeline.edges(graph.model)) or None
    if boundaries is None and not pipeline.cuts[0, 0]:
        dealt = even_cuts(graph.model, chunks)
        boundaries = None if dealt is None else [int(n) for n in dealt]
    if boundaries is None:
        counts, _ = graph.model.units
        load = counts @ (graph.model.mac * 3 + graph.model.x + graph.model.y)
        boundaries = [int(n) for n in balanced_cuts(load[None, :], chunks)[0]]
    ends = boundaries[:1] + boundaries[-1:] == [0, graph.units]
    if len(boundaries) != chunks + 1 or not ends or any(a >= b for a, b in pairwise(boundaries)):
        cuts = f"stages cut at {boundaries}"
        raise NotSupported(f"{cuts}: {chunks} of {graph.units} units were asked for")
    return list(pairwise(boundaries))
