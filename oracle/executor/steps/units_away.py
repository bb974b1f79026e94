"""Sends activations of units out in the forward pass and brings them in for the backward pass.

What autograd saves is packed by hooks: a tensor's storage leaves once, whoever wants it, and comes
in once. What a unit was given belongs to the unit that made it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from oracle.executor.local.spans import Span
from oracle.executor.steps.host_link import HostLink

Layers = Callable[..., tuple[Tensor, ...]]


@dataclass(eq=False)
class StorageAway:
    """A storage that lies beside the device."""

    host: Tensor
    like: Tensor  # of its kind, empty
    uses_left: int = 0  # how often it was saved
    on_device: Tensor | None = field(default=None, repr=False)

    def back(self, link: HostLink, disk: bool) -> Tensor:
        """The storage on the device, until its last user has had it."""
        if self.on_device is None:
            self.on_device = self.like.new_empty(self.host.shape)
            link.home(self.host, self.on_device, f"activations in{', disk' * disk}", self, disk)
        tensor, self.uses_left = self.on_device, self.uses_left - 1
        if not self.uses_left:
            self.on_device = None
        return tensor


class UnitsAway:
    """Sends out what units marked `offload` save, and brings it in ahead of its use."""

    def __init__(
        self, words: Sequence[str], link: HostLink, fixed: Sequence[Tensor], disk: bool,
        ahead: int = 1,
    ) -> None:  # fmt: skip
        self.words, self.link, self.disk, self.ahead = words, link, disk, ahead
        self.fixed = {tensor.untyped_storage()._cdata for tensor in fixed}
        self.known: dict[int, StorageAway] = {}  # storages that are still on the device as well

    def run(
        self, span: Span, layers: Layers, inputs: Sequence[Tensor],
        sent: dict[int, list[StorageAway]],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Run a unit; `sent` gets the storages that it has sent out, by unit."""
        unit = span.unit
        owners = {x.untyped_storage()._cdata: owner
                  for x, owner in zip(inputs, span.owners, strict=True)}  # fmt: skip
        sent.setdefault(unit, [])

        def pack(tensor: Tensor) -> Any:
            storage = tensor.untyped_storage()
            key = storage._cdata
            owner = owners.get(key, unit)
            if key in self.fixed or self.words[owner] != "offload" or not storage.nbytes():
                return tensor
            sent_by_owner = sent.setdefault(owner, [])
            away = self.known.get(key) or self._out(tensor, storage, sent_by_owner)
            away.uses_left += 1
            return away, tensor.size(), tensor.stride(), tensor.storage_offset()

        def unpack(packed: Any) -> Tensor:
            if isinstance(packed, Tensor):
                return packed
            storage_sent, size, stride, offset = packed
            return torch.as_strided(storage_sent.back(self.link, self.disk), size, stride, offset)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            outputs = layers(*inputs)
        for y in outputs:
            if y.requires_grad:
                y.register_hook(lambda _: self._ask(unit, sent))
        return outputs

    def _out(self, tensor: Tensor, storage: Any, sent_by_owner: list[StorageAway]) -> StorageAway:
        key = storage._cdata
        flat = tensor.new_empty(0).set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
        host_copy = self.link.out(flat, f"activations out{', disk' * self.disk}", self.disk)
        storage_sent = StorageAway(host_copy, tensor.new_empty(0))
        self.known[key] = storage_sent
        weakref.finalize(storage, self.known.pop, key, None)
        sent_by_owner.append(storage_sent)
        return storage_sent

    def _ask(self, unit: int, sent: dict[int, list[StorageAway]]) -> None:
        """Begin to bring in what this unit and those ahead of it will need."""
        for before in range(unit, unit - self.ahead - 1, -1):
            for storage_sent in sent.get(before, []):
                if storage_sent.uses_left and storage_sent.on_device is None:
                    self.link.ask(storage_sent, storage_sent.host.nbytes, self.disk)
