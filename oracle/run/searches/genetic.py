"""Genetic search: generations of trials, each bred from the best of the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Annotated

from oracle.run.searches.base import LARGEST, Search, Stage, Trials
from oracle.spec.schema import Between, Clash

SMALLEST = 2  # population: a single trial cannot be compared


@dataclass(frozen=True)
class Genetic(Search):
    """Generations of P trials, each bred from the one before: the larger, the fewer are needed.

    g(P) = g₁ P^(-γ)        T = g(P) ⌈P/c⌉ T_run(n)

    P is such that g(P) P is the stated number of trials, or by default m c: a few a worker. g₁ and
    γ are those of one search, of a small network on MNIST.
    """

    source = "heye2018"
    noun = "trials in all"
    free = True

    population: Trials | None = None  # P
    generations: Trials | None = None  # by default by the law
    per_worker: Annotated[float, Between(0.01, 1e3)] = 1.0  # m
    first: Annotated[float, Between(1, 1e6)] = 56.3  # g₁
    shrink: Annotated[float, Between(0, 0.99)] = 0.356  # γ

    def generations_of(self, population: float) -> int:
        """Return g(P), rounded up."""
        needed = self.first * population**-self.shrink
        return self.generations or max(1, ceil(needed - 1e-9))

    def largest(self, trials: int) -> int:
        """Return the largest population with at most `trials` in all, or 0."""
        low, high = 0, trials  # g(P) P grows with P, but for whole numbers
        while low < high:
            middle = -(-(low + high) // 2)
            if self.generations_of(middle) * middle <= trials:
                low = middle
            else:
                high = middle - 1
        return low

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        times = None
        if self.population is not None:
            population = self.population
            times = None if trials is None or self.generations else trials // population
        elif trials is not None:
            population = self.largest(trials)
        else:
            population = min(max(SMALLEST, round(self.per_worker * at_once)), LARGEST)
        return [Stage("generation", population, times=times or self.generations_of(population))]

    def widths(self, trials: int | None, largest: int) -> set[int]:
        if self.population is not None or trials is not None:
            return super().widths(trials, largest)
        doublings = {2**k for k in range(largest.bit_length())}
        return {largest, *doublings, *range(1, min(largest, 16) + 1)}

    def wrong(self, trials: int | None) -> Iterator[Clash]:
        if trials is None:
            return
        population = self.population or SMALLEST
        if self.population is not None and self.generations is None:
            fewest = population
        else:
            fewest = self.generations_of(population) * population
        if fewest > trials:
            complaint = f"{trials} trials are too few: generations of {population} take {fewest}"
            yield Clash("trials", complaint, f"{fewest} or more; or say `generations`")
