"""Tensor parallelism: matrices in pairs, the first cut by columns, the second by rows."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words
from oracle.spec.software import TensorMessages

ROLES = ("column", "row", "heads", "vocab")


@dataclass(frozen=True)
class Tensor(Strategy):
    """Cut attention by heads, MLPs by their inner width, the vocabulary by words.

        T_comp = D/p Σ (FW + BW) of what is cut + D Σ (FW + BW) of norms and sums
        T_comm = 4 D/B (p - 1) Σ_blocks 2 (α + B s h/p δβ)
        M      = as serial, |w|/p, inner activations /p

    The 4: two allreduces a block forward (after attention, after the MLP), two back, each
    2(p - 1) ring steps. With `sequence=on` each becomes a reduce-scatter after and an
    allgather before: the same bytes; norms, sums and what they keep are cut along the
    tokens too, and the backward pass gathers its inputs once more. What goes back hides under
    the two products of its own row, unless `overlap=off`.

    Experts are MLPs, cut so by the same devices (Megatron's expert tensor parallelism is its
    tensor parallelism), unless `expert` leaves them whole.
    With `sequence=on` each device routes 1/p of the tokens and sends them out; what comes in is
    gathered among the p, kept whole, and scattered before it goes back, none of it hidden.

    Column and row cuts in turn are `Filter` and `Channel` in turn, so nothing needs
    rebuilding in between. Rows that belong to no such pair stay whole.
    """

    sequence: Array = words("off", "on")
    overlap: Array = words("off", "on", default="on")

    letters = "TP"
    source = "shoeybi2019, §3; korthikanti2022, §4.2.2 (sequence)"
    nearness = 7
    bound = "key-value heads, inner width"
    limited_by = ("layer-wise exchange", "computation redundancy: kernels do not shrink")

    leaves = "they belong to no pair of column and row cuts"
    runs = ("sequence", "overlap")

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Along the tokens first: the same bytes are sent, and less is kept."""
        return {**super().tries(model), "sequence": (1.0, 0.0)}

    def limit(self, model: Model, batch: Array) -> Array | float:
        heads = [row.kv_heads for row in model.rows if row.heads]
        inner = [row.made.channels for row in model.rows if row.role == "column"]
        return min([*heads, *inner], default=1)

    def split(self, shard: Shard) -> Shard:
        if not self.wide:
            return shard
        p, model = np.asarray(self.degree, float), shard.model
        column, row, heads, vocab = (cut_rows(model, role) for role in ROLES)
        matrix, lookup = model.weighted, masks.embeddings(model)
        wide = column | (vocab & matrix)  # cut by filters
        streams = heads | (vocab & ~matrix & (model.x > 1) & ~lookup)  # by channels, F too
        sequence_parallel = np.where(self.says("sequence", "on"), p, 1.0)
        token = in_sequence(model)
        # what lies between the pairs, the embeddings among it, is cut along the tokens, if at all
        outer = token | row | (vocab & lookup)
        share_y = np.where(wide | streams, 1 / p, np.where(outer, 1 / sequence_parallel, 1.0))
        share_x = np.where(row | streams, 1 / p, np.where(token, 1 / sequence_parallel, 1.0))
        cut = wide | row | streams
        first = np.where(token, shard.deal(shard.made[0], sequence_parallel), shard.made[0])
        input_share = np.where(token, shard.deal(shard.given[0], sequence_parallel), shard.given[0])
        return shard.but(
            filters=shard.where(wide | streams, shard.deal(shard.filters, p), shard.filters),
            channels=shard.where(row | streams, shard.deal(shard.channels, p), shard.channels),
            heads=shard.deal(shard.heads, p),
            kv_heads=shard.deal(shard.kv_heads, p),
            made=(first, *shard.made[1:]),
            given=(input_share, *shard.given[1:]),
            x=shard.x * share_x,
            y=shard.y * share_y,
            w=shard.w * np.where(cut | vocab, 1 / p, 1.0),
            # what experts are given is kept as it was gathered
            kept=shard.kept * np.where(cut_rows(model, "dispatch"), 1.0, share_y),
            kept_bytes=shard.kept_bytes * np.where(lookup, 1 / sequence_parallel, share_y),
            work=shard.work * np.where(cut, 1 / p, np.where(token, 1 / sequence_parallel, 1.0)),
            expert_cut=shard.expert_cut * p,
            # each sends its part over a border between stages and gathers it on the other side
            spread=shard.spread * p / sequence_parallel,
        )

    def talk(self, shard: Shard) -> list[Message]:
        model, experts = shard.model, masks.experts(shard.model)
        lookup, matrix = masks.embeddings(model), model.weighted
        column, row, _, vocab = (cut_rows(model, role) for role in ROLES)
        column, table = column | (vocab & matrix), row | (vocab & lookup)
        sent = self._pairs(shard, shard.context_tokens, column & ~experts, table & ~experts)
        if experts.any():
            cut = experts & (np.asarray(shard.expert_cut) > 1)
            sent += self._pairs(shard, shard.made[0], column & cut, table & cut, "expert ")
        return sent

    def _pairs(
        self, shard: Shard, tokens: Array, column: Flags, row: Flags, prefix: str = ""
    ) -> list[Message]:
        """What pairs of rows send, the first cut by columns; of experts nothing hides."""
        model, axes, sequence = shard.model, ("tensor",), self.says("sequence", "on")
        elements = shard.micro * tokens
        into, out = (elements * width * shard.delta for width in (model.channels, model.filters))
        gathered = elements * model.channels * shard.turned
        under = _exposed if prefix else partial(_beside, shard.software.tensor)
        pairs = [
            Message(f"{prefix}activations", "allreduce", out, axes, row * ~sequence,
                    when="forward"),
            Message(f"{prefix}activations scattered", "reduce_scatter", out, axes, row * sequence,
                    when="forward", **under("forward_row")),
            Message(f"{prefix}activations gathered", "allgather", gathered, axes,
                    column * sequence, when="forward", **under("forward_column")),
            Message(f"{prefix}input gradients", "allreduce", into, axes, column * ~sequence,
                    when="backward", **under("backward_column_reduce")),
            Message(f"{prefix}input gradients scattered", "reduce_scatter", into, axes,
                    column * sequence, when="backward", **under("backward_column_reduce")),
            Message(f"{prefix}output gradients gathered", "allgather", out, axes, row * sequence,
                    when="backward", **under("backward_row")),
        ]  # fmt: skip
        remade = Message("inputs gathered again", "allgather", gathered, axes, column * sequence,
                        when="backward", **under("backward_column_gather"))  # fmt: skip
        return pairs if prefix else [*pairs, remade]

    def whole(self, model: Model) -> list[str]:
        return [r.name for r in model.rows if r.role not in ROLES]


def _exposed(field: str) -> dict[str, Any]:
    """What a message hides under that nothing hides."""
    return {}


def _beside(under: TensorMessages, field: str) -> dict[str, Any]:
    """What a message hides under, and how much of it shows at least.

    Piece by piece it hides under the product that takes or makes it: forward the row's own, on
    the way back the gradient of its input.
    """
    word = getattr(under, field)
    if word != "pipelined":
        return {"hides": "" if word == "none" else f"own {word}"}
    product = "forward" if field.startswith("forward") else "data"
    return {"hides": f"own {product}", "least_exposed": under.shown}


@lru_cache((len(ROLES) + 2) * masks.MODELS)
def cut_rows(model: Model, role: str) -> Flags:
    """Rows that are cut in one way."""
    return model.mask(lambda r: r.role == role)


@lru_cache(masks.MODELS)
def in_sequence(model: Model) -> Flags:
    """Rows that sequence parallelism cuts along the tokens."""
    return model.mask(lambda r: r.sequence)
