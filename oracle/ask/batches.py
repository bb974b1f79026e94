"""The batch that ends a training first, where nobody says which: every doubling is tried.

A larger batch needs fewer steps and more epochs, each step is longer; what is best depends on how
a plan scales, so that each batch has a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oracle.ask.ranking import Ranking
from oracle.models.model import Model
from oracle.run.target import Training, to_target, training
from oracle.spec.document import refusal

BEYOND = 2  # times the largest batch that met the target: no run says anything of more


@dataclass(frozen=True)
class Tried:
    """A batch, the ranking of its plans, and the training under the best of them."""

    batch: int
    ranking: Ranking
    training: Training


def batches(model: Model, optimizer: str) -> Iterator[int]:
    """Doublings over the range in which runs of a model met its target."""
    known = model.convergence
    if not known:
        what = f"nobody says how long {model.name} trains to any target"
        hint = "--batch, and --epochs, --tokens or --steps; or `convergence:` in its spec"
        raise refusal("to-target", what, hint)
    one = next((each for each in known if each.optimizer == optimizer), known[0])
    batch = 2 ** max(0, one.smallest.bit_length() - 1)
    while batch <= BEYOND * one.largest:
        yield batch
        batch *= 2


def search(ask: Callable[[int], Ranking], sizes: Iterator[int]) -> list[Tried]:
    """Every batch for which a plan fits, that of the shortest training first."""
    found = []
    for batch in sizes:
        ranking = ask(batch)
        if len(ranking):
            best = ranking.estimate
            found.append(Tried(batch, ranking, training(best, 0, to_target(best))))
    return sorted(found, key=lambda one: one.training.seconds)
