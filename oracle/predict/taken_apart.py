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


OWN = tuple(field.name for field in fields(Parts) if field.name != "unit")


def finer(
    chain: Chain, unit: Array, load: Workload, workloads: Array, plain: Flags
) -> tuple[Array, Chain]:  # fmt: skip
    """Chains of `plain` plans whose unlike units no choice leaves room for, with these taken apart
    where that helps; and the model's unit of each part, as of each unit before: (c, p, parts).
    """
    c, p, before = unit.shape
    parts_of_row: dict[int, Parts] = {}
    short = (lacking(chain).any(axis=-1) & ~same(chain)).reshape(c, p) & plain[:, None]
    for row, stage in np.argwhere(short).tolist():
        stage_units = np.flatnonzero(unit[row, stage] >= 0)
        stage_chain = chain.take(np.array([row * p + stage]))
        stage_chain = replace(
            stage_chain, **{name: _wide(stage_chain, name, before)[:, stage_units] for name in OWN}
        )
        parts = taken_apart(
            stage_chain, unit[row, stage, stage_units], load, int(load.kinds.row[workloads[row]])
        )
        if parts is not None:
            parts_of_row[row * p + stage] = parts
    if not parts_of_row:
        return unit, chain
    size = max(before, *(len(parts.unit) for parts in parts_of_row.values()))

    def padded(old: Array, name: str, none: float) -> Array:
        wide = np.full((c * p, size), none, old.dtype)
        wide[:, :before] = old
        for row, parts in parts_of_row.items():
            new = getattr(parts, name)
            wide[row] = none
            wide[row, : len(new)] = new
        return wide

    units = padded(unit.reshape(c * p, before), "unit", -1).reshape(c, p, size)
    every = {name: _wide(chain, name, before) for name in OWN}
    return units, replace(chain, **{name: padded(old, name, 0) for name, old in every.items()})


def _wide(chain: Chain, name: str, units: int) -> Array:
    """(plans, units) of what may be one for all of them."""
    rows = max(len(getattr(chain, column.name)) for column in fields(chain))
    return np.broadcast_to(getattr(chain, name), (rows, units))


