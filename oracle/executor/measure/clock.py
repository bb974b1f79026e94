"""Timers of a step's phases and messages, read when the step is over; ranks' clocks compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    from oracle.executor.ranks.rank import Rank

PHASES = ("forward", "backward", "exchange", "update")
GPUS = ("cuda", "xpu")  # devices that work through streams; ROCm's are called cuda
Moment: TypeAlias = Any  # noted by a timer, whose `seconds_at` reads it once the step is over


@dataclass
class Stretch:
    """A part of a step between two moments, and the part that it lies in."""

    name: str
    began: Moment
    ended: Moment
    inside: int  # its number; -1 of none


class Timer:
    """Takes moments by the host's clock, for devices whose calls have ended when they return."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._open = -1
        self._stream: Any = None  # the stream that the open stretch runs on

    def begin(self) -> None:
        """Get ready for a step, when all before it is over."""
        self.stretches, self._open = [], -1

    def now(self) -> Moment:
        return time.perf_counter()

    def settle(self) -> None:
        """Wait for the end of a step, after which its moments can be read."""

    def seconds_at(self, moment: Moment) -> float:
        """A moment in seconds of the host's clock."""
        return float(moment)

    def stream(self) -> Any:
        """The stream that calls are made on now."""
        return None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase of the step, without the phases and messages inside it."""
        from torch.profiler import record_function

        stretch, before = Stretch(name, self.now(), None, self._open), (self._open, self._stream)
        self._open, self._stream = len(self.stretches), self.stream()
        self.stretches.append(stretch)
        with record_function(name):  # in traces
            yield
        stretch.ended = self.now()
        self._open, self._stream = before

    def exchanged(self, began: Moment, ended: Moment) -> None:
        """Count a stretch as exchange, inside the running phase unless it ran beside it."""
        concurrent = self._open >= 0 and self.stream() != self._stream
        self.stretches.append(Stretch("exchange", began, ended, -1 if concurrent else self._open))

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase of a step that is over."""
        seconds_of = dict.fromkeys(PHASES, 0.0)
        for stretch in self.stretches:
            spent = self.seconds_at(stretch.ended) - self.seconds_at(stretch.began)
            seconds_of[stretch.name] += spent
            if stretch.inside >= 0:
                seconds_of[self.stretches[stretch.inside].name] -= spent
        return seconds_of


class StreamTimer(Timer):
    """Takes moments on the streams of a GPU: an event on the stream that calls go to.

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

    def seconds_at(self, moment: Moment) -> float:
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

    All ranks leave a barrier at nearly the same moment; this is the median over a few barriers.
    """
    import torch
    import torch.distributed as dist

    moments_left = []
    for _ in range(barriers):
        dist.barrier(group=rank.control)
        moments_left.append(time.perf_counter())
    moments = torch.tensor(moments_left, dtype=torch.float64)
    first = moments.clone()
    dist.broadcast(first, 0, group=rank.control)
    return float((moments - first).median())
