"""Steps of one plan whose rows are timed on this rank, without messages to other ranks."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oracle.executor.local.batch import inputs
from oracle.executor.local.cuts import shard_of
from oracle.executor.local.graph import Operation, graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.measure.clock import timer_of
from oracle.executor.measure.lockstep import Stretch
from oracle.executor.measure.timed_steps import environment
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.mock import MockWire
from oracle.executor.passes.forward import Observer
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.ranks.rank import Rank
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.kernels.profile import signature
from oracle.plan.plan import parse

Spent = list[float]  # forward, backward


class RowTimer(Observer):
    """Divides the time of a device's passes among its rows; the clock stops in messages.

    All time is divided: a row gets the time before its end in a forward pass, and in a backward
    pass the time from the arrival of its gradient to that of the next. Recomputation counts as
    forward.
    """

    def __init__(self, wire: MockWire) -> None:
        self.wire = wire
        wire.before_message = self._message
        self.reset()

    def reset(self) -> None:
        """Forget what was timed."""
        self.seconds: dict[int, Spent] = {}
        self.times: dict[int, list[int]] = {}  # how often a row ran, forward and backward
        self.stretches: list[Stretch] = []  # of work, from message to message
        self.began = self.since = 0.0  # when time not given to a row, and the stretch, began
        self.row, self.way = -1, 0  # the row and pass that time belongs to; -1: to the next row
        self.inside = False

    def _now(self) -> float:
        self.wire.timer.settle()  # rows are timed one by one, so nothing may run beside them
        return time.perf_counter() - self.wire.slept

    def _spend(self, row: int, way: int) -> None:
        """Give the time that has passed since to a row."""
        if row >= 0:
            now = self._now()
            self.seconds.setdefault(row, [0.0, 0.0])[way] += now - self.began
            self.began = now

    def _ran(self, row: int, way: int) -> None:
        self.times.setdefault(row, [0, 0])[way] += 1

    def _message(self, members: tuple[int, ...]) -> None:
        if self.inside:
            now = self._now()
            self.stretches.append(Stretch(now - self.since, members))
            self.since = now

    def before_pass(self, forward: bool) -> None:
        now = self._now()
        self.since += now - self.began  # time between passes is no row's
        self.began, self.row, self.way, self.inside = now, -1, int(not forward), True

    def before(self, op: Operation) -> None:
        if self.way:  # recomputation: until here time belongs to the last gradient
            self._spend(self.row, 1)

    def after(self, op: Operation, y: Tensor) -> None:
        self._spend(op.row, 0)
        self._ran(op.row, 0)
        if not self.way:
            self.row = op.row
        if y.requires_grad:
            y.register_hook(lambda _, row=op.row: self._gradient_arrived(row))

    def _gradient_arrived(self, row: int) -> None:
        self._spend(self.row, 1)
        self._ran(row, 1)
        self.row = row

    def after_pass(self) -> None:
        self._spend(self.row, self.way)
        self.inside = False

    def end(self) -> None:
        """Note that the passes of a step are over."""
        self.stretches.append(Stretch(self.began - self.since, ()))

    def rows(self) -> dict[int, tuple[float, float]]:
        """Row -> mean seconds of its forward and of its backward passes."""
        return {row: (spent[0] / max(self.times[row][0], 1), spent[1] / max(self.times[row][1], 1))
                for row, spent in self.seconds.items()}  # fmt: skip


class RowSteps:
    """Times steps of one plan row by row, sleeping for messages at a `rate`."""

    def __init__(self, rank: Rank, job: PlanRun, rate: float = 0.0) -> None:
        self.rank, self.job = rank, job
        layers, plan = graph(job.model), parse(job.plan, job.batch)
        dtype = getattr(torch, DTYPES[job.precision])
        wire = MockWire(DeviceMesh(plan, rank.rank, rank.size), timer_of(rank.device), rate)
        self.local = LocalModel(layers, plan, wire, dtype=dtype, device=rank.device, seed=job.seed,
                                edges=list(job.stages) or None, routing="even")  # fmt: skip
        shard = shard_of(layers.model, plan, dtype.itemsize)
        self.names = {op.row: signature(shard, op.row) for op in self.local.operations}
        self.rows: dict[str, list[tuple[float, float]]] = {}  # of each step, forward and backward
        self.times: dict[str, tuple[int, int]] = {}  # how often a row ran in a step
        self.stretches: list[Any] = []
        self.updates: list[float] = []
        self.takes_part = wire.mesh.taking_part
        if self.takes_part:
            self.timer = RowTimer(wire)
            self.trainer = Trainer(self.local, Optimizer(job.optimizer, rate=1e-6), self.timer)
            self.x, self.target = inputs(layers, job.batch, job.seed, dtype)

    def step(self, number: int) -> None:
        """Run a step that all ranks begin at once; up to number 0 they warm up."""
        label = f"compute of {self.job.plan}"
        self.rank.enter("measure" if number > 0 else "warm-up", label, max(number, 0))
        dist.barrier(group=self.rank.control)
        if not self.takes_part:
            return
        clock = self.timer.wire.timer
        self.timer.reset()
        clock.begin()
        self.trainer.step(self.x, self.target)
        clock.settle()
        self.timer.end()
        if number > 0:
            self._keep(clock.seconds()["update"])

    def _keep(self, update: float) -> None:
        for row, pair in self.timer.rows().items():
            self.rows.setdefault(self.names[row], []).append(pair)
        self.times = {}
        for row, (forward, backward) in self.timer.times.items():
            a, b = self.times.get(self.names[row], (0, 0))  # several are alike
            self.times[self.names[row]] = a + forward, b + backward
        self.stretches.append(self.timer.stretches)
        self.updates.append(update)

    def record(self, key: str, **question: Any) -> None:
        """Record what was timed."""
        weights = sum(b.weights[b.shard_slice].numel() if b.has_weights else b.shard.numel()
                      for b in self.local.bundles)  # fmt: skip
        self.rank.record(key, rows=self.rows, times=self.times, stretches=self.stretches,
                         optimizer=self.job.optimizer, weights=weights, update=self.updates,
                         environment=environment(self.rank), **question)  # fmt: skip
