"""Seconds of each row of a model, forward and backward, without the time in messages."""

from __future__ import annotations

import time
from itertools import pairwise

from torch import Tensor

from oracle.executor.forward import Observer
from oracle.executor.graph import Operation
from oracle.executor.mock import MockWire


class RowTimer(Observer):
    """Times each operation; the clock stands still while the wire is in use.

    Forward from its begin to its end, backward from the arrival of its gradient to the arrival
    of the next one.
    """

    def __init__(self, wire: MockWire) -> None:
        self.wire = wire
        self.reset()

    def reset(self) -> None:
        self.forward: dict[int, list[float]] = {}
        self.back: dict[int, float] = {}
        self.arrivals: list[tuple[float, int, int]] = []
        self.joins: tuple[set[int], set[int]] = (
            set(),
            set(),
        )  # rows with messages: forward, backward
        self.began, self.messages = 0.0, 0

    def _now(self) -> float:
        self.wire.timer.settle()  # rows are timed one by one, so nothing may run beside them
        return time.perf_counter() - self.wire.slept

    def before(self, op: Operation) -> None:
        self.began, self.messages = self._now(), self.wire.messages

    def after(self, op: Operation, y: Tensor) -> None:
        self.forward.setdefault(op.row, []).append(self._now() - self.began)
        if self.wire.messages > self.messages:
            self.joins[0].add(op.row)
        if y.requires_grad:
            y.register_hook(lambda _, row=op.row: self._gradient_arrived(row))

    def _gradient_arrived(self, row: int) -> None:
        self.arrivals.append((self._now(), self.wire.messages, row))

    def after_backward(self) -> None:
        events = [*sorted(self.arrivals), (self._now(), self.wire.messages, -1)]
        for (at, sent, row), (after, sent_after, _) in pairwise(events):
            self.back[row] = self.back.get(row, 0.0) + after - at
            if sent_after > sent:
                self.joins[1].add(row)
        self.arrivals = []

    def rows(self) -> dict[int, tuple[float, float]]:
        """Row -> seconds forward and backward, of one copy in one micro-batch."""
        return {
            row: (sum(times) / len(times), self.back.get(row, 0.0) / len(times))
            for row, times in self.forward.items()
        }
