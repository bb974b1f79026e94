"""Spatial parallelism: every sample is cut into parts in space, along one to three extents."""

from dataclasses import dataclass

import numpy as np

from oracle.collectives import Message
from oracle.models import Model
from oracle.shard import Array, Shard, product
from oracle.strategies.base import Strategy, words
from oracle.strategies.sharded import cut_state


@dataclass(frozen=True)
class Spatial(Strategy):
    """Split each sample over p = p1·p2·p3 devices; swap borders with neighbours at each layer.

        T_comp = D/p Σ (FW + BW) + D/B Σ WU
        T_comm = T_gradients + 2 D/B Σ (2α + B(halo(|x|) + halo(|dL/dy|)) δβ)
        M      = 2γδ Σ (B (|x| + |y|)/p + |w|)
        halo   = C ⌊(K - 1)/2⌋ ∏ (extents not split)

    The weights stay whole, so this axis joins the gradient exchange of `Data`. From the first
    row that is too small for the grid on, rows stay whole; an allgather collects the
    activations there, and a reduce-scatter spreads their gradients on the way back.
    `halo=chain` is the blocking send-then-receive chain of the authors' code: 2(p - 1)
    messages one after the other.

    Differs from the source: even windows need ⌊K/2⌋ rows, strides shrink the border, each cut
    extent has two faces of its own, and rows that cannot be cut are done by everybody.
    """

    height: Array = 0  # parts along the first extent; 0: the grid with the smallest border
    width: Array = 0
    halo: Array = words("pairwise", "chain")

    source = "kahira2021, Table III 'Spatial'"
    nearness = 4
    bound = "pixels of the smallest layer that is cut"
    limited_by = ("gradient exchange", "point-to-point cost: halos", "computation redundancy")

    def limit(self, model: Model, batch: Array) -> Array:
        images = model.mask(lambda row: row.work == "conv" and not row.made.tokens)
        if not images.any():
            return 1
        first = int(np.flatnonzero(images)[0])
        return min(product(model.made)[first], product(model.given)[first])

    def grid(self, shard: Shard) -> tuple[Array, Array, Array]:
        """Parts along each extent: as asked for, or the most even that the model's rank allows."""
        p, asked = np.asarray(self.degree, float), np.asarray(self.height, float)
        if shard.ideal and not asked.any():
            return p, np.ones_like(p), np.ones_like(p)
        rank = max((len(row.given.extents) for row in shard.model.rows), default=1)
        distinct = np.unique(p)
        grids = np.array([even_grid(int(q), rank) for q in distinct])
        chosen = grids[np.searchsorted(distinct, p)]
        own = asked > 0
        height = np.where(own, asked, chosen[..., 0])
        width = np.where(own, np.maximum(self.width, 1), chosen[..., 1])
        return height, width, p / (height * width)

    def cut(self, shard: Shard) -> Array:
        """Rows that are cut: up to the first whose parts would be thinner than a halo."""
        model, grid = shard.model, self.grid(shard)
        if shard.ideal:
            return np.ones(len(model), bool)
        able = model.mask(lambda row: not row.made.tokens and bool(row.made.extents))
        for q, given, made, window in zip(grid, model.given, model.made, model.window, strict=True):
            able = able & (q <= made) & ((q <= 1) | (given / q >= np.floor(window / 2)))
        return np.logical_and.accumulate(able, axis=-1)

    def split(self, shard: Shard) -> Shard:
        p, cut = self.degree, self.cut(shard)
        grid = self.grid(shard)
        given = tuple(
            np.where(cut, shard.deal(n, q), n) for n, q in zip(shard.given, grid, strict=True)
        )
        made = tuple(
            np.where(cut, shard.deal(n, q), n) for n, q in zip(shard.made, grid, strict=True)
        )
        share_x = np.where(cut, product(given) / product(shard.given), 1)
        share_y = np.where(cut, product(made) / product(shard.made), 1)
        return cut_state(shard, shard.zero, p).but(
            given=given, made=made, x=shard.x * share_x, y=shard.y * share_y,
            kept=shard.kept * share_y, kept_bytes=shard.kept_bytes * share_y,
            work=shard.work * np.where(cut, 1 / p, 1),
            replicas=(*shard.replicas, "spatial"),
        )  # fmt: skip

    def talk(self, shard: Shard) -> list[Message]:
        model, cut, micro = shard.model, self.cut(shard), shard.micro * shard.delta
        x_border: Array = 0.0
        y_border: Array = 0.0
        faces: Array = 0.0
        faces_back: Array = 0.0
        shrunk: Array
        entry = np.array([feeds == (-1,) for feeds in model.feeds])
        for i, parts in enumerate(self.grid(shard)):
            k, s = model.window[i], model.stride[i]
            if shard.ideal:  # every layer with a window pays its two messages
                deep, shrunk, crossed = np.floor((k - 1) / 2), 1.0, (parts > 1) & windowed(model)
                given, made = model.given, model.made
            else:
                deep, shrunk = np.floor(k / 2) * (k > s), s
                crossed, given, made = (parts > 1) & cut & (deep > 0), shard.given, shard.made
            x_border = x_border + crossed * shard.channels * deep * product(given) / given[i]
            back = crossed if shard.ideal else crossed & ~entry  # samples need no gradient
            y_border = y_border + back * shard.filters * deep / shrunk * product(made) / made[i]
            faces, faces_back = faces + crossed, faces_back + back
        chain = np.where(np.asarray(self.halo) == 1, np.maximum(self.degree - 1, 1), 1)
        each, each_back = micro / np.maximum(faces, 1), micro / np.maximum(faces_back, 1)
        axes = ("spatial",)
        return [
            Message("halo of x", "halo", each * x_border, axes, faces * chain, when="forward"),
            Message("halo of dL/dy", "halo", each_back * y_border, axes, faces_back * chain,
                    when="backward"),
            *self.collect(shard, cut),
        ]  # fmt: skip

    def collect(self, shard: Shard, cut: Array) -> list[Message]:
        """The last row that is cut hands its output to everybody, and gets its gradient back."""
        model, rows = shard.model, np.arange(len(shard.model))
        y = shard.micro * shard.delta * model.y
        if shard.ideal:  # the published row of this strategy alone leaves the collection out
            end = np.max(np.flatnonzero(windowed(model)), initial=-1)  # of the windows, if any
            last = (rows == end) & (shard.parts > 1)
            back = "allgather"
        else:
            last = cut & ~np.concatenate([cut[..., 1:], np.zeros_like(cut[..., :1])], axis=-1)
            # of the copies of a folded block only the last one hands over
            last, back = last & (rows < len(model) - 1), "reduce_scatter"
            last = last / model.repeat
        return [
            Message("collect at the split point", "allgather", y, ("spatial",), last * 1.0,
                    when="forward"),
            Message("spread at the split point", back, y, ("spatial",), last * 1.0,
                    when="backward"),
        ]  # fmt: skip

    def whole(self, model: Model) -> list[str]:
        able = model.mask(lambda row: not row.made.tokens and bool(row.made.extents))
        return [row.name for row, cut in zip(model.rows, able, strict=True) if not cut]


def windowed(model: Model) -> np.ndarray:
    """Layers that look at a neighbourhood."""
    return model.layers & model.mask(lambda row: bool(row.window))


def even_grid(p: int, rank: int) -> tuple[int, int, int]:
    """The factorisation of p into `rank` parts with the smallest sum: the least border."""
    found = [
        (a, b, p // (a * b))
        for a in range(1, p + 1) if p % a == 0
        for b in range(1, p // a + 1) if (p // a) % b == 0
        if (rank > 2 or a * b == p) and (rank > 1 or a == p)
    ]  # fmt: skip
    return min(found, key=lambda parts: (sum(parts), -parts[0], -parts[1]))
