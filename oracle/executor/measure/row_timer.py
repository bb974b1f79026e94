"""Seconds of each row of a model, forward and backward, without the time in messages."""

from __future__ import annotations

import time

from torch import Tensor

from oracle.executor.local.graph import Operation
from oracle.executor.measure.lockstep import Stretch
from oracle.executor.messages.mock import MockWire
from oracle.executor.passes.forward import Observer

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
        self.times: dict[int, list[int]] = {}  # that a row ran, forward and backward
        self.stretches: list[Stretch] = []  # of work, from message to message
        self.began = self.since = 0.0  # of what is not dealt out yet, and of the stretch
        self.row, self.way = -1, 0  # what the time from here on belongs to; -1: to what comes next
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
        self.since += now - self.began  # what lies between passes is no row's
        self.began, self.row, self.way, self.inside = now, -1, int(not forward), True

    def before(self, op: Operation) -> None:
        if self.way:  # run again: until here it was the gradient's that came last
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
