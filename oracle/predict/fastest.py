"""The way to cut a pipeline in which each plan is fastest, of a few that are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from oracle.models.shard import Array

TIE = 1e-10  # relative, of plans cut in two ways that are as fast
MANY = 9  # ways from which it pays to ask first which of them a plan may be fastest by
Way = tuple[int, ...]


class Timed(Protocol):
    """What is known of some plans, cut one way."""

    @property
    def seconds(self) -> Array: ...


Cut = TypeVar("Cut", bound=Timed)


def fastest(
    plans: int, ways: Sequence[Way], cut: Callable[[Array, Way], Cut],
    bound: Callable[[Sequence[Way]], Array],
) -> Iterator[tuple[Array, Cut]]:  # fmt: skip
    """Plans with their stages cut the way in which each is fastest; the first of those that tie.

    No plan is cut in a way whose `bound`, seconds that it takes at least, says that it cannot win.
    """
    every = np.arange(plans)
    if len(ways) == 1:
        yield every, cut(every, ways[0])
        return
    least = bound(ways) if len(ways) > MANY else np.zeros((plans, len(ways)))
    order = np.argsort(least.mean(axis=0), kind="stable").tolist()
    seconds, way = np.full(plans, np.inf), np.full(plans, len(ways))
    whole: dict[int, Cut] = {}  # of ways in which all plans were cut, that of the last to win
    for number in order:
        at = every[least[:, number] < seconds * (1 - TIE)]
        if not len(at):
            continue
        other = cut(at, ways[number])
        taken, was = other.seconds, seconds[at]
        better = (taken < was * (1 - TIE)) | ((taken <= was * (1 + TIE)) & (number < way[at]))
        if better.all() and len(at) == plans:
            whole = {number: other}
        seconds[at], way[at] = np.where(better, taken, was), np.where(better, number, way[at])
    for number in np.unique(way).tolist():
        at = np.flatnonzero(way == number)
        yield at, whole[number] if number in whole and len(at) == plans else cut(at, ways[number])


def fullest(each: Array, ways: Array, device: Array) -> tuple[Array, Array]:
    """(kinds, ways) seconds of the fullest device, and of all, of units that take so long."""
    running = np.pad(np.cumsum(each, axis=-1), [(0, 0), (1, 0)])
    chunks = running[:, ways[:, 1:]] - running[:, ways[:, :-1]]
    held = np.stack([chunks[..., device == one].sum(axis=-1) for one in range(device.max() + 1)])
    return held.max(axis=0), held.sum(axis=0)
