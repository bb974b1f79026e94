"""What each unit does with its activations: keep them, send them out, or make them again.

The choice takes the least time of both passes, `out_of_core.play`, that the room allows. Where the
units that are free to choose are alike, three numbers say it: the first are sent out, whose copies
have the longest time to leave and to return, the next are made again, the last keep. All numbers
are looked at that a lower bound does not rule out, for all plans at once; where they are few each
chain is searched too, since a few that are alike are best told apart now and then. Else each chain
is searched by itself (`unit_search`), and where it is short a program is solved (`unit_program`).
"""

from __future__ import annotations

import numpy as np

from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.out_of_core import TOUCH, Chain, Flags, needed, play
from oracle.plan.unit_program import UNITS, chosen
from oracle.plan.unit_search import searched, shape_of

WORDS = ("keep", "offload", "recompute", "both")
AT_ONCE = 128  # chains of alike units that are looked at together
EVEN, ALL = -1, 2**30
# (units made again beside the fewest, units made again between two that leave, of how many)
GAPS = ((0, 0), (1, ALL), (1, 1), (1, 2), (1, -1), (2, ALL), (2, 1), (2, -1), (3, ALL), (EVEN, ALL))
TRIED = tuple((more, *each) for more in (0, 1) for each in GAPS)


def choose(chain: Chain, stages: int = 1) -> tuple[Flags, Flags]:
    """(plans, units) twice: which units send out, and which make again.

    Where nothing fits, all that can: on every one of a plan's `stages`, which follow each other.
    """
    shape = shape_of(chain)
    out, made = np.zeros(shape, bool), np.zeros(shape, bool)
    some = (np.broadcast_to(chain.free | chain.able, shape) & (chain.kept > 0)).any(axis=-1)
    wanting = (needed(chain, out, made) > chain.room[:, 0]) & some
    hopeless = (wanting & lacking(chain).any(axis=-1)).reshape(-1, stages).any(axis=-1)
    hopeless = wanting & hopeless.repeat(stages)
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
        found[:, mine] = of_alike(few.take(mine))
    for at in np.flatnonzero(~fold):
        found[:, at] = np.array(chosen(few.take(np.array([at]))))[:, 0]
    out[rows], made[rows] = found[:, kind]
    return out, made


def of_alike(chain: Chain) -> tuple[Flags, Flags]:
    """The better, of few units, of what three numbers say and what a search of each chain finds."""
    found = np.array(folded(chain))
    if found.shape[-1] <= UNITS:
        other = np.concatenate([np.array(searched(chain.take(np.array([at]))))
                                for at in range(found.shape[1])], axis=1)  # fmt: skip
        now, then = (play(chain, *each) for each in (found, other))
        better = then.fits & (~now.fits | (then.seconds < now.seconds * (1 - 1e-12)))
        found[:, better] = other[:, better]
    return found[0], found[1]


def least(chain: Chain) -> Array:
    """(plans, units) room without which no choice will do, for each unit while it is at work."""
    given = np.where(chain.able, np.minimum(chain.given, chain.kept), chain.kept)
    stays = np.where(chain.free, 0.0, given) * np.ones(shape_of(chain))
    others = np.maximum(chain.flight - 1, 0.0) * stays.sum(axis=-1, keepdims=True)
    before = np.cumsum(stays, axis=-1) - stays
    return np.asarray(others + before + chain.kept + np.maximum(chain.work, chain.passing))


def lacking(chain: Chain) -> Flags:
    """(plans, units) those without which there is no room, whatever is chosen."""
    return np.asarray(least(chain) > chain.room)


def words(away: Flags, again: Flags) -> tuple[str, ...]:
    """The word of each unit of one plan; `both`: made again from an input that was sent out."""
    return tuple(WORDS[int(out) + 2 * int(made)] for out, made in zip(away, again, strict=True))


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

    The inputs of the latter stay, or all leave too. A bound, ΣF and ΣB or what either engine must
    copy, says which numbers need no closer look.
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
    sends = (leaves & makes)[:, None] & np.repeat([False, True], out.shape[1])
    sends = sends & ~(chain.fixed > 0)
    out = np.hstack([out, out])
    made = _fewest(chain, free, out, sends) * makes[:, None]
    copied = out * of(chain.kept) + made * sends * of(chain.given)
    ahead, back = (np.broadcast_to(each, shape).sum(axis=-1)[:, None]
                   for each in (chain.forward, chain.backward))  # fmt: skip
    back = back + made * of(chain.remake)
    bound = np.maximum(ahead, copied * chain.out) + np.maximum(back, copied * chain.back)
    bound = np.where(chain.managed > 0, ahead + back, bound)  # whose copies hide nowhere
    fits = _room(chain, free, out, made, sends) <= chain.room * (1 + TOUCH)
    bound = np.where(fits, bound, np.inf)
    best, found = np.full(shape[0], np.inf), np.zeros((2, *shape), bool)
    order = np.argsort(bound, axis=-1, kind="stable")
    for column in order.T:
        of_rank = np.arange(len(best)), column
        rows = np.flatnonzero(bound[of_rank] < best * (1 - 1e-12))
        if not len(rows):
            break
        leave, again, too = (each[of_rank][rows] for each in (out, made, sends))
        for extra, gap, last in TRIED if leaves.any() and makes.any() else TRIED[:1]:
            fine = (leave + again + extra <= count[rows, 0]) & (makes[rows] | (extra == 0))
            mine = rows[fine]
            if not len(mine):
                continue
            gone, remade = placed(free[mine], leave[fine], again[fine] + extra, gap, last)
            some = gone | (remade & too[fine, None]), remade
            taken = play(chain.take(mine), *some)
            seconds = np.where(taken.fits, taken.seconds, np.inf)
            better = seconds < best[mine] * (1 - 1e-12)
            best[mine[better]] = seconds[better]
            found[:, mine[better]] = np.array(some)[:, better]
    nothing = ~np.isfinite(best)  # where nothing fits, all that can
    every = free & leaves[:, None], free & ~leaves[:, None]
    found[:, nothing] = np.array(every)[:, nothing]
    return found[0], found[1]


def _room(chain: Chain, free: Flags, out: Array, made: Array, sends: Flags) -> Array:
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
    gone = small * sends[:, :, None]
    stays = fixed + again * (small - gone) + np.maximum(behind - made, 0) * each
    first = (number > 0) & (behind <= 0)
    remade = (number > 0) & (behind > 0) & (behind <= made)
    there = np.where(first | remade, each, 0.0) + np.where(remade, gone, 0.0)
    most = (stays + work[:, None, :] + there).max(axis=-1)
    return np.asarray(most + np.maximum(chain.flight - 1, 0.0) * stays[:, :, -1])


def _fewest(chain: Chain, free: Flags, out: Array, sends: Flags) -> Array:
    """(plans, candidates) the fewest units that must be made again beside so many that leave."""
    low, count = np.zeros(out.shape, int), free.sum(axis=-1)[:, None]
    fits = _room(chain, free, out, low, sends) <= chain.room
    low, high = low + 1, np.broadcast_to(np.maximum(count - out, 1), out.shape)
    while (low < high).any():  # by halves: more of them take less
        middle = (low + high) // 2
        enough = _room(chain, free, out, middle, sends) <= chain.room
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        low = np.minimum(low, high)
    return np.asarray(np.where(fits, 0, np.minimum(high, count - out)))
