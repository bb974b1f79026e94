"""Activations of units that are sent out in the forward pass and come in again in the backward.

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

from oracle.executor.host_link import HostLink
from oracle.executor.spans import Span

Layers = Callable[..., tuple[Tensor, ...]]


@dataclass(eq=False)
class Sent:
    """A storage that lies beside the device."""

    host: Tensor
    like: Tensor  # of its kind, empty
    wanted: int = 0  # how often it was saved
    here: Tensor | None = field(default=None, repr=False)

    def back(self, link: HostLink, disk: bool) -> Tensor:
        """The same on the device, until who saved it last has had it."""
        if self.here is None:
            self.here = self.like.new_empty(self.host.shape)
            link.home(self.host, self.here, f"activations in{', disk' * disk}", self, disk)
        found, self.wanted = self.here, self.wanted - 1
        if not self.wanted:
            self.here = None
        return found


class UnitsAway:
    """Sends out what units save whose word is `offload`, each ahead of its use again."""

    def __init__(
        self, words: Sequence[str], link: HostLink, fixed: Sequence[Tensor], disk: bool,
        ahead: int = 1,
    ) -> None:  # fmt: skip
        self.words, self.link, self.disk, self.ahead = words, link, disk, ahead
        self.fixed = {tensor.untyped_storage()._cdata for tensor in fixed}
        self.known: dict[int, Sent] = {}  # storages that are still on the device as well

    def run(
        self, span: Span, layers: Layers, inputs: Sequence[Tensor], sent: dict[int, list[Sent]]
    ) -> tuple[Tensor, ...]:
        """What a unit hands on; `sent` gets what it has sent, by unit."""
        unit = span.unit
        owners = {x.untyped_storage()._cdata: of
                  for x, of in zip(inputs, span.owners, strict=True)}  # fmt: skip
        sent.setdefault(unit, [])

        def pack(tensor: Tensor) -> Any:
            storage = tensor.untyped_storage()
            key = storage._cdata
            owner = owners.get(key, unit)
            if key in self.fixed or self.words[owner] != "offload" or not storage.nbytes():
                return tensor
            found = self.known.get(key) or self._out(tensor, storage, sent.setdefault(owner, []))
            found.wanted += 1
            return found, tensor.size(), tensor.stride(), tensor.storage_offset()

        def unpack(packed: Any) -> Tensor:
            if isinstance(packed, Tensor):
                return packed
            found, size, stride, at = packed
            return torch.as_strided(found.back(self.link, self.disk), size, stride, at)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            made = layers(*inputs)
        for y in made:
            if y.requires_grad:
                y.register_hook(lambda _: self._ask(unit, sent))
        return made

    def _out(self, tensor: Tensor, storage: Any, mine: list[Sent]) -> Sent:
        key = storage._cdata
        whole = tensor.new_empty(0).set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
        found = Sent(self.link.out(whole, f"activations out{', disk' * self.disk}", self.disk),
                     tensor.new_empty(0))  # fmt: skip
        self.known[key] = found
        weakref.finalize(storage, self.known.pop, key, None)
        mine.append(found)
        return found

    def _ask(self, unit: int, sent: dict[int, list[Sent]]) -> None:
        """Let come in what this unit and those ahead of it will want."""
        for before in range(unit, unit - self.ahead - 1, -1):
            for one in sent.get(before, []):
                if one.wanted and one.here is None:
                    self.link.ask(one, one.host.nbytes, self.disk)
