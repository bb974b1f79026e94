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
    improved_guesses = [improved(chain, guess) for guess in guesses(chain)]
    best, _ = min(improved_guesses, key=lambda pair: pair[1])
    return improved(chain, best, shape_of(chain)[1])[0]


def guesses(chain: Chain) -> list[Ways]:
    """The first so many units sent out, of the others or of all those made again that give most
    room for their seconds: the best of such numbers; all that can where none fits.
    """
    free, able, kept_bytes, given_bytes, remake = (
        np.broadcast_to(values, shape_of(chain))[0]
        for values in (chain.free, chain.able, chain.kept, chain.given, chain.remake)
    )
    free, able, fixed = (
        free & (kept_bytes > 0),
        able & (kept_bytes > given_bytes),
        chain.fixed[0, 0] > 0,
    )
    number, units = np.cumsum(free), len(free)
    gain = np.where(able, (kept_bytes - given_bytes) / np.maximum(remake, 1e-30), -1.0)
    order = np.argsort(-gain, kind="stable")
    order = order[able[order]]
    ways: list[Ways] = []
    for out in range(int(number[-1]) + 1):
        away = free & (number <= out)
        not_away = order[~away[order]]
        for rest, fewest in ((not_away, 3), (order, 0)):
            if fewest == 0 and (fixed or len(rest) == len(not_away)):
                continue
            remade = np.zeros((len(rest) + 1, units), bool)
            for count, unit in enumerate(rest, 1):
                remade[count:, unit] = True
            values = np.broadcast_to(away, remade.shape)
            fits = np.flatnonzero(needed(chain, values, remade) <= chain.room[0, 0])
            # of those that send nothing of what they make again the fewest are the best
            chosen_counts = fits[:fewest] if fewest else fits[:: max(1, len(fits) // 8)]
            ways.append((values[chosen_counts], remade[chosen_counts]))
    away, remade_ways = (np.concatenate(values) for values in zip(*ways, strict=True))
    if not len(away):
        return [(free[None], (able & ~(free & fixed))[None])]
    best = np.argsort(play(chain, away, remade_ways).seconds, kind="stable")
    best = best[:: max(1, len(best) // (4 * STARTS))][:STARTS]
    return [(away[[guess]], remade_ways[[guess]]) for guess in best]


def improved(chain: Chain, ways: Ways, far: int = NEAR) -> tuple[Ways, float]:
    """One way of one chain, changed while that shortens its passes, which take so many seconds;
    two units exchange what they do that lie no further apart.
    """
    _, least_seconds = _least(chain, ways)
    for _ in range(ROUNDS):
        better_ways, seconds = _least(chain, _changes(chain, ways, far))
        if not seconds < least_seconds * (1 - SURE):
            break
        ways, least_seconds = better_ways, seconds
    return ways, least_seconds


def _least(chain: Chain, ways: Ways) -> tuple[Ways, float]:
    """The way with the least seconds of all that fit, which are the first of it where none does."""
    fits = np.flatnonzero(needed(chain, *ways) <= chain.room[0, 0])
    if not len(fits):
        return (ways[0][:1], ways[1][:1]), float("inf")
    away, remade = ways[0][fits], ways[1][fits]
    seconds = play(chain, away, remade).seconds
    fastest = int(np.argmin(seconds))
    return (away[fastest][None], remade[fastest][None]), float(seconds[fastest])


def _changes(chain: Chain, ways: Ways, far: int) -> Ways:
    """Every other word of each unit, and every exchange of two units that are not far apart."""
    units, word = ways[0].shape[1], ways[0][0] + 2 * ways[1][0]
    able = np.broadcast_to(chain.able, shape_of(chain))[0]
    free = np.broadcast_to(chain.free, shape_of(chain))[0]
    rows: list[Array] = []
    for new in range(3 if chain.fixed[0, 0] > 0 else 4):
        may = (free | (new % 2 == 0)) & (able | (new < 2)) & (word != new)
        changed_words = np.repeat(word[None], may.sum(), axis=0)
        changed_words[np.arange(len(changed_words)), np.flatnonzero(may)] = new
        rows.append(changed_words)
    for distance in range(1, min(far + 1, units)):
        first = np.arange(units - distance)
        second = first + distance
        sound = word[first] != word[second]
        for left, right in ((first, second), (second, first)):
            sound &= (free[left] | (word[right] % 2 == 0)) & (able[left] | (word[right] < 2))
        first, second = first[sound], second[sound]
        changed_words = np.repeat(word[None], len(first), axis=0)
        rows_of_pairs = np.arange(len(first))
        changed_words[rows_of_pairs, first], changed_words[rows_of_pairs, second] = (
            word[second],
            word[first],
        )
        rows.append(changed_words)
    every = np.concatenate(rows)
    return every % 2 == 1, every > 1
