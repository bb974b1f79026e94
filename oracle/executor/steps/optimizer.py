"""Optimizers that update flat buffers of weights, of which a device may hold a part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.weights import Bundle, HeldWeight
from oracle.executor.messages.mesh import EXPERTS
from oracle.executor.supported import NotSupported
from oracle.spec.options import RUN, SLOTS

FUSED, ONE_KERNEL = ("cpu", "cuda", "xpu"), ("sgd", "momentum", "adam")  # fused on these devices


@dataclass(frozen=True)
class Optimizer:
    """sgd, momentum, adam; lars [you2017] and lamb [you2020], which scale each tensor's step."""

    name: str = "momentum"
    rate: float = 0.01
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    tiny: float = 1e-8
    decay: float = 1e-4  # of weights, under lars and lamb
    trust: float = 1e-2  # under lars

    def __post_init__(self) -> None:
        if self.name not in RUN:
            raise NotSupported(f"the optimizer `{self.name}`")

    @property
    def slots(self) -> int:
        return SLOTS[self.name]

    def update(
        self, weights: Tensor, gradients: Tensor, slots: list[Tensor], step: int,
        ratios: Callable[[Tensor, Tensor], Tensor], skipped: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Update this device's part of the state in place; not at all where `skipped` is 1.

        `ratios(w, u)` is ‖w‖/‖u‖ of the whole tensor that each element belongs to.
        """
        if weights.device.type in FUSED and self.name in ONE_KERNEL:
            if weights.numel():
                self._fused(weights, gradients, slots, step, skipped)
            return
        if skipped is None:
            self._update(weights, gradients, slots, step, ratios)
            return
        before = [(tensor, tensor.clone()) for tensor in (weights, *slots)]
        self._update(weights, gradients, slots, step, ratios)
        for new, old in before:  # only the device knows whether to skip
            new.copy_(torch.where(skipped > 0, old, new))

    def _fused(
        self, weights: Tensor, gradients: Tensor, slots: list[Tensor], step: int,
        skipped: Tensor | None,
    ) -> None:  # fmt: skip
        """Update by the one kernel of PyTorch's own optimizers, which reads all state once."""
        options: dict[str, Any] = {"lr": self.rate, "weight_decay": 0.0, "maximize": False,
                                   "grad_scale": None, "found_inf": skipped}  # fmt: skip
        if self.name == "adam":
            count = torch.full((), float(step), device=weights.device)
            torch._fused_adam_(
                [weights], [gradients], [slots[0]], [slots[1]], [], [count], amsgrad=False,
                beta1=self.betas[0], beta2=self.betas[1], eps=self.tiny, **options,
            )  # fmt: skip
            return
        momentum = self.momentum if slots else 0.0
        torch._fused_sgd_(
            [weights], [gradients], list(slots), momentum=momentum, dampening=0.0, nesterov=False,
            is_first_step=False, **options,
        )  # fmt: skip

    def _update(
        self, weights: Tensor, gradients: Tensor, slots: list[Tensor], step: int,
        ratios: Callable[[Tensor, Tensor], Tensor],
    ) -> None:  # fmt: skip
        if self.name == "sgd":
            weights.add_(gradients, alpha=-self.rate)
        elif self.name == "momentum":
            slots[0].mul_(self.momentum).add_(gradients)
            weights.add_(slots[0], alpha=-self.rate)
        elif self.name == "lars":
            direction = gradients + self.decay * weights
            scaled = direction * ratios(weights, direction) * self.trust
            slots[0].mul_(self.momentum).add_(scaled)
            weights.add_(slots[0], alpha=-self.rate)
        else:
            first, root = self._moments(gradients, slots, step)
            if self.name == "adam":
                weights.addcdiv_(slots[0], root, value=-self.rate / first)
            else:
                direction = slots[0] / root / first + self.decay * weights
                weights.add_(direction * ratios(weights, direction), alpha=-self.rate)

    def _moments(self, gradients: Tensor, slots: list[Tensor], step: int) -> tuple[float, Tensor]:
        """Update Adam's moments; both factors of m / ((1 - β₁ᵗ)(√(v / (1 - β₂ᵗ)) + ε))."""
        first, second = self.betas
        slots[0].mul_(first).add_(gradients, alpha=1 - first)
        slots[1].mul_(second).addcmul_(gradients, gradients, value=1 - second)
        root = slots[1].sqrt().div_(math.sqrt(1 - second**step)).add_(self.tiny)
        return 1 - first**step, root


def ratios(local: LocalModel, bundle: Bundle, weights: Tensor, steps: Tensor) -> Tensor:
    """‖w‖/‖u‖ of each element's tensor: squares of its parts are added up over their ranks."""
    start, stop = bundle.shard_slice.start, bundle.shard_slice.stop
    spans = [
        (max(w.offset, start) - start, min(w.offset + math.prod(w.shape), stop) - start)
        for w in bundle.held_weights
    ]
    squares = torch.stack(
        [torch.stack([(flat[a : max(a, b)] ** 2).sum() for a, b in spans] or [flat.sum() * 0])
         for flat in (weights, steps)]
    )  # fmt: skip
    if local.zero:
        name = f"{local.shards[0]}: norms"
        squares = local.wire.allreduce(squares, bundle.shards, name)
    if bundle.prefix:
        squares = local.wire.allreduce(squares, EXPERTS, "expert: norms")
    for axis in ("filter", "channel", "tensor"):
        cut_weights = [i for i, w in enumerate(bundle.held_weights) if _cut(local, w, axis)]
        if cut_weights and local.mesh.degree(axis) > 1:
            part = squares[:, cut_weights].contiguous()
            squares[:, cut_weights] = local.wire.allreduce(part, (axis,), f"{axis}: norms")
    w, u = squares
    ratio_of_weight = torch.where((w > 0) & (u > 0), (w / u.clamp_min(1e-300)).sqrt(), 1.0)
    ratio_of_element = torch.ones_like(weights)
    for (a, b), ratio in zip(spans, ratio_of_weight, strict=False):
        ratio_of_element[a : max(a, b)] = ratio
    return ratio_of_element


def _cut(local: LocalModel, weight: HeldWeight, axis: str) -> bool:
    """Whether the devices along an axis hold different parts of this weight."""
    if axis == "tensor":
        uncut = [[(0, n)] for n in weight.full]
        return bool(local.cuts.role(weight.op)) and weight.intervals != uncut
    rows = local.cuts.filtered if axis == "filter" else local.cuts.channeled
    return bool(rows[weight.op.row])
