"""A transformer given by a few numbers (the family block of a spec), as a list of layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from oracle.models.layers import (
    Activation,
    Add,
    Attention,
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
from oracle.spec.document import Node
from oracle.spec.schema import Between, Clash, Count, Whole
from oracle.spec.software import KernelChoice


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
    window: Count | None = None
    experts: Whole = 0
    active: Count = 2
    shared: Whole = 0
    skew: Skew = 1.0
    segments: Whole = 0  # rows of a segment table (BERT has 2)
    pooler: bool = False  # BERT's second head, on the first token
    final_norm: bool = True
    embedding_norm: bool = False
    head_transform: bool = False  # the dense + norm before BERT's vocabulary
    head: bool = True

    def check(self) -> Iterator[Clash]:
        if self.width is None and self.hidden % self.heads:
            yield Clash("heads", f"{self.heads} heads do not divide {self.hidden} channels",
                        "a divisor of `hidden`, or say the `width` of a head")  # fmt: skip
        if self.heads % (self.kv_heads or self.heads):
            what = f"{self.kv_heads} key-value heads do not divide {self.heads} heads"
            yield Clash("kv_heads", what, "a divisor of `heads`")
        if self.experts and self.active > self.experts:
            yield Clash("active", f"a token cannot visit {self.active} of {self.experts} experts")

    def placed(self, node: Node, kernels: KernelChoice) -> tuple[Placed, ...]:
        """The same model as a list of layers, run with these kernels where it does not say."""
        gated = self.gated
        fused = kernels.fused if self.fused is None else self.fused
        flash = kernels.attention != "unfused" if self.flash is None else self.flash
        version = self.flash_version or kernels.flash_version
        loss = kernels.loss != "beside" if self.fused is None else self.fused
        loss = loss if self.fused_loss is None else self.fused_loss
        alone = kernels.loss == "one_kernel" and self.fused is None and self.fused_loss is None
        bias = not gated if self.bias is None else self.bias
        norm = Norm(op=self.norm or ("rms" if gated else "layer"), fused=fused)
        positions = self.positions or ("rotary" if gated else "learned")
        attention = Attention(
            self.heads, self.kv_heads, self.width, self.causal,
            bias if self.qkv_bias is None else self.qkv_bias, positions == "rotary", flash,
            self.dropout, self.window, fused, version, kernels.repeated,
            kernels.strided, name="attention",
        )  # fmt: skip
        ffn = self.ffn or 4 * self.hidden
        mlp: Layer = (
            Moe(
                self.experts,
                ffn,
                self.active,
                gated,
                self.shared,
                self.skew,
                kernels.experts,
                name="mlp",
            )
            if self.experts
            else Mlp(
                ffn,
                gated,
                self.activation or ("silu" if gated else "gelu"),
                bias,
                fused,
                name="mlp",
            )
        )
        add = Add(dropout=self.dropout, name="residual1", inputs=("block", "attention"))
        out = Add(dropout=self.dropout, name="residual2", inputs=("residual1", "mlp"))
        named = [_named(norm, "norm1"), attention, add, _named(norm, "norm2"), mlp, out]
        table = Embedding(
            self.vocab, self.hidden, self.sequence * (positions == "learned"), self.segments,
            self.dropout, name="embedding",
        )  # fmt: skip
        head: list[Layer] = [table]
        if self.embedding_norm:
            head.append(_named(norm, "embedding.norm"))
        tail: list[Layer] = [_named(norm, "norm")] if self.final_norm else []
        if self.head_transform:
            tail += [Dense(self.hidden, name="head.dense"), _named(norm, "head.norm")]
        if self.head:
            tail += [
                Dense(
                    self.vocab, bias=self.head_transform, role="vocab", tied=self.tied_embeddings,
                    name="head",
                ),
                Loss(fused=loss, one_kernel=alone, name="loss"),
            ]  # fmt: skip
        if self.pooler:
            of = ("norm" if self.final_norm else "layers",)
            tail += [
                First(name="pooler.token", inputs=of), Dense(self.hidden, name="pooler.dense"),
                Activation("tanh"), Dense(2, name="pooler.head"), Loss(name="pooler.loss"),
            ]  # fmt: skip
        block = Placed(
            node, None, self.layers, tuple(Placed(node, layer) for layer in named), "layers"
        )
        return (*(Placed(node, x) for x in head), block, *(Placed(node, x) for x in tail))


def _named(norm: Norm, name: str) -> Norm:
    return replace(norm, name=name)
