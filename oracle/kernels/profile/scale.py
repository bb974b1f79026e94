"""The kernel model scaled to measured seconds: for one layer, and for the rows of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.kernels.passes import Passes
from oracle.kernels.profile.shape import layer, of_shapes, shape_of
from oracle.models.model import Flags, Floats, Model
from oracle.models.shard import Shard, serial

NEAR = 5e-6  # relative: shapes are written with six digits
PASSES = ("forward", "data", "weight")
Measured = Sequence[tuple[Sequence[float], Any]]  # (local shape, Timed)


@dataclass(frozen=True, eq=False)
class Ramp:
    """h: measured seconds by the model's, monotone, linear in between, in proportion beyond.

    Points are (K,) or, column by column, (K, rows) with NaN where there is none.

    >>> Ramp.of(np.array([1.0, 2.0]), np.array([2.0, 3.0]))(np.array([0.5, 1.5, 4.0]))
    array([1. , 2.5, 6. ])
    """

    x: Floats
    y: Floats
    slope: Floats  # from each point on; the first that of what lies before all

    @classmethod
    def of(cls, model: Floats, measured: Floats) -> Ramp:
        x, y = _sorted(model, measured)
        rest = np.where(x[-1:] > 0, ratio(y[-1:], x[-1:], 0.0), 0.0)
        slope = [ratio(y[:1], x[:1], 0.0), ratio(np.diff(y, axis=0), np.diff(x, axis=0), 0.0), rest]
        return cls(x, y, np.concatenate(slope))

    def __call__(self, now: Floats) -> Floats:
        found: Floats = now * self.slope[0]
        for x, y, slope in zip(self.x, self.y, self.slope[1:], strict=True):
            found = np.where(now >= x, y + (now - x) * slope, found)
        return found


def _sorted(model: Floats, measured: Floats) -> tuple[Floats, Floats]:
    """Both by rising model seconds; where fewer were measured the last one stands again."""
    order = np.argsort(model, axis=0, kind="stable")  # NaN goes last
    x, y = (np.take_along_axis(np.asarray(a, float), order, 0) for a in (model, measured))
    if x.ndim == 1:
        return x, _rising(x, y)
    for row in range(x.shape[1]):
        count = int(np.isfinite(x[:, row]).sum())
        if count:
            y[:count, row] = _rising(x[:count, row], y[:count, row])
            x[count:, row], y[count:, row] = x[count - 1, row], y[count - 1, row]
    return x, y


def _rising(x: Floats, y: Floats) -> Floats:
    """The nearest values that never fall: neighbours that do, or are one point, are pooled."""
    pools: list[tuple[float, int, float]] = []  # mean, how many, of which last x
    for place, value in zip(x, y, strict=True):
        mean, count = float(value), 1
        while pools and (pools[-1][0] > mean or pools[-1][2] == place):
            other, size, _ = pools.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        pools.append((mean, count, float(place)))
    return np.concatenate([np.full(count, mean) for mean, count, _ in pools])


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """Measured seconds of each row of a model, and the kernel model scaled to them."""

    shapes: Floats  # (K, 12, rows), infinite where there is none
    took: dict[str, Floats]  # by pass, (K, rows)
    spread: Floats  # (K, rows) relative 1σ of what was measured
    ramps: dict[str, Ramp]  # by pass, over what the model says of them
    known: Flags  # rows of which something was measured
    whole: Flags  # rows whose backward pass was timed as one: it stands under `data`

    @classmethod
    def of(
        cls, model: Model, layers: Mapping[str, Measured], delta: float,
        price: Callable[[Shard], Passes],
    ) -> MeasuredRows:  # fmt: skip
        """The rows of a model among the layers of a profile."""
        seen = [layers.get(layer(model, row), ()) for row in range(len(model))]
        size = (max(map(len, seen), default=0), len(model))
        own = np.concatenate(
            [np.broadcast_to(a, (1, len(model)))
             for each in shape_of(serial(model, 1.0, delta)).values() for a in each]
        )  # fmt: skip
        shapes = np.repeat(own[None], size[0], axis=0)
        took, spread = {name: np.full(size, np.nan) for name in PASSES}, np.zeros(size)
        for row, each in enumerate(seen):
            for k, (shape, timed) in enumerate(each):
                shapes[k, :, row], spread[k, row] = shape, timed.doubt
                for name in PASSES:
                    took[name][k, row] = getattr(timed, name)
        known = np.array([len(each) > 0 for each in seen])
        whole = ~(np.nan_to_num(took["weight"]) > 0).any(axis=0)
        there = np.isfinite(took["forward"])
        said = _joined(price(of_shapes(model, shapes, delta)), whole) if size[0] else {}
        ramps = {name: Ramp.of(np.where(there, seconds, np.nan), took[name])
                 for name, seconds in said.items()}  # fmt: skip
        shapes = np.where(there[:, None, :], shapes, np.inf)
        return cls(shapes, took, spread, ramps, known, whole)

    def passes(self, shard: Shard, then: Passes, now: Passes) -> Passes:
        """`now` with the seconds of every row of which something was measured."""
        before, after = _joined(then, self.whole), _joined(now, self.whole)
        local = [a for arrays in shape_of(shard).values() for a in arrays]
        size = np.broadcast_shapes(before["forward"].shape, *map(np.shape, local))
        local = [np.broadcast_to(a, size) for a in local]
        exact = [_alike(local, shape) for shape in self.shapes]
        found, origin = {}, np.broadcast_to(np.int8(1) * self.known, size).copy()
        spread = np.broadcast_to(self.spread.max(axis=0, initial=0.0), size).copy()
        for k, at in enumerate(exact):
            spread[at] = self.spread[k][at[1]]
        for name in PASSES:
            seconds = self.ramps[name](before[name])
            seconds = np.broadcast_to(seconds, size).copy()
            for k, at in enumerate(exact):
                seconds[at] = self.took[name][k][at[1]]
                origin[at] = 2
            changed = seconds * ratio(after[name], before[name], 1.0)
            split = getattr(now, name)  # of a layer that nobody measured, as the model has it
            found[name] = np.where(self.known, changed, split)
        forward, data, weight = (found[name] for name in PASSES)
        return replace(
            now, forward=forward, data=data, weight=weight, measured=origin, spread=spread
        )


def _joined(found: Passes, whole: Flags) -> dict[str, Floats]:
    """Seconds by pass, (plans, rows), both gradients as one where they were timed so."""
    size = (len(found.forward), np.shape(found.kernels[0])[-1])
    forward, data, weight = (np.broadcast_to(getattr(found, name), size) for name in PASSES)
    return {"forward": forward, "data": data + whole * weight, "weight": ~whole * weight}


def _alike(local: Sequence[Floats], shape: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(plans, rows) that have exactly this shape, row by row."""
    plan, row = np.nonzero(np.abs(local[0] - shape[0]) <= NEAR * np.minimum(shape[0], 2**62))
    for values, wanted in zip(local[1:], shape[1:], strict=True):
        here = wanted[row]
        same = np.abs(values[plan, row] - here) <= NEAR * here
        plan, row = plan[same], row[same]
    return plan, row


def ratio(now: Floats, then: Floats, otherwise: float) -> Floats:
    """now / then, or what to take where the model says nothing."""
    return np.where(then > 0, now / np.where(then > 0, then, 1.0), otherwise)
