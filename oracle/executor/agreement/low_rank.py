"""PowerSGD: factors of each gradient matrix are summed instead of the matrix [vogels2019]."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oracle.executor.local.weights import Bundle
from oracle.executor.messages.wire import Wire
from oracle.plan.strategies.agreement import WORTH


@dataclass
class LowRank:
    """Factors of a bundle's matrices; the right factors of a step are where the next begins."""

    bundle: Bundle
    rank: int
    right: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []  # (begin, rows, columns)
        random = torch.Generator().manual_seed(20_261)
        self.rest = torch.ones(self.bundle.size, dtype=torch.bool)
        for weight in self.bundle.held_weights:
            if len(weight.shape) < 2:
                continue
            g, a = weight.shape[0], math.prod(weight.shape[1:])
            if self.rank * (a + g) * WORTH < a * g:
                self.spans.append((weight.offset, g, a))
                self.rest[weight.offset : weight.offset + g * a] = False
                start = torch.randn((a, self.rank), generator=random, dtype=torch.float64)
                self.right[weight.offset] = start.to(self.bundle.gradients)

    def sum(self, vector: Tensor, wire: Wire, axes: tuple[str, ...]) -> Tensor:
        """The sum of all ranks' vectors, as far as factors tell it."""
        matrices = [(begin, vector[begin : begin + g * a].view(g, a)) for begin, g, a in self.spans]
        total = torch.zeros_like(vector)
        total[self.rest] = wire.allreduce(
            vector[self.rest].clone(), axes, "data: what is not factored"
        )
        if not matrices:
            return total
        left = self._summed([m @ self.right[begin] for begin, m in matrices], wire, axes, "left")
        left = [torch.linalg.qr(factor).Q for factor in left]
        right = [m.T @ p for (_, m), p in zip(matrices, left, strict=True)]
        right = self._summed(right, wire, axes, "right")
        for (begin, m), p, q in zip(matrices, left, right, strict=True):
            self.right[begin] = q
            total[begin : begin + m.numel()] = (p @ q.T).flatten()
        return total

    def _summed(
        self, factors: list[Tensor], wire: Wire, axes: tuple[str, ...], side: str
    ) -> list[Tensor]:
        """Sum all factors of one side in one message."""
        joined = torch.cat([factor.flatten() for factor in factors])
        wire.allreduce(joined, axes, f"data: {side} factors")
        parts = joined.split([factor.numel() for factor in factors])
        return [part.view(factor.shape) for part, factor in zip(parts, factors, strict=True)]
