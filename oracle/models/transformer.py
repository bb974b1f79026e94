"""A transformer given by a few numbers (the family block of a spec), as a list of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from oracle.models.layers import (
    Activation,
    Add,
    Attention,
    Concat,
    Dense,
    Embedding,
    First,
    Layer,
    Loss,
    Mlp,
    Moe,
    Norm,
    Placed,
    Skew,
)
from oracle.models.layers.latent import Latent
from oracle.models.layers.tokens import Documents
from oracle.spec.document import Node
from oracle.spec.kernel_choice import KernelChoice
from oracle.spec.schema import Between, Clash, Count, Whole


@dataclass(frozen=True)
class Low:
    """Latent attention, as the layer kind `latent` has it."""

    kv_rank: Count
    q_rank: Count | None = None
    plain: Count = 128
    rotary: Count = 64
    value: Count = 128


@dataclass(frozen=True)
class Transformer:
    """The family block: a stack of equal transformer layers between embedding and head."""

    layers: Count
    hidden: Count
    heads: Count
    vocab: Count
    sequence: Count
    kv_heads: Count | None = None
    ffn: Count | None = None  # 4 × hidden if not said
    width: Count | None = None  # of one head
    gated: bool = False
    causal: bool = True
    tied_embeddings: bool = True
    norm: Literal["layer", "rms"] | None = None  # rms when gated
    positions: Literal["learned", "rotary", "none"] | None = None  # rotary when gated
    bias: bool | None = None  # not when gated
    qkv_bias: bool | None = None
    activation: Literal["gelu", "relu", "silu"] | None = None  # silu when gated, else gelu
    dropout: bool = False
    flash: bool | None = None  # this and what follows: as the software has it if not said
    # of FlashAttention, where it is not the fastest kernel that the device has
    flash_version: Annotated[int, Between(1, 2)] | None = None
    fused: bool | None = None  # norms, rotations, gates one kernel each; products add gradients up
    fused_loss: bool | None = None  # as `fused` if not said
    latent: Low | None = None  # multi-head latent attention
    window: Count | None = None  # keys that a query sees at most, itself among them
    chunk: Count | None = None  # or those of its chunk of tokens
    # each so-many-th layer sees all tokens, whatever the others see
    full_every: Annotated[int, Between(0, 256)] = 0
    documents: Documents | None = None  # that a sequence is packed from, each sees itself alone
    sinks: bool = False  # a learned logit of each head joins the softmax
    qk_norm: bool = False  # RMS norms of each head's queries and keys
    post_norms: bool = False  # norms after attention and MLP too, before they are added
    experts: Whole = 0
    active: Count = 2
    shared: Whole = 0
    skew: Skew = 1.0
    groups: Whole = 0  # that experts are routed by
    reach: Whole = 0  # groups at most that a token's experts are in; 0: any
    # each so-many-th layer has experts, the others have `dense_ffn`
    every: Annotated[int, Between(1, 256)] = 1
    first_dense: Whole = 0  # layers before those with experts
    dense_ffn: Count | None = None  # of layers without experts; `ffn` if not said
    # further tokens that a layer and the head predict, one each
    predicts: Annotated[int, Between(0, 64)] = 0
    segments: Whole = 0  # rows of a segment table (BERT has 2)
    pooler: bool = False  # BERT's second head, on the first token
    final_norm: bool = True
    embedding_norm: bool = False
    head_transform: bool = False  # the dense + norm before BERT's vocabulary
    head: bool = True

    def check(self) -> Iterator[Clash]:
        if self.width is None and self.latent is None and self.hidden % self.heads:
            yield Clash("heads", f"{self.heads} heads do not divide {self.hidden} channels",
                        "a divisor of `hidden`, or say the `width` of a head")  # fmt: skip
        if self.heads % (self.kv_heads or self.heads):
            complaint = f"{self.kv_heads} key-value heads do not divide {self.heads} heads"
            yield Clash("kv_heads", complaint, "a divisor of `heads`")
        if self.experts and self.active > self.experts:
            yield Clash("active", f"a token cannot visit {self.active} of {self.experts} experts")
        if self.full_every and not (self.window or self.chunk):
            yield Clash("full_every", "all layers see all tokens", "say the `window` of the others")
        if self.window and self.chunk:
            yield Clash("chunk", "a layer sees a window or its chunk", "leave one of them out")
        if self.latent and (self.kv_heads or self.width or self.window or self.chunk):
            complaint = "latent attention has heads of its own, and sees all tokens"
            yield Clash("latent", complaint, "without kv_heads, width, window, chunk")

    def placed(self, node: Node, kernels: KernelChoice) -> tuple[Placed, ...]:
        """Return the model as layers, with these kernels where the spec leaves them open."""
        run = _Run(self, kernels)
        stack = self._stack(node, run)
        ahead, behind = self._ahead(run), self._behind(run)
        items = [*(Placed(node, x) for x in ahead), *stack, *(Placed(node, x) for x in behind)]
        for depth in range(1, self.predicts + 1):
            items += self._predicted(node, run, depth)
        return tuple(items)

    def _stack(self, node: Node, run: _Run) -> list[Placed]:
        """Return the stack: equal layers once, layers that alternate as a block of all kinds."""
        alternates = self.full_every > 1 and (self.window or self.chunk)
        every = self.every if self.experts else 1
        period = math.lcm(self.full_every if alternates else 1, every)
        first = min(self.first_dense if self.experts else 0, self.layers)
        periods, rest = divmod(self.layers - first, period)
        items = []

        def layer(index: int, name: str = "") -> Placed:
            sees_all = bool(self.full_every) and (index + 1) % max(self.full_every, 1) == 0
            mixed = bool(self.experts) and index >= first and (index - first + 1) % every == 0
            row = tuple(Placed(node, part) for part in run.layer(sees_all, mixed))
            return Placed(node, None, 1, row, name, True)

        if first:
            items.append(replace(layer(0), repeat=first))
        if periods and period > 1:
            turns = tuple(layer(first + i) for i in range(period))
            items.append(Placed(node, None, periods, turns, "", True))
        elif periods:
            items.append(replace(layer(first), repeat=periods))
        items += [layer(first + periods * period + i) for i in range(rest)]
        items[-1] = replace(items[-1], name="layers")
        return items

    def _ahead(self, run: _Run) -> list[Layer]:
        table = Embedding(
            self.vocab, self.hidden, self.sequence * (run.positions == "learned"), self.segments,
            self.dropout, name="embedding",
        )  # fmt: skip
        return [table, *([_named(run.norm, "embedding.norm")] if self.embedding_norm else [])]

    def _behind(self, run: _Run) -> list[Layer]:
        tail: list[Layer] = [_named(run.norm, "norm")] if self.final_norm else []
        if self.head_transform:
            tail += [Dense(self.hidden, name="head.dense"), _named(run.norm, "head.norm")]
        if self.head:
            tail += run.head(self.head_transform, self.tied_embeddings)
        if self.pooler:
            source = ("norm" if self.final_norm else "layers",)
            tail += [
                First(name="pooler.token", inputs=source), Dense(self.hidden, name="pooler.dense"),
                Activation("tanh"), Dense(2, name="pooler.head"), Loss(name="pooler.loss"),
            ]  # fmt: skip
        return tail

    def _predicted(self, node: Node, run: _Run, depth: int) -> list[Placed]:
        """Return the layers of one more token: a join with its embedding, a layer, the head."""
        name = f"predicted{depth}"
        before = "layers" if depth == 1 else f"predicted{depth - 1}"
        norm = partial(_named, run.norm)
        joined: list[Layer] = [
            Embedding(self.vocab, self.hidden, tied=True, name=f"{name}.embedding",
                      inputs=("input",)),
            norm(f"{name}.norm1"), replace(norm(f"{name}.norm2"), inputs=(before,)),
            Concat(name=f"{name}.both", inputs=(f"{name}.norm1", f"{name}.norm2")),
            Dense(self.hidden, bias=False, name=f"{name}.join"),
        ]  # fmt: skip
        layer = tuple(Placed(node, part) for part in run.layer(True, bool(self.experts)))
        after = [norm(f"{name}.norm"), *run.head(False, True)]
        return [*(Placed(node, part) for part in joined), Placed(node, None, 1, layer, name),
                *(Placed(node, part) for part in after)]  # fmt: skip

    def beyond(self) -> list[str]:
        """Return the keys of its file that a plain stack of equal layers does not have."""
        keys = ("latent", "window", "chunk", "documents", "sinks", "post_norms", "groups",
                "first_dense", "predicts")  # fmt: skip
        return [*(name for name in keys if getattr(self, name)),
                *(["every"] if self.experts and self.every > 1 else [])]  # fmt: skip


class _Run:
    """A family block's layers, with what the software decides where the block leaves it open."""

    def __init__(self, block: Transformer, kernels: KernelChoice) -> None:
        self.block, self.kernels = block, kernels
        gated = block.gated
        self.fused = kernels.fused if block.fused is None else block.fused
        loss = kernels.loss != "beside" if block.fused is None else block.fused
        self.loss = loss if block.fused_loss is None else block.fused_loss
        self.alone = (
            kernels.loss == "one_kernel" and block.fused is None and block.fused_loss is None
        )
        self.bias = not gated if block.bias is None else block.bias
        self.written = self.fused or kernels.written
        self.norm = Norm(op=block.norm or ("rms" if gated else "layer"), fused=self.written)
        self.positions = block.positions or ("rotary" if gated else "learned")

    def layer(self, sees_all: bool, mixed: bool) -> list[Layer]:
        """Return attention and MLP or experts, each between a norm and a sum."""
        block, add = self.block, Add(dropout=self.block.dropout)
        after = block.post_norms
        layers: list[Layer] = [_named(self.norm, "norm1"), self.attention(sees_all)]
        layers += [_named(self.norm, "attention.norm")] * after
        branch = "attention.norm" if after else "attention"
        layers.append(replace(add, name="residual1", inputs=("block", branch)))
        layers += [_named(self.norm, "norm2"), self.mlp(mixed)]
        layers += [_named(self.norm, "mlp.norm")] * after
        branch = "mlp.norm" if after else "mlp"
        return [*layers, replace(add, name="residual2", inputs=("residual1", branch))]

    def attention(self, sees_all: bool) -> Layer:
        block, kernels = self.block, self.kernels
        flash = kernels.attention != "unfused" if block.flash is None else block.flash
        version = block.flash_version or kernels.flash_version
        if block.latent is not None:
            low = block.latent
            return Latent(
                block.heads, low.kv_rank, low.q_rank, low.plain, low.rotary, low.value,
                block.causal, flash, version, self.fused, block.documents, kernels.strided,
                name="attention",
            )  # fmt: skip
        bias = self.bias if block.qkv_bias is None else block.qkv_bias
        return Attention(
            block.heads, block.kv_heads, block.width, block.causal, bias,
            self.positions == "rotary", flash, block.dropout,
            None if sees_all else block.window, None if sees_all else block.chunk,
            block.documents, block.sinks, block.qk_norm, self.fused, version, kernels.repeated,
            kernels.strided, kernels.packed, self.written, name="attention",
        )  # fmt: skip

    def mlp(self, mixed: bool) -> Layer:
        block = self.block
        ffn = block.ffn or 4 * block.hidden
        if mixed:
            return Moe(
                block.experts, ffn, block.active, block.gated, block.shared, block.skew,
                self.kernels.experts, bool(block.bias), block.groups, block.reach, name="mlp",
            )  # fmt: skip
        function = block.activation or ("silu" if block.gated else "gelu")
        wide = block.dense_ffn or ffn if block.experts else ffn
        return Mlp(
            wide, block.gated, function, self.bias, self.fused, self.kernels.packed, name="mlp"
        )

    def head(self, bias: bool, tied: bool) -> list[Layer]:
        """Return the product over the vocabulary, and the loss."""
        return [
            Dense(self.block.vocab, bias=bias, role="vocab", tied=tied, name="head"),
            Loss(fused=self.loss, one_kernel=self.alone, name="loss"),
        ]


def _named(norm: Norm, name: str) -> Norm:
    return replace(norm, name=name)
