"""Training steps of a plan: micro-batches in the schedule's order, gradients, update."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oracle.executor.graph import Graph
from oracle.executor.optimizer import Optimizer, ratios
from oracle.executor.parts import Interval, deal
from oracle.executor.program import Program
from oracle.executor.turns import Border, Turn, turns
from oracle.executor.weights import Bundle
from oracle.models.layers import Embedding, Loss

BUCKET = 25e6  # bytes of gradients exchanged at once while the backward pass runs
PHASES = ("forward", "backward", "exchange", "update")


def inputs(graph: Graph, batch: int, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
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
    """Seconds by phase; what is exchanged inside a pass is taken out of it."""

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
    """One device of a plan, ready to step."""

    def __init__(self, program: Program, optimizer: Optimizer) -> None:
        self.program, self.optimizer, self.wire = program, optimizer, program.wire
        plan, mesh = program.plan, program.mesh
        pipeline, data = plan.axis("pipeline"), plan.axis("data")
        self.segments = int(pipeline.segments[0, 0] * data.accumulate[0, 0])
        self.steps = 0
        begin, end = program.samples
        self.micros: list[Interval] = deal(end - begin, self.segments, begin)
        chunks = range(len(program.chunks))
        self.into, self.out = (
            [Border.of(program, chunk, end) for chunk in chunks] for end in ("into", "out of")
        )
        eager = not int(pipeline.schedule[0, 0])  # gpipe: all forward, then all back
        self.turns = turns(program.stage, mesh.degree("pipeline"), len(chunks), self.segments,
                           eager)  # fmt: skip
        last = {turn.chunk: turn for turn in self.turns if not turn.forward}
        self.final = frozenset(last.values())  # after which a chunk's gradients are whole
        self.waiting: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        mesh_replicas = mesh.degree(*program.replicas)
        overlap = int(plan.axis("data").overlap[0, 0])
        self.buckets = (
            Buckets(program, program.bundles[0])
            if overlap and mesh_replicas > 1 and not program.zero
            else None
        )
        for bundle in program.bundles:
            own = bundle.weights[bundle.own]
            bundle.slots = [torch.zeros_like(own) for _ in range(optimizer.slots)]
            if program.zero >= 3:
                bundle.release()
        self.clock = Clock(lambda: self.wire.seconds, self.wire.synchronise)

    def step(self, x: Tensor, target: Tensor) -> float:
        """One iteration on a global batch; this device's part of the mean loss."""
        self.steps += 1
        self.clock = Clock(lambda: self.wire.seconds, self.wire.synchronise)
        for bundle in self.program.bundles:
            bundle.gradients.zero_()
        loss = self._micro_batches(x, target)
        with self.clock.phase("exchange"):
            self._agree()
        with self.clock.phase("update"):
            self._update()
        with self.clock.phase("exchange"):
            self._renew()
        return loss

    # --- schedules -----------------------------------------------------------------------

    def _micro_batches(self, x: Tensor, target: Tensor) -> float:
        own = [self._cut(x, target, micro) for micro in self.micros]
        losses: list[float] = []
        sending: list[Callable[[], None]] = []
        coming = self._expected(self.turns[0])
        for turn, after in zip(self.turns, [*self.turns[1:], None], strict=True):
            with self.clock.phase("forward" if turn.forward else "backward"):
                given = coming() if coming else None
                made = (
                    self._forward(turn, given, *own[turn.micro], losses)
                    if turn.forward
                    else self._backward(turn, given)
                )
                # before anything is sent: the word that one is ready would wait behind the data
                coming = self._expected(after)
                border = (self.out if turn.forward else self.into)[turn.chunk]
                if border and made is not None:
                    sending.append(border.send(self.wire, made, turn.forward))
        for sent in sending:
            sent()
        return sum(losses)

    def _expected(self, turn: Turn | None) -> Callable[[], Tensor] | None:
        if turn is None:
            return None
        border = (self.into if turn.forward else self.out)[turn.chunk]
        begin, end = self.micros[turn.micro]
        return border.expect(self.wire, end - begin, turn.forward) if border else None

    def _cut(self, x: Tensor, target: Tensor, micro: Interval) -> tuple[Tensor, Tensor]:
        """A micro-batch of the global batch, cut in space where the first layer is."""
        a, b = micro
        x, target = x[a:b], target[a:b]
        if self.program.mesh.degree("context") > 1:
            begin, end = self.program.tokens(x.shape[1])
            x, target = x[:, begin:end], target[:, begin:end]
        if self.program.spaced(-1):
            for i, (start, stop) in enumerate(self.program.box(x.shape[2:])):
                x = x.narrow(2 + i, start, stop - start)
        device = self.program.device
        return x.to(device).contiguous(), target.to(device).contiguous()

    def _forward(
        self, turn: Turn, given: Tensor | None, x: Tensor, target: Tensor, losses: list[float]
    ) -> Tensor | None:
        program = self.program
        x = x if given is None else given.requires_grad_()
        around = self._with_weights if program.zero >= 3 else None
        y = program.forward(x, target, turn.chunk, around)
        if not self.out[turn.chunk]:
            y = y if y.dim() == 0 else _mean_square(y, program.batch)
            losses.append(float(y.detach()))
        self.waiting[turn.chunk, turn.micro] = x, y
        return y.detach()

    def _backward(self, turn: Turn, given: Tensor | None) -> Tensor | None:
        x, y = self.waiting.pop((turn.chunk, turn.micro))
        self.wire.enter("backward", "")
        if self.buckets:
            self.buckets.armed = turn in self.final
        torch.autograd.backward([y], [given])
        self.program.watch.came_back()
        for bundle in self.program.bundles if self.program.zero >= 3 else ():
            bundle.release()
        return x.grad

    def _with_weights(self, unit: int, call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Run a unit on weights that are fetched for it, and fetched again for its gradient."""
        program = self.program
        bundle = program.bundle_of[unit]
        if not bundle.helds:
            return call(x)

        def fetch(what: str) -> None:
            if not bundle.here:
                name = program.shards[0]
                whole = self.wire.allgather(bundle.shard, program.shards, f"{name}: {what}")
                bundle.restore().copy_(whole.flatten())

        fetch("weights")
        y = call(x)
        bundle.release()
        y.register_hook(lambda _: fetch("weights again"))
        if x.requires_grad:
            x.register_hook(lambda _: bundle.release())
        return y

    # --- gradients and weights ---------------------------------------------------------------

    def _agree(self) -> None:
        program, wire = self.program, self.wire
        for held, axis in program.partial:
            if held.value.grad is not None:
                wire.allreduce(held.value.grad, (axis,), f"{axis}: norms of cut tensors")
        if self.buckets:
            self.buckets.finish()
            return
        if not program.zero:
            for bundle in program.bundles:
                wire.allreduce(bundle.gradients, program.replicas, "data: gradients")
            return
        name = program.shards[0]
        whole = torch.cat([b.gradients.view(b.parts, -1) for b in program.bundles], 1)
        own = wire.reduce_scatter(whole, program.shards, f"{name}: gradients scattered")
        rest = tuple(a for a in program.replicas if a not in program.shards)
        wire.allreduce(own, rest, "data: gradients")
        for bundle, part in zip(program.bundles, own.split(self._widths()), strict=True):
            bundle.gradients[bundle.own].copy_(part)

    def _widths(self) -> list[int]:
        return [bundle.size // bundle.parts for bundle in self.program.bundles]

    def _update(self) -> None:
        for bundle in self.program.bundles:
            weights = bundle.weights[bundle.own] if bundle.here else bundle.shard
            self.optimizer.update(
                weights.detach(), bundle.gradients[bundle.own], bundle.slots, self.steps,
                partial(ratios, self.program, bundle),
            )  # fmt: skip

    def _renew(self) -> None:
        """ZeRO 1 and 2: each has renewed its share of the weights."""
        program = self.program
        if program.zero not in (1, 2):
            return
        name = program.shards[0]
        for bundle in program.bundles:
            own = bundle.weights[bundle.own].clone()
            whole = self.wire.allgather(own, program.shards, f"{name}: weights renewed")
            bundle.weights.copy_(whole.flatten())

    def gathered(self) -> None:
        """Have all weights here, to look at them."""
        for bundle in self.program.bundles:
            if not bundle.here:
                whole = self.wire.allgather(bundle.shard, self.program.shards, "to look at")
                bundle.restore().copy_(whole.flatten())


def _mean_square(y: Tensor, batch: int) -> Tensor:
    """A loss for models that end without one."""
    return (y**2).sum() / (batch * math.prod(y.shape[1:]))


class Buckets:
    """Gradients exchanged piece by piece while the backward pass still runs."""

    def __init__(self, program: Program, bundle: Bundle) -> None:
        self.program, self.bundle, self.armed = program, bundle, False
        self.late = any(True for _ in program.partial)  # gradients are whole after the pass only
        nbytes = bundle.size * bundle.gradients.element_size()
        pieces = max(1, math.ceil(nbytes / BUCKET))
        self.pieces = deal(bundle.size, pieces)
        self.missing = [0] * pieces
        self.waits: list[Callable[[], None]] = []
        self._reset()
        for held in bundle.helds:
            held.value.register_post_accumulate_grad_hook(self._hook(held))

    def _over(self, held: Any) -> list[int]:
        stop = held.at + math.prod(held.shape)
        return [i for i, (a, b) in enumerate(self.pieces) if a < stop and held.at < b]

    def _reset(self) -> None:
        self.missing = [0] * len(self.pieces)
        for held in self.bundle.helds:
            for piece in self._over(held):
                self.missing[piece] += 1

    def _hook(self, held: Any) -> Callable[[Tensor], None]:
        pieces = self._over(held)

        def ready(_: Tensor) -> None:
            if not self.armed:
                return
            for piece in pieces:
                self.missing[piece] -= 1
                if self.missing[piece] == 0 and not self.late:
                    self._send(piece)

        return ready

    def _send(self, piece: int) -> None:
        a, b = self.pieces[piece]
        self.waits.append(
            self.program.wire.allreduce_later(
                self.bundle.gradients[a:b], self.program.replicas, "data: gradients"
            )
        )

    def finish(self) -> None:
        """Send what is left, wait for all."""
        for piece, missing in enumerate(self.missing):
            if missing or self.late:
                self._send(piece)
        for wait in self.waits:
            wait()
        self.waits = []
        self._reset()
