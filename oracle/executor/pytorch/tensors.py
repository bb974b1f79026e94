"""Tensor and sequence parallelism by DTensor: how `parallelize_module` splits each row."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from oracle.executor.local.graph import Operation
from oracle.executor.pytorch.modules import PositionedLookup
from oracle.executor.pytorch.network import Network
from oracle.executor.pytorch.setting import Setting


def split(setting: Setting, network: Network) -> None:
    """Split rows of a network over the ranks of `tensor`, and tokens over those of `context`."""
    if setting.tokens is not None:
        from oracle.executor.pytorch.ring import cut  # older versions of PyTorch do not have it

        cut(setting, network)
    if setting.degree("tensor") == 1:
        return
    sequence = bool(setting.plan.axis("tensor").sequence[0, 0])
    mesh = setting.mesh["tensor"]
    for unit in network.units:
        styles: dict[str, ParallelStyle] = {}
        for op in unit.span.operations:
            styles |= _styles(f"rows.{op.index}", op, unit.rows[str(op.index)], sequence)
        parallelize_module(unit, mesh, styles)
    network.tie()


def _styles(name: str, op: Operation, row: nn.Module, sequence: bool) -> dict[str, ParallelStyle]:
    """How one row is split, by the name of its module; empty for rows that stay whole."""
    between = Shard(1) if sequence else Replicate()  # the layout of activations between blocks
    role = op.shape.role
    if isinstance(row, PositionedLookup):
        inner = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
        outer = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=between)
        return {f"{name}.table": inner} | ({name: outer} if sequence else {})
    if op.shape.kind == "embedding":
        return {name: RowwiseParallel(input_layouts=Replicate(), output_layouts=between)}
    if role == "column":
        return {name: ColwiseParallel(input_layouts=between)}
    if role == "row":
        return {name: RowwiseParallel(output_layouts=between)}
    if role == "vocab" and op.shape.work == "gemm":
        return {name: ColwiseParallel(input_layouts=between, output_layouts=Shard(-1),
                                      use_local_output=False)}  # fmt: skip
    if op.shape.kind == "norm" and sequence:
        return {name: SequenceParallel(use_local_output=True)}
    return {}
