"""Dropout whose mask depends on each element's place, so that any cut of a tensor has the same.

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
    begins: Sequence[int], counts: Sequence[int], extents: Sequence[int], key: int,
    device: torch.device,
) -> Tensor:  # fmt: skip
    """Numbers from 0 to 1 for a part of a tensor of these extents, the part beginning at `begins`.

    >>> one = drawn((0, 0), (4, 6), (4, 6), 7, torch.device("cpu"))
    >>> bool((one[2:, 1:4] == drawn((2, 1), (2, 3), (4, 6), 7, torch.device("cpu"))).all())
    True
    """
    number = torch.zeros((), dtype=torch.int64, device=device)
    for begin, count, extent in zip(begins, counts, extents, strict=True):
        positions = torch.arange(begin, begin + count, device=device)
        number = number[..., None] * extent + positions
    mixed = (number + 1 + key * 1_000_003) * _STEP
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ _right(mixed, shift)) * factor
    mixed ^= _right(mixed, 31)
    return _right(mixed, 11).double() / 2**53


def _right(numbers: Tensor, shift: int) -> Tensor:
    """The numbers shifted to the right as if they had no sign."""
    return (numbers >> shift) & ((1 << (64 - shift)) - 1)


class Dropout(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Drops elements of x and scales up the others; only the mask lives until the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - rate)
        return (x * mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return (gradient * mask).mul_(ctx.scale), None, None
