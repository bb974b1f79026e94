"""Forward pass of one chunk of a model, with the messages that its cuts need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from oracle.executor.local.graph import Operation, sample_shape
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.local.spans import Span
from oracle.executor.local.weights import wide_of
from oracle.executor.passes import experts, operators, products
from oracle.executor.passes.context import AllToAll, RingAttention
from oracle.executor.passes.dropout import Dropout, drawn
from oracle.executor.passes.exchange import (
    FirstToken,
    ShardedCrossEntropy,
    allreduce_forward,
)
from oracle.executor.passes.spatial import GatherSample
from oracle.executor.supported import NotSupported

_PRODUCTS = ("mm", "addmm", "convolution")

Layers = Callable[..., tuple[Tensor, ...]]  # the function of a span on its inputs


class Observer:
    """Hooks that are called as passes and operations run; this one does nothing."""

    def before_pass(self, forward: bool) -> None: ...
    def before(self, op: Operation) -> None: ...
    def after(self, op: Operation, y: Tensor) -> None: ...
    def after_pass(self) -> None: ...


def forward(
    local: LocalModel,
    received: dict[int, Tensor],
    target: Tensor,
    chunk: int,
    observer: Observer,
    around: Callable[..., tuple[Tensor, ...]] | None = None,
) -> dict[int, Tensor]:
    """Run a chunk: the tensors it hands on, by operation; the loss at the end of the last chunk.

    It takes the tensors out of `received`, which has them by operation, the samples by -1.
    `around(span, layers, *inputs)` runs one unit, and fetches its sharded weights.
    """
    names = list(received)

    def through(*inputs: Tensor) -> tuple[Tensor, ...]:
        nonlocal names
        live = dict(zip(operations, inputs, strict=True))
        del inputs
        for span in local.spans[chunk]:
            layers = _layers(local, span, target, observer)
            inputs_of_span = [live[feed] for feed in span.inputs]
            for feed in span.done:
                live.pop(feed)
            outputs = around(span, layers, *inputs_of_span) if around else layers(*inputs_of_span)
            del inputs_of_span
            live.update(zip(span.outputs, outputs, strict=True))
            del outputs
        names = list(live)
        return tuple(live.values())

    operations = tuple(names)
    inputs = [received.pop(index) for index in operations]
    rerun = local.recompute == "stage"
    outputs = _remade(through, *inputs) if rerun else through(*inputs)
    return dict(zip(names, outputs, strict=True))


def _layers(local: LocalModel, span: Span, target: Tensor, observer: Observer) -> Layers:
    """The function that runs a span's operations, again in the backward pass where planned."""
    last = {feed: op.index for op in span.operations for feed in op.feeds}  # who wants it last

    def layers(*inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = dict(zip(span.inputs, inputs, strict=True))
        collected: dict[int, Tensor] = {}
        del inputs
        for op in span.operations:
            local.wire.enter("forward", op.label)
            observer.before(op)
            op_inputs = [_input(local, op, feed, outputs, collected) for feed in op.feeds]
            outputs[op.index] = _apply(local, op, op_inputs, target)
            observer.after(op, outputs[op.index])
            del op_inputs
            for feed in op.feeds:
                if last[feed] == op.index:
                    collected.pop(feed, None)
                    if feed not in span.outputs:
                        outputs.pop(feed, None)
        return tuple(outputs[index] for index in span.outputs)

    if local.words[span.unit] == "recompute":
        return lambda *inputs: _remade(layers, *inputs)
    if local.recompute == "operators" and span.remade:
        return lambda *inputs: _remade(layers, *inputs, context_fn=every_other)
    return layers


def _input(
    local: LocalModel,
    op: Operation,
    feed: int,
    outputs: dict[int, Tensor],
    collected: dict[int, Tensor],
) -> Tensor:
    """An input of an operation, gathered if it is cut in space and the operation is not."""
    if not local.spaced(feed) or bool(local.cuts.spaced[op.row]):
        return outputs[feed]
    if feed not in collected:
        shape = op.shape.given if feed < 0 else local.graph.operations[feed].shape.made
        comm = local.comm("spatial", "collect at the split point", "spread at the split point")
        grid = local.grid_of(len(shape.extents))
        collected[feed] = GatherSample.apply(outputs[feed], grid, shape.extents, comm)
    return collected[feed]


def _apply(local: LocalModel, op: Operation, inputs: Sequence[Tensor], target: Tensor) -> Tensor:
    x, kind, shape = inputs[0], op.shape.kind, op.shape
    if shape.experts:
        return experts.apply(local, op, inputs)
    if shape.work in ("conv", "gemm"):
        return products.matrix(local, op, inputs[-1] if op.part == "kv" else x)
    if kind == "cross":
        return _remembered(local, operators.cross_attention, op, *inputs)
    if shape.work == "attention":
        heads = shape.heads // (local.mesh.degree("tensor") if local.cuts.role(op) else 1)
        kv = shape.kv_heads * heads // shape.heads
        if local.mesh.degree("context") > 1:
            return _cut_attention(local, op, x, heads, kv)
        return _remembered(local, operators.attention, op, x, heads, kv)
    if kind == "pool":
        return products.pool(local, op, x)
    if kind == "norm":
        return _norm(local, op, x)
    if kind == "activation":
        return operators.activation(op, x)
    if kind == "add":
        return torch.stack(tuple(inputs)).sum(0) if len(inputs) > 2 else inputs[0] + inputs[1]
    if kind == "concat":
        return torch.cat(tuple(inputs), -1 if shape.made.tokens else 1)
    if kind in ("flatten", "reshape"):
        return operators.reshape(x, shape.given, shape.made)
    if kind == "dropout":
        return _dropout(local, op, x)
    if kind == "attention":  # rotary
        p = local.mesh.degree("tensor") if local.cuts.role(op) else 1
        heads = op.layer.heads  # type: ignore[attr-defined]
        kv = op.layer.kv_heads or heads  # type: ignore[attr-defined]
        width = shape.given.channels // (heads + 2 * kv)
        first, _ = local.tokens(shape.given.extents[0])
        return operators.rotary(x, heads // p, kv // p, width, first)
    if kind == "mlp":
        return operators.mlp_function(op, x)
    if kind == "embedding":
        return _embedding(local, op, x)
    if kind == "position":
        return _position(local, op, x)
    if kind == "first":
        return _first(local, op, x)
    if kind == "loss":
        return _loss(local, op, x, target)
    raise NotSupported(f"{op.label}: layers of kind `{kind}`")


def _remembered(local: LocalModel, call: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Run attention, again in the backward pass where it alone is recomputed."""
    return _remade(call, *arguments) if local.recompute == "selective" else call(*arguments)


def _cut_attention(
    local: LocalModel, op: Operation, x: Tensor, heads: int, kv_heads: int
) -> Tensor:
    """Attention over tokens that are cut: by a ring, which keeps no scores, or by all-to-all."""
    p, count = local.mesh.degree("context"), op.shape.given.extents[0]
    if local.plan.axis("context").kind[0, 0] == 0:
        forth, back = "keys and values", "keys, values and gradients"
        q, k, v = operators.split_heads(op, x, heads, kv_heads)
        comm = local.comm("context", forth, back)
        output = RingAttention.apply(q, k, v, count, op.shape.causal, comm)
        return output.transpose(1, 2).flatten(-2)
    if count % p or kv_heads % p:
        counts = f"{count} tokens and {kv_heads} key-value heads over {p} devices"
        raise NotSupported(f"{op.label}: {counts} with kind=alltoall")
    comm = local.comm("context", "heads for tokens", "tokens for heads")
    widths = [n * op.shape.width for n in (heads, kv_heads, kv_heads)]
    parts = zip(*(part.chunk(p, -1) for part in x.split(widths, -1)), strict=True)
    side_by_side = torch.cat([piece for part in parts for piece in part], -1)
    heads_cut = AllToAll.apply(side_by_side, -1, 1, comm)
    output = _remembered(local, operators.attention, op, heads_cut, heads // p, kv_heads // p)
    return AllToAll.apply(output, 1, -1, comm)


def _norm(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    weight, bias = local.weight(op), local.weight(op, "bias")
    name = op.layer.op  # type: ignore[attr-defined]
    if local.ghost is None or name in ("layer", "rms"):
        return operators.norm(op, x, weight, bias)
    spaced = bool(local.ghost.spaced[op.row]) if len(local.ghost.spaced) else False
    rank = x.dim() - 2
    grid = local.ghost.grid[:rank] if spaced else (1,) * rank
    outputs = []
    for a, b in local.ghost.batch:
        outputs.append(_tiled(x[a:b], 2, grid, lambda t: operators.norm(op, t, weight, bias)))
    return torch.cat(outputs)


def _embedding(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    cut = local.cuts.role(op) == "vocab"
    table = local.weight(op, "table")
    assert table is not None
    x = x[:, : op.shape.made.extents[0]]  # as many tokens as a shorter sequence has
    y = operators.lookup(x, table, local.begins(op, "table") if cut else 0, cut)
    positions = local.weight(op, "positions")
    if positions is not None:
        first = local.begins(op, "positions") if cut else 0
        first_token, _ = local.tokens(op.shape.made.extents[0])
        y = operators.add_positions(y, positions, first, first_token)
    return products.sum_partial(local, y) if cut else y


def _position(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    extra, positions = local.weight(op, "extra"), local.weight(op, "positions")
    assert positions is not None
    if extra is not None:
        x = torch.cat([extra.expand(x.shape[0], *extra.shape), x], 1)
    begin, end = local.tokens(op.shape.made.extents[0])
    return x + positions[begin:end]


def _dropout(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    """Drop what one device would drop of the same samples in the same step."""
    uncut, feed, rate = op.shape.made, op.feeds[0], float(op.layer.rate)  # type: ignore[attr-defined]
    if rate >= 1:
        return x * 0.0
    channels, extents = [(0, x.shape[-1 if uncut.tokens else 1])], [(0, n) for n in uncut.extents]
    if channels[0][1] < uncut.channels:
        p, place = local.mesh.degree("filter"), local.mesh.at["filter"]
        channels = [deal(uncut.channels, p)[place]]
    if uncut.tokens:
        begin, end = local.tokens(uncut.extents[0])
        if feed in local.along_tokens:
            p, place = local.mesh.degree("tensor"), local.mesh.at["tensor"]
            begin, end = deal(end - begin, p, begin)[place]
        extents = [(begin, end)]
    elif local.spaced(op.index):
        extents = local.box(uncut.extents)
    samples = [(local.first_sample, local.first_sample + x.shape[0])]
    parts = [*samples, *extents, *channels] if uncut.tokens else [*samples, *channels, *extents]
    sizes = (local.batch, *sample_shape(uncut))
    numbers = drawn([a for a, _ in parts], [b - a for a, b in parts], sizes,
                    local.step * len(local.graph.operations) + op.index, x.device)  # fmt: skip
    return Dropout.apply(x, numbers >= rate, rate)


def _first(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    """The first token of each sample, on all devices that hold some of its tokens."""
    axes = ["context"] if local.mesh.degree("context") > 1 else []
    return FirstToken.apply(
        x, tuple(local.comm(axis, "first token", "first token") for axis in axes),
        (local.comm("tensor", "first token"),) if op.feeds[0] in local.along_tokens else (),
    )  # fmt: skip


def _loss(local: LocalModel, op: Operation, x: Tensor, target: Tensor) -> Tensor:
    """The loss of this device; the sum over all devices is the mean over the batch."""
    x = x.to(wide_of(x.dtype))
    rank = len(op.shape.given.extents)
    spaced = local.cuts.spaced[op.row] and local.grid is not None
    name = op.layer.op  # type: ignore[attr-defined]
    dim = -1 if op.shape.given.tokens else 1
    alike = 1  # devices of a group that compute the same loss, which counts once
    if op.shape.given.tokens:
        count = op.shape.given.extents[0]
        begin, end = local.tokens(count) if count > 1 else (0, 1)
        alike = local.mesh.degree("context") if count == 1 else 1
        target = target[:, begin:end]
        if not target.is_floating_point():  # targets are made for the loss with most positions
            target = target % op.shape.given.channels
    if spaced:
        for i, (start, stop) in enumerate(local.box(op.shape.given.extents)):
            target = target.narrow(target.dim() - rank + i, start, stop - start)
    axis = "tensor" if local.cuts.role(op) == "vocab" else "filter"
    if x.shape[dim] < op.shape.given.channels:
        comm = local.comm(axis, "loss")
        first = deal(op.shape.given.channels, comm.size)[comm.place][0]
        if name == "cross_entropy":
            value = ShardedCrossEntropy.apply(x, target, dim, first, comm)
        else:
            partial_loss = operators.summed_loss(op, x, target.narrow(dim, first, x.shape[dim]))
            value = allreduce_forward(partial_loss, comm)
    else:
        value = operators.summed_loss(op, x, target)
    positions = math.prod(op.shape.given.extents)
    alike *= 1 if spaced or local.grid is None else local.mesh.degree("spatial")
    return value / (local.batch * positions * alike)


def _remade(call: Callable[..., Tensor], *arguments: Any, **options: Any) -> Tensor:
    """Run now, keep nothing, and run all of it again in the backward pass, as is predicted."""
    with set_checkpoint_early_stop(False):
        return checkpoint(call, *arguments, use_reentrant=False, **options)


def every_other() -> Any:
    """Contexts that keep what attention and every other matrix makes."""
    matrices = {False: 0, True: 0}  # matrices so far, in the first run and in the second

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        name = str(operation)
        if "attention" in name:
            return CheckpointPolicy.MUST_SAVE
        if name.split(".")[1] in _PRODUCTS:
            matrices[context.is_recompute] += 1
            if matrices[context.is_recompute] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _tiled(x: Tensor, dim: int, grid: Sequence[int], call: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `call` to each tile by itself."""
    if not grid:
        return call(x)
    tiles = [
        _tiled(x.narrow(dim, a, b - a), dim + 1, grid[1:], call)
        for a, b in deal(x.shape[dim], grid[0])
    ]
    return torch.cat(tiles, dim) if len(tiles) > 1 else tiles[0]
