"""Training steps of a plan: passes in the order of its schedule, gradients, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from oracle.executor.agreement.agreement import Agreement, agreement
from oracle.executor.local.batch import arrived
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import Interval, deal
from oracle.executor.local.spans import Span
from oracle.executor.local.weights import Bundle, wide_of
from oracle.executor.passes.forward import Layers, Observer, forward
from oracle.executor.passes.operators import mean_square
from oracle.executor.steps.buckets import Buckets
from oracle.executor.steps.loss_scale import LossScale
from oracle.executor.steps.optimizer import Optimizer, ratios
from oracle.executor.steps.passing import Passing, Received, Tensors
from oracle.executor.steps.schedule import Pass, micro_batches
from oracle.executor.steps.state_away import StateAway
from oracle.executor.steps.units_away import StorageAway, UnitsAway
from oracle.plan.mesh import ENDS

Edges: TypeAlias = dict[int, GradientEdge]


class Trainer:
    """Trains one device's part of a plan, step by step."""

    def __init__(
        self, local: LocalModel, optimizer: Optimizer, observer: Observer | None = None
    ) -> None:
        self.local, self.optimizer, self.wire = local, optimizer, local.wire
        self.observer = observer or Observer()
        plan, mesh = local.plan, local.mesh
        self.segments = micro_batches(plan)
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
        self.final = frozenset(last.values())  # a chunk's gradients are complete after these
        self.waiting: dict[tuple[int, int], tuple[Tensors, Edges]] = {}
        replicas = mesh.degree(*local.replicas)
        # from ZeRO-2 on a rank keeps its part of gradients: each micro-batch's are scattered
        late = replicas > 1 and self.segments > 1  # otherwise all are added up first
        self.parted = local.zero >= 2 or (local.away.host_update and not late)
        for bundle in local.bundles if self.parted else ():
            bundle.part()
        overlap = int(plan.axis("data").overlap[0, 0])
        self.agreement = agreement(local)
        self.buckets: list[Buckets | Agreement] = [self.agreement] if self.agreement else []
        if overlap and replicas > 1 and not (local.zero or local.by_unit or self.agreement):
            self.buckets = [Buckets(local, bundle) for bundle in local.bundles]
        self.scale = LossScale(local.device) if local.dtype == torch.float16 else None
        self.states_away: dict[Bundle, StateAway] = {}
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
            all_weights = local.away.weights and local.zero < 3
            state = StateAway(bundle, local.away, local.link, slots, all_weights)
            self.states_away[bundle], bundle.slots = state, state.slots
            bundle.summed = state.summed
        else:
            updated = bundle.updated()
            bundle.slots = [torch.zeros_like(updated) for _ in range(slots)]
        if local.fetched:
            bundle.release(keep=not local.away.weights)

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        """Run one iteration on a global batch; returns this device's part of the mean loss.

        The loss is still on the device: reading it waits until the step is over.
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
                received = coming()
                passing.arrived(this)
                if this.forward:
                    outputs = self._forward(this, received, x, target, losses)
                else:
                    outputs = self._backward(this, received)
                del received
                # before sending: over one connection the notice would wait behind the data
                coming = passing.receive(after)
                passing.send(this, outputs)
                del outputs
                self.observer.after_pass()
        passing.finish()
        return sum(losses, torch.zeros((), dtype=self.local.dtype, device=self.local.device))

    def _cut(self, x: Tensor, target: Tensor, this: Pass) -> tuple[Tensor, Tensor]:
        """The part of a micro-batch of the global batch that this device has.

        It is a copy, as from a loader: a device holds no samples that it does not use yet.
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
        if not any(-1 in span.inputs for span in spans):
            x = x[:0]
        if not self.losses[this.chunk]:
            target = target[:0]
        return (arrived(x, self.local.device), arrived(target, self.local.device))

    def _forward(
        self, this: Pass, received: Received, x: Tensor, target: Tensor, losses: list[Tensor]
    ) -> Tensors:
        local = self.local
        samples, target = self._cut(x, target, this)
        live = {index: tensor.requires_grad_() for index, tensor in received}
        received.clear()
        inputs = dict(live)
        if samples.numel():
            live[-1] = samples
        del samples
        around = self._around() if local.by_unit or "offload" in local.words else None
        outputs = forward(local, live, target, this.chunk, self.observer, around)
        wide = wide_of(local.dtype)
        for index in self.losses[this.chunk]:
            y = outputs[index]
            outputs[index] = y = y if y.dim() == 0 else mean_square(y.to(wide), local.batch)
            losses.append(y.detach())
            del y
        # keep where gradients come in, not the outputs: a stage need not keep what it sent
        edges = {index: get_gradient_edge(y) for index, y in outputs.items() if y.requires_grad}
        self.waiting[this.chunk, this.micro_batch] = inputs, edges
        return {index: y.detach() for index, y in outputs.items()}

    def _backward(self, this: Pass, received: Received) -> Tensors:
        local = self.local
        inputs, edges = self.waiting.pop((this.chunk, this.micro_batch))
        self.wire.enter("backward", "")
        for buckets in self.buckets:
            buckets.armed = this in self.final
        for bundle in local.bundles if self.parted and not local.by_unit else ():
            bundle.allocate()
        gradients: Tensors = {}
        for index, gradient in received:  # of each that read it
            gradients[index] = gradients[index] + gradient if index in gradients else gradient
        received.clear()
        for index in self.losses[this.chunk]:
            unscaled = torch.ones((), dtype=wide_of(local.dtype), device=local.device)
            gradients[index] = self.scale.value if self.scale else unscaled
        torch.autograd.backward(list(edges.values()), [gradients.pop(index) for index in edges])
        del edges
        for bundle in local.bundles if local.fetched else ():
            bundle.release(keep=not local.away.weights)
        # bundles of all chunks are scattered after the last pass of a micro-batch
        for bundle in local.bundles if local.by_unit or this.chunk == 0 else ():
            self._scatter(bundle)
        return {index: x.grad for index, x in inputs.items() if x.grad is not None}

    def _around(self) -> Callable[..., tuple[Tensor, ...]]:
        """The function that runs units whose weights or activations are not always here."""
        local, sent = self.local, dict[int, list[StorageAway]]()

        def around(span: Span, layers: Layers, *inputs: Tensor) -> tuple[Tensor, ...]:
            def inner(*inputs: Tensor) -> tuple[Tensor, ...]:
                if local.by_unit:
                    return self._with_weights(span.unit, layers, *inputs)
                return layers(*inputs)

            if "offload" in local.words:
                return self.units_away.run(span, inner, inputs, sent)
            return inner(*inputs)

        return around

    def _fetch(self, unit: int, bundle: Bundle, suffix: str) -> None:
        """Fetch the weights of a unit from beside the device or from other devices, if needed."""
        local = self.local
        if bundle.has_weights:
            return
        buffer = bundle.restore().detach()
        part = bundle.shard
        if local.away.weights:
            part = buffer.new_empty(bundle.size // bundle.parts) if local.zero >= 3 else buffer
            self.states_away[bundle].bring(f"weights in{suffix}", part, bundle)
            after = unit - 1 if suffix else unit + 1
            for behind in local.bundles_of.get(after, ()):
                if behind.size:
                    local.link.ask(behind, self.states_away[behind].weights.nbytes)
        if local.zero >= 3:
            name = f"{local.shards[0]}: {bundle.prefix}weights{suffix}"
            self.wire.allgather(part, bundle.shards, name, buffer)

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
        outputs = layers(*inputs)
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

        for y in outputs:
            y.register_hook(before)
        for x in inputs:
            if x.requires_grad:
                x.register_hook(after)
        return outputs

    # --- gradients and weights ---------------------------------------------------------------

    def _reduce_gradients(self) -> None:
        local = self.local
        if local.away.host_update and self.parted:  # unit by unit, on their way out
            return
        for bundle in local.bundles if not self.parted else ():
            self._reduce_partial(bundle)
        if self.buckets:
            for buckets in self.buckets:
                buckets.finish()
            return
        for bundle in local.bundles:
            gradients = bundle.gradients
            if local.zero and not self.parted:
                gradients = self._scattered(bundle, "gradients scattered")
            if local.away.host_update:
                self._out(bundle, gradients, "gradients out at the end")
                continue
            if local.zero and not self.parted:
                bundle.summed.copy_(gradients)
            self._sum(bundle.summed, bundle.rest, f"data: {bundle.prefix}gradients")

    def _sum(self, gradients: Tensor, axes: Sequence[str], label: str) -> Tensor:
        """Sum gradients of replicas in place; they travel in the width of weights."""
        sent = gradients.to(self.local.dtype)
        self.wire.allreduce(sent, axes, label)
        return gradients if sent is gradients else gradients.copy_(sent)

    def _reduce_partial(self, bundle: Bundle) -> None:
        """Sum the gradients of which each rank has a part: of norms and tied tables."""
        norms: dict[str, list[Tensor]] = {}
        for weight, axis in self.local.partial:
            if weight not in bundle.held_weights:
                continue
            if axis == ENDS:
                label = "pipeline: gradients of the tied table"
                self.wire.allreduce(weight.gradient, (axis,), label)
            else:
                norms.setdefault(axis, []).append(weight.gradient)
        for axis, parts in norms.items():  # in one message: they are small and many
            sent = torch.cat([part.flatten() for part in parts])
            self.wire.allreduce(sent, (axis,), f"{axis}: norms of cut tensors")
            for part, came in zip(parts, sent.split([p.numel() for p in parts]), strict=True):
                part.copy_(came.view_as(part))

    def _scatter(self, bundle: Bundle) -> None:
        """Scatter the gradients of a micro-batch, and add up this rank's part of them."""
        if not self.parted or not bundle.allocated:
            return
        self._reduce_partial(bundle)
        local = self.local
        suffix = " each time" if self.segments > 1 and local.zero >= 2 else ""
        gradients = bundle.gradients
        if local.zero:
            gradients = self._scattered(bundle, f"gradients scattered{suffix}")
        if local.away.host_update:
            self._out(bundle, gradients, "gradients out")
        else:
            bundle.summed += gradients
        bundle.free()

    def _out(self, bundle: Bundle, gradients: Tensor, copy_label: str) -> None:
        """Send the sum of all replicas' gradients out, where it is added up."""
        total = self.wire.allreduce(gradients, bundle.rest, f"data: {bundle.prefix}gradients")
        self.states_away[bundle].add(total, copy_label)

    def _scattered(self, bundle: Bundle, label: str) -> Tensor:
        gradients, name = bundle.gradients.to(self.local.dtype), self.local.shards[0]
        return self.wire.reduce_scatter(
            gradients.view(bundle.parts, -1), bundle.shards, f"{name}: {bundle.prefix}{label}"
        )

    def _update(self) -> None:
        skipped = self._unscaled() if self.scale else None
        for bundle in self.local.bundles:
            scaled = partial(ratios, self.local, bundle)
            if state := self.states_away.get(bundle):
                state.update(self.optimizer, self.steps, scaled)
                continue
            self.optimizer.update(bundle.updated(), bundle.summed, bundle.slots, self.steps, scaled,
                                  skipped)  # fmt: skip
            if bundle.mixed:
                bundle.owned.copy_(bundle.masters)

    def _unscaled(self) -> Tensor:
        """Take the loss's scale off all gradients; 1 where no rank is to update by them."""
        assert self.scale
        overflow = self.scale.unscale([bundle.summed for bundle in self.local.bundles])
        every = tuple(self.local.mesh.degrees)
        self.scale.heard(self.wire.allreduce(overflow, every, "all: overflow", dist.ReduceOp.MAX))
        return self.scale.overflow

    def _gather_weights(self) -> None:
        """Gather the weights under ZeRO 1 and 2, of which each rank updated its part."""
        local = self.local
        if local.zero not in (1, 2):
            return
        name = local.shards[0]
        for bundle in local.bundles:
            weights = bundle.weights.detach()
            if local.away.weights:
                weights = self.states_away[bundle].weights
            part = weights[bundle.shard_slice].clone()
            label = f"{name}: {bundle.prefix}weights renewed"
            self.wire.allgather(part, bundle.shards, label, weights)

    def gathered(self) -> None:
        """Gather all weights on this device, to look at them."""
        for bundle in self.local.bundles:
            if not bundle.has_weights:
                part = self.states_away[bundle].weights if self.local.away.weights else bundle.shard
                buffer = bundle.restore().detach()
                if self.local.zero >= 3:
                    part = self.wire.allgather(part, bundle.shards, "to look at").flatten()
                buffer.copy_(part)
