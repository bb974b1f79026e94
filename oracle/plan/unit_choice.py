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
    out, remade = np.zeros(shape, bool), np.zeros(shape, bool)
    may_choose = (np.broadcast_to(chain.free | chain.able, shape) & (chain.kept > 0)).any(axis=-1)
    wanting = (needed(chain, out, remade) > chain.room[:, 0]) & may_choose
    hopeless = (wanting & lacking(chain).any(axis=-1)).reshape(-1, stages).any(axis=-1)
    hopeless = wanting & hopeless.repeat(stages)
    out = out | (chain.free & hopeless[:, None])
    remade = remade | (chain.able & ~chain.free & hopeless[:, None])
    rows = np.flatnonzero(wanting & ~hopeless)
    if not len(rows):
        return out, remade
    wide = {name: np.broadcast_to(value, (shape[0], value.shape[-1]))
            for name, value in vars(chain).items()}  # fmt: skip
    table = np.hstack([value[rows] for value in wide.values()]).astype(float)
    table = np.where(np.isfinite(table), table, -1.0)
    first, kind = distinct(table / np.maximum(np.abs(table).max(axis=0), 1e-300))
    distinct_chains = Chain(**{name: value[rows[first]] for name, value in wide.items()})
    choices = np.zeros((2, len(first), shape[1]), bool)
    fold = same(distinct_chains)
    alike = np.flatnonzero(fold)
    for begin in range(0, len(alike), AT_ONCE):
        chains = alike[begin : begin + AT_ONCE]
        choices[:, chains] = of_alike(distinct_chains.take(chains))
    for chain_number in np.flatnonzero(~fold):
        choices[:, chain_number] = np.array(chosen(distinct_chains.take(np.array([chain_number]))))[
            :, 0
        ]
    out[rows], remade[rows] = choices[:, kind]
    return out, remade


def of_alike(chain: Chain) -> tuple[Flags, Flags]:
    """The better, of few units, of what three numbers say and what a search of each chain finds."""
    numbered = np.array(folded(chain))
    if numbered.shape[-1] <= UNITS:
        searched_ways = np.concatenate([np.array(searched(chain.take(np.array([chain_number]))))
                                for chain_number in range(numbered.shape[1])], axis=1)  # fmt: skip
        now, then = (play(chain, *ways) for ways in (numbered, searched_ways))
        better = then.fits & (~now.fits | (then.seconds < now.seconds * (1 - 1e-12)))
        numbered[:, better] = searched_ways[:, better]
    return numbered[0], numbered[1]


def least(chain: Chain) -> Array:
    """(plans, units) room without which no choice will do, for each unit while it is at work."""
    given_bytes = np.where(chain.able, np.minimum(chain.given, chain.kept), chain.kept)
    stays = np.where(chain.free, 0.0, given_bytes) * np.ones(shape_of(chain))
    other_bytes = np.maximum(chain.flight - 1, 0.0) * stays.sum(axis=-1, keepdims=True)
    before = np.cumsum(stays, axis=-1) - stays
    return np.asarray(other_bytes + before + chain.kept + np.maximum(chain.work, chain.passing))


def lacking(chain: Chain) -> Flags:
    """(plans, units) those without which there is no room, whatever is chosen."""
    return np.asarray(least(chain) > chain.room)


def words(away: Flags, remade: Flags) -> tuple[str, ...]:
    """The word of each unit of one plan; `both`: made again from an input that was sent out."""
    return tuple(
        WORDS[int(out) + 2 * int(is_remade)] for out, is_remade in zip(away, remade, strict=True)
    )


def same(chain: Chain) -> Flags:
    """(plans,) whether the units that may choose are alike, and come in as room allows."""
    shape = shape_of(chain)
    free = np.broadcast_to(chain.free | chain.able, shape)
    alike_units = np.broadcast_to(np.isinf(chain.ahead[:, 0]), shape[:1]).copy()
    alike = (chain.free == chain.able).all(axis=-1)
    alike_units &= alike | ~chain.free.any(axis=-1) | ~chain.able.any(axis=-1)
    for column in (
        chain.forward,
        chain.backward,
        chain.kept,
        chain.given,
        chain.remake,
        chain.work,
    ):
        values = np.broadcast_to(column, shape)
        largest = np.where(free, values, -np.inf).max(axis=-1)
        smallest = np.where(free, values, np.inf).min(axis=-1)
        alike_units &= ~(largest - smallest > 1e-9 * np.abs(largest))
    return alike_units


