"""Training steps of a plan: passes in the order of its schedule, gradients, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from oracle.executor.agreement.agreement import Agreement, agreement
from oracle.executor.batch import arrived
from oracle.executor.beside import Beside
from oracle.executor.buckets import Buckets
from oracle.executor.forward import Layers, Observer, forward
from oracle.executor.local_model import LocalModel
from oracle.executor.loss_scale import LossScale
from oracle.executor.optimizer import Optimizer, ratios
from oracle.executor.parts import Interval, deal
from oracle.executor.passing import Passing, Received, Tensors
from oracle.executor.schedule import Pass
from oracle.executor.spans import Span
from oracle.executor.units_away import Sent, UnitsAway
from oracle.executor.weights import Bundle, wide_of
from oracle.plan.mesh import ENDS

Edges: TypeAlias = dict[int, GradientEdge]


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
        end = local.graph.operations[-1].index
        self.losses = [[op.index for op in local.graph.of_units(*units)
                        if op.shape.kind == "loss" or op.index == end]
                       for units in local.chunks]  # fmt: skip
        self.passing = Passing(local, self.micro_batches)
        self.passes = self.passing.turns(local.stage)
        last = {this.chunk: this for this in self.passes if not this.forward}
        self.final = frozenset(last.values())  # a chunk's gradients are whole after these
        self.waiting: dict[tuple[int, int], tuple[Tensors, Edges]] = {}
        replicas = mesh.degree(*local.replicas)
        # from ZeRO-2 on a rank keeps its part of the gradients, so each micro-batch's are scattered
        late = replicas > 1 and self.segments > 1  # else all are added up first
        self.parted = local.zero >= 2 or (local.away.there and not late)
        for bundle in local.bundles if self.parted else ():
            bundle.part()
        overlap = int(plan.axis("data").overlap[0, 0])
        self.agreement = agreement(local)
        self.buckets: list[Buckets | Agreement] = [self.agreement] if self.agreement else []
        if overlap and replicas > 1 and not (local.zero or local.by_unit or self.agreement):
            self.buckets = [Buckets(local, bundle) for bundle in local.bundles]
        self.scale = LossScale(local.device) if local.dtype == torch.float16 else None
        self.beside: dict[Bundle, Beside] = {}
        for bundle in local.bundles:
            self._lay_out(bundle)
        fixed = [tensor for b in local.bundles for tensor in (b.weights, b.gradients)]
        self.units_away = UnitsAway(
            local.words, local.link, fixed, local.away.disk, local.away.prefetch
        )

    def _lay_out(self, bundle: Bundle) -> None:
        """Give a bundle the state of its optimizer, here or beside the device."""
        local, slots = self.local, self.optimizer.slots
        if local.away.optimizer:
            whole = local.away.weights and local.zero < 3
            beside = Beside(bundle, local.away, local.link, slots, whole)
            self.beside[bundle], bundle.slots = beside, beside.slots
            bundle.summed = beside.summed
        else:
            own = bundle.updated()
            bundle.slots = [torch.zeros_like(own) for _ in range(slots)]
        if local.fetched:
            bundle.release(keep=not local.away.weights)

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        """One iteration on a global batch; returns this device's part of the mean loss.

        It is of the device still: who reads it waits until the step is over.
        """
        self.steps += 1
        self.local.step = self.steps
        for bundle in self.local.bundles:
            if not self.parted:
                bundle.gradients.zero_()
            bundle.summed.zero_()
        loss = self._micro_batches(x, target)
        with self.wire.timer.phase("exchange"):
            self._reduce_gradients()
        with self.wire.timer.phase("update"):
            self._update()
        if self.agreement:
            self.agreement.after(self.steps)
        with self.wire.timer.phase("exchange"):
            self._gather_weights()
        return loss

    # --- passes --------------------------------------------------------------------------

    def _micro_batches(self, x: Tensor, target: Tensor) -> Tensor:
        losses: list[Tensor] = []
        passing = self.passing
        coming = passing.receive(self.passes[0])
        for this, after in zip(self.passes, [*self.passes[1:], None], strict=True):
            self.local.first_sample, _ = self.micro_batches[this.micro_batch]
            with self.wire.timer.phase("forward" if this.forward else "backward"):
                self.observer.before_pass(this.forward)
                given = coming()
                passing.arrived(this)
                made = (
                    self._forward(this, given, x, target, losses)
                    if this.forward
                    else self._backward(this, given)
                )
                del given
                # before anything is sent: over one connection its notice would wait behind the data
                coming = passing.receive(after)
                passing.send(this, made)
                del made
                self.observer.after_pass()
        passing.finish()
        return sum(losses, torch.zeros((), dtype=self.local.dtype, device=self.local.device))

    def _cut(self, x: Tensor, target: Tensor, this: Pass) -> tuple[Tensor, Tensor]:
        """A micro-batch of the global batch, of it the part of this device.

        Copied, as from a loader: of what it does not use yet a device holds nothing.
        """
        a, b = self.micro_batches[this.micro_batch]
        x, target = x[a:b], target[a:b]
        if self.local.mesh.degree("context") > 1:
            begin, end = self.local.tokens(x.shape[1])
            x = x[:, begin:end]
        if self.local.spaced(-1):
            for i, (start, stop) in enumerate(self.local.box(x.shape[2:])):
                x = x.narrow(2 + i, start, stop - start)
        spans = self.local.spans[this.chunk]
        if not any(-1 in span.given for span in spans):
            x = x[:0]
        if not self.losses[this.chunk]:
            target = target[:0]
        return (arrived(x, self.local.device), arrived(target, self.local.device))

    def _forward(
        self, this: Pass, received: Received, x: Tensor, target: Tensor, losses: list[Tensor]
    ) -> Tensors:
        local = self.local
        own, target = self._cut(x, target, this)
        given = {at: tensor.requires_grad_() for at, tensor in received}
        received.clear()
        inputs = dict(given)
        if own.numel():
            given[-1] = own
        del own
        around = self._around() if local.by_unit or "offload" in local.words else None
        made = forward(local, given, target, this.chunk, self.observer, around)
        wide = wide_of(local.dtype)
        for at in self.losses[this.chunk]:
            y = made[at]
            made[at] = y = y if y.dim() == 0 else _mean_square(y.to(wide), local.batch)
            losses.append(y.detach())
            del y
        # where gradients come in, not what it made: what a stage has sent it need not keep
        edges = {at: get_gradient_edge(y) for at, y in made.items() if y.requires_grad}
        self.waiting[this.chunk, this.micro_batch] = inputs, edges
        return {at: y.detach() for at, y in made.items()}

    def _backward(self, this: Pass, received: Received) -> Tensors:
        local = self.local
        inputs, edges = self.waiting.pop((this.chunk, this.micro_batch))
        self.wire.enter("backward", "")
        for buckets in self.buckets:
            buckets.armed = this in self.final
        for bundle in local.bundles if self.parted and not local.by_unit else ():
            bundle.allocate()
        gradients: Tensors = {}
        for at, gradient in received:  # of each that read it
            gradients[at] = gradients[at] + gradient if at in gradients else gradient
        received.clear()
        for at in self.losses[this.chunk]:
            one = torch.ones((), dtype=wide_of(local.dtype), device=local.device)
            gradients[at] = self.scale.value if self.scale else one
        torch.autograd.backward(list(edges.values()), [gradients.pop(at) for at in edges])
        del edges
        for bundle in local.bundles if local.fetched else ():
            bundle.release(keep=not local.away.weights)
        # of whole chunks with the last of a micro-batch's passes here
        for bundle in local.bundles if local.by_unit or this.chunk == 0 else ():
            self._scatter(bundle)
        return {at: x.grad for at, x in inputs.items() if x.grad is not None}

    def _around(self) -> Callable[..., tuple[Tensor, ...]]:
        """How units of a pass are run, whose weights or activations are not always here."""
        local, sent = self.local, dict[int, list[Sent]]()

        def around(span: Span, layers: Layers, *inputs: Tensor) -> tuple[Tensor, ...]:
            def inner(*inputs: Tensor) -> tuple[Tensor, ...]:
                if local.by_unit:
                    return self._with_weights(span.unit, layers, *inputs)
                return layers(*inputs)

            if "offload" in local.words:
                return self.units_away.run(span, inner, inputs, sent)
            return inner(*inputs)

        return around

    def _fetch(self, unit: int, bundle: Bundle, again: str) -> None:
        """Weights of a unit, from beside the device or from other devices, if they are not here."""
        local = self.local
        if bundle.here:
            return
        whole = bundle.restore().detach()
        own = bundle.shard
        if local.away.weights:
            own = whole.new_empty(bundle.size // bundle.parts) if local.zero >= 3 else whole
            self.beside[bundle].bring(f"weights in{again}", own, bundle)
            after = unit - 1 if again else unit + 1
            for behind in local.bundles_of.get(after, ()):
                if behind.size:
                    local.link.ask(behind, self.beside[behind].weights.nbytes)
        if local.zero >= 3:
            name = f"{local.shards[0]}: {bundle.prefix}weights{again}"
            self.wire.allgather(own, bundle.shards, name, whole)

    def _with_weights(self, unit: int, layers: Layers, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run a unit on weights that come for it, and again for its gradient."""
        local = self.local
        keep = not local.away.weights
        bundles = [bundle for bundle in local.bundles_of[unit] if bundle.held_weights]
        if not bundles:
            return layers(*inputs)
        # of each, the gradient that comes from here; of what came from afar, which is a leaf, once
        # the gradients of weights are there too
        if len(inputs) > 1 or inputs[0].is_leaf:
            inputs = tuple(x.view_as(x) for x in inputs)
        for bundle in bundles:
            self._fetch(unit, bundle, "")
        made = layers(*inputs)
        left = sum(x.requires_grad for x in inputs)
        for bundle in bundles if local.fetched else ():
            bundle.release(keep)

        def before(_: Tensor) -> None:
            for bundle in bundles:
                self._fetch(unit, bundle, " again")
                if self.parted:
                    bundle.allocate()

        def after(_: Tensor) -> None:
            nonlocal left
            left -= 1
            if left:
                return
            for bundle in bundles:
                if local.fetched:
                    bundle.release(keep)
                self._scatter(bundle)

        for y in made:
            y.register_hook(before)
        for x in inputs:
            if x.requires_grad:
                x.register_hook(after)
        return made

    # --- gradients and weights ---------------------------------------------------------------

    def _reduce_gradients(self) -> None:
        local = self.local
        if local.away.there and self.parted:  # unit by unit, on their way out
            return
        for bundle in local.bundles if not self.parted else ():
            self._reduce_partial(bundle)
        if self.buckets:
            for buckets in self.buckets:
                buckets.finish()
            return
        for bundle in local.bundles:
            own = bundle.gradients
            if local.zero and not self.parted:
                own = self._scattered(bundle, "gradients scattered")
            if local.away.there:
                self._out(bundle, own, "gradients out at the end")
                continue
            if local.zero and not self.parted:
                bundle.summed.copy_(own)
            self._sum(bundle.summed, bundle.rest, f"data: {bundle.prefix}gradients")

    def _sum(self, gradients: Tensor, axes: Sequence[str], what: str) -> Tensor:
        """Sum gradients of replicas in place; they are as wide as weights on their way."""
        sent = gradients.to(self.local.dtype)
        self.wire.allreduce(sent, axes, what)
        return gradients if sent is gradients else gradients.copy_(sent)

    def _reduce_partial(self, bundle: Bundle) -> None:
        """Gradients of which each rank has a part: of norms of cut tensors, and of tied tables."""
        norms: dict[str, list[Tensor]] = {}
        for held, axis in self.local.partial:
            if held not in bundle.held_weights:
                continue
            if axis == ENDS:
                self.wire.allreduce(held.gradient, (axis,), "pipeline: gradients of the tied table")
            else:
                norms.setdefault(axis, []).append(held.gradient)
        for axis, parts in norms.items():  # in one message: they are small and many
            sent = torch.cat([part.flatten() for part in parts])
            self.wire.allreduce(sent, (axis,), f"{axis}: norms of cut tensors")
            for part, came in zip(parts, sent.split([p.numel() for p in parts]), strict=True):
                part.copy_(came.view_as(part))

    def _scatter(self, bundle: Bundle) -> None:
        """Scatter the gradients of a micro-batch, and add up the own part of them."""
        if not self.parted or not bundle.allocated:
            return
        self._reduce_partial(bundle)
        local = self.local
        each = " each time" if self.segments > 1 and local.zero >= 2 else ""
        own = bundle.gradients
        if local.zero:
            own = self._scattered(bundle, f"gradients scattered{each}")
        if local.away.there:
            self._out(bundle, own, "gradients out")
        else:
            bundle.summed += own
        bundle.free()

    def _out(self, bundle: Bundle, own: Tensor, what: str) -> None:
        """Send the sum of all replicas' gradients out, to be added up there."""
        said = f"data: {bundle.prefix}gradients"
        self.beside[bundle].add(self.wire.allreduce(own, bundle.rest, said), what)

    def _scattered(self, bundle: Bundle, what: str) -> Tensor:
        whole, name = bundle.gradients.to(self.local.dtype), self.local.shards[0]
        return self.wire.reduce_scatter(
            whole.view(bundle.parts, -1), bundle.shards, f"{name}: {bundle.prefix}{what}"
        )

    def _update(self) -> None:
        skipped = self._unscaled() if self.scale else None
        for bundle in self.local.bundles:
            scaled = partial(ratios, self.local, bundle)
            if beside := self.beside.get(bundle):
                beside.update(self.optimizer, self.steps, scaled)
                continue
            self.optimizer.update(bundle.updated(), bundle.summed, bundle.slots, self.steps, scaled,
                                  skipped)  # fmt: skip
            if bundle.mixed:
                bundle.owned.copy_(bundle.masters)

    def _unscaled(self) -> Tensor:
        """Take the loss's scale off all gradients; 1 where no rank is to update by them."""
        assert self.scale
        found = self.scale.unscale([bundle.summed for bundle in self.local.bundles])
        every = tuple(self.local.mesh.degrees)
        self.scale.heard(self.wire.allreduce(found, every, "all: overflow", dist.ReduceOp.MAX))
        return self.scale.overflow

    def _gather_weights(self) -> None:
        """ZeRO 1 and 2: gather the weights, of which each rank has updated its part."""
        local = self.local
        if local.zero not in (1, 2):
            return
        name = local.shards[0]
        for bundle in local.bundles:
            whole = bundle.weights.detach()
            if local.away.weights:
                whole = self.beside[bundle].weights
            own, said = whole[bundle.own].clone(), f"{name}: {bundle.prefix}weights renewed"
            self.wire.allgather(own, bundle.shards, said, whole)

    def gathered(self) -> None:
        """Gather all weights on this device, to look at them."""
        for bundle in self.local.bundles:
            if not bundle.here:
                own = self.beside[bundle].weights if self.local.away.weights else bundle.shard
                whole = bundle.restore().detach()
                if self.local.zero >= 3:
                    own = self.wire.allgather(own, bundle.shards, "to look at").flatten()
                whole.copy_(own)


def _mean_square(y: Tensor, batch: int) -> Tensor:
    """A loss for models that end without this."""
    return (y**2).sum() / (batch * math.prod(y.shape[1:]))
