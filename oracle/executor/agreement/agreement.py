"""How the replicas of a plan agree on gradients, and what they keep from step to step."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.executor.agreement.largest import WAYS, packed
from oracle.executor.agreement.links import Links
from oracle.executor.agreement.low_rank import LowRank
from oracle.executor.agreement.served import served
from oracle.executor.agreement.signs import Signs
from oracle.executor.local_model import LocalModel
from oracle.executor.weights import Bundle
from oracle.plan.strategies.agreement import special

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def agreement(local: LocalModel) -> Agreement | None:
    """None where gradients are simply summed up."""
    data = local.plan.axis("data")
    alone = local.mesh.degree(*local.replicas) == 1 or local.mesh.degree("data") == 1
    return None if alone or not special(data) else Agreement(local)


class Agreement:
    """Sums of gradients, of which less is sent than all of them."""

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
        """Put the sum of all replicas' gradients in place of the own."""
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
        """Average weights, every so many steps."""
        if self.every > 1 and step % self.every == 0:
            for bundle in self.local.bundles:
                self.wire.allreduce(bundle.weights.detach(), self.axes, "data: weights averaged")
                bundle.weights.detach().div_(self.group.size)
                if bundle.mixed:
                    bundle.masters.copy_(bundle.owned)

    def _with_rest(self, number: int, bundle: Bundle) -> None:
        """Sum what was left out before as well, and keep what is left out now."""
        whole = bundle.gradients + self.left[number]
        if self.word == "topk":
            found, own = self._largest(whole)
        elif self.word == "powersgd":
            found = self.factors[number].sum(whole, self.wire, self.axes)
            own = torch.where(self.factors[number].rest, whole, found / self.group.size)
        else:
            found, own = self.signs[number].sum(whole, self.wire, self.axes)
        if self.kept:
            self.left[number] = whole - own
        bundle.gradients.copy_(found)

    def _largest(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        count = max(1, round(self.density * whole.numel()))
        links, size = Links(self.group), self.group.size
        began = self.wire.begin("largest gradients")
        found, own = WAYS[self.sparse](whole, count, links)
        each = packed((torch.zeros(count, dtype=torch.long), whole[:count])).numel()
        what, op, nbytes = f"largest gradients by {self.sparse}", "sparse_allreduce", float(each)
        if self.sparse == "allgather":
            what, op, nbytes = "largest gradients", "allgather", float(each * size)
        elif self.sparse == "switching":  # as much as a ring of the dense vector would be of
            what, nbytes = "largest gradients by shares", links.sent / (2 * (size - 1)) * size
        self.wire.count(f"data: {what}", op, size, nbytes, began)
        kept = torch.zeros_like(whole)
        kept[own[0]] = own[1]
        return found, kept

    def _served(self, vector: Tensor) -> Tensor:
        what = f"gradients and weights, {self.servers} server{'s' * (self.servers > 1)}"
        began = self.wire.begin(what)
        found = served(vector, self.servers, Links(self.group))
        nbytes = vector.numel() * vector.element_size()
        self.wire.count(f"data: {what}", "allreduce", self.group.size, nbytes, began)
        return found
