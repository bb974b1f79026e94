"""A line on a terminal, while an answer takes more than two seconds, of the share that is done."""

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
def progress_line(verb: str) -> Iterator[None]:
    """Show the line of progress while the block runs, and wipe it away at its end."""
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
    written = False
    with contextlib.suppress(OSError, ValueError):  # a terminal that is gone hears nothing
        patience = PATIENCE
        while not over.wait(patience):
            sys.stderr.write(f"{CLEAR}{line.text()}")
            sys.stderr.flush()
            written, patience = True, OFTEN
        if written:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()


class Line:
    """The line of progress: `choose: 42%, about 7 s left`, or the seconds so far."""

    def __init__(self, verb: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.verb, self.clock = verb, clock
        self.begin = clock()
        self.since = self.last = (self.begin, 0.0)  # when, and the share done by then

    def hear(self, share: float) -> None:
        """Note the share of the work that is done."""
        if share < self.last[1]:  # another part of the work is counted
            self.since = (self.clock(), share)
        self.last = (self.clock(), share)

    def text(self) -> str:
        """Return the text of the line at this moment."""
        now = self.clock()
        (began, before), (heard, share) = self.since, self.last
        if not share:
            return f"{self.verb}: {now - self.begin:.0f} s so far"
        if share <= before:
            return f"{self.verb}: {share:.0%}"
        left = max((heard - began) * (1 - share) / (share - before) - (now - heard), 0.0)
        return f"{self.verb}: {share:.0%}, about {left:.0f} s left"
