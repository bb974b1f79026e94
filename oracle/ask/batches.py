"""The batch that ends a training first, where nobody says which: every doubling is tried.

A larger batch needs fewer steps and more epochs, each step is longer; what is best depends on how
a plan scales, so that each batch has a plan of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oracle.ask.progress import counted
from oracle.ask.ranking import Ranking
from oracle.models.model import Model
from oracle.predict.estimate import Estimate
from oracle.predict.rates import tokens as tokens_of
from oracle.run.critical import critical_batch
from oracle.run.target import Length, Training, training
from oracle.spec.document import refusal

DOUBLINGS = 3  # batches of tokens that are tried
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


def up_to_critical(model: Model, tokens: float) -> Iterator[int]:
    """The largest doublings up to the critical batch of so many tokens.

    A larger batch ends no later; above the critical one its tokens do less, which nobody asked for.
    """
    each = tokens_of(model)
    if not each:
        raise refusal("tokens", f"{model.name} is not trained on text", "--epochs or --steps")
    most = 2 ** int(math.log2(max(critical_batch(tokens) / each, 1.0)))
    for halved in range(DOUBLINGS):
        if most >> halved:
            yield most >> halved


def search(
    ask: Callable[[int], Ranking], sizes: Iterator[int], length: Callable[[Estimate], Length]
) -> list[Tried]:
    """Every batch for which a plan fits, that of the shortest training first."""
    found = []
    for batch in counted(sizes):
        ranking = ask(batch)
        if len(ranking):
            best = ranking.estimate
            found.append(Tried(batch, ranking, training(best, 0, length(best))))
    return sorted(found, key=lambda one: one.training.seconds)
