"""Training steps of a plan: passes in the order of its schedule, gradients, update."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from oracle.executor.buckets import Buckets
from oracle.executor.forward import Layers, Observer, forward
from oracle.executor.graph import OperationGraph
from oracle.executor.local_model import LocalModel
from oracle.executor.optimizer import Optimizer, ratios
from oracle.executor.parts import Interval, deal
from oracle.executor.schedule import Pass, passes
from oracle.executor.stage_border import StageBorder
from oracle.models.layers import Embedding, Loss

PHASES = ("forward", "backward", "exchange", "update")


def inputs(
    graph: OperationGraph, batch: int, seed: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """A global batch and its targets, the same on every device."""
    random = torch.Generator().manual_seed(77_003 * seed + 1)
    first, last = graph.operations[0], graph.operations[-1]
    given, made = first.shape.given, last.shape.made
    if isinstance(first.layer, Embedding):
        x = torch.randint(first.layer.vocab, (batch, *given.extents), generator=random)
    else:
        sizes = (
            (*given.extents, given.channels) if given.tokens else (given.channels, *given.extents)
        )
        x = torch.randn((batch, *sizes), generator=random, dtype=torch.float64).to(dtype)
    if isinstance(last.layer, Loss) and last.layer.op != "cross_entropy":
        sizes = (*made.extents, made.channels) if made.tokens else (made.channels, *made.extents)
        target = torch.rand((batch, *sizes), generator=random, dtype=torch.float64).to(dtype)
    else:
        target = torch.randint(made.channels, (batch, *made.extents), generator=random)
    return x, target


@dataclass
class Clock:
    """Seconds by phase; exchanges inside a pass are counted as exchange."""

    exchanged: Callable[[], float]
    synchronise: Callable[[], None]
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.synchronise()
        began, before = time.perf_counter(), self.exchanged()
        yield
        self.synchronise()
        inside = self.exchanged() - before
        spent = time.perf_counter() - began
        self.seconds[name] += spent - inside
        self.seconds["exchange"] += inside


class Trainer:
    """Trains the part of a plan that one device has, step by step."""

    def __init__(
        self, local: LocalModel, optimizer: Optimizer, observer: Observer | None = None
    ) -> None:
        self.local, self.optimizer, self.wire = local, optimizer, local.wire
        self.observer = observer or Observer()
        plan, mesh = local.plan, local.mesh
        pipeline, data = plan.axis("pipeline"), plan.axis("data")
        self.segments = int(pipeline.segments[0, 0] * data.accumulate[0, 0])
        self.steps = 0
        begin, end = local.samples
        self.micro_batches: list[Interval] = deal(end - begin, self.segments, begin)
        chunks = range(len(local.chunks))
        self.into, self.out = (
            [StageBorder.of(local, chunk, end) for chunk in chunks] for end in ("into", "out of")
        )
        self.passes = passes(pipeline.word("schedule"), local.stage, mesh.degree("pipeline"),
                             self.segments, len(chunks))  # fmt: skip
        last = {this.chunk: this for this in self.passes if not this.forward}
        self.final = frozenset(last.values())  # a chunk's gradients are whole after these
        self.waiting: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        # from ZeRO-2 on a rank keeps its part of the gradients, so each micro-batch's are scattered
        each = local.zero >= 2 and self.segments > 1
        self.scattered = [torch.zeros_like(b.gradients[b.own]) for b in local.bundles if each]
        replicas = mesh.degree(*local.replicas)
        overlap = int(plan.axis("data").overlap[0, 0])
        self.buckets = (
            Buckets(local, local.bundles[0])
            if overlap and replicas > 1 and not local.zero
            else None
        )
        for bundle in local.bundles:
            own = bundle.weights[bundle.own]
            bundle.slots = [torch.zeros_like(own) for _ in range(optimizer.slots)]
            if local.zero >= 3:
                bundle.release()
        self.clock = Clock(lambda: self.wire.seconds, self.wire.synchronise)

    def step(self, x: Tensor, target: Tensor) -> float:
        """One iteration on a global batch; returns this device's part of the mean loss."""
        self.steps += 1
        self.clock = Clock(lambda: self.wire.seconds, self.wire.synchronise)
        for bundle in self.local.bundles:
            bundle.gradients.zero_()
        loss = self._micro_batches(x, target)
        with self.clock.phase("exchange"):
            self._reduce_gradients()
        with self.clock.phase("update"):
            self._update()
        with self.clock.phase("exchange"):
            self._gather_weights()
        return loss

    # --- passes --------------------------------------------------------------------------

    def _micro_batches(self, x: Tensor, target: Tensor) -> float:
        own = [self._cut(x, target, micro) for micro in self.micro_batches]
        losses: list[float] = []
        sending: list[Callable[[], None]] = []
        coming = self._receive(self.passes[0])
        for this, after in zip(self.passes, [*self.passes[1:], None], strict=True):
            with self.clock.phase("forward" if this.forward else "backward"):
                given = coming() if coming else None
                made = (
                    self._forward(this, given, *own[this.micro_batch], losses)
                    if this.forward
                    else self._backward(this, given)
                )
                # before anything is sent: over one connection its notice would wait behind the data
                coming = self._receive(after)
                border = (self.out if this.forward else self.into)[this.chunk]
                if border and made is not None:
                    sending.append(border.send(self.wire, made, this.forward))
        for sent in sending:
            sent()
        return sum(losses)

    def _receive(self, this: Pass | None) -> Callable[[], Tensor] | None:
        if this is None:
            return None
        border = (self.into if this.forward else self.out)[this.chunk]
        begin, end = self.micro_batches[this.micro_batch]
        return border.expect(self.wire, end - begin, this.forward) if border else None

    def _cut(self, x: Tensor, target: Tensor, micro: Interval) -> tuple[Tensor, Tensor]:
        """A micro-batch of the global batch, of it the part of this device."""
        a, b = micro
        x, target = x[a:b], target[a:b]
        if self.local.mesh.degree("context") > 1:
            begin, end = self.local.tokens(x.shape[1])
            x, target = x[:, begin:end], target[:, begin:end]
        if self.local.spaced(-1):
            for i, (start, stop) in enumerate(self.local.box(x.shape[2:])):
                x = x.narrow(2 + i, start, stop - start)
        device = self.local.device
        return x.to(device).contiguous(), target.to(device).contiguous()

    def _forward(
        self, this: Pass, given: Tensor | None, x: Tensor, target: Tensor, losses: list[float]
    ) -> Tensor | None:
        local = self.local
        x = x if given is None else given.requires_grad_()
        around = self._with_weights if local.zero >= 3 else None
        y = forward(local, x, target, this.chunk, self.observer, around)
        if not self.out[this.chunk]:
            y = y if y.dim() == 0 else _mean_square(y, local.batch)
            losses.append(float(y.detach()))
        self.waiting[this.chunk, this.micro_batch] = x, y
        return y.detach()

    def _backward(self, this: Pass, given: Tensor | None) -> Tensor | None:
        x, y = self.waiting.pop((this.chunk, this.micro_batch))
        self.wire.enter("backward", "")
        if self.buckets:
            self.buckets.armed = this in self.final
        torch.autograd.backward([y], [given])
        self.observer.after_backward()
        for bundle in self.local.bundles if self.local.zero >= 3 else ():
            bundle.release()
        if self.scattered and this.chunk == 0:  # the last of a micro-batch's passes here
            self._scatter_gradients("gradients scattered each time")
        return x.grad

    def _with_weights(self, unit: int, layers: Layers, x: Tensor) -> Tensor:
        """ZeRO 3: run a unit on weights gathered for it, and gathered again for its gradient."""
        local = self.local
        bundle = local.bundle_of[unit]
        if not bundle.held_weights:
            return layers(x)

        def fetch(what: str) -> None:
            if not bundle.here:
                name = local.shards[0]
                whole = self.wire.allgather(bundle.shard, local.shards, f"{name}: {what}")
                bundle.restore().copy_(whole.flatten())

        fetch("weights")
        y = layers(x)
        bundle.release()
        y.register_hook(lambda _: fetch("weights again"))
        if x.requires_grad:
            x.register_hook(lambda _: bundle.release())
        return y

    # --- gradients and weights ---------------------------------------------------------------

    def _reduce_gradients(self) -> None:
        local, wire = self.local, self.wire
        if self.scattered:
            own = torch.cat(self.scattered)
            for part in self.scattered:
                part.zero_()
        else:
            self._reduce_partial()
            if self.buckets:
                self.buckets.finish()
                return
            if not local.zero:
                for bundle in local.bundles:
                    wire.allreduce(bundle.gradients, local.replicas, "data: gradients")
                return
            whole = torch.cat([b.gradients.view(b.parts, -1) for b in local.bundles], 1)
            name = f"{local.shards[0]}: gradients scattered"
            own = wire.reduce_scatter(whole, local.shards, name)
        rest = tuple(a for a in local.replicas if a not in local.shards)
        wire.allreduce(own, rest, "data: gradients")
        for bundle, part in zip(local.bundles, own.split(self._widths()), strict=True):
            bundle.gradients[bundle.own].copy_(part)

    def _reduce_partial(self) -> None:
        """Gradients of norms, of which each rank of a cut tensor has a part."""
        for held, axis in self.local.partial:
            if held.value.grad is not None:
                self.wire.allreduce(held.value.grad, (axis,), f"{axis}: norms of cut tensors")

    def _scatter_gradients(self, what: str) -> None:
        """Scatter the gradients of a micro-batch, and add up the own part of them."""
        local = self.local
        self._reduce_partial()
        for bundle, kept in zip(local.bundles, self.scattered, strict=True):
            if bundle.size:
                whole = bundle.gradients.view(bundle.parts, -1)
                kept += self.wire.reduce_scatter(whole, local.shards, f"{local.shards[0]}: {what}")
                bundle.gradients.zero_()

    def _widths(self) -> list[int]:
        return [bundle.size // bundle.parts for bundle in self.local.bundles]

    def _update(self) -> None:
        for bundle in self.local.bundles:
            weights = bundle.weights[bundle.own] if bundle.here else bundle.shard
            self.optimizer.update(
                weights.detach(), bundle.gradients[bundle.own], bundle.slots, self.steps,
                partial(ratios, self.local, bundle),
            )  # fmt: skip

    def _gather_weights(self) -> None:
        """ZeRO 1 and 2: gather the weights, of which each rank has updated its part."""
        local = self.local
        if local.zero not in (1, 2):
            return
        name = local.shards[0]
        for bundle in local.bundles:
            own = bundle.weights[bundle.own].clone()
            whole = self.wire.allgather(own, local.shards, f"{name}: weights renewed")
            bundle.weights.copy_(whole.flatten())

    def gathered(self) -> None:
        """Gather all weights on this device, to look at them."""
        for bundle in self.local.bundles:
            if not bundle.here:
                whole = self.wire.allgather(bundle.shard, self.local.shards, "to look at")
                bundle.restore().copy_(whole.flatten())


def _mean_square(y: Tensor, batch: int) -> Tensor:
    """A loss for models that end without this."""
    return (y**2).sum() / (batch * math.prod(y.shape[1:]))
