"""Convolutions, matrix products and pools of one device, with the exchanges of their cuts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.local.graph import Operation
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import Spread, Window, deal
from oracle.executor.passes import operators
from oracle.executor.passes.exchange import (
    AllgatherForward,
    AllreduceBackward,
    ReduceScatterBackward,
    ReduceScatterForward,
    SequenceParallelLinear,
    SliceForward,
    allreduce_forward,
)
from oracle.executor.passes.spatial import HaloExchange, SpatialConvolution, cropped
from oracle.models.layers import along

HALOS = ("spatial: halo of x", "spatial: halo of dL/dy")  # forward, backward


def matrix(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    """A convolution or matrix product, with the exchanges of its cuts before and after it."""
    cuts, role, row = local.cuts, local.cuts.role(op), op.row
    weight, bias = local.weight(op), local.weight(op, "bias")
    assert weight is not None
    channel_dim = -1 if op.shape.made.tokens else 1
    if role in ("column", "vocab"):
        if cuts.sequence:
            comms = (
                local.comm("tensor", "activations gathered", "input gradients scattered"),
                local.comm("tensor", "inputs gathered again"),
            )
            begin, end = local.tokens(op.shape.given.extents[0])
            count = end - begin
            return SequenceParallelLinear.apply(x, weight, bias, count, comms)
        x = AllreduceBackward.apply(x, local.comm("tensor", "", "input gradients"))
    if cuts.filtered[row] and x.requires_grad:
        if cuts.scattered:
            comm = local.comm("filter", "", "input gradients scattered")
            x = ReduceScatterBackward.apply(x, 1, comm)
        else:
            x = AllreduceBackward.apply(x, local.comm("filter", "", "input gradients"))
    if cuts.channeled[row]:
        comm = local.comm("channel", "", "input gradients")
        x = SliceForward.apply(x, -1 if op.shape.given.tokens else 1, comm)
    if (cuts.channeled[row] or role == "row") and bias is not None:
        # each rank adds its own part of the bias to the partial sum
        held_weight, held_bias = (local.weight_of[op.index, name] for name in ("weight", "bias"))
        dim = operators.filters_of(op)
        first = held_bias.intervals[0][0][0] - held_weight.intervals[dim][0][0]
        bias = functional.pad(bias, (first, weight.shape[dim] - first - bias.shape[0]))
    y = _kernel(local, op, x, weight, bias)
    if cuts.channeled[row]:
        y = allreduce_forward(y, local.comm("channel", "activations"))
    if cuts.gathered[row]:
        count = op.shape.made.channels
        y = AllgatherForward.apply(y, channel_dim, count, local.comm("filter", "activations"))
    if role == "row":
        y = sum_partial(local, y)
    return y


def _kernel(
    local: LocalModel, op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    if op.shape.work == "gemm":
        return operators.matrix(op, x, weight, bias)
    if op.shape.kind == "deconv":
        if local.cuts.spaced[op.row]:
            return _spread(local, op, x, weight, bias)
        return operators.deconvolution(op, x, weight, bias)
    if op.shape.groups > 1 and local.cuts.filtered[op.row]:
        p = local.mesh.degree("filter")
        start, stop = deal(op.shape.groups, p)[local.mesh.at["filter"]]
        channels_per_group = op.shape.given.channels // op.shape.groups
        x = x[:, start * channels_per_group : stop * channels_per_group]
    if not local.cuts.spaced[op.row]:
        return operators.convolution(op, x, weight, bias)
    groups = x.shape[1] // weight.shape[1]
    dilations, grid = operators.dilations(op), local.grid_of(x.dim() - 2)
    windows = _windows(local, op, dilations)
    return SpatialConvolution.apply(x, weight, bias, grid, windows, dilations, groups, HALOS)


def _spread(
    local: LocalModel, op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """A transposed convolution of this device's outputs, whose inputs may lie on other devices."""
    shape, grid = op.shape, local.grid_of(len(op.shape.window))
    before = along(op.layer.padding, len(shape.window))  # type: ignore[attr-defined]
    windows = [
        Spread(n, m, k, k, s, b, q) for n, m, k, s, b, q in zip(
            shape.given.extents, shape.made.extents, shape.window, shape.stride, before,
            grid.parts, strict=True)
    ]  # fmt: skip
    x = HaloExchange.apply(x, grid, windows, 0.0, HALOS)
    zeros = [0] * len(windows)
    outputs = torch.convolution(x, weight, None, list(shape.stride), zeros, [1] * len(windows),
                                True, zeros, shape.groups)  # fmt: skip
    for i, window in enumerate(windows):
        part = window.outputs[grid.place[i]]
        outputs = cropped(outputs, i + 2, window.reached(window.inputs_of(part)), part)
    return outputs if bias is None else outputs + bias.view(-1, *[1] * len(windows))


def _windows(local: LocalModel, op: Operation, dilation: Sequence[int]) -> list[Window]:
    shape = op.shape
    before = [low for low, _ in operators.paddings(op)]
    return local.grid_of(len(shape.window)).windows(
        shape.given.extents, shape.made.extents, shape.window, shape.stride, dilation, before
    )


def pool(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    if not local.cuts.spaced[op.row]:
        return operators.pool(op, x)
    windows = _windows(local, op, [1] * len(op.shape.window))
    grid = local.grid_of(len(windows))
    bordered = HaloExchange.apply(x, grid, windows, operators.padding_value(op), HALOS)
    return operators.pool_padded(op, bordered)


def sum_partial(local: LocalModel, y: Tensor) -> Tensor:
    """Sum the partial sums of tensor-parallel ranks; with sequence=on each keeps its tokens."""
    if local.cuts.sequence:
        comm = local.comm("tensor", "activations scattered", "output gradients gathered")
        return ReduceScatterForward.apply(y, 1, comm)
    return allreduce_forward(y, local.comm("tensor", "activations"))
