"""How far a long answer is: loops say it of themselves, whoever shows it listens.

`counted(items)` is a loop over items that a listener hears of; a loop within a loop is a part of
one item of the outer one, so that the share done of all is

    done₁/n₁ + done₂/(n₁ n₂) + …

Who listens is of one thread: other threads that ask at the same time are not heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import get_ident
from typing import TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class Loop:
    """A loop that runs: how many of its items are done, and of how many."""

    size: int
    done: int = 0


@dataclass
class Heard:
    """Who listens, on which thread, and the loops that run there, the outermost first."""

    say: Callable[[float], None]
    thread: int = field(default_factory=get_ident)
    loops: list[Loop] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of all items, from 0 to 1."""
        share, whole = 0.0, 1.0
        for loop in self.loops:
            whole /= loop.size
            share += loop.done * whole
        return share


_HEARD: ContextVar[Heard | None] = ContextVar("heard", default=None)


@contextmanager
def listening(say: Callable[[float], None]) -> Iterator[None]:
    """`say` hears the share that is done, each time that an item of a loop is."""
    token = _HEARD.set(Heard(say))
    try:
        yield
    finally:
        _HEARD.reset(token)


def counted(items: Iterable[T]) -> Iterator[T]:
    """The same items, one after the other, while somebody may hear how many are done."""
    heard = _HEARD.get()
    if heard is None or heard.thread != get_ident():  # some threads take over what another set
        yield from items
        return
    known = list(items)
    loop = Loop(max(len(known), 1))
    heard.loops.append(loop)
    try:
        for item in known:
            yield item
            loop.done += 1
            heard.say(heard.share)
    finally:
        heard.loops.remove(loop)
