"""The samples of a step, made on the host alike for every device, and their copy to a device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oracle.executor.local.graph import OperationGraph, sample_shape
from oracle.executor.measure.clock import GPUS
from oracle.models.layers import Embedding, Loss


def inputs(
    graph: OperationGraph, batch: int, seed: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Make a global batch and its targets, the same on every device."""
    random = torch.Generator().manual_seed(77_003 * seed + 1)
    first, ends = graph.operations[0], [op for op in graph.operations if op.shape.kind == "loss"]
    last = max(ends or graph.operations[-1:], key=lambda op: math.prod(op.shape.made.extents))
    input_shape, output_shape = first.shape.given, last.shape.made
    if isinstance(first.layer, Embedding):
        x = torch.randint(first.layer.vocab, (batch, *input_shape.extents), generator=random)
    else:
        sizes = (batch, *sample_shape(input_shape))
        x = torch.randn(sizes, generator=random, dtype=torch.float64).to(dtype)
    if isinstance(last.layer, Loss) and last.layer.op != "cross_entropy":
        sizes = (batch, *sample_shape(output_shape))
        target = torch.rand(sizes, generator=random, dtype=torch.float64).to(dtype)
    else:
        positions = (batch, *output_shape.extents)
        target = torch.randint(output_shape.channels, positions, generator=random)
    return x, target


def arrived(part: Tensor, device: torch.device) -> Tensor:
    """Copy a part of a batch to the device; a GPU copies from pinned memory, and nobody waits."""
    if device.type not in GPUS:
        return part.to(device, copy=True, memory_format=torch.contiguous_format)
    if not part.is_pinned() or not part.is_contiguous():
        part = torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part)
    return part.to(device, non_blocking=True)
