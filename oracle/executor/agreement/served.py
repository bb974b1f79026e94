"""Parameter servers among the workers: each sums up its part of all gradients and gives it back."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.executor.agreement.links import Links
from oracle.executor.local.parts import deal


def served(vector: Tensor, servers: int, links: Links) -> Tensor:
    """The sum of all ranks' vectors, by servers at even places of the group."""
    place, size = links.group.place, links.group.size
    parts = deal(vector.numel(), servers)
    part_of_server = {server * size // servers: parts[server] for server in range(servers)}
    own_part = part_of_server.get(place, (0, 0))
    workers = [worker for worker in range(size) if worker != place and place in part_of_server]
    servers_of = {server: part for server, part in part_of_server.items() if server != place}
    total = vector.clone()
    pushed = {worker: torch.empty_like(vector[slice(*own_part)]) for worker in workers}
    links.swap_all({to: vector[a:b] for to, (a, b) in servers_of.items()}, pushed)
    for gradients in pushed.values():
        total[slice(*own_part)] += gradients
    links.swap_all(dict.fromkeys(workers, total[slice(*own_part)]),
                   {server: total[a:b] for server, (a, b) in servers_of.items()})  # fmt: skip
    return total
