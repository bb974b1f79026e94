"""Halving and doubling: partners twice as far (or near) each step, half (or twice) the bytes."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats, Ints, Number
from oracle.network.collectives.algorithm import Algorithm, log2, power_of_two
from oracle.network.collectives.schedule import Steps, exchange, pairs, shift


def _full_rounds(p: Number) -> Number:
    """⌊log₂p⌋."""
    rounds: Number = np.floor(np.log2(p))
    return rounds


def _excess(p: int) -> tuple[int, int]:
    """(largest power of two, ranks beyond it)."""
    core = 1 << (p.bit_length() - 1)
    return core, p - core


def _real(number: Ints, beyond: int) -> Ints:
    """Return the rank that stands for a number below the power of two: odd ones of first pairs."""
    return np.where(number < beyond, 2 * number + 1, number + beyond)


def _distances(p: int) -> Ints:
    return np.asarray(2 ** np.arange(p.bit_length() - 1))


class HalvingDoubling(Algorithm):
    """Recursive vector halving with distance doubling, then its mirror image.

        T = 2 log₂p α + 2 (p − 1)/p m β + (p − 1)/p m γ

    The largest part goes to the nearest partner. Where p is r more than a power of two, the
    first r even ranks fold their message into their odd neighbours' and are told the result:
    two more steps of m.
    """

    op, name, source = "allreduce", "halving_doubling", "thakur2005, §4.4"

    def steps(self, p: Number) -> Number:
        rounds = _full_rounds(p)
        return 2 * rounds + 2 * (2**rounds != p)

    def volume(self, p: Number) -> Number:
        core = 2 ** _full_rounds(p)
        return 2 * (core - 1) / core + 2 * (core != p)

    def reduced(self, p: Number) -> Number:
        core = 2 ** _full_rounds(p)
        return (core - 1) / core + (core != p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        core, beyond = _excess(p)
        masks = _distances(core)
        if not beyond:
            return [exchange(masks, self.shares(core), 2)]
        ranks, extra = np.arange(core), 2 * np.arange(beyond)
        real = _real(ranks, beyond)
        steps: list[Steps] = [pairs(extra, extra + 1, 1.0)]
        halving = [
            pairs(real, _real(ranks ^ mask, beyond), share)
            for mask, share in zip(masks, self.shares(core), strict=True)
        ]
        return [*steps, *halving, *halving[::-1], pairs(extra + 1, extra, 1.0)]

    def shares(self, core: int) -> Floats:
        """Part of the message that crosses each distance, nearest first."""
        return np.asarray(0.5 / _distances(core))


class Rabenseifner(HalvingDoubling):
    """Recursive halving with the farthest partner first: the largest part travels farthest.

    The same closed form as halving-doubling, and far worse where distant links are scarce.
    """

    name, source, menu = "rabenseifner", "rabenseifner2004, §2", False

    def shares(self, core: int) -> Floats:
        return np.asarray(_distances(core) / core)


class ShiftedHalvingDoubling(HalvingDoubling):
    """In step k rank r sends to r + 2^k and hears from r − 2^k, then all mirrored.

    Every transfer of a step has one length and one direction, which suits a distributed loop.
    T as halving-doubling; powers of two only.
    """

    name, source, menu = "shifted_halving_doubling", "nguyen2021, §IV", False

    def fits(self, p: int, inner: int = 1) -> bool:
        return power_of_two(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        by = _distances(p)
        return [shift(by, 0.5 / by), shift(-by[::-1], 0.5 / by[::-1])]


class RecursiveDoubling(HalvingDoubling):
    """Swap everything with ever farther partners: T = log₂p (α + m β + m γ)."""

    name, source, menu = "recursive_doubling", "thakur2005, §4.4", False

    def steps(self, p: Number) -> Number:
        rounds = _full_rounds(p)
        return rounds + 2 * (2**rounds != p)

    def volume(self, p: Number) -> Number:
        return self.steps(p)

    def reduced(self, p: Number) -> Number:
        rounds = _full_rounds(p)
        return rounds + (2**rounds != p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        core, beyond = _excess(p)
        masks = _distances(core)
        if not beyond:
            return [exchange(masks, 1.0)]
        ranks, extra = np.arange(core), 2 * np.arange(beyond)
        swaps: list[Steps] = [
            pairs(_real(ranks, beyond), _real(ranks ^ mask, beyond), 1.0) for mask in masks
        ]
        return [pairs(extra, extra + 1, 1.0), *swaps, pairs(extra + 1, extra, 1.0)]


class DoublingAllgather(Algorithm):
    """Recursive doubling: T = log₂p α + (p − 1)/p m β; powers of two only."""

    op, name, source = "allgather", "recursive_doubling", "thakur2005, §3.1"

    def fits(self, p: int, inner: int = 1) -> bool:
        return power_of_two(p)

    def steps(self, p: Number) -> Number:
        return log2(p)

    def volume(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        masks = _distances(p)
        return [exchange(masks, masks / p)]


class HalvingReduceScatter(DoublingAllgather):
    """Recursive halving, nearest partner first, so that the largest part travels least."""

    op, name, source = "reduce_scatter", "recursive_halving", "thakur2005, §3.2"

    def reduced(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        masks = _distances(p)
        return [exchange(masks, 0.5 / masks)]


class FarHalvingReduceScatter(HalvingReduceScatter):
    """Recursive halving, farthest partner first, as MPI libraries do."""

    name, menu = "recursive_halving_far", False

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        masks = _distances(p)
        return [exchange(masks, masks / p)]


class BruckAllgather(Algorithm):
    """Bruck's allgather for any p: T = ⌈log₂p⌉ α + (p − 1)/p m β."""

    op, name, source, menu = "allgather", "bruck", "bruck1997, §4", False

    def steps(self, p: Number) -> Number:
        return log2(p)

    def volume(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        by = 2 ** np.arange(int(log2(p)))
        return [shift(-by, np.minimum(by, p - by) / p)]
