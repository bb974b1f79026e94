"""The way to cut a pipeline in which each plan is fastest, of a few that are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from oracle.models.shard import Array

TIE = 1e-10  # relative, of plans cut in two ways that are as fast
MANY = 9  # ways from which it pays to ask first which of them a plan may be fastest by
LEAN = 3  # ways to try of each kind where the fastest does not fit
Way = tuple[int, ...]


class Timed(Protocol):
    """What is known of some plans, cut one way."""

    @property
    def seconds(self) -> Array: ...
    @property
    def fits(self) -> Array: ...


Cut = TypeVar("Cut", bound=Timed)


def fastest(
    plans: int, ways: Sequence[Way], cut: Callable[[Array, Way], Cut],
    bound: Callable[[Sequence[Way]], Array], lean: Sequence[int] = (),
) -> Iterator[tuple[Array, Cut]]:  # fmt: skip
    """Plans with their stages cut the way in which each is fastest; the first of those that tie.

    No plan is cut in a way whose `bound`, seconds that it takes at least, says that it cannot win.
    Where a plan does not fit a device then, the fastest of `lean` ways in which it does is taken.
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
        found = whole[number] if number in whole and len(at) == plans else cut(at, ways[number])
        if not lean or found.fits.all():
            yield at, found
            continue
        if (some := at[found.fits]).size:
            yield some, cut(some, ways[number])
        yield from _fitting(at[~found.fits], number, [ways[other] for other in lean], cut, ways)


def _fitting(
    at: Array, number: int, lean: Sequence[Way], cut: Callable[[Array, Way], Cut],
    ways: Sequence[Way],
) -> Iterator[tuple[Array, Cut]]:  # fmt: skip
    """Plans that do not fit cut one way, cut the fastest way in which they do, if there is any."""
    seconds, which = np.full(len(at), np.inf), np.full(len(at), -1)
    for other, edges in enumerate(lean):
        found = cut(at, edges)
        better = found.fits & (found.seconds < seconds * (1 - TIE))
        seconds, which = np.where(better, found.seconds, seconds), np.where(better, other, which)
    for other in np.unique(which).tolist():
        mine = at[which == other]
        yield mine, cut(mine, ways[number] if other < 0 else lean[other])


def leanest(kept: Array, weights: Array, ways: Array) -> list[int]:
    """Ways that are worth trying for memory: by what micro-batches keep, and by weights.

    Micro-batches in flight are all on each stage, or fewer the later it is.
    """
    stages = ways.shape[1] - 1
    found: dict[int, None] = {}
    for each in (kept, weights):
        running = np.append(0.0, np.cumsum(each))
        chunks = running[ways[:, 1:]] - running[ways[:, :-1]]
        for flight in (np.ones(stages), np.arange(stages, 0, -1)):
            order = np.argsort((chunks * flight).max(axis=1), kind="stable")
            found.update(dict.fromkeys(order[:LEAN].tolist()))
    return list(found)


def fullest(each: Array, ways: Array, device: Array) -> tuple[Array, Array]:
    """(kinds, ways) seconds of the fullest device, and of all, of units that take so long."""
    running = np.pad(np.cumsum(each, axis=-1), [(0, 0), (1, 0)])
    chunks = running[:, ways[:, 1:]] - running[:, ways[:, :-1]]
    held = np.stack([chunks[..., device == one].sum(axis=-1) for one in range(device.max() + 1)])
    return held.max(axis=0), held.sum(axis=0)
