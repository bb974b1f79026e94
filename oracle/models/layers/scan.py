"""State-space layers: what a token is made of is read from a state that all before it wrote to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oracle.models.layers.base import Layer, Misfit, Row, Shape, tokens_of
from oracle.spec.schema import Count

KEPT_WIDE = 2.0  # elements of 16 bits that one of 32 is


@dataclass(frozen=True)
class Scan(Layer):
    """Mamba-2's mixer [dao2024]: a product in, a short convolution, the scan, a gated norm, out.

    A head's state is `width` × `state` numbers; inputs and outputs of it are shared by the heads
    of a group. The scan is cut into chunks of q tokens, inside which it is products, and between
    which states are passed on:

        MAC = s (q N g + q d/2 + 2 N d)    d channels inside, N of a state, g groups

    As its authors run it: what the convolution and the scan make is made again going back.
    """

    heads: Count
    width: Count = 64  # of one head
    state: Count = 128
    groups: Count = 1
    kernel: Count = 4  # of the convolution along the tokens
    chunk: Count = 256

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name = shapes[0], self.name or "scan"
        if len(shape.extents) != 1:
            raise Misfit(f"a scan runs over one extent of tokens, its input is {shape}")
        if self.heads % self.groups:
            raise Misfit(f"{self.groups} groups do not divide {self.heads} heads")
        inner, shared = self.heads * self.width, 2 * self.groups * self.state
        joint, tokens = 2 * inner + shared + self.heads, tokens_of(shape)
        packed, mixed = replace(shape, channels=joint), replace(shape, channels=inner)
        yield Row(f"{name}.in", "scan", "gemm", shape, packed, role="column", needs="x",
                  weights=shape.channels * joint)  # fmt: skip
        share = (inner + shared) / joint
        yield Row(f"{name}.conv", "scan", "stream", packed, packed, role="heads", needs="x",
                  family="conv1d", weights=(inner + shared) * (self.kernel + 1),
                  reads=(share, share), rereads=(3 * share, 2 * share))  # fmt: skip
        chunk = min(self.chunk, tokens)
        within = chunk * self.state * self.groups + chunk * inner / 2
        # what goes in twice and what comes out; states written, passed on, read, in 32 bits
        moves = 3.0 + 4 * KEPT_WIDE * self.state / chunk
        yield Row(
            f"{name}.core", "scan", "counted", packed, mixed, role="heads", family="scan",
            macs=tokens * (within + 2.0 * self.state * inner), weights=3 * self.heads,
            heads=self.heads, kv_heads=self.groups, reads=(0, moves), rereads=(0, 2.5 * moves),
            pieces=3,
        )  # fmt: skip
        # reads the gate too; made again, not kept
        yield Row(f"{name}.norm", "norm", "stream", mixed, mixed, role="heads", weights=inner,
                  needs="x", reads=(2, 1), rereads=(5, 2),
                  extra_kept=-float(mixed.size))  # fmt: skip
        yield Row(f"{name}.out", "scan", "gemm", mixed, shape, role="row", needs="x",
                  weights=inner * shape.channels)  # fmt: skip
