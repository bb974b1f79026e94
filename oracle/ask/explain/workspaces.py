"""What convolutions take of their workspace: algorithm and division of each layer's passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.kernels.convolved import Kernels, Piece, chosen
from oracle.predict.estimate import Estimate
from oracle.predict.workload import Workload, rows_of, workload
from oracle.spec.tabular import Tabular
from oracle.spec.units import show


@dataclass(frozen=True, slots=True)
class Kernel:
    """One pass of one layer, of a micro-batch on one device."""

    name: str
    part: str  # forward, data or weight
    shape: str
    count: int  # layers alike, on the stage that sets the pace
    pieces: tuple[Piece, ...]  # of its batch, the largest first
    room: float  # bytes of workspace
    seconds: float  # of one such layer
    saved: float  # against all samples in one piece, within the same workspace

    @property
    def division(self) -> str:
        """`256 = 3 × 64 + 2 × 32`; nothing where the batch is run whole."""
        if len(self.pieces) == 1 and self.pieces[0].count == 1:
            return f"{self.pieces[0].samples:.4g}"
        total = sum(each.count * each.samples for each in self.pieces)
        some = " + ".join(f"{each.count} × {each.samples:.4g}" for each in self.pieces)
        return f"{total:.4g} = {some}"

    @property
    def algorithms(self) -> str:
        """The algorithm of each kind of piece, each named once."""
        return ", ".join(dict.fromkeys(each.algorithm for each in self.pieces))

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        pieces = [{"count": int(each.count), "samples": float(each.samples),
                   "algorithm": each.algorithm} for each in self.pieces]  # fmt: skip
        return {"name": self.name, "pass": self.part, "shape": self.shape, "count": self.count,
                "pieces": pieces, "bytes": self.room, "seconds": self.seconds,
                "saved": self.saved}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Workspaces(Tabular):
    """What the convolutions of a plan take, in the order of the network."""

    plan: str
    asked: str | None  # as `--workspace` says it
    shared: bool
    each: tuple[Kernel, ...]

    @property
    def most(self) -> float:
        """Bytes that a device must have for them: of all, where they share; else of the largest."""
        every = [one.room * one.count if self.shared else one.room for one in self.each]
        return float(sum(every) if self.shared else max(every, default=0.0))

    @property
    def saved(self) -> float:
        """Seconds of a micro-batch, by all divisions together."""
        return sum(one.saved * one.count for one in self.each)

    def says(self) -> str:
        """What a device must have for them."""
        return f"{self.plan}: {len(self.each)} kernels, {show(self.most, 'B')}"

    def to_dict(self) -> list[dict[str, Any]]:
        """Kernel by kernel."""
        return [one.to_dict() for one in self.each]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each kernel."""
        return [
            {"plan": self.plan, **one.to_dict(), "algorithm": one.algorithms,
             "pieces": one.division} for one in self.each
        ]  # fmt: skip


def workspaces(shown: Estimate, row: int = 0) -> Workspaces:
    """Those of one plan of an estimate."""
    work, options = shown.work[row], shown.options
    model = shown.model.under(options.software.kernels)
    system = shown.machine("what convolutions take", row)
    load = workload(rows_of(model, system, work.plan, options), options, work.edges)
    stage = int(work.block.step.stage[work.row])
    every = chosen(load.shard, system.device, options.precision)
    found = [(int(column), at, kernels) for kernels in every
             for at, column in enumerate(kernels.family.columns) if kernels.live[at]]  # fmt: skip
    order = {"forward": 0, "data": 1, "weight": 2}
    found.sort(key=lambda one: (one[0], order[one[2].part]))
    said = options.software.convolution
    each = (_kernel(load, stage, *one) for one in found)
    return Workspaces(
        shown.plans[row], said.text, said.shared, tuple(one for one in each if one.count)
    )


def _kernel(load: Workload, stage: int, column: int, at: int, kernels: Kernels) -> Kernel:
    one = load.shard.model.rows[column]
    unit = np.eye(len(load.shard.model))[column : column + 1]
    seconds, room = (
        float(np.broadcast_to(values, (1, len(kernels.live)))[0, at])
        for values in (kernels.taken.seconds, kernels.taken.room)
    )
    return Kernel(
        one.name, kernels.part, f"{one.given} → {one.made}",
        round(float(load.stages.total(unit)[0, stage])), tuple(kernels.pieces(at)), room, seconds,
        kernels.whole(at) - seconds,
    )  # fmt: skip
