"""Sums of signs: one bit a gradient, and a scale of each rank [tang2021, §5]."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.wire import Wire

BITS = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)


def bits(vector: Tensor) -> Tensor:
    """Signs, eight to a byte."""
    ones = (vector >= 0).view(-1, 8).to(torch.uint8)
    return (ones * BITS).sum(-1, dtype=torch.uint8)


def signs(raw: Tensor, like: Tensor) -> Tensor:
    """The same again, as 1 and −1."""
    ones = (raw[..., None] & BITS).ne(0).flatten(-2)
    return ones.to(like.dtype) * 2 - 1


@dataclass
class Signs:
    """Every rank sums up the signs of its part, and tells the sum's: both leave something out."""

    left_of_sums: Tensor = field(default_factory=lambda: torch.zeros(0))

    def sum(self, vector: Tensor, wire: Wire, axes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """(what everybody is told, what of the own vector was in it)."""
        ranks = wire.mesh.group(axes).size
        whole = functional.pad(vector, (0, -vector.numel() % (8 * ranks)))
        parts = whole.view(ranks, -1)
        scale = whole.abs().sum() / vector.numel()
        heard = wire.alltoall(bits(whole).view(ranks, -1), axes, "data: signs of gradients")
        scales = self._scales(scale, wire, axes)
        mine = (signs(heard, vector) * scales[:, None]).sum(0)
        if self.left_of_sums.numel():
            mine = mine + self.left_of_sums
        second = mine.abs().mean()
        told = wire.allgather(bits(mine), axes, "data: signs of sums")
        scales = self._scales(second, wire, axes)
        place = wire.mesh.group(axes).place
        found = (signs(told, vector) * scales[:, None]).view_as(parts)
        self.left_of_sums = mine - found[place]
        own = torch.where(vector >= 0, scale, -scale)
        return found.flatten()[: vector.numel()], own

    def _scales(self, scale: Tensor, wire: Wire, axes: tuple[str, ...]) -> Tensor:
        one = scale.to(torch.float32)[None]
        return wire.allgather(one, axes, "data: scales of signs").flatten().to(scale.dtype)