def taken_apart(chain: Chain, units: Array, load: Workload, kind: int) -> Parts | None:
    """One chain, of these units, with those taken apart that have no room; none if that is no use.

    `kind` is the row of the workload's arrays that it is of.
    """
    rows = _Rows(load, kind, units)

    def cut(begins: Flags) -> tuple[Parts, Flags]:
        parts = rows.parts(begins, chain)
        part_columns = {name: getattr(parts, name)[None] for name in OWN}
        return parts, lacking(replace(chain, **part_columns))[0]

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

        def of_kind(values: Array) -> Array:
            """(kinds, rows) → (instances,) of this kind."""
            wide = np.broadcast_to(np.atleast_2d(values), (max(len(np.atleast_2d(values)), 1),
                                                           len(model)))  # fmt: skip
            return np.asarray(wide[kind if len(wide) > 1 else 0][row], float)

        times = load.times
        self.forward, self.backward = of_kind(times.forward), of_kind(times.data + times.weight)
        self.moving = of_kind(working_rows(shard, times.workspace))
        kept_bytes = of_kind(kept_rows(shard))
        # what nobody keeps is as large as it is made
        alive = of_kind(shard.micro * shard.y * shard.delta * masks.moved(model))
        share = every.share[self.at]
        self.made = of_kind(shard.micro * shard.kept * shard.kept_width) * share
        self.made = np.minimum(self.made, np.where(share > 1, alive, np.inf))
        self.extra = np.maximum(kept_bytes - self.made, 0.0)  # masks, indices
        samples = np.minimum(of_kind(shard.micro * shard.x * shard.delta), self.extra)
        self.samples = np.where(self.at == 0, samples, 0.0)
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
        part_begins = np.diff(self.unit, prepend=-1) > 0
        part_begins |= ((fine > 0) & self.starts) | (fine > 1)
        part_begins[1:] |= fine[:-1] > 1
        return np.asarray(part_begins)

    def parts(self, begins: Flags, chain: Chain) -> Parts:
        """The stage's units, taken apart where a part begins."""
        part = np.cumsum(begins) - 1
        count = int(part[-1]) + 1
        unit = self.unit[begins]
        n = np.arange(len(self.at))
        first, last, read = self.ends
        has_output = self.made > 0
        owner = part[np.clip(last, 0, len(n) - 1)]
        stops = np.append(np.flatnonzero(begins)[1:], len(n))

        def sum_by_part(part_of: Array, values: Array, chosen: Array) -> Array:
            return np.bincount(part_of[chosen], values[chosen], count)

        given_bytes = sum_by_part(part, self.samples, self.samples > 0)
        given_bytes = given_bytes + sum_by_part(owner, self.made, has_output & (owner != part))
        inner = sum_by_part(owner, self.made, has_output & (owner == part))
        kept_bytes = given_bytes + inner + sum_by_part(part, self.extra, self.extra > 0)
        far = has_output & (read - np.minimum(last, read) > FAR)
        stays = np.bincount(owner[far], minlength=count) > 0
        work, passing = np.zeros((2, len(n)))
        for m in np.flatnonzero(has_output).tolist():
            work[first[m] : stops[owner[m]]] += self.made[m]
            passing[m : read[m] + 1] += self.made[m] * (part[m : read[m] + 1] < owner[m])
            if not far[m]:
                passing[m : read[m] + 1] += self.made[m] * (part[m : read[m] + 1] > owner[m])
        for m in np.flatnonzero(~has_output & (self.alive > 0)).tolist():
            passing[m : read[m] + 1] += self.alive[m]
        peak_bytes = np.full((2, count), -np.inf)
        alone = self._extra_kept(part)
        np.maximum.at(peak_bytes[0], part, work + alone + self.moving)
        np.maximum.at(peak_bytes[1], part, passing)
        remake, able = self._remade(part, owner, first)
        sums = [np.bincount(part, seconds, count) for seconds in (self.forward, self.backward)]
        scale = [np.divide(np.broadcast_to(unit_seconds, (1, len(self.units)))[0],
                           np.bincount(self.unit, seconds, len(self.units)),
                           out=np.ones(len(self.units)),
                           where=np.bincount(self.unit, seconds, len(self.units)) > 0)
                 for unit_seconds, seconds in ((chain.forward, self.forward),
                                     (chain.backward, self.backward))]  # fmt: skip
        loss = np.bincount(part, self.loss, count) > 0
        stays |= loss
        free = chain.free.any() & (kept_bytes > 0) & ~stays
        able = chain.able.any() & able & (kept_bytes > given_bytes) & ~stays
        return Parts(
            self.units[unit], sums[0] * scale[0][unit], sums[1] * scale[1][unit], kept_bytes,
            given_bytes, np.maximum(peak_bytes[0] - kept_bytes, 0.0), remake, free, able,
            given_bytes, np.maximum(peak_bytes[1], 0.0),
        )  # fmt: skip

    def _extra_kept(self, part: Array) -> Array:
        """What rows keep for themselves alone, up to each in its part."""
        extra_bytes = self.extra + self.samples
        running, begin = np.cumsum(extra_bytes), np.searchsorted(part, part)
        return np.asarray(running - running[begin] + extra_bytes[begin])

    def _remade(self, part: Array, owner: Array, first: Array) -> tuple[Array, Flags]:
        """(parts,) seconds in which each makes again what it made for itself, and whether it can.

        It can where all that is read for it belongs to the part, or is there anyway as it runs
        back.
        """
        count = int(part[-1]) + 1
        seconds, able = np.zeros(count), np.ones(count, bool)
        place = {int(instance): n for n, instance in enumerate(self.at.tolist())}
        inner = ((self.made > 0) & (owner == part)) | (self.extra > 0)
        visited: set[int] = set()
        for n in np.flatnonzero(inner)[::-1].tolist():
            stack, target = [n], part[n]
            while stack:
                instance = stack.pop()
                if instance in visited:
                    continue
                visited.add(instance)
                seconds[target] += self.forward[instance]
                for feed in self.every.feeds[self.at[instance]]:
                    maker = place.get(feed, NOBODY)
                    if maker == NOBODY:
                        continue
                    if part[maker] == target:
                        stack.append(maker)
                    elif self.made[maker] <= 0 or owner[maker] < target or first[maker] > instance:
                        able[target] = False
        return seconds, able
