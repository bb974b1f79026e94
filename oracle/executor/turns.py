"""A pipeline at work: in what order a stage takes its turns, and what crosses between two."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oracle.executor.parts import deal
from oracle.executor.program import Program
from oracle.executor.wire import Wire


@dataclass(frozen=True, slots=True)
class Turn:
    """One pass of one micro-batch through one of a stage's chunks."""

    forward: bool
    chunk: int
    micro: int


def turns(stage: int, p: int, v: int, segments: int, eager: bool) -> list[Turn]:
    """What a stage does, in order [narayanan2021, §2.2].

    A few passes ahead, then forward and backward in turn, then the rest back; `eager` (GPipe) has
    all passes ahead. With v chunks a stage, p micro-batches go through one before the next.

    >>> [("F" if t.forward else "B") + str(t.micro) for t in turns(0, 2, 1, 3, False)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total = segments * v

    def turn(forward: bool, k: int) -> Turn:
        chunk = k % (p * v) // p
        return Turn(forward, chunk if forward else v - 1 - chunk, k // (p * v) * p + k % p)

    ahead = total if eager else min(total, (p - 1 - stage) * (1 if v == 1 else 2) + (v - 1) * p)
    found = [turn(True, k) for k in range(ahead)]
    for k in range(ahead, total):
        found += [turn(True, k), turn(False, k - ahead)]
    return found + [turn(False, k) for k in range(total - ahead, total)]


@dataclass(frozen=True)
class Border:
    """Where a chunk meets the next: with whom, and the shape of what crosses.

    Tensor-parallel ranks hold the same output: each sends its share, and it is gathered again
    on the other side [narayanan2021, §4.1], unless the plan says `borders=whole`.
    """

    rank: int
    number: int  # of the border, along the model
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: Any
    alike: int  # ranks that hold the same
    place: int

    @classmethod
    def of(cls, program: Program, chunk: int, end: str) -> Border | None:
        """Of one of the program's chunks, `into` or `out of` it; None at the model's ends."""
        mesh, p = program.mesh, program.mesh.degree("pipeline")
        at = chunk * p + program.stage
        number = at - 1 if end == "into" else at
        if not 0 <= number < len(program.stages) - 1:
            return None
        op = program.graph.of_units(program.stages[number][1] - 1, program.stages[number][1])[-1]
        extents = list(op.shape.made.extents)
        if program.spaced(op.index):
            extents = [stop - start for start, stop in program.box(extents)]
        if op.shape.made.tokens:
            start, stop = program.tokens(extents[0])
            if program.cuts.sequence:
                start, stop = deal(stop - start, mesh.degree("tensor"))[mesh.at["tensor"]]
            extents = [stop - start]
        channels = op.shape.made.channels
        shape = (*extents, channels) if op.shape.made.tokens else (channels, *extents)
        other = (at - 1 if end == "into" else at + 1) % p
        rank = mesh.rank_at({**mesh.at, "pipeline": other})
        whole = program.cuts.sequence or program.plan.axis("pipeline").borders[0, 0]
        alike = 1 if whole else mesh.degree("tensor")
        if math.prod(shape) % alike:
            alike = 1
        place = mesh.at["tensor"] if alike > 1 else 0
        return cls(rank, number, tuple(shape), program.dtype, program.device, alike, place)

    def send(self, wire: Wire, whole: Tensor, forward: bool) -> Callable[[], None]:
        share = whole.reshape(self.alike, -1)[self.place]
        return wire.send(share, self.rank, "pipeline: stage borders", self._tag(forward))

    def expect(self, wire: Wire, batch: int, forward: bool) -> Callable[[], Tensor]:
        """Make ready to receive; call what is returned to wait for it."""
        count = batch * math.prod(self.shape) // self.alike
        share = torch.empty(count, dtype=self.dtype, device=self.device)
        wait = wire.expect(share, self.rank, "pipeline: stage borders", self._tag(forward))

        def received() -> Tensor:
            whole = wait()
            if self.alike > 1:
                whole = wire.allgather(whole, ("tensor",), "tensor: borders gathered")
            return whole.view(batch, *self.shape)

        return received

    def _tag(self, forward: bool) -> int:
        return 2 * self.number + forward
