"""Units without room taken apart: a chain of runs of rows, and of single rows where need be.

Parts are as few as have room: neighbours that have room together are joined again.

A tensor belongs to the last part that wants it in the backward pass, since that wants it first
when it runs back; parts before it that want it too have it beside their own then. Made again is
what a part makes for itself, from what it was given. Tensors that rows far behind read once more
stay.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from oracle.models import masks
from oracle.models.instances import NOBODY, Instances, instances
from oracle.models.shard import Array
from oracle.plan.out_of_core import Chain, Flags
from oracle.plan.unit_choice import lacking, same
from oracle.predict.row_bytes import kept_rows, working_rows
from oracle.predict.workload import Workload

FINEST = 2  # whole units, runs of rows that begin with a matrix or where tensors meet, single rows
FAR = 12  # rows behind that a tensor may be read by once more after it was sent out


@dataclass(frozen=True, eq=False)
class Parts:
    """Units of one stage of one plan, some of them in parts, as a chain has them: (parts,)."""

    unit: Array  # of the model, that each is of
    forward: Array
    backward: Array
    kept: Array
    given: Array
    work: Array
    remake: Array
    free: Flags
    able: Flags
    among: Array
    passing: Array


OWN = tuple(each.name for each in fields(Parts) if each.name != "unit")


def finer(
    chain: Chain, unit: Array, load: Workload, at: Array, plain: Flags
) -> tuple[Array, Chain]:  # fmt: skip
    """Chains of `plain` plans whose unlike units no choice leaves room for, with these taken apart
    where that helps; and the model's unit of each part, as of each unit before: (c, p, parts).
    """
    c, p, before = unit.shape
    found: dict[int, Parts] = {}
    short = (lacking(chain).any(axis=-1) & ~same(chain)).reshape(c, p) & plain[:, None]
    for row, stage in np.argwhere(short).tolist():
        mine = np.flatnonzero(unit[row, stage] >= 0)
        one = chain.take(np.array([row * p + stage]))
        one = replace(one, **{name: _wide(one, name, before)[:, mine] for name in OWN})
        parts = taken_apart(one, unit[row, stage, mine], load, int(load.kinds.row[at[row]]))
        if parts is not None:
            found[row * p + stage] = parts
    if not found:
        return unit, chain
    size = max(before, *(len(parts.unit) for parts in found.values()))

    def padded(old: Array, name: str, none: float) -> Array:
        wide = np.full((c * p, size), none, old.dtype)
        wide[:, :before] = old
        for row, parts in found.items():
            new = getattr(parts, name)
            wide[row] = none
            wide[row, : len(new)] = new
        return wide

    units = padded(unit.reshape(c * p, before), "unit", -1).reshape(c, p, size)
    every = {name: _wide(chain, name, before) for name in OWN}
    return units, replace(chain, **{name: padded(old, name, 0) for name, old in every.items()})


def _wide(chain: Chain, name: str, units: int) -> Array:
    """(plans, units) of what may be one for all of them."""
    rows = max(len(getattr(chain, each.name)) for each in fields(chain))
    return np.broadcast_to(getattr(chain, name), (rows, units))


def taken_apart(chain: Chain, units: Array, load: Workload, kind: int) -> Parts | None:
    """One chain, of these units, with those taken apart that have no room; none if that is no use.

    `kind` is the row of the workload's arrays that it is of.
    """
    rows = _Rows(load, kind, units)

    def cut(begins: Flags) -> tuple[Parts, Flags]:
        parts = rows.parts(begins, chain)
        own = {name: getattr(parts, name)[None] for name in OWN}
        return parts, lacking(replace(chain, **own))[0]

    fine = np.zeros(len(rows.at), int)
    # what may leave needs least room row by row; what is made again may need more so
    if chain.free.any() and cut(rows.begins(fine + FINEST))[1].any():
        return None
    while True:
        begins = rows.begins(fine)
        parts, short = cut(begins)
        if not short.any():
            break
        more = short[np.cumsum(begins) - 1] & (fine < FINEST)
        if not more.any():
            return None
        fine = fine + more
    for place in np.flatnonzero(begins & ~rows.begins(0 * fine)):
        fewer = begins.copy()
        fewer[place] = False
        joined, short = cut(fewer)
        if not short.any():
            begins, parts = fewer, joined
    return parts


class _Rows:
    """The instances of a stage's rows, with their bytes and seconds."""

    def __init__(self, load: Workload, kind: int, units: Array) -> None:
        shard, model = load.shard, load.shard.model
        every: Instances = instances(model)
        self.at = np.flatnonzero(np.isin(every.unit, units))
        self.every, self.units = every, units
        row = every.row[self.at]

        def of(values: Array) -> Array:
            """(kinds, rows) → (instances,) of this kind."""
            wide = np.broadcast_to(np.atleast_2d(values), (max(len(np.atleast_2d(values)), 1),
                                                           len(model)))  # fmt: skip
            return np.asarray(wide[kind if len(wide) > 1 else 0][row], float)

        times = load.times
        self.forward, self.backward = of(times.forward), of(times.data + times.weight)
        self.moving = of(working_rows(shard, times.workspace))
        kept = of(kept_rows(shard))
        width = np.where(model.fed, shard.fed, shard.delta)
        # what nobody keeps is as large as it is made
        alive = of(shard.micro * shard.y * shard.delta * masks.moved(model))
        share = every.share[self.at]
        self.made = of(shard.micro * shard.kept * width) * share
        self.made = np.minimum(self.made, np.where(share > 1, alive, np.inf))
        self.extra = np.maximum(kept - self.made, 0.0)  # masks, indices
        self.samples = np.where(self.at == 0, np.minimum(of(shard.micro * shard.x * shard.delta),
                                                         self.extra), 0.0)  # fmt: skip
        self.extra = self.extra - self.samples
        self.alive = np.where(self.made > 0, self.made, alive)
        self.loss = masks.losses(model)[row]
        self.starts = model.weighted[row] | np.array([len(model.feeds[i]) > 1 for i in row], bool)
        self.unit = np.searchsorted(units, every.unit[self.at])

    @cached_property
    def ends(self) -> tuple[Array, Array, Array]:
        """Who first and last wants, and last reads, what each makes, by place in this stage."""
        place = np.full(len(self.every.row) + 1, len(self.at))  # outside: behind all
        place[self.at] = np.arange(len(self.at))
        place[NOBODY] = NOBODY
        return (place[self.every.first[self.at]], place[self.every.last[self.at]],
                place[self.every.read[self.at]])  # fmt: skip

    def begins(self, fine: Array) -> Flags:
        """The instances that begin a part, where they are taken apart as finely as is said."""
        found = np.diff(self.unit, prepend=-1) > 0
        found |= ((fine > 0) & self.starts) | (fine > 1)
        found[1:] |= fine[:-1] > 1
        return np.asarray(found)

    def parts(self, begins: Flags, chain: Chain) -> Parts:
        """The stage's units, taken apart where a part begins."""
        part = np.cumsum(begins) - 1
        count = int(part[-1]) + 1
        unit = self.unit[begins]
        n = np.arange(len(self.at))
        first, last, read = self.ends
        wanted = self.made > 0
        owner = part[np.clip(last, 0, len(n) - 1)]
        stops = np.append(np.flatnonzero(begins)[1:], len(n))

        def add(of: Array, values: Array, some: Array) -> Array:
            return np.bincount(of[some], values[some], count)

        given = add(part, self.samples, self.samples > 0)
        given = given + add(owner, self.made, wanted & (owner != part))
        inner = add(owner, self.made, wanted & (owner == part))
        kept = given + inner + add(part, self.extra, self.extra > 0)
        far = wanted & (read - np.minimum(last, read) > FAR)
        stays = np.bincount(owner[far], minlength=count) > 0
        work, passing = np.zeros((2, len(n)))
        for m in np.flatnonzero(wanted).tolist():
            work[first[m] : stops[owner[m]]] += self.made[m]
            passing[m : read[m] + 1] += self.made[m] * (part[m : read[m] + 1] < owner[m])
            if not far[m]:
                passing[m : read[m] + 1] += self.made[m] * (part[m : read[m] + 1] > owner[m])
        for m in np.flatnonzero(~wanted & (self.alive > 0)).tolist():
            passing[m : read[m] + 1] += self.alive[m]
        most = np.full((2, count), -np.inf)
        alone = self._beside(part)
        np.maximum.at(most[0], part, work + alone + self.moving)
        np.maximum.at(most[1], part, passing)
        remake, able = self._remade(part, owner, first)
        sums = [np.bincount(part, each, count) for each in (self.forward, self.backward)]
        scale = [np.divide(np.broadcast_to(whole, (1, len(self.units)))[0],
                           np.bincount(self.unit, each, len(self.units)),
                           out=np.ones(len(self.units)),
                           where=np.bincount(self.unit, each, len(self.units)) > 0)
                 for whole, each in ((chain.forward, self.forward),
                                     (chain.backward, self.backward))]  # fmt: skip
        loss = np.bincount(part, self.loss, count) > 0
        may = [np.broadcast_to(each.any(), count) for each in (chain.free, chain.able)]
        return Parts(
            self.units[unit], sums[0] * scale[0][unit], sums[1] * scale[1][unit], kept, given,
            np.maximum(most[0] - kept, 0.0), remake,
            may[0] & (kept > 0) & ~loss & ~stays, may[1] & able & (kept > given) & ~loss & ~stays,
            given, np.maximum(most[1], 0.0),
        )  # fmt: skip

    def _beside(self, part: Array) -> Array:
        """What rows keep for themselves alone, up to each in its part."""
        own = self.extra + self.samples
        running, begin = np.cumsum(own), np.searchsorted(part, part)
        return np.asarray(running - running[begin] + own[begin])

    def _remade(self, part: Array, owner: Array, first: Array) -> tuple[Array, Flags]:
        """(parts,) seconds in which each makes again what it made for itself, and whether it can.

        It can where all that is read for it belongs to the part, or is there anyway as it runs
        back.
        """
        count = int(part[-1]) + 1
        seconds, able = np.zeros(count), np.ones(count, bool)
        place = {int(at): n for n, at in enumerate(self.at.tolist())}
        inner = ((self.made > 0) & (owner == part)) | (self.extra > 0)
        seen: set[int] = set()
        for n in np.flatnonzero(inner)[::-1].tolist():
            stack, mine = [n], part[n]
            while stack:
                at = stack.pop()
                if at in seen:
                    continue
                seen.add(at)
                seconds[mine] += self.forward[at]
                for feed in self.every.feeds[self.at[at]]:
                    maker = place.get(feed, NOBODY)
                    if maker == NOBODY:
                        continue
                    if part[maker] == mine:
                        stack.append(maker)
                    elif self.made[maker] <= 0 or owner[maker] < mine or first[maker] > at:
                        able[mine] = False
        return seconds, able
