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

from oracle.executor.local.away import Away
from oracle.executor.local.weights import Bundle
from oracle.executor.steps.host_link import HostLink
from oracle.executor.steps.optimizer import Optimizer

READ = 4.0  # bytes of a gradient that an update reads, beside all state read and written


class StateAway:
    """Weights, gradients and optimizer's numbers of one bundle beside the device.

    `shard` is the part that this device updates; where weights are not sharded, `weights` is all
    of them.
    """

    def __init__(
        self, bundle: Bundle, away: Away, link: HostLink, slots: int, unsharded: bool
    ) -> None:
        self.bundle, self.away, self.link = bundle, away, link
        like, shard_slice = bundle.weights.detach(), bundle.shard_slice
        part = like if unsharded else like[shard_slice]
        with link.place():
            self.weights = link.room(like, part.numel(), away.disk).copy_(part)
            self.shard = self.weights[shard_slice] if unsharded else self.weights
            self.slots = [link.room(like, len(self.shard), away.disk) for _ in range(slots)]
            self.summed = torch.zeros_like(self.shard) if away.host_update else bundle.summed
            self.pending: Tensor | None = None  # gradients of the step before

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors that are not on the device."""
        summed = [self.summed] if self.away.host_update else []
        late = [self.pending] if self.pending is not None else []
        return [self.weights, *self.slots, *summed, *late]

    @property
    def state(self) -> float:
        """Bytes of weights and of what the optimizer keeps of them."""
        return float(len(self.shard) * self.shard.element_size() * (1 + len(self.slots)))

    def add(self, gradients: Tensor, label: str) -> None:
        """Send the gradients of a micro-batch, or of all, out, and add them up there."""
        arriving = self.link.out(gradients, self._label(label))
        with self.link.place():
            self.summed += arriving

    def bring(self, label: str, into: Tensor, key: object) -> None:
        """Copy the weights of a unit, or the part that this device keeps, to the device."""
        if self.away.disk:
            disk = label.replace("in", "from disk", 1)
            self.link.through("disk", self.weights.nbytes, self._label(disk))
        self.link.home(self.weights, into, self._label(label), key)

    def _label(self, label: str) -> str:
        """The name under which a copy is counted."""
        return self.bundle.prefix + label

    def update(self, optimizer: Optimizer, step: int, ratios: Callable[..., Tensor]) -> None:
        """Update this device's part of the weights where the plan says."""
        if self.away.disk:
            self.link.through("disk", 2 * self.state, self._label("state from disk and back"))
        if not self.away.host_update:
            self._on_device(optimizer, step, ratios)
            return
        self.link.arrived()
        with self.link.place():
            gradients: Tensor | None = self.summed
            if self.away.delayed:
                gradients, self.pending = self.pending, self.summed.clone()
                step -= 1
            if gradients is not None:
                optimizer.update(self.shard, gradients, self.slots, step, ratios)
        self.link.through("memory", 2 * self.state + READ * len(self.shard))
        if not self.away.weights:
            self.link.home(self.shard, self.target, self._label("weights back"))

    def _on_device(self, optimizer: Optimizer, step: int, ratios: Callable[..., Tensor]) -> None:
        """Bring all state to the device, update it there, and send it back."""
        state = [self.shard, *self.slots]
        on_device = [torch.empty_like(tensor) for tensor in state]
        for host_copy, device_copy in zip(state, on_device, strict=True):
            self.link.home(host_copy, device_copy, self._label("state in"))
        optimizer.update(on_device[0], self.summed, on_device[1:], step, ratios)
        if not self.away.weights:
            self.target.copy_(on_device[0])
        for host_copy, device_copy in zip(state, on_device, strict=True):
            with self.link.place():
                host_copy.copy_(device_copy)
            self.link.sent(device_copy, self._label("state back"))

    @property
    def target(self) -> Tensor:
        """The part of the weights that this device updates, on the device."""
        bundle = self.bundle
        return (bundle.weights[bundle.shard_slice] if bundle.has_weights else bundle.shard).detach()
