"""Layers of sequences: embeddings, attention, the two kinds of MLP."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from oracle.models.layers.base import Layer, Misfit, Row, Shape, Work, tokens_of
from oracle.spec.schema import Between, Count, Whole

# tokens of the fullest device that experts are dealt to over the mean; 1: assumed balanced
Skew = Annotated[float, Between(1, 100_000)]


@dataclass(frozen=True)
class Embedding(Layer):
    """A table looked up by token, and optionally one by position."""

    vocab: Count
    hidden: Count
    positions: Whole = 0
    extra: Whole = 0  # further rows of other tables: segments, class token
    dropout: bool = False
    tied: bool = False  # looks up the table of another
    tokens: Count | None = None  # of a sequence of its own; as many as the model is given if not

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0] if self.tokens is None else Shape(1, (self.tokens,), True)
        output, words = Shape(self.hidden, shape.extents, True), self.vocab * (not self.tied)
        yield Row(
            self.name or "embedding", "embedding", "stream", shape, output, role="vocab",
            weights=(words + self.positions + self.extra) * self.hidden, sequence=False,
            tied=self.tied,
            reads=(0, 2 + (self.positions > 0) + 2 * self.dropout), rereads=(0, 2),
            extra_bytes=8.0 * shape.size + output.size * self.dropout,
        )  # fmt: skip


@dataclass(frozen=True)
class Position(Layer):
    """A learned vector added at every position, and extra tokens put before the others."""

    extra_tokens: Whole = 0

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        output = replace(shape, extents=(tokens_of(shape) + self.extra_tokens,), tokens=True)
        weights = output.size + self.extra_tokens * shape.channels
        yield Row(self.name or "position", "position", "stream", shape, output, weights=weights,
                  reads=(1, 2), rereads=(1, 1))  # fmt: skip


@dataclass(frozen=True)
class First(Layer):
    """The first token alone: where a classifier looks."""

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        if not shapes[0].tokens:
            raise Misfit(f"only tokens have a first one, the input is {shapes[0]}")
        output = replace(shapes[0], extents=(1,))
        yield Row(self.name or "first", "first", "stream", shapes[0], output,
                  reads=(0, 2), rereads=(1, 1))  # fmt: skip


@dataclass(frozen=True)
class Documents:
    """Texts of different lengths that fill a sequence, one after the other."""

    mean: Count  # tokens
    variation: Annotated[float, Between(0, 100)] = 0.0  # standard deviation over the mean

    @property
    def seen(self) -> int:
        """The mean length of the text around a token: long texts hold more of the tokens."""
        return max(1, round(self.mean * (1 + self.variation**2)))


@dataclass(frozen=True)
class Attention(Layer):
    """Multi-head attention with grouped key-value heads: projections, core, output."""

    heads: Count
    kv_heads: Count | None = None
    width: Count | None = None  # of one head; hidden / heads if not said
    causal: bool = False
    bias: bool = True
    rotary: bool = False
    flash: bool = True
    dropout: bool = False  # of the attention probabilities
    window: Count | None = None  # a sliding window of keys
    chunk: Count | None = None  # or only those of the same chunk of tokens
    documents: Documents | None = None  # that a sequence is packed from, each sees itself alone
    sinks: bool = False  # a learned logit of each head joins the softmax
    normed: bool = False  # RMS norms of each head's queries and keys
    fused: bool = True  # rotation as one kernel; else cast, multiply, cast
    # of FlashAttention, where it is not the fastest kernel that the device has
    flash_version: Annotated[int, Between(1, 2)] | None = None
    repeated: bool = False  # keys and values are copied, one for each head that asks them
    strided: bool = False  # the kernel takes q, k, v as they lie, makes what comes next wants
    packed: bool = True  # one matrix makes queries, keys and values; else each has its own
    written: bool = False  # rotation as one kernel, whatever else is not
    gated: bool = False  # what the core makes is multiplied by the sigmoid of one more product

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        first, *inside, out = self._ungated(shapes)
        if not self.gated:
            yield from (first, *inside, out)
            return
        shape, mixed = shapes[0], out.given
        yield Row(f"{first.name.removesuffix('.qkv')}.gate", "gate", "gemm", shape, mixed,
                  role="column", needs="x", entry=True, bias=self.bias, adds=self.fused,
                  weights=(shape.channels + self.bias) * mixed.channels)  # fmt: skip
        yield from (replace(first, entry=True), *inside)
        yield Row(f"{out.name.removesuffix('.out')}.gated", "gate", "stream", mixed, mixed,
                  role="heads", needs="x", takes=(1, len(inside) + 2), reads=(2, 1),
                  rereads=(3, 2))  # fmt: skip
        yield out

    def _ungated(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name = shapes[0], self.name or "attention"
        if len(shape.extents) != 1:
            raise Misfit(f"attention runs over one extent of tokens, its input is {shape}")
        kv_heads, tokens = self.kv_heads or self.heads, tokens_of(shape)
        if self.heads % kv_heads:
            raise Misfit(f"{kv_heads} key-value heads do not divide {self.heads} heads")
        if self.width is None and shape.channels % self.heads:
            raise Misfit(f"{self.heads} heads do not divide {shape.channels} channels")
        width = self.width or shape.channels // self.heads
        inner, joint = self.heads * width, (self.heads + 2 * kv_heads) * width
        text_length = self.documents.seen if self.documents else tokens
        keys = min(self.window or self.chunk or tokens, text_length, tokens)
        packed, mixed = replace(shape, channels=joint), replace(shape, channels=inner)
        matrices = () if self.packed else (inner, kv_heads * width, kv_heads * width)
        yield Row(f"{name}.qkv", "attention", "gemm", shape, packed, role="column", needs="x",
                  weights=shape.channels * joint + self.bias * joint, adds=self.fused,
                  bias=self.bias, matrices=matrices)  # fmt: skip
        share = (self.heads + kv_heads) / (self.heads + 2 * kv_heads)
        if self.normed:  # values pass by, and are one tensor with those that the core is given
            yield Row(f"{name}.norm", "norm", "stream", packed, packed, role="heads", needs="x",
                      weights=2 * width, reads=(share, share), rereads=(share, 2 * share),
                      pieces=2, extra_kept=-float(kv_heads * width * tokens))  # fmt: skip
        if self.rotary:
            one_kernel = self.fused or self.written
            turned = share * (2.0 if one_kernel else 10.0)
            yield Row(f"{name}.rotary", "attention", "stream", packed, packed, role="heads",
                      reads=(0, turned), rereads=(0, turned),
                      pieces=1 if one_kernel else 4)  # fmt: skip
        scores = float(self.heads * tokens * keys)
        core_input, copies = packed, self.heads // kv_heads if self.repeated else 1
        if copies > 1:  # keys and values are read, and written as often; queries stay
            core_input = replace(shape, channels=3 * inner)
            copied = 2 * kv_heads / (self.heads + 2 * kv_heads), 2 / 3
            yield Row(f"{name}.repeat", "repeat", "stream", packed, core_input, role="heads",
                      reads=copied, rereads=copied)  # fmt: skip
        yield Row(
            f"{name}.core", "attention", "attention", core_input, mixed, role="heads", needs="xy",
            heads=self.heads, kv_heads=kv_heads, repeated=copies, width=width, keys=keys,
            causal=self.causal, apart=keys < tokens and keys != self.window,
            weights=self.heads * self.sinks,
            flash=self.flash, version=self.flash * (self.flash_version or 0),
            # q, k, v and the result laid out anew; if not, the three gradients put side by side
            reads=(0, 0) if self.strided else (2, 2),
            rereads=(2 * (copies == 1), 0) if self.strided else (2, 2),
            # unfused: softmax output and what dropout leaves of it; flash: one sum a query
            extra_kept=0.0 if self.flash else scores * (1 + self.dropout),
            extra_bytes=4.0 * self.heads * tokens if self.flash else scores * self.dropout,
        )  # fmt: skip
        yield Row(f"{name}.out", "attention", "gemm", mixed, shape, role="row", needs="x",
                  weights=inner * shape.channels + self.bias * shape.channels,
                  adds=self.fused, bias=self.bias)  # fmt: skip


@dataclass(frozen=True)
class Mlp(Layer):
    """Two matrices with a function between; gated: three, the first two side by side."""

    ffn: Count
    gated: bool = False
    activation: Literal["gelu", "relu", "silu"] = "gelu"
    bias: bool = True
    fused: bool = True  # a gate as one kernel; else the function, then the product
    packed: bool = True  # one matrix makes the gate and what it opens; else each has its own

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name = shapes[0], self.name or "mlp"
        up = replace(shape, channels=self.ffn * (1 + self.gated))
        mid = replace(shape, channels=self.ffn)
        relu = self.activation == "relu" and not self.gated
        matrices = () if self.packed or not self.gated else (self.ffn, self.ffn)
        yield Row(f"{name}.up", "mlp", "gemm", shape, up, role="column", needs="x",
                  weights=up.channels * (shape.channels + self.bias), adds=self.fused,
                  bias=self.bias, matrices=matrices)  # fmt: skip
        split = self.gated and not self.fused  # the gate is a kernel of its own
        yield Row(f"{name}.{self.activation}", "mlp", "stream", up, mid, role="heads",
                  reads=(1 + split, 1), rereads=(2 + 2 * split, 1), needs="y" if relu else "x",
                  pieces=1 + split, extra_kept=split * mid.size)  # fmt: skip
        yield Row(f"{name}.down", "mlp", "gemm", mid, shape, role="row", needs="x",
                  weights=shape.channels * (self.ffn + self.bias), adds=self.fused,
                  bias=self.bias)  # fmt: skip


@dataclass(frozen=True)
class Moe(Layer):
    """A mixture of experts: each token visits `active` of them; a router chooses.

    Shared experts are visited by every token: one MLP beside the mixture, as wide as all of them.
    """

    experts: Annotated[int, Between(2, 100_000)]
    ffn: Count
    active: Count = 2
    gated: bool = True
    shared: Whole = 0
    skew: Skew = 1.0
    weighted: Literal["inside", "outside"] = "outside"  # where a router's weights multiply
    bias: bool = False  # of the router and of every expert's two products
    groups: Whole = 0  # that the experts are routed by, each of them on a place of its own
    reach: Whole = 0  # groups at most that a token's experts are in; 0: any

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name, k = shapes[0], self.name or "moe", self.active
        if k > self.experts:
            raise Misfit(f"a token cannot visit {k} of {self.experts} experts")
        if self.reach > self.groups:
            raise Misfit(f"a token cannot reach {self.reach} of {self.groups} groups")
        if self.shared:
            function: Literal["silu", "gelu"] = "silu" if self.gated else "gelu"
            mlp = Mlp(self.shared * self.ffn, self.gated, function, False, name=f"{name}.shared")
            yield from (replace(row, module="shared_experts") for row in mlp.rows(shapes))
        # of each visit its weight, the expert, and the copy's place among all
        yield Row(f"{name}.router", "moe", "gemm", shape, replace(shape, channels=self.experts),
                  weights=(shape.channels + self.bias) * self.experts, needs="x",
                  sequence=shape.tokens, entry=True, bias=self.bias,
                  extra_bytes=(4.0 + 8 + 8) * k * math.prod(shape.extents))  # fmt: skip
        # a copy of each token for each visit: the experts' rows are `active` times as many
        sent = replace(shape, extents=(tokens_of(shape) * k,))
        up = replace(sent, channels=self.ffn * (1 + self.gated))
        mid = replace(sent, channels=self.ffn)

        def row(part: str, work: Work, x: Shape, y: Shape, role: str, **more: Any) -> Row:
            return Row(f"{name}.{part}", "moe", work, x, y, role=role, active=k,
                       experts=self.experts, skew=self.skew, places=self.groups, reach=self.reach,
                       **more)  # fmt: skip

        yield row("dispatch", "stream", shape, sent, "dispatch", reads=(1, 2), rereads=(1, 1),
                  sequence=shape.tokens, takes=(0, 1))  # fmt: skip
        yield row("up", "gemm", sent, up, "column", needs="x",
                  weights=self.experts * (shape.channels + self.bias) * up.channels,
                  bias=self.bias)  # fmt: skip
        yield row("act", "stream", up, mid, "heads", reads=(1, 1), rereads=(2, 1), needs="x",
                  module="moe_act")  # fmt: skip
        yield row("down", "gemm", mid, sent, "row", needs="x",
                  weights=self.experts * shape.channels * (self.ffn + self.bias),
                  bias=self.bias)  # fmt: skip
        # what the shared experts made is added: read twice and written once
        shared = bool(self.shared)
        needs = "1" if self.weighted == "outside" else ""
        yield row("combine", "stream", sent, shape, "combine", needs=needs,
                  sequence=shape.tokens, reads=(1, 1 + 3 * shared), rereads=(2, 1),
                  pieces=1 + shared, takes=(1, 5, 6)[: 2 + shared])  # fmt: skip