def placed(
    free: Flags, out: Array, remade: Array, gap: int = 0, last: int = 0
) -> tuple[Flags, Flags]:
    """Of the free units, so many first sent out, the next made again.

    With a gap, so many of the latter follow each of the `last` of the former (all but so many where
    negative), as long as there are any: while these are made again the next comes in. `EVEN`: as
    many follow each.
    """
    number = np.cumsum(free, axis=-1)
    either = free & (number <= (out + remade)[:, None])
    if gap == EVEN:
        place, all_, leave = number - 1, (out + remade)[:, None], out[:, None]
        before = -(-place * leave // np.maximum(all_, 1))
        first = (before < leave) & (before * all_ < (place + 1) * leave)
    else:
        gap_leaves = out + last if last < 0 else np.minimum(out, last)
        spread = np.minimum(np.maximum(gap_leaves, 0), remade // gap) if gap else 0 * out
        alone = (out - spread)[:, None]  # before those with gaps
        within = number - alone - 1
        in_gaps = (within >= 0) & (within < (spread * (gap + 1))[:, None])
        first = (number <= alone) | (in_gaps & (within % (gap + 1) == 0))
    return either & first, either & ~first


def folded(chain: Chain) -> tuple[Flags, Flags]:
    """Numbers of alike units: for each that leave, the fewest that are made again, or one more.

    The inputs of the latter stay, or all leave too. A bound, ΣF and ΣB or what either engine must
    copy, says which numbers need no closer look.
    """
    shape = shape_of(chain)
    leaves, makes = (np.asarray(np.broadcast_to(quantity, shape).any(axis=-1))
                     for quantity in (chain.free, chain.able))  # fmt: skip
    free = np.broadcast_to(chain.free | chain.able, shape)
    first_free = np.argmax(free, axis=-1)[:, None]

    def of_first(values: Array) -> Array:
        return np.take_along_axis(np.broadcast_to(values, shape), first_free, -1)

    count = free.sum(axis=-1)[:, None]
    out = np.minimum(np.arange(1 + int(count.max()) * leaves.any()), count * leaves[:, None])
    sends = (leaves & makes)[:, None] & np.repeat([False, True], out.shape[1])
    sends = sends & ~(chain.fixed > 0)
    out = np.hstack([out, out])
    remade_units = _fewest(chain, free, out, sends) * makes[:, None]
    copied = out * of_first(chain.kept) + remade_units * sends * of_first(chain.given)
    ahead, back = (np.broadcast_to(quantity, shape).sum(axis=-1)[:, None]
                   for quantity in (chain.forward, chain.backward))  # fmt: skip
    back = back + remade_units * of_first(chain.remake)
    bound = np.maximum(ahead, copied * chain.out) + np.maximum(back, copied * chain.back)
    bound = np.where(chain.managed > 0, ahead + back, bound)  # whose copies hide nowhere
    fits = _room(chain, free, out, remade_units, sends) <= chain.room * (1 + TOUCH)
    bound = np.where(fits, bound, np.inf)
    best, choices = np.full(shape[0], np.inf), np.zeros((2, *shape), bool)
    order = np.argsort(bound, axis=-1, kind="stable")
    for column in order.T:
        of_rank = np.arange(len(best)), column
        rows = np.flatnonzero(bound[of_rank] < best * (1 - 1e-12))
        if not len(rows):
            break
        leave, remade_count, too = (
            quantity[of_rank][rows] for quantity in (out, remade_units, sends)
        )
        for extra, gap, last in TRIED if leaves.any() and makes.any() else TRIED[:1]:
            fine = (leave + remade_count + extra <= count[rows, 0]) & (makes[rows] | (extra == 0))
            chain_rows = rows[fine]
            if not len(chain_rows):
                continue
            gone, remade = placed(
                free[chain_rows], leave[fine], remade_count[fine] + extra, gap, last
            )
            ways = gone | (remade & too[fine, None]), remade
            played = play(chain.take(chain_rows), *ways)
            seconds = np.where(played.fits, played.seconds, np.inf)
            better = seconds < best[chain_rows] * (1 - 1e-12)
            best[chain_rows[better]] = seconds[better]
            choices[:, chain_rows[better]] = np.array(ways)[:, better]
    nothing = ~np.isfinite(best)  # where nothing fits, all that can
    every = free & leaves[:, None], free & ~leaves[:, None]
    choices[:, nothing] = np.array(every)[:, nothing]
    return choices[0], choices[1]


def _room(chain: Chain, free: Flags, out: Array, remade_count: Array, sends: Flags) -> Array:
    """(plans, candidates) the least room that will do, as `out_of_core.needed` has it."""
    shape, first_free = free.shape, np.argmax(free, axis=-1)[:, None]
    kept_bytes, given_bytes, work = (np.broadcast_to(unit_kept, shape)
                         for unit_kept in (chain.kept, chain.given, chain.work))  # fmt: skip
    unit_kept, small = (
        np.take_along_axis(values, first_free, -1)[:, :, None]
        for values in (kept_bytes, given_bytes)
    )
    number = np.where(free, np.cumsum(free, axis=-1), 0)[:, None, :]
    behind = np.cumsum(free, axis=-1)[:, None, :] - (out + 0 * remade_count)[:, :, None]
    remade_count = (remade_count + 0 * out)[:, :, None]
    remade_before = np.minimum(np.maximum(behind, 0), remade_count)
    fixed = np.cumsum(np.where(free, 0.0, kept_bytes), axis=-1)[:, None, :]
    gone = small * sends[:, :, None]
    stays = (
        fixed + remade_before * (small - gone) + np.maximum(behind - remade_count, 0) * unit_kept
    )
    first = (number > 0) & (behind <= 0)
    remade = (number > 0) & (behind > 0) & (behind <= remade_count)
    at_work = np.where(first | remade, unit_kept, 0.0) + np.where(remade, gone, 0.0)
    peak = (stays + work[:, None, :] + at_work).max(axis=-1)
    return np.asarray(peak + np.maximum(chain.flight - 1, 0.0) * stays[:, :, -1])


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
