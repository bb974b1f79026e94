"""K-FAC's factors: their sizes, who holds them, and what replicas say of them.

Every replica averages the factors of all; layers are dealt to the replicas, each of which inverts
its own. A share f of the replicas has a layer's inverses and preconditions its gradient, and
passes it on to the rest [pauloski2021, §3]: f = 1 sends nothing each step, f = 1/p keeps least.

What is done every so many steps counts as much less in each of them. It names `data`, whose
replicas have whole layers, and `pipeline`, which deals layers out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Floats, Model
from oracle.models.shard import Array, Shard, product
from oracle.network.collectives import Message
from oracle.plan.plan import Plan
from oracle.plan.strategies import Rule, Strategy, strategies
from oracle.spec.optimizer import Kfac

HELD = 4  # bytes of a factor's element, and of an inverse's


@lru_cache(masks.MODELS)
def sizes(model: Model) -> tuple[Floats, Floats]:
    """a and g of each row; nothing where there are no factors."""
    inside = np.prod(model.window, axis=0) * model.channels
    biased = model.column(lambda row: row.bias > 0)
    with_factors = masks.factored(model)
    return (inside + biased) * with_factors, model.filters * with_factors


def elements(model: Model, kfac: Kfac, sent: bool = False) -> Floats:
    """Elements of both factors of each row; of a triangle each where only that is sent."""
    a, g = sizes(model)
    return (a * (a + 1) + g * (g + 1)) / 2 if sent and kfac.halves else a**2 + g**2


def flop(model: Model) -> dict[str, float]:
    """Of a sample's factors, of all inverses by Cholesky, and of a preconditioned gradient."""
    (a, g), each = sizes(model), model.repeat
    points = product(model.made)
    return {
        "factors": float(2 * each @ (points * (a**2 + g**2))),
        "inverses": float(each @ (a**3 + g**3)),
        "preconditioning": float(2 * each @ (a**2 * g + a * g**2)),
    }


def holders(kfac: Kfac, replicas: Array) -> Array:
    """Replicas that have the inverses of a layer: the share said, of groups of equal size."""
    holding = np.empty(np.shape(replicas))
    for p in np.unique(replicas):
        all_ranks = max(1, round(float(kfac.workers * p)))
        holding[replicas == p] = next(w for w in range(all_ranks, 0, -1) if p % w == 0)
    return holding


def messages(shard: Shard, plan: Plan, kfac: Kfac) -> Iterator[tuple[Message, Strategy]]:
    """What replicas say to each other beside gradients; those who tell others sit beside them.

    Factors go together; of each layer both inverses are told apart, and so is its gradient.
    """
    model, axis = shard.model, plan.axis("data")
    (a, g), p = sizes(model), axis.degree
    if not a.any() or model.training.forward:
        return
    workers, ones = holders(kfac, p), np.ones_like(p)
    layers = np.maximum(model.repeat @ (a > 0) / plan.axis("pipeline").degree, 1.0)  # of a stage
    factors, inverses = (HELD * elements(model, kfac, sent) for sent in (True, False))
    for words, op, nbytes, calls, line in (
        ("factors", "allreduce", factors * ones, 1 / kfac.factors, None),
        ("inverses", "broadcast", inverses / (2 * layers),
         2 * layers * workers / p * (workers > 1) / kfac.inverse, (workers, p / workers)),
        ("preconditioned gradients", "broadcast", HELD * a * g / layers, layers * (workers < p),
         (p / workers, ones)),
    ):  # fmt: skip
        yield Message(words, op, nbytes, ("data",), calls, line=line), axis


def rules(plan: Plan) -> Iterator[Rule]:
    """Factors are of whole layers, which every replica has."""
    for axis in plan.axes:
        broken = np.broadcast_to(axis.cuts_layers(), np.shape(plan.batch))
        if broken.any():
            complaint = f"K-FAC is defined for whole layers, of which `{axis.name}` leaves parts"
            yield Rule.never(broken, complaint)


def undefined() -> list[str]:
    """Strategies that leave no layer whole."""
    two = np.full((1, 1), 2.0)
    wide = ((name, axis) for name, axis in strategies().items() if axis.degrees)
    return [name for name, axis in wide if axis(two).cuts_layers().any()]
