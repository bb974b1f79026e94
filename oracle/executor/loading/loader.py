"""Threads that read samples ahead, and what a step waits for them.

    T_step = max(T, T_load)        where `depth` batches may be under way while one is worked on

Batches come out in their order, whichever thread read which sample of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Loader(Generic[T]):
    """Reads the samples of batch after batch, `depth` batches ahead of the one that is taken."""

    def __init__(
        self, fetch: Callable[[int], T], batch: Callable[[int], Sequence[int]], threads: int,
        depth: int,
    ) -> None:  # fmt: skip
        self.fetch, self.batch, self.depth = fetch, batch, depth
        self.taken = 0  # batches that were asked for
        self.last: Sequence[int] = ()  # the samples of the batch that was taken last
        self._next = (0, 0)  # batch and place of the sample that is read next
        self._made: dict[int, list[T | None]] = {}
        self._left: dict[int, int] = {}
        self._asked: dict[int, Sequence[int]] = {}
        self._failed: BaseException | None = None
        self._closed = False
        self._moved = threading.Condition()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def take(self) -> tuple[list[T], float]:
        """The samples of the next batch, and the seconds that were waited for them."""
        began = time.perf_counter()
        with self._moved:
            number = self.taken
            self.taken += 1
            self._moved.notify_all()
            while self._left.get(number, 1) and self._failed is None:
                self._moved.wait()
            if self._failed is not None:
                raise self._failed
            samples = self._made.pop(number)
            del self._left[number]
            self.last = self._asked.pop(number)
        return [sample for sample in samples if sample is not None], time.perf_counter() - began

    def close(self) -> None:
        """Let the threads end after what they are reading."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        for thread in self.threads:
            thread.join(timeout=5.0)

    def _work(self) -> None:
        while (turn := self._turn()) is not None:
            number, place, sample = turn
            try:
                content = self.fetch(sample)
            except BaseException as error:  # the waiting step raises it, whatever it is
                with self._moved:
                    self._failed = self._failed or error
                    self._moved.notify_all()
                return
            with self._moved:
                self._made[number][place] = content
                self._left[number] -= 1
                if not self._left[number]:
                    self._moved.notify_all()

    def _turn(self) -> tuple[int, int, int] | None:
        """The next sample to read, as soon as its batch may be read ahead."""
        with self._moved:
            while not self._closed and self._failed is None:
                number, place = self._next
                if number < self.taken + self.depth:
                    if number not in self._asked:
                        self._asked[number] = self.batch(number)
                        self._left[number] = len(self._asked[number])
                        self._made[number] = [None] * len(self._asked[number])
                    samples = self._asked[number]
                    last = place + 1 == len(samples)
                    self._next = (number + 1, 0) if last else (number, place + 1)
                    return number, place, samples[place]
                self._moved.wait()
        return None
