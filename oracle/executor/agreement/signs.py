"""Sums of signs: one bit a gradient, and a scale of each rank [tang2021, §5]."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.messages.wire import Wire

BITS = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)


def bits(vector: Tensor) -> Tensor:
    """Signs, eight to a byte."""
    ones = (vector >= 0).view(-1, 8).to(torch.uint8)
    return (ones * BITS).sum(-1, dtype=torch.uint8)


def signs(raw: Tensor, like: Tensor) -> Tensor:
    """The signs that were packed into these bytes, as 1 and −1."""
    ones = (raw[..., None] & BITS).ne(0).flatten(-2)
    return ones.to(like.dtype) * 2 - 1


@dataclass
class Signs:
    """Sums signs: each rank sums its part and sends that sum's signs; both steps lose something."""

    left_of_sums: Tensor = field(default_factory=lambda: torch.zeros(0))

    def sum(self, vector: Tensor, wire: Wire, axes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """(what every rank is told, what of this rank's vector was in it)."""
        ranks = wire.mesh.group(axes).size
        padded = functional.pad(vector, (0, -vector.numel() % (8 * ranks)))
        parts = padded.view(ranks, -1)
        scale = padded.abs().sum() / vector.numel()
        sign_bits = wire.alltoall(bits(padded).view(ranks, -1), axes, "data: signs of gradients")
        scales = self._scales(scale, wire, axes)
        sums = (signs(sign_bits, vector) * scales[:, None]).sum(0)
        if self.left_of_sums.numel():
            sums = sums + self.left_of_sums
        second = sums.abs().mean()
        sum_bits = wire.allgather(bits(sums), axes, "data: signs of sums")
        scales = self._scales(second, wire, axes)
        place = wire.mesh.group(axes).place
        total = (signs(sum_bits, vector) * scales[:, None]).view_as(parts)
        self.left_of_sums = sums - total[place]
        sent = torch.where(vector >= 0, scale, -scale)
        return total.flatten()[: vector.numel()], sent

    def _scales(self, scale: Tensor, wire: Wire, axes: tuple[str, ...]) -> Tensor:
        scale_32 = scale.to(torch.float32)[None]
        return wire.allgather(scale_32, axes, "data: scales of signs").flatten().to(scale.dtype)
