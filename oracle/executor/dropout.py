"""Dropout whose mask is a function of what is dropped: of any cut of a tensor it is the same.

Each element has a number in its whole tensor, samples ahead; what is drawn for it is a hash of
that number, of the operation and of the step. So it is the same on one device and on many, and
when a pass runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_MIX = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # of splitmix64, as signed numbers
_STEP = -0x61C8864680B583EB


def drawn(
    begins: Sequence[int], counts: Sequence[int], whole: Sequence[int], key: int,
    device: torch.device,
) -> Tensor:  # fmt: skip
    """Numbers from 0 to 1 of a part of a tensor: it begins at `begins` of what has `whole` extents.

    >>> one = drawn((0, 0), (4, 6), (4, 6), 7, torch.device("cpu"))
    >>> bool((one[2:, 1:4] == drawn((2, 1), (2, 3), (4, 6), 7, torch.device("cpu"))).all())
    True
    """
    number = torch.zeros((), dtype=torch.int64, device=device)
    for begin, count, extent in zip(begins, counts, whole, strict=True):
        at = torch.arange(begin, begin + count, device=device)
        number = number[..., None] * extent + at
    mixed = (number + 1 + key * 1_000_003) * _STEP
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ _right(mixed, shift)) * factor
    mixed ^= _right(mixed, 31)
    return _right(mixed, 11).double() / 2**53


def _right(numbers: Tensor, shift: int) -> Tensor:
    """Shifted as if they had no sign."""
    return (numbers >> shift) & ((1 << (64 - shift)) - 1)


class Dropout(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """What is kept of x, made up for what is not; the mask alone lives until the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = 1 / (1 - rate)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None, None
