"""Steps of one plan whose rows are timed on this rank, without messages to other ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from oracle.executor.local.batch import inputs
from oracle.executor.local.cuts import shard_of
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.measure.clock import timer_of
from oracle.executor.measure.row_timer import RowTimer
from oracle.executor.measure.timed_steps import environment
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.mock import MockWire
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.ranks.rank import Rank
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.kernels.profile import signature
from oracle.plan.plan import parse


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
        self.times: dict[str, tuple[int, int]] = {}  # that a row ran in a step
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
