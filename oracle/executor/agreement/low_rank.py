"""PowerSGD: factors of each gradient matrix are summed instead of the matrix [vogels2019]."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oracle.executor.weights import Bundle
from oracle.executor.wire import Wire
from oracle.plan.strategies.agreement import WORTH


@dataclass
class LowRank:
    """Factors of a bundle's matrices: the right ones of a step are where the next begins."""

    bundle: Bundle
    rank: int
    right: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []  # (begin, rows, columns)
        random = torch.Generator().manual_seed(20_261)
        self.rest = torch.ones(self.bundle.size, dtype=torch.bool)
        for held in self.bundle.held_weights:
            if len(held.shape) < 2:
                continue
            g, a = held.shape[0], math.prod(held.shape[1:])
            if self.rank * (a + g) * WORTH < a * g:
                self.spans.append((held.at, g, a))
                self.rest[held.at : held.at + g * a] = False
                start = torch.randn((a, self.rank), generator=random, dtype=torch.float64)
                self.right[held.at] = start.to(self.bundle.gradients)

    def sum(self, vector: Tensor, wire: Wire, axes: tuple[str, ...]) -> Tensor:
        """What all ranks' vectors sum to, as far as factors tell."""
        matrices = [(at, vector[at : at + g * a].view(g, a)) for at, g, a in self.spans]
        found = torch.zeros_like(vector)
        found[self.rest] = wire.allreduce(
            vector[self.rest].clone(), axes, "data: what is not factored"
        )
        if not matrices:
            return found
        left = self._summed([m @ self.right[at] for at, m in matrices], wire, axes, "left")
        left = [torch.linalg.qr(each).Q for each in left]
        right = [m.T @ p for (_, m), p in zip(matrices, left, strict=True)]
        right = self._summed(right, wire, axes, "right")
        for (at, m), p, q in zip(matrices, left, right, strict=True):
            self.right[at] = q
            found[at : at + m.numel()] = (p @ q.T).flatten()
        return found

    def _summed(
        self, factors: list[Tensor], wire: Wire, axes: tuple[str, ...], side: str
    ) -> list[Tensor]:
        """All factors of one side, in one message."""
        whole = torch.cat([each.flatten() for each in factors])
        wire.allreduce(whole, axes, f"data: {side} factors")
        parts = whole.split([each.numel() for each in factors])
        return [part.view(each.shape) for part, each in zip(parts, factors, strict=True)]
