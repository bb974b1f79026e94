"""Parameter servers among the workers: each sums up its part of all gradients and gives it back."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.executor.agreement.links import Links
from oracle.executor.parts import deal


def served(vector: Tensor, servers: int, links: Links) -> Tensor:
    """The sum, by so many servers at even places of the group."""
    place, size = links.group.place, links.group.size
    parts = deal(vector.numel(), servers)
    at = {server * size // servers: parts[server] for server in range(servers)}
    pushed = [links.send(vector[a:b], to) for to, (a, b) in at.items() if to != place]
    found = vector.clone()
    if place in at:
        a, b = at[place]
        for worker in range(size):
            if worker != place:
                found[a:b] += links.hear(torch.empty_like(vector[a:b]), worker)
        pushed += [links.send(found[a:b], worker) for worker in range(size) if worker != place]
    for server, (a, b) in at.items():
        if server != place:
            found[a:b] = links.hear(torch.empty_like(vector[a:b]), server)
    for wait in pushed:
        wait()
    return found
