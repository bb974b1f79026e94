"""Tables of a recommender dealt to the devices of the data axis, or whole on each of them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Floats, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words

NUMBER = 8.0  # bytes of the number of a row


@dataclass(frozen=True)
class Tables(Strategy):
    """Hold 1/p of the tables, whole ones or columns of them, on each of p devices of `data`.

        T_comp = as data parallelism
        T_comm = as data parallelism + 2 D/B (p - 1)(α + B|y|/p² δβ) + row numbers
        M      = as data parallelism, |w_tables|/p

    Each device looks up what the samples of all ask of its part, and sends every other what its
    own samples asked for; gradients of these go back the same way. Dealt evenly: rows looked up
    often, and tables that are larger than a part, are yours to spread.
    """

    mode: Array = words("whole", "dealt")

    source = "naumov2019, §3"
    nearness = 10
    bound = ""
    limited_by = ("layer-wise exchange: all-to-all",)
    multiplies = False
    degrees = False
    runs = None  # tables are priced, not run

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Dealt where there are any: whole ones seldom fit."""
        return {"mode": (float(masks.tables(model).any()),)}

    def limit(self, model: Model, batch: Array) -> Array | float:
        return np.inf

    def split(self, shard: Shard) -> Shard:
        cut_shard = masks.tables(shard.model) & self.says("mode", "dealt")
        if not cut_shard.any():
            return shard
        devices = shard.parts / shard.slices
        return shard.but(w=shard.where(cut_shard, shard.w / devices, shard.w))

    def talk(self, shard: Shard) -> list[Message]:
        rows = 1.0 * (masks.tables(shard.model) & self.says("mode", "dealt"))
        lookups = NUMBER * shard.micro * named(shard.model)
        sent = shard.micro * shard.y * shard.delta
        return [
            Message("numbers of rows", "alltoall", lookups, ("data",), rows, when="forward"),
            Message("rows looked up", "alltoall", sent, ("data",), rows, when="forward"),
            Message("gradients of rows", "alltoall", sent, ("data",), rows, when="backward"),
        ]


@lru_cache(masks.MODELS)
def named(model: Model) -> Floats:
    """Rows of tables that a sample names."""
    return model.column(lambda row: row.lookups)
