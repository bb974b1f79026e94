"""The base class of layer kinds, shapes, and the rows of work that a layer becomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

Extents = tuple[int, ...]
Work = Literal["gemm", "conv", "attention", "stream", "counted"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one sample: channels, then extents (pixels, voxels, or one extent of tokens)."""

    channels: int
    extents: Extents = ()
    tokens: bool = False
    parts: tuple[Shape, ...] = ()  # tensors that it holds together

    @property
    def size(self) -> int:
        return self.channels * math.prod(self.extents)

    def __str__(self) -> str:
        return "×".join(map(str, (self.channels, *self.extents)))


class Misfit(ValueError):
    """A layer that its input's shape does not fit."""


def tokens_of(shape: Shape) -> int:
    """Return the length of a sequence; raise a Misfit where there are channels alone."""
    if not shape.extents:
        raise Misfit("a sequence of tokens is wanted, and this has channels alone")
    return shape.extents[0]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a model's columns: one kernel's work for one sample, at full size."""

    name: str
    kind: str
    work: Work
    given: Shape
    made: Shape
    window: Extents = ()
    stride: Extents = ()
    groups: int = 1
    weights: int = 0  # trainable elements, vectors (bias, scale, shift) included
    role: str = ""  # how tensor parallelism may cut it: column row heads vocab; of a mixture, the
    #                 rows that hand tokens on and get them back: dispatch combine
    sequence: bool = False  # a region that sequence parallelism cuts along the tokens
    heads: int = 0
    kv_heads: int = 0
    repeated: int = 1  # times that each of them stands in memory
    width: int = 0  # of one head
    keys: int = 0  # positions attended to
    causal: bool = False
    apart: bool = False  # tokens fall into blocks of so many `keys` and see their own block only
    flash: bool = False
    version: int = 0  # of FlashAttention; 0: the fastest kernel there is
    reads: tuple[float, float] = (0.0, 0.0)  # forward passes over (|x|, |y|) of a stream
    rereads: tuple[float, float] = (0.0, 0.0)  # backward passes
    pieces: int = 1  # kernels that a stream is written out as
    macs: float = 0.0  # multiply-accumulates of one sample, where they were counted
    family: str = ""  # kernels that such work is priced as; "": any
    product: Extents = ()  # m, n, k of each of a batch of products
    adds: bool = False  # its product adds the weights' gradient up: no pass of its own for that
    bias: bool = False  # a vector is added to what it makes
    spans: str = ""  # of a norm: what one statistic is of, batch, group or instance; else a token
    # what its backward pass wants of its own tensors: "x", "y"; of several inputs "1" the first
    needs: str = ""
    extra_kept: float = 0.0  # further elements kept per sample, in the working precision
    extra_bytes: float = 0.0  # further bytes kept per sample whatever the precision: masks, fp32
    experts: int = 0  # of a mixture that its tokens are dealt to
    active: float = 1.0  # experts a token visits; the work is `active` times one expert's
    skew: float = 1.0  # tokens of the fullest device of experts over the mean
    reach: int = 0  # places at most that the experts of a token lie in, of `places`; 0: any
    places: int = 0  # groups that the experts are routed by
    entry: bool = False  # takes what its layer was given, not what the row before it made
    # rows of its layer that it reads, counted back; 0: what its layer was given; (): the last
    takes: tuple[int, ...] = ()
    lookups: int = 0  # rows of tables that a sample names
    part: int = 0  # of tensors that its input holds together, the one it hands on
    tied: bool = False  # uses weights that another row holds
    frozen: bool = False  # its weights are not trained
    adapter: bool = False  # stands beside a frozen matrix, in 16 bits where that is in fewer
    matrices: Extents = ()  # channels that each of several makes, where one row stands for them
    module: str = ""  # part of its layer that is made again by itself, as frameworks call it

    @property
    def narrow(self) -> bool:
        """Whether its product is made in 8 or 4 bits, where that is asked for."""
        return self.work == "gemm" and self.role != "vocab" and not self.adapter

    @property
    def mac(self) -> float:
        """Multiply-accumulates of its forward pass, for one sample."""
        if self.work == "conv":
            outer, inner = (
                (self.given, self.made) if self.kind == "deconv" else (self.made, self.given)
            )
            return outer.size * inner.channels / self.groups * float(math.prod(self.window))
        if self.work == "gemm":
            return float(self.given.size) * self.made.channels
        if self.work == "attention":
            return 2.0 * self.heads * self.made.extents[0] * self.seen * self.width
        return self.macs

    @property
    def seen(self) -> float:
        """Keys that a query looks at, on average; through memory all of them are computed.

        Of the last w keys the first w queries see fewer; in blocks every query sees its own alone.
        """
        queries, keys = self.made.extents[0], float(self.keys)
        if not self.causal or not self.flash:
            return keys
        begins = queries / keys if self.apart else 1.0
        return keys - begins * keys * (keys - 1) / (2 * queries)


def along(value: int | tuple[int, ...], rank: int) -> Extents:
    """Return a number for each of `rank` extents; a single number counts for all."""
    numbers = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(numbers) != rank:
        raise Misfit(f"{len(numbers)} numbers for {rank} extents")
    return numbers


@dataclass(frozen=True)
class Layer:
    """The common part of all kinds: a name to refer to, and the names of the inputs."""

    name: str = field(default="", kw_only=True)
    inputs: tuple[str, ...] = field(default=(), kw_only=True, metadata={"key": "from"})

    several: ClassVar[bool] = False  # takes more than one input

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        """Return the rows of work of this layer, of which the last makes its output."""
        raise NotImplementedError
