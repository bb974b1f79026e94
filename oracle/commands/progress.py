"""A line on a terminal while an answer takes more than two seconds: what is done, what is left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oracle.ask.progress import listening

PATIENCE = 2.0  # seconds without a word
OFTEN = 0.2  # seconds between two words
CLEAR = "\r\x1b[K"


@contextmanager
def shown(verb: str) -> Iterator[None]:
    """The line stands while this runs, and is gone when it is over."""
    line, over = Line(verb), threading.Event()
    writer = threading.Thread(target=_write, args=(line, over), daemon=True)
    writer.start()
    try:
        with listening(line.hear):
            yield
    finally:
        over.set()
        writer.join()


def _write(line: Line, over: threading.Event) -> None:
    """Write the line again and again until it is over, then wipe it away."""
    told = False
    with contextlib.suppress(OSError, ValueError):  # a terminal that is gone hears nothing
        patience = PATIENCE
        while not over.wait(patience):
            sys.stderr.write(f"{CLEAR}{line.text()}")
            sys.stderr.flush()
            told, patience = True, OFTEN
        if told:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()


class Line:
    """What is said: `choose: 42%, about 7 s left`; how long it took so far while nobody counts."""

    def __init__(self, verb: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.verb, self.clock = verb, clock
        self.begin = clock()
        self.since = self.last = (self.begin, 0.0)  # when, and the share done by then

    def hear(self, share: float) -> None:
        """So much is done."""
        if share < self.last[1]:  # another part of the work is counted
            self.since = (self.clock(), share)
        self.last = (self.clock(), share)

    def text(self) -> str:
        """The line at this moment."""
        now = self.clock()
        (began, before), (heard, share) = self.since, self.last
        if not share:
            return f"{self.verb}: {now - self.begin:.0f} s so far"
        if share <= before:
            return f"{self.verb}: {share:.0%}"
        left = max((heard - began) * (1 - share) / (share - before) - (now - heard), 0.0)
        return f"{self.verb}: {share:.0%}, about {left:.0f} s left"
