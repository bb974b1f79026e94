"""Recomputation: what the backward pass needs is made again instead of kept."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words

USUAL = ("none", "selective", "full", "operators")


@dataclass(frozen=True)
class Recompute(Strategy):
    """Keep the input of each block, and run its forward pass again on the way back.

        T_comp = D/p Σ (2 FW + BW)             full
        M      = Σ_blocks B|x| + max_block B|kept|

    `selective` makes only the attention core again: few FLOP, most of the bytes where
    scores are kept (5 a s² b of 34 s b h + 5 a s² b a layer). `operators` keeps what the software
    says, what attention of one kernel and every other matrix made or all matrices, and makes the
    rest again. `stage` keeps
    the input of a pipeline's stage alone, `best` as many whole blocks as there is room for.
    """

    mode: Array = words("none", "selective", "full", "operators", "stage", "best")

    source = "chen2016, §4; korthikanti2022, §5; huang2019, §2.3; jain2020, §4"
    nearness = 9
    bound = ""
    limited_by = ("computation redundancy: forward twice",)
    multiplies = False
    degrees = False
    timing = ("mode",)
    runs = ("mode=selective", "mode=full", "mode=operators", "mode=stage", "mode=best")

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Those that take no room into account."""
        return {"mode": tuple(float(cls.number("mode", word)) for word in USUAL)}

    @classmethod
    def resorts(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """As many units as there is no room for: a search for each plan whose units are unlike."""
        return {"mode": (float(cls.number("mode", "best")),)}

    @classmethod
    def spares(cls, model: Model) -> dict[str, float]:
        return {"mode": cls.number("mode", "full")}

    def limit(self, model: Model, batch: Array) -> Array | float:
        return np.inf

    def split(self, shard: Shard) -> Shard:
        return shard

    def talk(self, shard: Shard) -> list[Message]:
        return []


# among what is recomputed
FULL, STAGE, BEST = (Recompute.number("mode", word) - 1 for word in ("full", "stage", "best"))


def inside(model: Model) -> np.ndarray:
    """Rows of blocks, of which only the input is kept; of a model without any, all rows."""
    return model.blocks


@lru_cache(masks.MODELS)
def share_kept(model: Model) -> Array:
    """Share of what each row makes that `operators` keeps.

    All matrices of a block (AI-Hypercomputer/maxtext, @e591f30c src/maxtext/layers/decoders.py:
    `minimal`); or the first, third, … of them, and attention of one kernel. Products of experts are
    grouped, which are made again, and a router's is not counted
    (pytorch/torchtitan, v0.2.0 torchtitan/distributed/activation_checkpoint.py).
    """
    every = model.kernels.operators == "matrices"
    shares = np.zeros(len(model))
    for segment in model.segments:
        turn = 0
        for i in range(segment.start, segment.stop):
            row = model.rows[i]
            if row.flash and model.blocks[i]:
                shares[i] = 0.0 if every else 1.0
            elif model.weighted[i] and model.blocks[i] and row.kind != "moe":
                sizes = np.array(row.matrices or (1,))
                shares[i] = 1.0 if every else sizes[turn % 2 :: 2].sum() / sizes.sum()
                turn += len(sizes)
    return shares * wanted(model)


@lru_cache(masks.MODELS)
def wanted(model: Model) -> Array:
    """Rows whose output a pass back wants, where what it does not want is not made again.

    What the last row before a block's last sum makes is added, and nothing asks for it again.
    """
    rows_wanted = np.ones(len(model), bool)
    if model.kernels.remade == "wanted":
        for segment in model.segments:
            row = segment.stop - 1
            while row > segment.start and model.rows[row].kind == "add":
                row -= 1
            rows_wanted[row : segment.stop] = ~model.blocks[row : segment.stop]
    return rows_wanted


def recomputed(model: Model) -> tuple[Array, ...]:
    """Shares of each row's forward pass made again: selective, full, by operators, of stages.

    And at most, where the room that is left says which units.
    """
    remade = inside(model) * wanted(model)
    core = masks.attention(model)
    operators = remade * (1.0 - share_kept(model))
    return 1.0 * core, 1.0 * remade, operators, np.ones(len(model)), np.ones(len(model))
