"""Multi-head latent attention: queries, keys and values made from narrow tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from oracle.models.layers.base import Layer, Misfit, Row, Shape, tokens_of
from oracle.models.layers.plain import Norm
from oracle.models.layers.tokens import Documents
from oracle.spec.schema import Between, Count

UP = "mla_up_proj"  # from the latents to what the core is given


@dataclass(frozen=True)
class Latent(Layer):
    """Attention whose queries, keys and values are made from narrow, normed latent tensors.

    Trained, it is multi-head attention: every head has keys of `plain` + `rotary` channels, the
    latter shared by all heads, and values of `value` channels; the latents are made whole by every
    tensor-parallel device. The core's width is the mean of keys' and values': FLOP forward and
    bytes are those of the two.
    """

    heads: Count
    kv_rank: Count  # channels of the latent of keys and values
    q_rank: Count | None = None  # of the queries'; None: made from the hidden tensor itself
    plain: Count = 128  # channels of a head's queries and keys that have no position
    rotary: Count = 64  # and that have
    value: Count = 128
    causal: bool = True
    flash: bool = True
    flash_version: Annotated[int, Between(1, 2)] | None = None
    fused: bool = True
    documents: Documents | None = None  # that a sequence is packed from, each sees itself alone
    strided: bool = False  # the kernel takes q, k, v as their rotation leaves them

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name = shapes[0], self.name or "latent"
        if len(shape.extents) != 1:
            raise Misfit(f"attention runs over one extent of tokens, its input is {shape}")
        key = self.plain + self.rotary
        if (key + self.value) % 2:
            raise Misfit(f"keys of {key} channels and values of {self.value} have no whole mean")
        yield from self._projected(f"{name}.q", shape, self.q_rank, self.heads * key)
        wide = self.heads * (self.plain + self.value)
        yield from self._projected(f"{name}.kv", shape, self.kv_rank, wide, self.rotary)
        # queries are turned; keys are put together of what each head has and what all share
        packed = replace(shape, channels=self.heads * (2 * key + self.value))
        passes = 1.0 if self.fused else 4.0
        yield Row(f"{name}.rotary", "attention", "stream", packed, packed, role="heads",
                  reads=(passes, passes), rereads=(passes, passes), takes=(4, 1),
                  pieces=1 if self.fused else 4, module=UP)  # fmt: skip
        tokens, mixed = tokens_of(shape), replace(shape, channels=self.heads * self.value)
        scores = float(self.heads * tokens * tokens)
        keys = min(self.documents.seen, tokens) if self.documents else tokens
        copies = (0.0, 0.0) if self.strided else (2.0, 2.0)
        yield Row(
            f"{name}.core", "attention", "attention", packed, mixed, role="heads", needs="xy",
            heads=self.heads, kv_heads=self.heads, width=(key + self.value) // 2, keys=keys,
            apart=keys < tokens, causal=self.causal, flash=self.flash, family="latent",
            version=self.flash * (self.flash_version or 0),
            # q, k, v, the result and their gradients laid out anew
            reads=copies, rereads=copies, extra_kept=0.0 if self.flash else scores,
            extra_bytes=4.0 * self.heads * tokens * self.flash,
        )  # fmt: skip
        yield Row(f"{name}.out", "attention", "gemm", mixed, shape, role="row", needs="x",
                  weights=mixed.channels * shape.channels, adds=self.fused)  # fmt: skip

    def _projected(
        self, name: str, shape: Shape, rank: int | None, wide: int, extra: int = 0
    ) -> Iterator[Row]:
        """Yield the product of the hidden tensor, through a latent of `rank` channels if set.

        The latent has `extra` further channels, which need no more work.
        """
        output, narrow = replace(shape, channels=wide), shape
        if rank:
            narrow = replace(shape, channels=rank)
            down = replace(shape, channels=rank + extra)
            yield Row(f"{name}.down", "attention", "gemm", shape, down, needs="x", entry=True,
                      weights=shape.channels * down.channels, sequence=True,
                      adds=self.fused)  # fmt: skip
            (norm,) = Norm("rms", fused=self.fused, name=f"{name}.norm").rows([narrow])
            yield replace(norm, module=UP)
        yield Row(f"{name}.up", "attention", "gemm", narrow, output, role="column", needs="x",
                  weights=narrow.channels * wide, adds=self.fused, entry=not rank,
                  module=UP)  # fmt: skip
