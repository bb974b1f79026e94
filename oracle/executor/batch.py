"""The samples of a step: made on the host, the same on every device, and their way to one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oracle.executor.clock import GPUS
from oracle.executor.graph import OperationGraph
from oracle.models.layers import Embedding, Loss


def inputs(
    graph: OperationGraph, batch: int, seed: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """A global batch and its targets, the same on every device."""
    random = torch.Generator().manual_seed(77_003 * seed + 1)
    first, ends = graph.operations[0], [op for op in graph.operations if op.shape.kind == "loss"]
    last = max(ends or graph.operations[-1:], key=lambda op: math.prod(op.shape.made.extents))
    given, made = first.shape.given, last.shape.made
    if isinstance(first.layer, Embedding):
        x = torch.randint(first.layer.vocab, (batch, *given.extents), generator=random)
    else:
        sizes = (
            (*given.extents, given.channels) if given.tokens else (given.channels, *given.extents)
        )
        x = torch.randn((batch, *sizes), generator=random, dtype=torch.float64).to(dtype)
    if isinstance(last.layer, Loss) and last.layer.op != "cross_entropy":
        sizes = (*made.extents, made.channels) if made.tokens else (made.channels, *made.extents)
        target = torch.rand((batch, *sizes), generator=random, dtype=torch.float64).to(dtype)
    else:
        target = torch.randint(made.channels, (batch, *made.extents), generator=random)
    return x, target


def arrived(part: Tensor, device: torch.device) -> Tensor:
    """A part of a batch on the device; a GPU copies it from pinned memory, and nobody waits."""
    if device.type not in GPUS:
        return part.to(device, copy=True, memory_format=torch.contiguous_format)
    if not part.is_pinned() or not part.is_contiguous():
        part = torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part)
    return part.to(device, non_blocking=True)
