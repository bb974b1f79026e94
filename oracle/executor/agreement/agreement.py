"""How the replicas of a plan agree on gradients, and what they keep from step to step."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.executor.agreement.largest import WAYS, packed
from oracle.executor.agreement.links import Links
from oracle.executor.agreement.low_rank import LowRank
from oracle.executor.agreement.signs import Signs
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.local.weights import Bundle
from oracle.plan.strategies.agreement import special

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def agreement(local: LocalModel) -> Agreement | None:
    """The agreement that a plan asks for; None where gradients are simply summed."""
    data = local.plan.axis("data")
    alone = local.mesh.degree(*local.replicas) == 1 or local.mesh.degree("data") == 1
    return None if alone or not special(data) else Agreement(local)


class Agreement:
    """Sums the gradients of replicas while sending less than all of them."""

    def __init__(self, local: LocalModel) -> None:
        self.local, self.wire, self.axes = local, local.wire, local.replicas
        self.group = local.mesh.group(self.axes)
        data = local.plan.axis("data")
        self.word, self.sparse = data.word("compress"), data.word("sparse")
        self.density, self.kept = float(data.density[0, 0]), data.word("feedback") == "on"
        self.servers, self.every = int(data.servers[0, 0]), int(data.sync[0, 0])
        rank = int(data.rank[0, 0])
        self.armed = False  # nothing is sent before the pass is over
        self.left = [torch.zeros_like(bundle.gradients) for bundle in local.bundles]
        self.factors = [LowRank(b, rank) for b in local.bundles] if self.word == "powersgd" else []
        self.signs = [Signs() for _ in local.bundles]

    def finish(self) -> None:
        """Replace this rank's gradients by the sum of all replicas' gradients."""
        for number, bundle in enumerate(self.local.bundles):
            if self.every > 1:
                bundle.gradients.mul_(self.group.size)  # a replica goes on by its own mean
            elif self.servers:
                bundle.gradients.copy_(self._served(bundle.gradients))
            elif self.word in HALVES:
                narrow = bundle.gradients.to(HALVES[self.word])
                bundle.gradients.copy_(self.wire.allreduce(narrow, self.axes, "data: gradients"))
            else:
                self._with_rest(number, bundle)

    def after(self, step: int) -> None:
        """Average the weights of all replicas after every so many steps."""
        if self.every > 1 and step % self.every == 0:
            for bundle in self.local.bundles:
                self.wire.allreduce(bundle.weights.detach(), self.axes, "data: weights averaged")
                bundle.weights.detach().div_(self.group.size)
                if bundle.mixed:
                    bundle.masters.copy_(bundle.owned)

    def _with_rest(self, number: int, bundle: Bundle) -> None:
        """Sum gradients with what earlier steps left out; keep what this one leaves out."""
        gradients = bundle.gradients + self.left[number]
        if self.word == "topk":
            total, sent = self._largest(gradients)
        elif self.word == "powersgd":
            total = self.factors[number].sum(gradients, self.wire, self.axes)
            sent = torch.where(self.factors[number].rest, gradients, total / self.group.size)
        else:
            total, sent = self.signs[number].sum(gradients, self.wire, self.axes)
        if self.kept:
            self.left[number] = gradients - sent
        bundle.gradients.copy_(total)

    def _largest(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        count = max(1, round(self.density * gradients.numel()))
        links, size = Links(self.group), self.group.size
        began = self.wire.begin("largest gradients")
        total, entries_sent = WAYS[self.sparse](gradients, count, links)
        entry_bytes = packed((torch.zeros(count, dtype=torch.long), gradients[:count])).numel()
        label, op = f"largest gradients by {self.sparse}", "sparse_allreduce"
        nbytes = float(entry_bytes)
        if self.sparse == "allgather":
            label, op, nbytes = "largest gradients", "allgather", float(entry_bytes * size)
        elif self.sparse == "switching":  # the size of a dense vector whose ring would send as much
            label, nbytes = "largest gradients by shares", links.sent / (2 * (size - 1)) * size
        self.wire.count(f"data: {label}", op, size, nbytes, began)
        sent = torch.zeros_like(gradients)
        sent[entries_sent[0]] = entries_sent[1]
        return total, sent

    def _served(self, vector: Tensor) -> Tensor:
        label = f"gradients and weights, {self.servers} server{'s' * (self.servers > 1)}"
        began = self.wire.begin(label)
        total = served(vector, self.servers, Links(self.group))
        nbytes = vector.numel() * vector.element_size()
        self.wire.count(f"data: {label}", "allreduce", self.group.size, nbytes, began)
        return total


def served(vector: Tensor, servers: int, links: Links) -> Tensor:
    """The sum of all ranks' vectors, by servers at even places of the group.

    Each server sums its part of all vectors and gives it back.
    """
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
