"""Recomputation: what the backward pass needs is made again instead of kept."""

from dataclasses import dataclass

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words


@dataclass(frozen=True)
class Recompute(Strategy):
    """Keep the input of each block, and run its forward pass again on the way back.

        T_comp = D/p Σ (2 FW + BW)             full
        M      = Σ_blocks B|x| + max_block B|kept|

    `selective` makes only the attention core again: few FLOP, most of the bytes where
    scores are kept (5 a s² b of 34 s b h + 5 a s² b a layer). `operators` keeps what attention
    and every other matrix made, and makes the rest again, matrix or not.
    """

    mode: Array = words("none", "selective", "full", "operators")

    source = "chen2016, §4; korthikanti2022, §5"
    nearness = 9
    bound = ""
    limited_by = ("computation redundancy: forward twice",)
    multiplies = False
    degrees = False
    timing = ("mode",)
    runs = ("mode=selective", "mode=full", "mode=operators", "mode=stage", "mode=best")

    @classmethod
    def spares(cls, model: Model) -> dict[str, float]:
        return {"mode": cls.number("mode", "full")}

    def limit(self, model: Model, batch: Array) -> Array | float:
        return np.inf

    def split(self, shard: Shard) -> Shard:
        return shard

    def talk(self, shard: Shard) -> list[Message]:
        return []


FULL = Recompute.number("mode", "full") - 1  # among what is recomputed


def inside(model: Model) -> np.ndarray:
    """Rows of blocks, of which only the input is kept; of a model without any, all rows."""
    return model.blocks


def recomputed(model: Model) -> tuple[Array, Array, Array]:
    """Shares of each row's forward pass made again: selective, full, by operators."""
    again = inside(model)
    core = masks.attention(model)
    matrices = model.weighted & again
    return 1.0 * core, 1.0 * again, again * np.where(core, 0.0, np.where(matrices, 0.5, 1.0))
