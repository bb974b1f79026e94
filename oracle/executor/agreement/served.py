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
    own = at.get(place, (0, 0))
    workers = [worker for worker in range(size) if worker != place and place in at]
    servers_of = {server: part for server, part in at.items() if server != place}
    found = vector.clone()
    pushed = {worker: torch.empty_like(vector[slice(*own)]) for worker in workers}
    links.swap_all({to: vector[a:b] for to, (a, b) in servers_of.items()}, pushed)
    for theirs in pushed.values():
        found[slice(*own)] += theirs
    links.swap_all(dict.fromkeys(workers, found[slice(*own)]),
                   {server: found[a:b] for server, (a, b) in servers_of.items()})  # fmt: skip
    return found
