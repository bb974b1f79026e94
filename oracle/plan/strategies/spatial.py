"""Spatial parallelism: every sample is cut into parts in space, along one to three extents."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod

import numpy as np

from oracle.models import masks
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard, product
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, count, words
from oracle.plan.strategies.sharded import cut_state

NTH = ("", ", second extent", ", third extent")  # a halo's name says along which it goes


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
    extent has its own line of neighbours (one, where two parts are in line), corners travel with
    the second extent, and rows that cannot be cut are done by everybody.

    `least=32` leaves rows whose extents are smaller whole, and cuts again those after them: a
    U-Net's bottom is gathered, done by everybody, and its gradient gathered on the way back.
    `norms=shared` takes the statistics of norms over all parts, two sums a channel each way;
    else each part has its own.
    """

    height: Array = count(0)  # parts along the first extent; 0: the grid with the smallest border
    width: Array = count(0)
    halo: Array = words("pairwise", "chain")
    least: Array = count(0)  # the smallest extent that is cut; 0: any that can be
    norms: Array = words("own", "shared")  # statistics of each part, or of whole samples

    source = "kahira2021, Table III 'Spatial'"
    nearness = 4
    cuts_samples = True
    bound = "pixels of the smallest layer that is cut"
    limited_by = ("gradient exchange", "point-to-point cost: halos", "computation redundancy")
    leaves = "they have no extents, or parts thinner than a halo"
    as_grid = True
    runs = ("height", "width", "halo=pairwise")

    @classmethod
    def degree_of(cls, text: str) -> dict[str, float] | None:
        """A number, or a grid: `2x2`, `2x2x4`."""
        if not re.fullmatch(r"[1-9]\d{0,6}(x[1-9]\d{0,6}){1,2}", text, re.ASCII):
            return super().degree_of(text)
        parts = [int(n) for n in text.split("x")]
        return {"degree": float(np.prod(parts)), "height": parts[0], "width": parts[1]}

    def degree_text(self) -> str:
        """A grid where one was asked for."""
        height, width = (int(np.ravel(extent)[0]) for extent in (self.height, self.width))
        if not height:
            return super().degree_text()
        grid = [height, max(1, width)]
        third = round(float(np.ravel(self.degree)[0]) / max(1, grid[0] * grid[1]))
        return "x".join(map(str, [*grid, *([third] if third > 1 else [])]))

    def hidden(self) -> Sequence[str]:
        return "height", "width"

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        tried = super().tries(model)
        return {name: values for name, values in tried.items() if name != "norms"}

    def limit(self, model: Model, batch: Array) -> Array | float:
        images = model.mask(lambda row: row.work == "conv" and not row.made.tokens)
        if not images.any():
            return 1
        first = int(np.flatnonzero(images)[0])
        return np.asarray(min(product(model.made)[first], product(model.given)[first]))

    def parts(self, shard: Shard) -> tuple[Array, Array, Array]:
        """Parts along each extent: as asked for, or the most even that the model's rank allows."""
        p, grid_height = np.asarray(self.degree, float), np.asarray(self.height, float)
        if shard.ideal and not grid_height.any():
            return p, np.ones_like(p), np.ones_like(p)
        rank, degrees = extents(shard.model), sorted({*p.ravel().tolist()})
        grids = np.array([even_grid(int(q), rank) for q in degrees])
        chosen = grids[np.searchsorted(degrees, p)]
        by_hand = grid_height > 0
        height = np.where(by_hand, grid_height, chosen[..., 0])
        width = np.where(by_hand, np.maximum(self.width, 1), chosen[..., 1])
        return height, width, p / (height * width)

    def cut(self, shard: Shard) -> Array:
        """Rows that are cut: up to the first whose parts would be thinner than a halo.

        Those smaller than asked for are whole, and end nothing.
        """
        model, grid = shard.model, self.parts(shard)
        if shard.ideal:
            return np.ones(len(model), bool)
        able, small = pictured(model), np.zeros(1, bool)
        for q, extent_in, extent_out, window in zip(
            grid, model.given, model.made, model.window, strict=True
        ):
            able = able & (q <= extent_out) & ((q <= 1) | (extent_in / q >= np.floor(window / 2)))
            small = small | ((q > 1) & (extent_out < self.least))
        small = small & pictured(model)
        return np.logical_and.accumulate(able | small, axis=-1) & ~small

    def split(self, shard: Shard) -> Shard:
        shard = shard.but(replicas=(*shard.replicas, "spatial"))
        if not self.wide:
            return shard
        p, cut = self.degree, self.cut(shard)
        grid = self.parts(shard)
        extents_in = tuple(
            np.where(cut, shard.deal(n, q), n) for n, q in zip(shard.given, grid, strict=True)
        )
        extents_out = tuple(
            np.where(cut, shard.deal(n, q), n) for n, q in zip(shard.made, grid, strict=True)
        )
        share_x = np.where(cut, product(extents_in) / product(shard.given), 1)
        share_y = np.where(cut, product(extents_out) / product(shard.made), 1)
        cut_shard = cut_state(shard, shard.zero, p).but(
            given=extents_in, made=extents_out, x=shard.x * share_x, y=shard.y * share_y,
            kept=shard.kept * share_y, kept_bytes=shard.kept_bytes * share_y,
            work=shard.work * np.where(cut, 1 / p, 1),
        )  # fmt: skip
        if shard.ideal:
            return cut_shard
        of_x, of_y, window_elements = self.bordering(cut_shard, cut)
        inner = ~masks.entries(shard.model) & (of_x > 0)
        back = np.where(
            inner, cut_shard.y + of_y + np.maximum(window_elements - cut_shard.x, 0.0), of_x
        )
        # a whole sample's gradient and the same by parts, of which each device gets its own
        ends = _ends(cut) & (p > 1)
        spread = np.where(ends, 2 * shard.y - cut_shard.y, 0.0)
        handed_whole = ends & wanted(shard.model)
        kept_elements = np.where(
            shard.model.mask(lambda row: "y" in row.needs), 0.0, cut_shard.kept
        )
        stays = of_x + np.where(handed_whole, shard.y - kept_elements, 0.0)
        return cut_shard.but(kept_bytes=cut_shard.kept_bytes + shard.delta * stays,
                        copied=np.maximum(back, spread))  # fmt: skip

    def bordering(self, shard: Shard, cut: Array) -> tuple[Array, Array, Array]:
        """(plans, rows) each: elements of borders of x and of dL/dy of a part amid others, and of
        all that its windows see, where borders are put to a part.

        A convolution keeps those of x for its backward pass, where it puts both together with
        what they border on.
        """
        model, wide_x, wide_y, window_elements = shard.model, *np.ones((3, 1, 1))
        for i, parts in enumerate(self.parts(shard)):
            k, s = model.window[i], model.stride[i]
            deep = np.minimum(parts - 1, 2) * np.floor(k / 2) * (k > s)
            part_extent = shard.made[i] + deep / s
            wide_x, wide_y = wide_x * (shard.given[i] + deep), wide_y * part_extent
            window_elements = window_elements * (part_extent * s + k - s)
        bordered = cut & ~pooling(model) & windowed(model)
        of_x = np.maximum(wide_x - product(shard.given), 0.0) * shard.channels * bordered
        of_y = np.maximum(wide_y - product(shard.made), 0.0) * shard.filters * bordered
        return of_x, of_y, window_elements * shard.channels * bordered

    def talk(self, shard: Shard) -> list[Message]:
        cut = self.cut(shard)
        borders = self.published(shard) if shard.ideal else self.borders(shard, cut)
        return [*borders, *self.statistics(shard, cut), *self.collect(shard, cut)]

    def published(self, shard: Shard) -> list[Message]:
        """Every layer with a window pays its two messages, whoever has two neighbours."""
        model, micro, axes = shard.model, shard.micro * shard.delta, ("spatial",)
        x, y, faces = np.zeros((3, 1, 1))
        for i, parts in enumerate(self.parts(shard)):
            deep = np.floor((model.window[i] - 1) / 2)
            crossed = (parts > 1) & windowed(model)
            x = x + crossed * shard.channels * deep * product(model.given) / model.given[i]
            y = y + crossed * shard.filters * deep * product(model.made) / model.made[i]
            faces = faces + crossed
        face_bytes = micro / np.maximum(faces, 1)
        return [
            Message("halo of x", "halo", face_bytes * x, axes, faces, when="forward"),
            Message("halo of dL/dy", "halo", face_bytes * y, axes, faces, when="backward"),
        ]

    def borders(self, shard: Shard, cut: Array) -> list[Message]:
        """One extent after the other, each in its own line of the grid.

        What came in along one extent goes on along the next: corners need no message of their
        own. Of the rows that windows on both sides see, Σ (K - s), each part gets its mean.
        """
        model, micro = shard.model, shard.micro * shard.delta
        entry, pools = masks.entries(model), pooling(model)
        grid, halos = self.parts(shard), []
        extents_in, extents_out = list(shard.given), list(shard.made)
        chained = self.says("halo", "chain")
        chain = np.where(chained, np.maximum(self.degree - 1, 2 - (self.degree > 2)), 1)
        for i, parts in enumerate(grid):
            if not np.any(parts > 1):
                continue
            k, s = model.window[i], model.stride[i]
            shared = np.maximum(k - s, 0)  # rows of x that windows on both sides of a cut see
            deep = np.floor(k / 2) * (shared > 0)
            crossed = (parts > 1) & cut & (deep > 0)
            line_stride = prod(
                grid[i + 1 :], start=np.ones_like(parts)
            )  # the last extent runs fastest
            line = np.where(chained, self.degree, parts), np.where(chained, 1.0, line_stride)
            x, y = (
                prod(part[:i] + part[i + 1 :]) for part in (extents_in, extents_out)
            )  # of one such row
            # a pool sends back what its windows add to the neighbours' dL/dx
            back = np.where(pools, shared / 2 * shard.channels * x, deep / s * shard.filters * y)
            crossing_bytes = micro * crossed
            halos += [
                Message(f"halo of x{NTH[i]}", "halo", crossing_bytes * (deep * shard.channels * x),
                        ("spatial",), crossed * chain, when="forward", line=line),
                Message(f"halo of dL/dy{NTH[i]}", "halo", crossing_bytes * back, ("spatial",),
                        (crossed & ~entry) * chain, when="backward", line=line),
            ]  # fmt: skip
            inner = crossed * (1 - 1 / parts)  # cuts a part has, on average, over two
            extents_in[i] = extents_in[i] + inner * shared
            extents_out[i] = extents_out[i] + inner * (2 * deep / s)
        return halos

    def statistics(self, shard: Shard, cut: Array) -> list[Message]:
        """Two sums of every channel that a norm takes over a sample's pixels, in fp32."""
        model, shared = shard.model, self.says("norms", "shared")
        if shard.ideal or not shared.any():
            return []
        spans = cut & shared & model.mask(lambda row: bool(row.spans))
        samples = np.where(model.mask(lambda row: row.spans == "batch"), 1.0, shard.micro)
        sums = 2 * 4.0 * samples * shard.channels
        return [
            Message("statistics of norms", "allreduce", sums, ("spatial",), spans * 1.0,
                    when="forward"),
            Message("gradients of statistics", "allreduce", sums, ("spatial",), spans * 1.0,
                    when="backward"),
        ]  # fmt: skip

    def collect(self, shard: Shard, cut: Array) -> list[Message]:
        """The last row that is cut hands its output to everybody, and gets its gradient back.

        Where rows are cut again after, the gradient of what is dealt out is gathered.
        """
        model, rows = shard.model, np.arange(len(shard.model))
        y, gathers = shard.micro * shard.delta * model.y, list[Message]()
        if shard.ideal:  # the published row of this strategy alone leaves the collection out
            end = np.max(np.flatnonzero(windowed(model)), initial=-1)  # of the windows, if any
            last = (rows == end) & (shard.parts > 1)
            back = "allgather"
        else:
            last, back = _ends(cut), "reduce_scatter"
            cut_again = ~cut & np.roll(cut, -1, axis=-1) & (rows < len(model) - 1)
            if cut_again.any():
                gathers.append(
                    Message("gather where cut again", "allgather", y, ("spatial",), cut_again * 1.0,
                            when="backward", once=True))  # fmt: skip
        return [
            *gathers,
            Message("collect at the split point", "allgather", y, ("spatial",), last * 1.0,
                    when="forward", once=True),
            Message("spread at the split point", back, y, ("spatial",), last * 1.0,
                    when="backward", once=True),
        ]  # fmt: skip

    def whole(self, model: Model) -> list[str]:
        return [r.name for r, cut in zip(model.rows, pictured(model), strict=True) if not cut]


