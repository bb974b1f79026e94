"""One device's part of a plan: its weights, its operations, and what it says between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from oracle.executor import operators as run
from oracle.executor.context import Ring, Turned
from oracle.executor.cuts import Cuts, stages_of
from oracle.executor.exchange import (
    Borders,
    Collected,
    Grid,
    Rebuilt,
    ReducedBack,
    Scattered,
    ScatteredBack,
    SequenceColumn,
    ShardedCrossEntropy,
    Sliced,
    SpatialConvolution,
    Summed,
    Talk,
)
from oracle.executor.graph import Graph, Operation
from oracle.executor.parts import Interval, deal
from oracle.executor.supported import NotSupported
from oracle.executor.weights import Bundle, Held, initial
from oracle.executor.wire import Wire
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import inside


class Watcher:
    """Is told as operations run; this one does not listen."""

    def before(self, op: Operation) -> None: ...
    def after(self, op: Operation, y: Tensor) -> None: ...
    def came_back(self) -> None: ...


@dataclass(frozen=True)
class Ghost:
    """Norm statistics as a split run has them: over these parts of batch and extents."""

    batch: tuple[Interval, ...]
    grid: tuple[int, ...] = (1, 1, 1)
    spaced: Sequence[bool] = ()


class Program:
    """Runs the forward pass of one stage, of one micro-batch at a time."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        wire: Wire,
        *,
        dtype: torch.dtype = torch.float32,
        device: Any = "cpu",
        seed: int = 0,
        edges: list[int] | None = None,
        ghost: Ghost | None = None,
    ) -> None:
        self.graph, self.plan, self.wire, self.ghost = graph, plan, wire, ghost
        self.mesh, self.cuts = wire.mesh, Cuts.of(graph, plan, wire.mesh)
        mesh = self.mesh
        self.batch = int(plan.batch[0, 0])
        self.stages = stages_of(graph, plan, edges)
        self.stage = mesh.at["pipeline"]
        self.chunks = self.stages[self.stage :: mesh.degree("pipeline")]
        self.operations = [op for units in self.chunks for op in graph.of_units(*units)]
        self.recompute = int(plan.axis("recompute").mode[0, 0])
        self.replicas = ("data", "sharded", "spatial", "context")
        data, sharded = plan.axis("data"), plan.axis("sharded")
        self.zero = int(data.zero[0, 0]) if mesh.degree("data") > 1 else 0
        around = ("data", "spatial", "context")
        self.shards: tuple[str, ...] = around if self.zero else ()
        if mesh.degree("sharded") > 1:
            self.zero, self.shards = int(sharded.zero[0, 0]) + 1, ("sharded",)
        for axes in (*((axis,) for axis in mesh.degrees), self.replicas, around):
            mesh.group(axes)  # all ranks make all groups, in one order
        self.grid = self._grid()
        self.dtype, self.device = dtype, torch.device(device)
        self.helds = [
            Held(op, name, shape, self.cuts.kept(op)[name])
            for op in self.operations
            for name, shape in run.weights_of(op).items()
        ]
        self.of: dict[tuple[int, str], Held] = {(h.op.index, h.name): h for h in self.helds}
        self._tied()
        self.bundles = self._bundles()
        for held in self.helds:
            value = held.cut(initial(held.op, held.name, held.full, seed))
            with torch.no_grad():
                held.value.copy_(value)
        self.watch = Watcher()

    # --- weights -------------------------------------------------------------------------

    def _bundles(self) -> list[Bundle]:
        group = self.mesh.group(self.shards)
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        if self.zero < 3:
            return [Bundle(self.helds, group.size, group.place, like)]
        units = [unit for chunk in self.chunks for unit in range(*chunk)]
        by_unit = [[h for h in self.helds if h.op.unit == unit] for unit in units]
        bundles = [Bundle(helds, group.size, group.place, like) for helds in by_unit]
        self.bundle_of = dict(zip(units, bundles, strict=True))
        return bundles

    def _tied(self) -> None:
        for op in self.operations:
            if op.shape.tied:
                tables = [h for h in self.helds if h.name == "table"]
                if not tables or self.zero >= 3:
                    raise NotSupported(f"{op.label}: its table is held elsewhere")
                if self.cuts.filtered[op.row] or self.cuts.channeled[op.row]:
                    raise NotSupported(f"{op.label}: a table that is cut in one of its two uses")
                self.of[op.index, "weight"] = tables[0]

    def weight(self, op: Operation, name: str = "weight") -> Tensor | None:
        held = self.of.get((op.index, name))
        return None if held is None else held.value

    def begins(self, op: Operation, name: str) -> int:
        return self.of[op.index, name].kept[0][0][0]

    @property
    def partial(self) -> Iterator[tuple[Held, str]]:
        """Weights of norms that saw a part only of what they norm, and along which axis."""
        cuts = self.cuts
        last = np.flatnonzero(cuts.filtered)[-1] if cuts.scattered else -1
        for held in self.helds:
            if cuts.sequence and held.op.shape.sequence:
                yield held, "tensor"
            elif held.op.shape.kind == "norm" and held.op.row < last:
                yield held, "filter"

    # --- places --------------------------------------------------------------------------

    def _grid(self) -> Grid | None:
        mesh, parts = self.mesh, self.cuts.grid
        if mesh.degree("spatial") == 1:
            return None
        at = _unravel(mesh.at["spatial"], parts)
        lines = [
            mesh.line("spatial", q, math.prod(parts[axis + 1 :])).members
            for axis, q in enumerate(parts)
        ]
        return Grid(self.wire, parts, at, tuple(lines))

    def grid_of(self, rank: int) -> Grid:
        """The grid cut to the number of extents at hand."""
        assert self.grid is not None
        grid = self.grid
        return Grid(grid.wire, grid.parts[:rank], grid.at[:rank], grid.ranks[:rank])

    def spaced(self, op: int) -> bool:
        """Is the output of this operation a part of the sample? Of -1: the input."""
        if self.grid is None:
            return False
        if op < 0:
            return bool(self.cuts.spaced[self.graph.operations[0].row])
        return bool(self.cuts.spaced[self.graph.operations[op].row])

    @property
    def samples(self) -> Interval:
        """Of the batch, those of this device."""
        begin, end = 0, self.batch
        for axis in self.mesh.degrees:
            if axis in ("data", "sharded"):
                part = deal(end - begin, self.mesh.degree(axis), begin)[self.mesh.at[axis]]
                begin, end = part
        return begin, end

    def tokens(self, count: int) -> Interval:
        """Of a sequence, the tokens of this device."""
        return deal(count, self.mesh.degree("context"))[self.mesh.at["context"]]

    def box(self, extents: Sequence[int]) -> list[Interval]:
        """Of a sample's extents, the part of this device."""
        grid = self.grid_of(len(extents))
        return [deal(n, q)[i] for n, q, i in zip(extents, grid.parts, grid.at, strict=True)]

    def talk(self, axis: str, what: str, back: str = "") -> Talk:
        return Talk(self.wire, (axis,), f"{axis}: {what}", f"{axis}: {back}" if back else "")

    # --- forward -------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        target: Tensor,
        chunk: int = 0,
        around: Callable[[int, Any, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """The output of a chunk for its input, or the loss at the end of the last.

        `around(unit, call, x)` runs one unit; sharded weights are fetched there.
        """
        for unit in range(*self.chunks[chunk]):
            call = self._unit(unit, target)
            x = around(unit, call, x) if around else call(x)
        return x

    def _unit(self, unit: int, target: Tensor) -> Callable[[Tensor], Tensor]:
        operations = self.graph.of_units(unit, unit + 1)
        entry = operations[0].index - 1

        def call(x: Tensor) -> Tensor:
            made = {entry: x}
            collected: dict[int, Tensor] = {}
            for op in operations:
                self.wire.enter("forward", op.label)
                self.watch.before(op)
                taken = [self._taken(op, feed, made, collected) for feed in op.feeds]
                made[op.index] = self._apply(op, taken, target)
                self.watch.after(op, made[op.index])
            return made[operations[-1].index]

        if self.recompute == 2 and bool(inside(self.graph.model)[operations[0].row]):
            return lambda x: _again(call, x)
        return call

    def _taken(
        self, op: Operation, feed: int, made: dict[int, Tensor], collected: dict[int, Tensor]
    ) -> Tensor:
        """An input, made whole where what made it is cut in space and this operation is not."""
        if feed not in made:  # what a stage or unit before passed on is its only input
            raise NotSupported(f"{op.label} reads a tensor that was made far before")
        if not self.spaced(feed) or bool(self.cuts.spaced[op.row]):
            return made[feed]
        if feed not in collected:
            shape = op.shape.given if feed < 0 else self.graph.operations[feed].shape.made
            talk = self.talk("spatial", "collect at the split point", "spread at the split point")
            grid = self.grid_of(len(shape.extents))
            collected[feed] = _tensor(Collected.apply(made[feed], grid, shape.extents, talk))
        return collected[feed]

    def _apply(self, op: Operation, taken: Sequence[Tensor], target: Tensor) -> Tensor:
        x, kind, shape = taken[0], op.shape.kind, op.shape
        if shape.work in ("conv", "gemm"):
            return self._matrix(op, x)
        if shape.work == "attention":
            heads = shape.heads // (self.mesh.degree("tensor") if self.cuts.role(op) else 1)
            kv = shape.kv_heads * heads // shape.heads
            if self.mesh.degree("context") > 1:
                return self._dealt_core(op, x, heads, kv)
            return self._core(op, x, heads, kv)
        if kind == "pool":
            return self._pool(op, x)
        if kind == "norm":
            return self._norm(op, x)
        if kind == "activation":
            return run.activation(op, x)
        if kind == "add":
            return torch.stack(tuple(taken)).sum(0) if len(taken) > 2 else taken[0] + taken[1]
        if kind == "concat":
            return torch.cat(tuple(taken), -1 if shape.made.tokens else 1)
        if kind in ("flatten", "reshape"):
            return run.reshaped(x, shape.given, shape.made)
        if kind == "dropout":
            return torch.nn.functional.dropout(x, op.layer.rate)  # type: ignore[attr-defined]
        if kind == "attention":  # rotary
            p = self.mesh.degree("tensor") if self.cuts.role(op) else 1
            heads = op.layer.heads  # type: ignore[attr-defined]
            kv = op.layer.kv_heads or heads  # type: ignore[attr-defined]
            width = shape.given.channels // (heads + 2 * kv)
            return run.rotary(x, heads // p, kv // p, width, self.tokens(shape.given.extents[0])[0])
        if kind == "mlp":
            return run.gate(op, x)
        if kind == "embedding":
            return self._embedding(op, x)
        if kind == "position":
            return self._position(op, x)
        if kind == "loss":
            return self._loss(op, x, target)
        raise NotSupported(f"{op.label}: layers of kind `{kind}`")

    def _core(self, op: Operation, x: Tensor, heads: int, kv_heads: int) -> Tensor:
        given = op, x, heads, kv_heads
        return _again(run.core, *given) if self.recompute == 1 else run.core(*given)

    def _dealt_core(self, op: Operation, x: Tensor, heads: int, kv_heads: int) -> Tensor:
        """Attention of tokens that are dealt out; round the ring no scores are ever kept."""
        p, count = self.mesh.degree("context"), op.shape.given.extents[0]
        if self.plan.axis("context").kind[0, 0] == 0:
            forth, back = "keys and values", "keys, values and gradients"
            q, k, v = run.split_heads(op, x, heads, kv_heads)
            talk = self.talk("context", forth, back)
            made = _tensor(Ring.apply(q, k, v, count, op.shape.causal, talk))
            return made.transpose(1, 2).flatten(-2)
        if count % p or kv_heads % p:
            what = f"{count} tokens and {kv_heads} key-value heads over {p} devices"
            raise NotSupported(f"{op.label}: {what} with kind=alltoall")
        talk = self.talk("context", "heads for tokens", "tokens for heads")
        widths = [n * op.shape.width for n in (heads, kv_heads, kv_heads)]
        parts = zip(*(part.chunk(p, -1) for part in x.split(widths, -1)), strict=True)
        whole = Turned.apply(torch.cat([one for part in parts for one in part], -1), -1, 1, talk)
        made = self._core(op, _tensor(whole), heads // p, kv_heads // p)
        return _tensor(Turned.apply(made, 1, -1, talk))

    def _matrix(self, op: Operation, x: Tensor) -> Tensor:
        """A convolution or matrix, with what its cuts say before and after it."""
        cuts, role, row = self.cuts, self.cuts.role(op), op.row
        weight, bias = self.weight(op), self.weight(op, "bias")
        assert weight is not None
        channel_dim = -1 if op.shape.made.tokens else 1
        if role in ("column", "vocab"):
            if cuts.sequence:
                talks = (
                    self.talk("tensor", "activations gathered", "input gradients scattered"),
                    self.talk("tensor", "inputs gathered again"),
                )
                count = op.shape.given.extents[0]
                return _tensor(SequenceColumn.apply(x, weight, bias, count, talks))
            x = _tensor(ReducedBack.apply(x, self.talk("tensor", "", "input gradients")))
        if cuts.filtered[row] and x.requires_grad:
            if cuts.scattered:
                talk = self.talk("filter", "", "input gradients scattered")
                x = _tensor(ScatteredBack.apply(x, 1, talk))
            else:
                x = _tensor(ReducedBack.apply(x, self.talk("filter", "", "input gradients")))
        if cuts.channeled[row]:
            talk = self.talk("channel", "", "input gradients")
            x = _tensor(Sliced.apply(x, -1 if op.shape.given.tokens else 1, talk))
        if (cuts.channeled[row] or role == "row") and bias is not None:
            # each adds its own part of the bias to the partial sum
            held = self.of[op.index, "bias"]
            first = held.kept[0][0][0] - (self.of[op.index, "weight"].kept[0][0][0])
            bias = torch.nn.functional.pad(bias, (first, weight.shape[0] - first - bias.shape[0]))
        y = self._kernel(op, x, weight, bias)
        if cuts.channeled[row]:
            y = _tensor(Summed.apply(y, self.talk("channel", "activations")))
        if cuts.rebuilt[row]:
            count = op.shape.made.channels
            y = _tensor(Rebuilt.apply(y, channel_dim, count, self.talk("filter", "activations")))
        if role == "row":
            y = self._partial(y)
        return y

    def _kernel(self, op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if op.shape.work == "gemm":
            return run.matrix(op, x, weight, bias)
        if op.shape.kind == "deconv":
            return run.deconvolution(op, x, weight, bias)
        if op.shape.groups > 1 and self.cuts.filtered[op.row]:
            p = self.mesh.degree("filter")
            start, stop = deal(op.shape.groups, p)[self.mesh.at["filter"]]
            each = op.shape.given.channels // op.shape.groups
            x = x[:, start * each : stop * each]
        if not self.cuts.spaced[op.row]:
            return run.convolution(op, x, weight, bias)
        names = ("spatial: halo of x", "spatial: halo of dL/dy")
        groups = x.shape[1] // weight.shape[1]
        return _tensor(
            SpatialConvolution.apply(
                x, weight, bias, self.grid_of(x.dim() - 2), self._windows(op, run.dilations(op)),
                run.dilations(op), groups, names,
            )
        )  # fmt: skip

    def _windows(self, op: Operation, dilation: Sequence[int]) -> Any:
        shape = op.shape
        before = [low for low, _ in run.paddings(op)]
        return self.grid_of(len(shape.window)).windows(
            shape.given.extents, shape.made.extents, shape.window, shape.stride, dilation, before
        )

    def _pool(self, op: Operation, x: Tensor) -> Tensor:
        if not self.cuts.spaced[op.row]:
            return run.pool(op, x)
        names = ("spatial: halo of x", "spatial: halo of dL/dy")
        windows = self._windows(op, [1] * len(op.shape.window))
        grid = self.grid_of(len(windows))
        return run.pool_padded(op, _tensor(Borders.apply(x, grid, windows, run.fill(op), names)))

    def _norm(self, op: Operation, x: Tensor) -> Tensor:
        weight, bias = self.weight(op), self.weight(op, "bias")
        name = op.layer.op  # type: ignore[attr-defined]
        if self.ghost is None or name in ("layer", "rms"):
            return run.norm(op, x, weight, bias)
        spaced = bool(self.ghost.spaced[op.row]) if len(self.ghost.spaced) else False
        rank = x.dim() - 2
        grid = self.ghost.grid[:rank] if spaced else (1,) * rank
        made = []
        for a, b in self.ghost.batch:
            made.append(_tiled(x[a:b], 2, grid, lambda t: run.norm(op, t, weight, bias)))
        return torch.cat(made)

    def _partial(self, y: Tensor) -> Tensor:
        """Add up what each made of its part; along the tokens, each keeps a part of the sum."""
        if self.cuts.sequence:
            talk = self.talk("tensor", "activations scattered", "output gradients gathered")
            return _tensor(Scattered.apply(y, 1, talk))
        return _tensor(Summed.apply(y, self.talk("tensor", "activations")))

    def _embedding(self, op: Operation, x: Tensor) -> Tensor:
        cut = self.cuts.role(op) == "vocab"
        table = self.weight(op, "table")
        assert table is not None
        y = run.lookup(x, table, self.begins(op, "table") if cut else 0)
        positions = self.weight(op, "positions")
        if positions is not None:
            first = self.begins(op, "positions") if cut else 0
            at, _ = self.tokens(op.shape.made.extents[0])
            y = run.positioned(y, positions, first, at)
        return self._partial(y) if cut else y

    def _position(self, op: Operation, x: Tensor) -> Tensor:
        extra, positions = self.weight(op, "extra"), self.weight(op, "positions")
        assert positions is not None
        if extra is not None:
            x = torch.cat([extra.expand(x.shape[0], *extra.shape), x], 1)
        begin, end = self.tokens(op.shape.made.extents[0])
        return x + positions[begin:end]

    def _loss(self, op: Operation, x: Tensor, target: Tensor) -> Tensor:
        """Summed here so that all devices' add up to the mean over the batch."""
        rank = len(op.shape.given.extents)
        spaced = self.cuts.spaced[op.row] and self.grid is not None
        name = op.layer.op  # type: ignore[attr-defined]
        dim = -1 if op.shape.given.tokens else 1
        if spaced:
            for i, (start, stop) in enumerate(self.box(op.shape.given.extents)):
                target = target.narrow(target.dim() - rank + i, start, stop - start)
        axis = "tensor" if self.cuts.role(op) == "vocab" else "filter"
        if x.shape[dim] < op.shape.given.channels:
            talk = self.talk(axis, "loss")
            first = deal(op.shape.given.channels, talk.size)[talk.place][0]
            if name == "cross_entropy":
                value = _tensor(ShardedCrossEntropy.apply(x, target, dim, first, talk))
            else:
                own = run.total_of(op, x, target.narrow(dim, first, x.shape[dim]))
                value = _tensor(Summed.apply(own, talk))
        else:
            value = run.total_of(op, x, target)
        positions = math.prod(op.shape.given.extents)
        # what all devices of the grid compute alike must count once
        alike = 1 if spaced or self.grid is None else self.mesh.degree("spatial")
        return value / (self.batch * positions * alike)


def _again(call: Callable[..., Tensor], *given: Any) -> Tensor:
    """Run now, keep nothing, and run all of it again on the way back, as it was priced."""
    with set_checkpoint_early_stop(False):
        return _tensor(checkpoint(call, *given, use_reentrant=False))


def _tensor(found: Any) -> Tensor:
    made: Tensor = found
    return made


def _tiled(x: Tensor, dim: int, grid: Sequence[int], call: Callable[[Tensor], Tensor]) -> Tensor:
    """`call` on each tile by itself."""
    if not grid:
        return call(x)
    tiles = [
        _tiled(x.narrow(dim, a, b - a), dim + 1, grid[1:], call)
        for a, b in deal(x.shape[dim], grid[0])
    ]
    return torch.cat(tiles, dim) if len(tiles) > 1 else tiles[0]


def _unravel(index: int, parts: Sequence[int]) -> tuple[int, ...]:
    found = []
    for q in reversed(parts):
        index, at = divmod(index, q)
        found.append(at)
    return tuple(reversed(found))
