"""What each unit does with its activations: keep them, send them out, or make them again.

The choice takes the least time of both passes, `out_of_core.play`, that the room allows. Where the
units that are free to choose are alike, three numbers say it: the first are sent out, whose copies
have the longest time to leave and to return, the next are made again, the last keep. All numbers
are looked at that a lower bound does not rule out, for all plans at once. Else a mixed-integer
program is solved for each chain of its own: bytes that have left and come in by the start and the
end of each unit are its variables, so that it has the very seconds of `play` [wahib2020; jain2020].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.kernels.whole_numbers import solved
from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.out_of_core import TOUCH, Chain, Flags, needed, play

WORDS = ("keep", "offload", "recompute")
# nodes that a program of so many units may look at, of more as many fewer as they take longer:
# what it has by then is as good as it gets
LIMIT, SHORT = 300, 24
SURE, NEAR = 1e-9, 1e-3  # relative: as near as a program must come, and one of many units
AT_ONCE = 128  # chains of alike units that are looked at together
SPARE = 1e-6  # of the room, that a program leaves for its tolerances
EVEN, ALL = -1, 2**30
# (units made again beside the fewest, units made again between two that leave, of how many)
GAPS = ((0, 0), (1, ALL), (1, 1), (1, 2), (1, -1), (2, ALL), (2, 1), (2, -1), (3, ALL), (EVEN, ALL))
TRIED = tuple((more, *each) for more in (0, 1) for each in GAPS)


def choose(chain: Chain) -> tuple[Flags, Flags]:
    """(plans, units) twice: which units send out, and which make again.

    Where nothing fits, all that can.
    """
    shape = shape_of(chain)
    out, made = np.zeros(shape, bool), np.zeros(shape, bool)
    some = (np.broadcast_to(chain.free | chain.able, shape) & (chain.kept > 0)).any(axis=-1)
    wanting = (needed(chain, out, made) > chain.room[:, 0]) & some
    hopeless = wanting & (least(chain) > chain.room[:, 0])
    out = out | (chain.free & hopeless[:, None])
    made = made | (chain.able & ~chain.free & hopeless[:, None])
    rows = np.flatnonzero(wanting & ~hopeless)
    if not len(rows):
        return out, made
    wide = {name: np.broadcast_to(value, (shape[0], value.shape[-1]))
            for name, value in vars(chain).items()}  # fmt: skip
    table = np.hstack([value[rows] for value in wide.values()]).astype(float)
    table = np.where(np.isfinite(table), table, -1.0)
    first, kind = distinct(table / np.maximum(np.abs(table).max(axis=0), 1e-300))
    few = Chain(**{name: value[rows[first]] for name, value in wide.items()})
    found = np.zeros((2, len(first), shape[1]), bool)
    fold = same(few)
    alike = np.flatnonzero(fold)
    for begin in range(0, len(alike), AT_ONCE):
        mine = alike[begin : begin + AT_ONCE]
        found[:, mine] = folded(few.take(mine))
    for at in np.flatnonzero(~fold):
        found[:, at] = np.array(chosen(few.take(np.array([at]))))[:, 0]
    out[rows], made[rows] = found[:, kind]
    return out, made


def least(chain: Chain) -> Array:
    """(plans,) room without which no choice will do: of the unit at work, and of what must stay."""
    given = np.where(chain.able, np.minimum(chain.given, chain.kept), chain.kept)
    stays = np.where(chain.free, 0.0, given) * np.ones(shape_of(chain))
    others = np.maximum(chain.flight - 1, 0.0) * stays.sum(axis=-1, keepdims=True)
    before = np.cumsum(stays, axis=-1) - stays
    return np.asarray((others + before + chain.kept + chain.work).max(axis=-1))


def shape_of(chain: Chain) -> tuple[int, ...]:
    """(plans, units)."""
    return np.broadcast_shapes(*(value.shape for value in vars(chain).values()))


def words(away: Flags, again: Flags) -> tuple[str, ...]:
    """The word of each unit of one plan; what is made again from an input that was sent out too
    is `recompute`.
    """
    return tuple(WORDS[2 if made else int(out)] for out, made in zip(away, again, strict=True))


def same(chain: Chain) -> Flags:
    """(plans,) whether the units that may choose are alike, and come in as room allows."""
    shape = shape_of(chain)
    free = np.broadcast_to(chain.free | chain.able, shape)
    found = np.broadcast_to(np.isinf(chain.ahead[:, 0]), shape[:1]).copy()
    alike = (chain.free == chain.able).all(axis=-1)
    found &= alike | ~chain.free.any(axis=-1) | ~chain.able.any(axis=-1)
    for each in (chain.forward, chain.backward, chain.kept, chain.given, chain.remake, chain.work):
        values = np.broadcast_to(each, shape)
        most = np.where(free, values, -np.inf).max(axis=-1)
        least = np.where(free, values, np.inf).min(axis=-1)
        found &= ~(most - least > 1e-9 * np.abs(most))
    return found


def placed(
    free: Flags, out: Array, made: Array, gap: int = 0, last: int = 0
) -> tuple[Flags, Flags]:
    """Of the free units, so many first sent out, the next made again.

    With a gap, so many of the latter follow each of the `last` of the former (all but so many where
    negative), as long as there are any: while these are made again the next comes in. `EVEN`: as
    many follow each.
    """
    number = np.cumsum(free, axis=-1)
    either = free & (number <= (out + made)[:, None])
    if gap == EVEN:
        at, all_, leave = number - 1, (out + made)[:, None], out[:, None]
        before = -(-at * leave // np.maximum(all_, 1))
        first = (before < leave) & (before * all_ < (at + 1) * leave)
    else:
        most = out + last if last < 0 else np.minimum(out, last)
        spread = np.minimum(np.maximum(most, 0), made // gap) if gap else 0 * out
        alone = (out - spread)[:, None]  # before those with gaps
        within = number - alone - 1
        apart = (within >= 0) & (within < (spread * (gap + 1))[:, None])
        first = (number <= alone) | (apart & (within % (gap + 1) == 0))
    return either & first, either & ~first


def folded(chain: Chain) -> tuple[Flags, Flags]:
    """Numbers of alike units: for each that leave, the fewest that are made again, or one more.

    A bound, ΣF and ΣB or what either engine must copy, says which numbers need no closer look.
    """
    shape = shape_of(chain)
    leaves, makes = (np.asarray(np.broadcast_to(each, shape).any(axis=-1))
                     for each in (chain.free, chain.able))  # fmt: skip
    free = np.broadcast_to(chain.free | chain.able, shape)
    at = np.argmax(free, axis=-1)[:, None]

    def of(values: Array) -> Array:
        return np.take_along_axis(np.broadcast_to(values, shape), at, -1)

    count = free.sum(axis=-1)[:, None]
    out = np.minimum(np.arange(1 + int(count.max()) * leaves.any()), count * leaves[:, None])
    made = _fewest(chain, free, out) * makes[:, None]
    copied = out * of(chain.kept)
    ahead, back = (np.broadcast_to(each, shape).sum(axis=-1)[:, None]
                   for each in (chain.forward, chain.backward))  # fmt: skip
    back = back + made * of(chain.remake)
    bound = np.maximum(ahead, copied * chain.out) + np.maximum(back, copied * chain.back)
    bound = np.where(chain.managed > 0, ahead + back, bound)  # whose copies hide nowhere
    bound = np.where(_room(chain, free, out, made) <= chain.room * (1 + TOUCH), bound, np.inf)
    best, found = np.full(shape[0], np.inf), np.zeros((2, *shape), bool)
    order = np.argsort(bound, axis=-1, kind="stable")
    for column in order.T:
        of_rank = np.arange(len(best)), column
        rows = np.flatnonzero(bound[of_rank] < best * (1 - 1e-12))
        if not len(rows):
            break
        leave, again = out[of_rank][rows], made[of_rank][rows]
        for extra, gap, last in TRIED if leaves.any() and makes.any() else TRIED[:1]:
            fine = (leave + again + extra <= count[rows, 0]) & (makes[rows] | (extra == 0))
            mine = rows[fine]
            if not len(mine):
                continue
            some = placed(free[mine], leave[fine], again[fine] + extra, gap, last)
            taken = play(chain.take(mine), *some)
            seconds = np.where(taken.fits, taken.seconds, np.inf)
            better = seconds < best[mine] * (1 - 1e-12)
            best[mine[better]] = seconds[better]
            found[:, mine[better]] = np.array(some)[:, better]
    nothing = ~np.isfinite(best)  # where nothing fits, all that can
    every = free & leaves[:, None], free & ~leaves[:, None]
    found[:, nothing] = np.array(every)[:, nothing]
    return found[0], found[1]


def _room(chain: Chain, free: Flags, out: Array, made: Array) -> Array:
    """(plans, candidates) the least room that will do, as `out_of_core.needed` has it."""
    shape, at = free.shape, np.argmax(free, axis=-1)[:, None]
    kept, given, work = (np.broadcast_to(each, shape)
                         for each in (chain.kept, chain.given, chain.work))  # fmt: skip
    each, small = (np.take_along_axis(values, at, -1)[:, :, None] for values in (kept, given))
    number = np.where(free, np.cumsum(free, axis=-1), 0)[:, None, :]
    behind = np.cumsum(free, axis=-1)[:, None, :] - (out + 0 * made)[:, :, None]
    made = (made + 0 * out)[:, :, None]
    again = np.minimum(np.maximum(behind, 0), made)
    fixed = np.cumsum(np.where(free, 0.0, kept), axis=-1)[:, None, :]
    stays = fixed + again * small + np.maximum(behind - made, 0) * each
    first = (number > 0) & (behind <= 0)
    remade = (number > 0) & (behind > 0) & (behind <= made)
    most = (stays + work[:, None, :] + np.where(first | remade, each, 0.0)).max(axis=-1)
    return np.asarray(most + np.maximum(chain.flight - 1, 0.0) * stays[:, :, -1])


def _fewest(chain: Chain, free: Flags, out: Array) -> Array:
    """(plans, candidates) the fewest units that must be made again beside so many that leave."""
    low, count = np.zeros(out.shape, int), free.sum(axis=-1)[:, None]
    fits = _room(chain, free, out, low) <= chain.room
    low, high = low + 1, np.broadcast_to(np.maximum(count - out, 1), out.shape)
    while (low < high).any():  # by halves: more of them take less
        middle = (low + high) // 2
        enough = _room(chain, free, out, middle) <= chain.room
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        low = np.minimum(low, high)
    return np.asarray(np.where(fits, 0, np.minimum(high, count - out)))


def chosen(chain: Chain) -> tuple[Flags, Flags]:
    """One chain of unlike units: a mixed-integer program that has to better a first guess."""
    from scipy.optimize import Bounds, LinearConstraint

    guess = guessed(chain)
    known = play(chain, *guess)
    program = _Program(chain)
    units = program.units
    rows, low, high = program.rules()
    found = solved(
        program.cost, constraints=LinearConstraint(rows, low, high),
        bounds=Bounds(0, program.most), integrality=program.whole,
        options={"presolve": False,
                 "node_limit": max(10, int(LIMIT * min(1.0, SHORT / units) ** 2)),
                 "mip_rel_gap": SURE if units <= SHORT else NEAR},
    )  # fmt: skip
    if found.x is None:  # nothing fits
        return guess
    picked = found.x > 0.5
    better = picked[None, :units], picked[None, units : 2 * units]
    taken = play(chain, *better)
    if known.fits[0] and not (taken.fits[0] and taken.seconds[0] < known.seconds[0]):
        return guess
    return better


def guessed(chain: Chain) -> tuple[Flags, Flags]:
    """The first so many units sent out, of the others those made again that give most room for
    their seconds, as few as will do: the best of all such numbers; all that can where none fits.
    """
    shape = shape_of(chain)
    free, able, kept, given, remake = (
        np.broadcast_to(each, shape)[0]
        for each in (chain.free, chain.able, chain.kept, chain.given, chain.remake)
    )
    free, able = free & (kept > 0), able & (kept > given)
    number, units = np.cumsum(free), shape[1]
    gain = np.where(able, (kept - given) / np.maximum(remake, 1e-30), -1.0)
    order = np.argsort(-gain, kind="stable")
    order = order[able[order]]
    best, found = np.inf, (free[None], able[None] & ~free[None])
    for out in range(int(number[-1]) + 1):
        away = free & (number <= out)
        rest = order[~away[order]]
        made = np.zeros((len(rest) + 1, units), bool)
        for count, unit in enumerate(rest, 1):
            made[count:, unit] = True
        each = np.broadcast_to(away, made.shape)
        some = chain.take(np.zeros(len(made), int))
        fits = np.flatnonzero(needed(some, each, made) <= chain.room[0, 0])
        if not len(fits):
            continue
        mine = fits[:3]
        taken = play(chain.take(np.zeros(len(mine), int)), each[mine], made[mine])
        at = int(np.argmin(taken.seconds))
        if taken.seconds[at] < best:
            best, found = taken.seconds[at], (each[mine[at]][None], made[mine[at]][None])
    return found


class _Program:
    """Least Σ seconds of both passes, in bytes and seconds scaled to about one.

    Variables, by unit: whether it leaves, whether it is made again, when it starts ahead and back,
    bytes out by its start and end, bytes in by its start and end, those that stay and leave up to
    it.
    """

    NAMES = ("away", "again", "start", "turn", "out", "outs", "come", "comes", "stays", "leaves")

    def __init__(self, chain: Chain) -> None:
        units = self.units = shape_of(chain)[1]

        def of(values: Array) -> Array:
            return np.asarray(np.broadcast_to(values, (1, units))[0], float)

        self.forward, self.backward = of(chain.forward), of(chain.backward)
        self.kept, self.given = of(chain.kept), of(chain.given)
        self.time = max(self.forward.sum() + self.backward.sum(), 1e-30)
        self.size = max(self.kept.sum(), 1e-30)
        self.forward, self.backward = self.forward / self.time, self.backward / self.time
        self.remake = of(chain.remake) / self.time
        self.kept, self.given = self.kept / self.size, self.given / self.size
        self.work = of(chain.work) / self.size
        self.room = float(chain.room[0, 0]) / self.size * (1 - SPARE)
        self.others = max(float(chain.flight[0, 0]) - 1, 0.0)
        self.rate = [float(each[0, 0]) * self.size / self.time for each in (chain.out, chain.back)]
        self.ahead, self.managed = float(chain.ahead[0, 0]), float(chain.managed[0, 0]) > 0
        self.number = len(self.NAMES) * units
        self.most = np.full(self.number, np.inf)
        self.most[:units], self.most[units : 2 * units] = of(chain.free), of(chain.able)
        self.whole = np.zeros(self.number)
        self.whole[: 2 * units] = 1
        self.lines: list[tuple[dict[int, float], float]] = []
        end = units - 1
        # the end of the forward pass with what has to leave yet, and that of the backward pass
        self.cost = np.zeros(self.number)
        self.cost[self.at("start", end)] += 1
        if not self.managed:
            self.cost[self.at("leaves", end)] += self.rate[0]
            self.cost[self.at("outs", end)] -= self.rate[0]
        self.cost[self.at("turn", 0)] += 1
        self.cost[self.at("again", 0)] += self.remake[0]

    def at(self, name: str, unit: int) -> int:
        return self.NAMES.index(name) * self.units + unit

    def least(self, terms: list[tuple[str, int, float]], value: float) -> None:
        """Σ terms ≥ value."""
        line: dict[int, float] = {}
        for name, unit, factor in terms:
            if 0 <= unit < self.units:
                line[self.at(name, unit)] = line.get(self.at(name, unit), 0.0) + factor
        self.lines.append((line, value))

    def rules(self) -> tuple[Any, Array, Array]:
        """All constraints, as rows that are no less than their bounds."""
        from scipy.sparse import csr_matrix

        last = self.units - 1
        for i in range(self.units):
            kept, given, before = self.kept[i], self.given[i], i - 1
            self.least([("away", i, -1), ("again", i, -1)], -1)
            held: list[tuple[str, int, float]] = [("stays", i, 1), ("stays", before, -1)]
            self.least([*held, ("away", i, kept), ("again", i, kept - given)], kept)
            self.least([("leaves", i, -1), ("leaves", before, 1), ("away", i, kept)], 0)
            self.least([("leaves", i, 1), ("leaves", before, -1), ("away", i, -kept)], 0)
            self._ahead(i, last)
            self._back(i, last)
        data, columns, ends = [], [], [0]
        for line, _ in self.lines:
            data += list(line.values())
            columns += list(line)
            ends.append(len(columns))
        low = np.array([value for _, value in self.lines])
        rows = csr_matrix((data, columns, ends), shape=(len(low), self.number))
        return rows, low, np.full(len(low), np.inf)

    def _ahead(self, i: int, last: int) -> None:
        """A unit starts when the one before has ended and enough has left to give it room."""
        before, rate = i - 1, max(self.rate[0], 1e-12)
        done = self.forward[before] if i else 0.0
        self.least([("start", i, 1), ("start", before, -1)], done)
        speed = 1 / rate
        self.least([("out", i, -1), ("outs", before, 1), ("start", i, speed),
                    ("start", before, -speed)], done * speed)  # fmt: skip
        pace = 0.0 if self.managed else self.forward[i] * speed
        self.least([("outs", i, -1), ("out", i, 1)], -pace)
        for name in ("out", "outs"):
            self.least([(name, i, -1), ("leaves", before, 1)], 0)
        # what stays and leaves up to here less what has left, and all other micro-batches
        self.least([("out", i, 1), ("stays", i, -1), ("leaves", i, -1),
                    ("stays", last, -self.others)], -self.room)  # fmt: skip

    def _back(self, i: int, last: int) -> None:
        """A unit runs back when all that it sent out is there again."""
        behind, rate = i + 1, max(self.rate[1], 1e-12)
        speed, before = 1 / rate, i - 1
        own = self.backward[behind] if i < last else 0.0
        more = self.remake[behind] if i < last else 0.0
        self.least([("turn", i, 1), ("turn", behind, -1), ("again", behind, -more)], own)
        self.least([("come", i, -1), ("comes", behind, 1), ("turn", i, speed),
                    ("turn", behind, -speed), ("again", behind, -more * speed)],
                   own * speed)  # fmt: skip
        pace = 0.0 if self.managed else speed
        self.least([("comes", i, -1), ("come", i, 1), ("again", i, self.remake[i] * pace)],
                   -self.backward[i] * pace)  # fmt: skip
        self.least([("come", i, 1), ("leaves", last, -1), ("leaves", before, 1)], 0)
        near = -1 if np.isinf(self.ahead) else max(i - int(self.ahead), 0) - 1
        for name in ("come", "comes"):
            self.least([(name, i, -1), ("stays", i, -1), ("leaves", last, 1), ("leaves", i, -1),
                        ("stays", last, -self.others), ("again", i, -self.kept[i])],
                       self.work[i] - self.room)  # fmt: skip
            self.least([(name, i, -1), ("leaves", last, 1), ("leaves", near, -1)], 0)
