"""What unlike units do with their activations, found by changing one unit after another.

A first guess sends out the first so many units and makes again those of the others that give most
room for their seconds; then whatever change of one unit, or exchange between two near each other,
shortens both passes most is taken, until none does. All changes are played at once.
"""

from __future__ import annotations

import numpy as np

from oracle.models.shard import Array
from oracle.plan.out_of_core import Chain, Flags, needed, play

NEAR = 3  # places between two units that exchange what they do at first
STARTS = 4  # guesses that are changed
ROUNDS = 64  # changes that are taken one after the other
SURE = 1e-12  # relative: a change that shortens nothing
Ways = tuple[Flags, Flags]  # (ways, units) each: which units send out, and which make again


def shape_of(chain: Chain) -> tuple[int, ...]:
    """(plans, units)."""
    return np.broadcast_shapes(*(value.shape for value in vars(chain).values()))


def searched(chain: Chain) -> Ways:
    """One chain: the best guesses, each changed while that shortens its passes."""
    found = [improved(chain, each) for each in guesses(chain)]
    best, _ = min(found, key=lambda one: one[1])
    return improved(chain, best, shape_of(chain)[1])[0]


def guesses(chain: Chain) -> list[Ways]:
    """The first so many units sent out, of the others or of all those made again that give most
    room for their seconds: the best of such numbers; all that can where none fits.
    """
    free, able, kept, given, remake = (
        np.broadcast_to(each, shape_of(chain))[0]
        for each in (chain.free, chain.able, chain.kept, chain.given, chain.remake)
    )
    free, able, fixed = free & (kept > 0), able & (kept > given), chain.fixed[0, 0] > 0
    number, units = np.cumsum(free), len(free)
    gain = np.where(able, (kept - given) / np.maximum(remake, 1e-30), -1.0)
    order = np.argsort(-gain, kind="stable")
    order = order[able[order]]
    ways: list[Ways] = []
    for out in range(int(number[-1]) + 1):
        away = free & (number <= out)
        apart = order[~away[order]]
        for rest, few in ((apart, 3), (order, 0)):
            if few == 0 and (fixed or len(rest) == len(apart)):
                continue
            made = np.zeros((len(rest) + 1, units), bool)
            for count, unit in enumerate(rest, 1):
                made[count:, unit] = True
            each = np.broadcast_to(away, made.shape)
            fits = np.flatnonzero(needed(chain, each, made) <= chain.room[0, 0])
            # of those that send nothing of what they make again the fewest are the best
            mine = fits[:few] if few else fits[:: max(1, len(fits) // 8)]
            ways.append((each[mine], made[mine]))
    away, again = (np.concatenate(each) for each in zip(*ways, strict=True))
    if not len(away):
        return [(free[None], (able & ~(free & fixed))[None])]
    best = np.argsort(play(chain, away, again).seconds, kind="stable")
    best = best[:: max(1, len(best) // (4 * STARTS))][:STARTS]
    return [(away[[at]], again[[at]]) for at in best]


def improved(chain: Chain, ways: Ways, far: int = NEAR) -> tuple[Ways, float]:
    """One way of one chain, changed while that shortens its passes, which take so many seconds;
    two units exchange what they do that lie no further apart.
    """
    _, least = _least(chain, ways)
    for _ in range(ROUNDS):
        found, seconds = _least(chain, _changes(chain, ways, far))
        if not seconds < least * (1 - SURE):
            break
        ways, least = found, seconds
    return ways, least


def _least(chain: Chain, ways: Ways) -> tuple[Ways, float]:
    """The way with the least seconds of all that fit, which are the first of it where none does."""
    fits = np.flatnonzero(needed(chain, *ways) <= chain.room[0, 0])
    if not len(fits):
        return (ways[0][:1], ways[1][:1]), float("inf")
    away, again = ways[0][fits], ways[1][fits]
    seconds = play(chain, away, again).seconds
    at = int(np.argmin(seconds))
    return (away[at][None], again[at][None]), float(seconds[at])


def _changes(chain: Chain, ways: Ways, far: int) -> Ways:
    """Every other word of each unit, and every exchange of two units that are not far apart."""
    units, word = ways[0].shape[1], ways[0][0] + 2 * ways[1][0]
    able = np.broadcast_to(chain.able, shape_of(chain))[0]
    free = np.broadcast_to(chain.free, shape_of(chain))[0]
    rows: list[Array] = []
    for new in range(3 if chain.fixed[0, 0] > 0 else 4):
        may = (free | (new % 2 == 0)) & (able | (new < 2)) & (word != new)
        each = np.repeat(word[None], may.sum(), axis=0)
        each[np.arange(len(each)), np.flatnonzero(may)] = new
        rows.append(each)
    for apart in range(1, min(far + 1, units)):
        first = np.arange(units - apart)
        second = first + apart
        sound = word[first] != word[second]
        for one, other in ((first, second), (second, first)):
            sound &= (free[one] | (word[other] % 2 == 0)) & (able[one] | (word[other] < 2))
        first, second = first[sound], second[sound]
        each = np.repeat(word[None], len(first), axis=0)
        at = np.arange(len(first))
        each[at, first], each[at, second] = word[second], word[first]
        rows.append(each)
    every = np.concatenate(rows)
    return every % 2 == 1, every > 1
