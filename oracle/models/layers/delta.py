"""Layers of the delta rule: a state that forgets, and is corrected by what each token brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oracle.models.layers.base import Layer, Misfit, Row, Shape, tokens_of
from oracle.spec.schema import Count


@dataclass(frozen=True)
class Delta(Layer):
    """Gated DeltaNet's mixer [yang2025]: products in, a short convolution, the rule, a norm, out.

    A head's state is `key` × `width` numbers. The rule is cut into chunks of q tokens, inside which
    it is products and the inverse of a triangular matrix [yang2024, section 3.2]:

        MAC = s h (q (3 k + 2 w) + q²/3 + 3 k w)    h heads of values, k of a key, w of a value

    Keys are shared by heads of values. What the convolution and the rule make is made again going
    back.
    """

    heads: Count  # of values
    key_heads: Count | None = None  # of queries and of keys; as many if not said
    key: Count = 128  # channels of a query and of a key
    width: Count = 128  # of a value
    kernel: Count = 4  # of the convolution along the tokens
    chunk: Count = 64

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name = shapes[0], self.name or "delta"
        if len(shape.extents) != 1:
            raise Misfit(f"a delta rule runs over one extent of tokens, its input is {shape}")
        key_heads, tokens = self.key_heads or self.heads, tokens_of(shape)
        if self.heads % key_heads:
            raise Misfit(f"{key_heads} heads of keys do not divide {self.heads} heads")
        inner, shared = self.heads * self.width, 2 * key_heads * self.key
        joint = 2 * inner + shared + 2 * self.heads  # values, gate; queries, keys; two rates
        packed, mixed = replace(shape, channels=joint), replace(shape, channels=inner)
        yield Row(f"{name}.in", "delta", "gemm", shape, packed, role="column", needs="x",
                  weights=shape.channels * joint)  # fmt: skip
        share = (inner + shared) / joint
        yield Row(f"{name}.conv", "delta", "stream", packed, packed, role="heads", needs="x",
                  family="conv1d", weights=(inner + shared) * self.kernel,
                  reads=(share, share), rereads=(3 * share, 2 * share))  # fmt: skip
        chunk = min(self.chunk, tokens)
        within = chunk * (3 * self.key + 2 * self.width) + chunk**2 / 3
        # values in, results out, corrected values written and read twice; queries and keys in,
        # corrected keys written and read; states of all chunks written and read
        moves = 6.0 + 4.0 * self.key / self.width + 2.0 * self.key / chunk
        yield Row(
            f"{name}.core", "delta", "counted", packed, mixed, role="heads", family="scan",
            macs=tokens * self.heads * (within + 3.0 * self.key * self.width),
            weights=2 * self.heads, heads=self.heads, kv_heads=key_heads, reads=(0, moves),
            rereads=(0, 2.5 * moves), pieces=6,
        )  # fmt: skip
        # reads the gate too; one weight a channel of a head; made again, not kept
        yield Row(f"{name}.norm", "norm", "stream", mixed, mixed, role="heads", weights=self.width,
                  needs="x", reads=(2, 1), rereads=(5, 2),
                  extra_kept=-float(mixed.size))  # fmt: skip
        yield Row(f"{name}.out", "delta", "gemm", mixed, shape, role="row", needs="x",
                  weights=inner * shape.channels)  # fmt: skip
