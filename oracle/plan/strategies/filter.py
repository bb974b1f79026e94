"""Filter parallelism: each layer's output channels are dealt to the devices."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oracle.models.masks import MODELS
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words


@dataclass(frozen=True)
class Filter(Strategy):
    """Split every layer's filters over p devices; rebuild its activations each time.

        T_comp = D/p Σ (FW + BW) + D/(Bp) Σ WU
        T_comm = 3 D/B (p - 1) Σ_{l<G} (α + B|y|/p δβ)              (15)
        M      = 2γδ Σ (B (|x| + |y|) + |w|/p)

    The 3 is one allgather of y going forward and one allreduce (2) of dL/dx coming back,
    where |x| of a layer is |y| of the one before. The last y is never rebuilt.
    `back=scatter` keeps only the own part of dL/dx: 2 instead of 3.

    Differs from the source: a device has ⌈F/p⌉ filters, a smaller and less efficient kernel;
    norms, pooling and activations are done by everybody on the rebuilt tensor.
    """

    back: Array = words("allreduce", "scatter")

    source = "kahira2021, Table III 'Filter'; eq. 15"
    nearness = 5
    bound = "filters of the narrowest layer"
    limited_by = ("layer-wise exchange", "computation redundancy: kernels do not shrink",
                  "memory redundancy: activations replicated")  # fmt: skip

    leaves = "they have no filters to deal, and everybody does them on the rebuilt tensor"
    runs = ("back",)

    def limit(self, model: Model, batch: Array) -> Array | float:
        return min(model.filters[cut_rows(model)], default=1)

    def split(self, shard: Shard) -> Shard:
        if not self.wide:
            return shard
        p, cut = self.degree, cut_rows(shard.model)
        rows = np.ones_like(cut) if shard.ideal else cut
        return shard.but(
            filters=shard.where(cut, shard.deal(shard.filters, p), shard.filters),
            w=shard.where(rows, shard.w / p, shard.w),
            work=shard.work * np.where(rows, 1 / p, 1),
        )

    def talk(self, shard: Shard) -> list[Message]:
        cut = cut_rows(shard.model)
        number = np.cumsum(cut)  # of the cut rows: the first's dL/dx and the last's y are no one's
        y, x = shard.micro * shard.y * shard.delta, shard.micro * shard.x * shard.delta
        if shard.ideal:  # |x_l| = |y_(l-1)|: the published sum runs over y both ways
            x, first = y, cut & (number < number[-1])
        else:
            weighted = shard.model.w > 0  # an embedding below wants its gradient as well
            first = cut & (np.cumsum(weighted) > weighted)
        reduced = self.says("back", "allreduce")
        return [
            Message("activations", "allgather", y, ("filter",), 1.0 * (cut & (number < number[-1])),
                    when="forward"),
            Message("input gradients", "allreduce", x, ("filter",), first * reduced,
                    when="backward"),
            Message("input gradients scattered", "reduce_scatter", x, ("filter",),
                    first * ~reduced, when="backward"),
        ]  # fmt: skip

    def whole(self, model: Model) -> list[str]:
        return [r.name for r, cut in zip(model.rows, cut_rows(model), strict=True) if not cut]


@lru_cache(MODELS)
def cut_rows(model: Model) -> Flags:
    """Rows whose weights meet every channel and that no other scheme cuts already."""
    return model.mask(lambda row: row.work in ("gemm", "conv") and not row.experts)
