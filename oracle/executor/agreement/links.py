"""Messages between single ranks of a group, and the bytes that pass a rank's link each way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.executor.messages.calls import together
from oracle.executor.messages.mesh import Group


@dataclass
class Links:
    """One rank's links to the other ranks of its group, by their places in it."""

    group: Group
    sent: float = 0.0
    heard: float = 0.0

    def swap_all(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        """Send to and receive from these places at once."""
        members, size = self.group.members, self.group.size
        going = [(members[to % size], tensor.contiguous()) for to, tensor in outgoing.items()]
        coming = [(members[source % size], tensor) for source, tensor in incoming.items()]
        together(going, coming, self.group.handle)()
        self.sent += sum(tensor.nbytes for tensor in outgoing.values())
        self.heard += sum(tensor.nbytes for tensor in incoming.values())

    def send(self, tensor: Tensor, to: int) -> None:
        """Send to one rank, which hears it now."""
        self.swap_all({to: tensor}, {})

    def hear(self, like: Tensor, source: int) -> Tensor:
        """Receive into a buffer."""
        self.swap_all({}, {source: like})
        return like

    def swap(self, tensor: Tensor, to: int, like: Tensor, source: int) -> Tensor:
        """Send to one and receive from another."""
        self.swap_all({to: tensor}, {source: like})
        return like

    def swap_any(self, tensor: Tensor, to: int, source: int) -> Tensor:
        """Swap bytes whose number only the sender knows; the number is sent first."""
        sent, received = self.sent, self.heard
        size = torch.tensor([tensor.numel()], device=tensor.device)
        count = self.swap(size, to, torch.empty_like(size), source)
        self.sent, self.heard = sent, received  # the number itself is not counted
        like = tensor.new_empty(int(count))
        outgoing, incoming = {to: tensor}, {source: like}
        self.swap_all(outgoing if tensor.numel() else {}, incoming if like.numel() else {})
        return like
