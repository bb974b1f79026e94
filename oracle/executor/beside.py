"""State of training beside the device: weights and optimizer in the host's memory, or on disk.

| what lies there       | out                        | in                                        |
| optimizer             | gradients, unit by unit    | weights, when they are updated            |
| and weights           | gradients, unit by unit    | weights, of each unit before either pass  |
| updated on the device | all state, after           | all state, before                         |
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from oracle.executor.away import Away
from oracle.executor.host_link import HostLink
from oracle.executor.optimizer import Optimizer
from oracle.executor.weights import Bundle

READ = 4.0  # bytes of a gradient that an update reads, beside all state read and written


class Beside:
    """Weights, gradients and optimizer's numbers of one bundle beside the device.

    `own` is the part that this device updates; where weights are not sharded, `weights` is all
    of them.
    """

    def __init__(self, bundle: Bundle, away: Away, link: HostLink, slots: int, whole: bool) -> None:
        self.bundle, self.away, self.link = bundle, away, link
        like, own = bundle.weights.detach(), bundle.own
        part = like if whole else like[own]
        with link.place():
            self.weights = link.room(like, part.numel(), away.disk).copy_(part)
            self.own = self.weights[own] if whole else self.weights
            self.slots = [link.room(like, len(self.own), away.disk) for _ in range(slots)]
            self.summed = torch.zeros_like(self.own) if away.there else bundle.summed
            self.pending: Tensor | None = None  # gradients of the step before

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors that are not on the device."""
        summed = [self.summed] if self.away.there else []
        late = [self.pending] if self.pending is not None else []
        return [self.weights, *self.slots, *summed, *late]

    @property
    def state(self) -> float:
        """Bytes of weights and of what the optimizer keeps of them."""
        return float(len(self.own) * self.own.element_size() * (1 + len(self.slots)))

    def add(self, gradients: Tensor, what: str) -> None:
        """Gradients of a micro-batch, or of all, go out and are added up there."""
        come = self.link.out(gradients, self._said(what))
        with self.link.place():
            self.summed += come

    def bring(self, what: str, into: Tensor, key: object) -> None:
        """Weights of a unit, or the part of them that this device keeps."""
        if self.away.disk:
            disk = what.replace("in", "from disk", 1)
            self.link.through("disk", self.weights.nbytes, self._said(disk))
        self.link.home(self.weights, into, self._said(what), key)

    def _said(self, what: str) -> str:
        """What is copied, as it is counted."""
        return self.bundle.prefix + what

    def update(self, optimizer: Optimizer, step: int, ratios: Callable[..., Tensor]) -> None:
        """Update the own part where it is to be done."""
        if self.away.disk:
            self.link.through("disk", 2 * self.state, self._said("state from disk and back"))
        if not self.away.there:
            self._here(optimizer, step, ratios)
            return
        self.link.arrived()
        with self.link.place():
            gradients: Tensor | None = self.summed
            if self.away.delayed:
                gradients, self.pending = self.pending, self.summed.clone()
                step -= 1
            if gradients is not None:
                optimizer.update(self.own, gradients, self.slots, step, ratios)
        self.link.through("memory", 2 * self.state + READ * len(self.own))
        if not self.away.weights:
            self.link.home(self.own, self.target, self._said("weights back"))

    def _here(self, optimizer: Optimizer, step: int, ratios: Callable[..., Tensor]) -> None:
        """All state comes in and goes back."""
        beside = [self.own, *self.slots]
        come = [torch.empty_like(one) for one in beside]
        for there, here in zip(beside, come, strict=True):
            self.link.home(there, here, self._said("state in"))
        optimizer.update(come[0], self.summed, come[1:], step, ratios)
        if not self.away.weights:
            self.target.copy_(come[0])
        for there, here in zip(beside, come, strict=True):
            with self.link.place():
                there.copy_(here)
            self.link.sent(here, self._said("state back"))

    @property
    def target(self) -> Tensor:
        """The own part of the weights on the device."""
        bundle = self.bundle
        return (bundle.weights[bundle.own] if bundle.here else bundle.shard).detach()
