"""Channel parallelism: each layer's input channels are dealt to the devices."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oracle.models.masks import MODELS
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard, product
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy
from oracle.plan.strategies.filter import cut_rows


@dataclass(frozen=True)
class Channel(Strategy):
    """Split every layer's input channels over p devices; add up what each makes of its own.

        T_comp = D/p Σ (FW + BW) + D/(Bp) Σ WU
        T_comm = 3 D/B (p - 1) Σ_{l<G} (α + B|y|/p δβ)
        M      = 2γδ Σ (B (|x| + |y|) + |w|/p)

    The mirror image of `Filter`: an allreduce of y going forward, an allgather of dL/dx
    coming back. The first layer stays whole: three colours cannot be dealt to many.

    Differs from the source: as `Filter` does.
    """

    source = "kahira2021, Table III 'Channel'"
    nearness = 6
    bound = "input channels of the narrowest layer after the first"
    limited_by = ("layer-wise exchange", "computation redundancy: kernels do not shrink",
                  "memory redundancy: activations replicated")  # fmt: skip

    leaves = "they have no channels of their own to deal, or read the samples themselves"
    runs = ()

    def limit(self, model: Model, batch: Array) -> Array | float:
        return min(model.channels[dealt_rows(model)], default=1)

    def cut(self, model: Model) -> Flags:
        """Rows whose channels are dealt."""
        return dealt_rows(model)

    def split(self, shard: Shard) -> Shard:
        if not self.wide:
            return shard
        p, cut = self.degree, dealt_rows(shard.model)
        rows = np.ones_like(cut) if shard.ideal else cut
        return shard.but(
            channels=shard.where(cut, shard.deal(shard.channels, p), shard.channels),
            w=shard.where(rows, shard.w / p, shard.w),
            work=shard.work * np.where(rows, 1 / p, 1),
        )

    def talk(self, shard: Shard) -> list[Message]:
        cut = dealt_rows(shard.model)
        nbytes = shard.micro * shard.delta
        # together with `Filter` only the own filters are added up, before they are rebuilt
        y, x = nbytes * shard.filters * product(shard.made), nbytes * shard.x
        if shard.ideal:  # the published sum runs over the same layers as that of `Filter`
            rows = cut_rows(shard.model)
            cut, x = rows & (np.cumsum(rows) < np.sum(rows)), nbytes * shard.y
            y = x
        return [
            Message("activations", "allreduce", y, ("channel",), cut * 1.0, when="forward"),
            Message("input gradients", "allgather", x, ("channel",), cut * 1.0, when="backward"),
        ]

    def whole(self, model: Model) -> list[str]:
        return [r.name for r, cut in zip(model.rows, dealt_rows(model), strict=True) if not cut]


@lru_cache(MODELS)
def dealt_rows(model: Model) -> Flags:
    """Rows whose channels can be dealt: what filters can be dealt of, but for the first."""
    rows: Flags = cut_rows(model) & (model.groups == 1)
    rows[np.argmax(rows)] = False
    return rows