def _ends(cut: Array) -> Array:
    """Rows that are cut, of which the next is not."""
    after = np.roll(cut, -1, axis=-1)
    after[..., -1] = True
    return np.asarray(cut & ~after)


@lru_cache(masks.MODELS)
def wanted(model: Model) -> Flags:
    """Rows whose output the next one that makes something wants for its backward pass."""
    is_wanted, wants = np.zeros(len(model), bool), False
    for i in reversed(range(len(model))):
        is_wanted[i] = wants
        if masks.moved(model)[i]:
            wants = "x" in model.rows[i].needs
    return is_wanted


@lru_cache(masks.MODELS)
def windowed(model: Model) -> Flags:
    """Layers that look at a neighbourhood."""
    return model.layers & model.mask(lambda row: bool(row.window))


@lru_cache(masks.MODELS)
def pictured(model: Model) -> Flags:
    """Rows that make something with extents in space."""
    plain = model.mask(lambda row: not row.made.tokens and bool(row.made.extents))
    return plain & ~masks.opaque(model)


@lru_cache(masks.MODELS)
def pooling(model: Model) -> Flags:
    return model.mask(lambda row: row.kind == "pool")


@lru_cache(masks.MODELS)
def extents(model: Model) -> int:
    """Along how many extents the samples can be cut."""
    return max((len(row.given.extents) for row in model.rows), default=1)


@cache
def even_grid(p: int, rank: int) -> tuple[int, int, int]:
    """The factorisation of p into `rank` parts with the smallest sum: the least border."""
    grid = [
        (a, b, p // (a * b))
        for a in range(1, p + 1) if p % a == 0
        for b in range(1, p // a + 1) if (p // a) % b == 0
        if (rank > 2 or a * b == p) and (rank > 1 or a == p)
    ]  # fmt: skip
    return min(grid, key=lambda parts: (sum(parts), -parts[0], -parts[1]))
