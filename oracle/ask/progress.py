"""How far a long answer is: work says it of itself, whoever shows it listens.

`counted(items)` is a loop over items that a listener hears of, `parts(2, 1)` work of two parts, the
first twice as long as the second; work within work is a part of it, so that the share done of all
is

    done₁/n₁ + done₂/(n₁ n₂) + …

where n parts are equally long. Who listens is of one thread: other threads that ask at the same
time are not heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from threading import get_ident
from typing import TypeVar

T = TypeVar("T")


class Work:
    """Work that runs, in parts: how many are done, and what share of it each is."""

    def __init__(self, *sizes: float) -> None:
        self.done, all_parts = 0, sum(sizes) or 1.0
        self.ends = [0.0, *(end / all_parts for end in accumulate(sizes)), 1.0]

    @property
    def share(self) -> float:
        """What is done of it."""
        return self.ends[self.done]

    @property
    def part(self) -> float:
        """How much of it the part is that runs."""
        return self.ends[self.done + 1] - self.ends[self.done]


@dataclass
class Heard:
    """Who listens, on which thread, and the work that runs there, the outermost first."""

    say: Callable[[float], None]
    thread: int = field(default_factory=get_ident)
    works: list[Work] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of all that is to do, from 0 to 1."""
        share, share_of_all = 0.0, 1.0
        for work in self.works:
            share += share_of_all * work.share
            share_of_all *= work.part
        return share


_HEARD: ContextVar[Heard | None] = ContextVar("heard", default=None)


@contextmanager
def listening(say: Callable[[float], None]) -> Iterator[None]:
    """`say` hears the share that is done, each time that a part of work is."""
    token = _HEARD.set(Heard(say))
    try:
        yield
    finally:
        _HEARD.reset(token)


@contextmanager
def parts(*sizes: float) -> Iterator[Callable[[], None]]:
    """Work in parts, as long as their sizes beside each other: call what is given as each is done.

    >>> shares = []
    >>> with listening(shares.append), parts(3, 1) as done:
    ...     done(); done()
    >>> shares
    [0.75, 1.0]
    """
    heard = _HEARD.get()
    if heard is None or heard.thread != get_ident():  # some threads take over what another set
        yield lambda: None
        return
    work = Work(*sizes)
    heard.works.append(work)

    def done() -> None:
        work.done += 1
        heard.say(heard.share)

    try:
        yield done
    finally:
        heard.works.remove(work)


def counted(items: Iterable[T]) -> Iterator[T]:
    """The same items, one after the other, while somebody may hear how many are done."""
    every_item = list(items)
    with parts(*[1.0] * len(every_item)) as done:
        for item in every_item:
            yield item
            done()
