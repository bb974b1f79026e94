"""Moments and phases of a step, read when it is over; clocks of several ranks put right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    from oracle.executor.rank import Rank

PHASES = ("forward", "backward", "exchange", "update")
GPUS = ("cuda", "xpu")  # devices that work through streams; ROCm's are called cuda
Moment: TypeAlias = Any  # that a timer noted: its `at` reads it once the step is over


@dataclass
class Stretch:
    """A part of a step from one moment to another, and the one that it lies in."""

    name: str
    began: Moment
    ended: Moment
    inside: int  # its number; -1 of none


class Timer:
    """Moments by the host's clock: of a device whose calls have ended when they return."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._open = -1
        self._stream: Any = None  # that the open one runs on

    def begin(self) -> None:
        """Get ready for a step: all before it is over."""
        self.stretches, self._open = [], -1

    def now(self) -> Moment:
        return time.perf_counter()

    def settle(self) -> None:
        """Wait for the end of a step; its moments can be read from here on."""

    def at(self, moment: Moment) -> float:
        """Seconds of the host's clock."""
        return float(moment)

    def stream(self) -> Any:
        """What calls are made on now."""
        return None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A part of the step, without the parts that are inside it."""
        from torch.profiler import record_function

        mine, before = Stretch(name, self.now(), None, self._open), (self._open, self._stream)
        self._open, self._stream = len(self.stretches), self.stream()
        self.stretches.append(mine)
        with record_function(name):  # in traces
            yield
        mine.ended = self.now()
        self._open, self._stream = before

    def exchanged(self, began: Moment, ended: Moment) -> None:
        """Count a part as exchange: of the phase that runs, unless it goes on beside it."""
        beside = self._open >= 0 and self.stream() != self._stream
        self.stretches.append(Stretch("exchange", began, ended, -1 if beside else self._open))

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase of a step that is over."""
        found = dict.fromkeys(PHASES, 0.0)
        for one in self.stretches:
            spent = self.at(one.ended) - self.at(one.began)
            found[one.name] += spent
            if one.inside >= 0:
                found[self.stretches[one.inside].name] -= spent
        return found


class StreamTimer(Timer):
    """Moments on the streams of a GPU: an event each, recorded on the stream that calls go to.

    The stream notes the time as it comes by, so the host waits for nothing inside a step, and runs
    as far ahead as it does in production. `gpu` is torch.cuda or torch.xpu.
    """

    def __init__(self, gpu: Any) -> None:
        super().__init__()
        self.gpu = gpu
        self.events: list[Any] = []  # used again in every step
        self.used = 0
        self.first, self.began = None, 0.0  # an event, and the host's clock at it

    def begin(self) -> None:
        super().begin()
        self.gpu.synchronize()
        self.used = 0
        self.first, self.began = self.now(), time.perf_counter()

    def now(self) -> Moment:
        if self.used == len(self.events):
            self.events.append(self.gpu.Event(enable_timing=True))
        event = self.events[self.used]
        self.used += 1
        event.record()
        return event

    def settle(self) -> None:
        self.gpu.synchronize()

    def at(self, moment: Moment) -> float:
        if isinstance(moment, float):
            return moment
        assert self.first is not None
        return self.began + float(self.first.elapsed_time(moment)) * 1e-3

    def stream(self) -> Any:
        return self.gpu.current_stream()


def timer_of(device: torch.device) -> Timer:
    """The timer of what runs on a device."""
    import torch

    return StreamTimer(getattr(torch, device.type)) if device.type in GPUS else Timer()


def ahead(rank: Rank, barriers: int = 9) -> float:
    """Seconds that this rank's clock is ahead of rank 0's.

    All leave a barrier at nearly the same moment: the median over a few.
    """
    import torch
    import torch.distributed as dist

    left = []
    for _ in range(barriers):
        dist.barrier(group=rank.control)
        left.append(time.perf_counter())
    own = torch.tensor(left, dtype=torch.float64)
    first = own.clone()
    dist.broadcast(first, 0, group=rank.control)
    return float((own - first).median())
