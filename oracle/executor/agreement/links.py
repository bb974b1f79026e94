"""Messages between single ranks of a group, and the bytes that pass a rank's link each way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from oracle.executor.mesh import Group


@dataclass
class Links:
    """One rank's way to the others of its group, by their places in it."""

    group: Group
    sent: float = 0.0
    heard: float = 0.0

    def send(self, tensor: Tensor, to: int) -> Callable[[], None]:
        """Begin to send; call what is returned before the buffer goes."""
        whole = tensor.contiguous()
        self.sent += whole.numel() * whole.element_size()
        work = dist.isend(whole, self.group.members[to % self.group.size])

        def wait() -> None:
            work.wait()
            whole.numel()  # the buffer lives until here

        return wait

    def hear(self, like: Tensor, source: int) -> Tensor:
        """Receive into a buffer."""
        dist.irecv(like, self.group.members[source % self.group.size]).wait()
        self.heard += like.numel() * like.element_size()
        return like

    def swap(self, tensor: Tensor, to: int, like: Tensor, source: int) -> Tensor:
        """Send to one and receive from another."""
        sent = self.send(tensor, to)
        self.hear(like, source)
        sent()
        return like

    def swap_any(self, tensor: Tensor, to: int, source: int) -> Tensor:
        """The same of bytes whose number only the sender knows; it is told beside them."""
        size = torch.tensor([tensor.numel()])
        told = dist.isend(size, self.group.members[to % self.group.size])
        count = torch.empty_like(size)
        dist.irecv(count, self.group.members[source % self.group.size]).wait()
        told.wait()
        like = tensor.new_empty(int(count))
        sent = self.send(tensor, to) if tensor.numel() else None
        if like.numel():
            self.hear(like, source)
        if sent:
            sent()
        return like
