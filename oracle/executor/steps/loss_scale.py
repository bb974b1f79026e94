"""The scale of a loss in fp16, kept on the device so that the host never waits for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FIRST, DOUBLED_AFTER = 2.0**16, 2000  # as PyTorch's GradScaler [torchamp]


class LossScale:
    """Keeps gradients within what fp16 can say [micikevicius2018, §3.2].

    Where a gradient is no number, the update is left out and the scale is halved; after so many
    good steps it is doubled.
    """

    def __init__(self, device: torch.device) -> None:
        self.value = torch.full((), FIRST, device=device)
        self.good = torch.zeros((), device=device)  # steps since the scale changed
        self.overflow = torch.zeros((), device=device)  # 1 where the last step's update is left out

    def unscale(self, gradients: Sequence[Tensor]) -> Tensor:
        """Divide gradients by the scale in place; 1 if one of them is no number."""
        overflow = torch.zeros_like(self.overflow)
        for gradient in gradients:
            gradient.mul_(1 / self.value)
            overflow = torch.maximum(overflow, 1.0 - torch.isfinite(gradient).all().to(overflow))
        return overflow

    def heard(self, overflow: Tensor) -> None:
        """Change the scale by the overflow that all ranks found."""
        self.overflow, good = overflow, (self.good + 1) * (1 - overflow)
        doubled = (good >= DOUBLED_AFTER).to(good)
        self.value = self.value * (1 - overflow / 2) * (1 + doubled)
        self.good = good * (1 - doubled)
