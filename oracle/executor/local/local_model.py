"""The part of a model that one device of a plan holds: operations, weights, parts of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.executor.local.away import Away
from oracle.executor.local.cuts import Cuts, stages_of
from oracle.executor.local.graph import Operation, OperationGraph
from oracle.executor.local.parts import Interval, deal
from oracle.executor.local.spans import spans_of
from oracle.executor.local.weights import Bundle, HeldWeight, initial
from oracle.executor.messages.mesh import EXPERTS
from oracle.executor.messages.wire import Wire
from oracle.executor.passes.exchange import Communicator
from oracle.executor.passes.frame import SpatialGrid
from oracle.executor.passes.operators import weights_of
from oracle.executor.steps.border_order import crossings, neighbours
from oracle.executor.steps.host_link import HostLink
from oracle.executor.supported import NotSupported
from oracle.plan.mesh import ENDS
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import inside


@dataclass(frozen=True)
class GhostNorm:
    """Ghost normalisation: a serial run takes statistics over the parts that a split run has."""

    batch: tuple[Interval, ...]
    grid: tuple[int, ...] = (1, 1, 1)
    spaced: Sequence[bool] = ()


class LocalModel:
    """The chunks of a model on one device: their operations, and this device's parts of weights."""

    def __init__(
        self,
        graph: OperationGraph,
        plan: Plan,
        wire: Wire,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
        edges: list[int] | None = None,
        ghost: GhostNorm | None = None,
        units: Sequence[str] = (),
        link: HostLink | None = None,
        routing: str = "learned",
    ) -> None:
        self.graph, self.plan, self.wire, self.ghost = graph, plan, wire, ghost
        self.mesh, self.cuts = wire.mesh, Cuts.from_plan(graph, plan, wire.mesh)
        mesh = self.mesh
        self.batch = int(plan.batch[0, 0])
        self.step, self.first_sample = 0, 0  # of the running pass
        self.stages = stages_of(graph, plan, edges)
        self.stage = mesh.at["pipeline"]
        self.chunks = self.stages[self.stage :: mesh.degree("pipeline")]
        self.operations = [op for units in self.chunks for op in graph.of_units(*units)]
        self.recompute = plan.axis("recompute").word("mode")
        self.away, self.link = Away.from_plan(plan), link or HostLink(wire)
        self.words = self._words(units)
        self.replicas = ("data", "sharded", "spatial", "context")
        data, sharded = plan.axis("data"), plan.axis("sharded")
        self.zero = int(data.zero[0, 0]) if mesh.degree("data") > 1 else 0
        around = ("data", "spatial", "context")
        self.shards: tuple[str, ...] = around if self.zero else ()
        if mesh.degree("sharded") > 1:
            self.zero, self.shards = int(sharded.zero[0, 0]) + 1, ("sharded",)
        several = [self.replicas, around]
        several += [*map(expert_replicas, several), EXPERTS]
        if dtype == torch.float16:  # all ranks hear whether one has a gradient that is no number
            several.append(tuple(mesh.degrees))
        for axes in (*((axis,) for axis in mesh.degrees), *several, (ENDS,)):
            mesh.group(axes)  # all ranks make all groups, in one order
        if (count := mesh.degree("pipeline")) > 1:
            mesh.make_ways("pipeline", neighbours(crossings(graph, self.stages), count))
        alone = self.by_unit or self.away.activations or len(units) > 0
        together = self.recompute == "full" and not alone
        self.spans = [spans_of(graph, units, together) for units in self.chunks]
        self.grid, self.along_tokens = self._grid(), self._along_tokens()
        self.dtype, self.device = dtype, torch.device(device)
        self.routing, self.routings = routing, dict[int, Any]()  # of mixtures, by their router
        self.held_weights = [
            HeldWeight(op, name, shape, self.cuts.weight_intervals(op)[name])
            for op in self.operations
            for name, shape in weights_of(op).items()
        ]
        self.weight_of = {(weight.op.index, weight.name): weight for weight in self.held_weights}
        self._tie()
        self.bundles = self._bundles()
        for bundle in self.bundles:
            for weight in bundle.held_weights:
                bundle.fill(weight, weight.cut(initial(weight.op, weight.name, weight.full, seed)))

    # --- units -----------------------------------------------------------------------------

    def _words(self, units: Sequence[str]) -> list[str]:
        """What each unit does with its activations, as chosen or as the plan says for all."""
        if units:
            if len(units) != self.graph.units:
                raise NotSupported(f"{len(units)} choices for {self.graph.units} units")
            return list(units)
        recomputes = self.recompute == "full"
        block = {op.unit for op in self.graph.operations if inside(self.graph.model)[op.row]}
        default = "offload" if self.away.activations else "keep"
        return ["recompute" if recomputes and unit in block else default
                for unit in range(self.graph.units)]  # fmt: skip

    @property
    def fetched(self) -> bool:
        """Whether weights come before a unit uses them, and go afterwards."""
        return self.zero >= 3 or self.away.weights

    @property
    def by_unit(self) -> bool:
        """Whether the weights of each unit are exchanged by themselves."""
        return self.zero >= 3 or self.away.optimizer

    # --- weights -------------------------------------------------------------------------

    def _bundles(self) -> list[Bundle]:
        """All weights in one flat buffer; where units are exchanged alone, one buffer a unit.

        Experts have a buffer of their own, for they have other replicas.
        """
        if not self.by_unit:
            return list(self._bundled(self.held_weights))
        units = [unit for chunk in self.chunks for unit in range(*chunk)]
        self.bundles_of = {
            unit: list(self._bundled([h for h in self.held_weights if h.op.unit == unit]))
            for unit in units
        }
        return [bundle for unit in units for bundle in self.bundles_of[unit]]

    def _bundled(self, weights: Sequence[HeldWeight]) -> Iterator[Bundle]:
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        dealt = [weight for weight in weights if weight.op.shape.experts]
        plain = [weight for weight in weights if not weight.op.shape.experts]
        group = self.mesh.group
        yield Bundle(plain, like, group(self.shards), self.replicas, self.shards)
        if dealt:
            replicas, shards = expert_replicas(self.replicas), expert_replicas(self.shards)
            yield Bundle(dealt, like, group(shards), replicas, shards, "expert ")

    def _tie(self) -> None:
        """Let tied matrices use the table of the embedding."""
        for op in self.operations:
            if op.shape.tied:
                tables = [h for h in self.held_weights if h.name == "table"] or [self._copy()]
                if self.by_unit or (self.zero >= 2 and self.mesh.degree("pipeline") > 1):
                    raise NotSupported(f"{op.label}: its table is held elsewhere")
                if self.cuts.filtered[op.row] or self.cuts.channeled[op.row]:
                    raise NotSupported(f"{op.label}: a table that is cut in one of its two uses")
                self.weight_of[op.index, "weight"] = tables[0]

    def _copy(self) -> HeldWeight:
        """The copy for a later stage of the table that the first stage looks up."""
        op = next(op for op in self.graph.operations if op.shape.kind == "embedding")
        intervals = self.cuts.weight_intervals(op)["table"]
        table = HeldWeight(op, "table", weights_of(op)["table"], intervals)
        self.held_weights.append(table)
        self.weight_of[op.index, "table"] = table
        return table

    def weight(self, op: Operation, name: str = "weight") -> Tensor | None:
        weight = self.weight_of.get((op.index, name))
        return None if weight is None else weight.value

    def begins(self, op: Operation, name: str) -> int:
        """The first row of a weight that this device holds."""
        return self.weight_of[op.index, name].intervals[0][0][0]

    @property
    def partial(self) -> Iterator[tuple[HeldWeight, str]]:
        """Weights whose gradients are partial sums, and the axis to add them up along."""
        cuts = self.cuts
        tied = any(op.shape.tied for op in self.graph.operations)
        last = np.flatnonzero(cuts.filtered)[-1] if cuts.scattered else -1
        for weight in self.held_weights:
            if tied and weight.name == "table" and self.mesh.degree("pipeline") > 1:
                yield weight, ENDS
            if weight.op.index in self.along_tokens and not self.cuts.role(weight.op):
                yield weight, "tensor"
            elif weight.op.shape.kind == "norm" and weight.op.row < last:
                yield weight, "filter"

    # --- parts of tensors ----------------------------------------------------------------

    def _along_tokens(self) -> set[int]:
        """Operations whose output tensor-parallel devices hold cut along the tokens."""
        cut_along_tokens: set[int] = set()
        for op in self.graph.operations if self.cuts.sequence else ():
            role = self.cuts.role(op)
            summed = role in ("row", "combine") or (
                role == "vocab" and op.shape.kind == "embedding"
            )
            passed = not role and op.shape.kind != "first" and bool(cut_along_tokens & {*op.feeds})
            if summed or passed:
                cut_along_tokens.add(op.index)
        return cut_along_tokens

    def _grid(self) -> SpatialGrid | None:
        mesh, parts = self.mesh, self.cuts.grid
        if mesh.degree("spatial") == 1:
            return None
        place = _unravel(mesh.at["spatial"], parts)
        lines = [
            mesh.line("spatial", q, math.prod(parts[axis + 1 :])).members
            for axis, q in enumerate(parts)
        ]
        return SpatialGrid(self.wire, parts, place, tuple(lines))

    def grid_of(self, rank: int) -> SpatialGrid:
        """The grid along the first `rank` extents."""
        assert self.grid is not None
        grid = self.grid
        return SpatialGrid(grid.wire, grid.parts[:rank], grid.place[:rank], grid.ranks[:rank])

    def spaced(self, op: int) -> bool:
        """Whether the output of an operation is cut in space; -1 is the input of the model."""
        if self.grid is None:
            return False
        if op < 0:
            return bool(self.cuts.spaced[self.graph.operations[0].row])
        return bool(self.cuts.spaced[self.graph.operations[op].row])

    @property
    def samples(self) -> Interval:
        """The samples of the batch that this device has."""
        return self.mesh.samples(self.batch)

    def tokens(self, count: int) -> Interval:
        """The tokens of a sequence that this device has."""
        return deal(count, self.mesh.degree("context"))[self.mesh.at["context"]]

    def box(self, extents: Sequence[int]) -> list[Interval]:
        """The part of a sample's extents that this device has."""
        grid = self.grid_of(len(extents))
        return [deal(n, q)[i] for n, q, i in zip(extents, grid.parts, grid.place, strict=True)]

    def comm(self, axis: str, label: str, back_label: str = "") -> Communicator:
        return Communicator(
            self.wire, (axis,), f"{axis}: {label}", f"{axis}: {back_label}" if back_label else ""
        )


def expert_replicas(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes along which experts are replicated: what their dealing leaves of these axes."""
    left = {"data": ("data/expert", "tensor/expert"), "context": ("context/expert",)}
    return tuple(name for axis in axes for name in left.get(axis, (axis,)))


def _unravel(index: int, parts: Sequence[int]) -> tuple[int, ...]:
    """The position in a grid of a row-major index."""
    position = []
    for q in reversed(parts):
        index, coordinate = divmod(index, q)
        position.append(coordinate)
    return tuple(reversed(position))
