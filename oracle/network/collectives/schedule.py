"""Schedules: who sends how much to whom, step by step.

A schedule is a list of `Steps`. Ranks are those of one group, 0 … p − 1; a share is a part of the
message. Steps alike in form are kept together, so that long schedules stay short.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from oracle.network.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Steps:
    """Some steps of one form: in step s every flow carries `share[s]`, `times[s]` times over."""

    share: Floats
    times: Floats

    @property
    def count(self) -> int:
        return len(self.times)

    def pairs(self, source: Ints, p: int, part: slice) -> Ints:
        """Targets (steps, flows) of the given ranks in some of the steps."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Shift(Steps):
    """Every rank r sends to r + `by`, modulo p."""

    by: Ints

    def pairs(self, source: Ints, p: int, part: slice) -> Ints:
        return (source + self.by[part, None]) % p


@dataclass(frozen=True, eq=False)
class XorExchange(Steps):
    """Every rank r swaps with rank r ⊕ `mask`."""

    mask: Ints

    def pairs(self, source: Ints, p: int, part: slice) -> Ints:
        return np.asarray(source ^ self.mask[part, None])


class AllPairs(Steps):
    """One step in which every rank sends to every other."""

    def pairs(self, source: Ints, p: int, part: slice) -> Ints:
        return (source[:, None] + np.arange(1, p)).reshape(1, -1) % p


@dataclass(frozen=True, eq=False)
class Pairs(Steps):
    """One step whose flows are listed; each carries a `share` of its own.

    With several `stripes` the flows are lanes of one group, meant to share links.
    """

    source: Ints
    target: Ints
    stripes: int = field(default=1, kw_only=True)


def shift(by: object, share: object, times: object = 1.0) -> Shift:
    """Return shifts by each of `by`."""
    offsets = np.atleast_1d(np.asarray(by, np.int64))
    return Shift(_repeated(share, offsets), _repeated(times, offsets), offsets)


def exchange(mask: object, share: object, times: object = 1.0) -> XorExchange:
    """Return exchanges across each of `mask`."""
    masks = np.atleast_1d(np.asarray(mask, np.int64))
    return XorExchange(_repeated(share, masks), _repeated(times, masks), masks)


def pairs(source: object, target: object, share: object, times: float = 1.0) -> Pairs:
    """Return one step of listed flows."""
    sources, targets = np.broadcast_arrays(np.asarray(source), np.asarray(target))
    shares = np.broadcast_to(np.asarray(share, float), sources.shape).reshape(-1)
    return Pairs(shares, np.array([times]), sources.ravel(), targets.ravel())


def _repeated(value: object, like: Ints) -> Floats:
    return np.broadcast_to(np.asarray(value, float), like.shape)


def round_nodes(p: int, inner: int) -> tuple[Ints, Ints]:
    """Return (source, target) of flows from each rank to the next of its node."""
    ranks = np.arange(p)
    return ranks, ranks // inner * inner + (ranks + 1) % inner


def flows(schedule: list[Steps], p: int) -> list[tuple[Ints, Ints, Floats, float]]:
    """Return (source, target, share, times) of every step, spelt out."""
    out: list[tuple[Ints, Ints, Floats, float]] = []
    ranks = np.arange(p)
    for steps in schedule:
        if isinstance(steps, Pairs):
            out.append((steps.source, steps.target, steps.share, float(steps.times[0])))
            continue
        targets = steps.pairs(ranks, p, slice(None))
        source = np.repeat(ranks, targets.shape[1] // p)
        for target, share, times in zip(targets, steps.share, steps.times, strict=True):
            out.append((source, target, np.full(len(source), share), float(times)))
    return out
