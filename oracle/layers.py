"""The layer kinds: what each makes of its input's shape, and the rows of work it becomes.

A kind is one frozen dataclass whose fields are what a spec file says and whose `rows` method
says what it does. Adding a kind is adding one class here or anywhere that is imported; the
registry `KINDS` finds it by itself. Rows hold *shapes*; FLOP, bytes and weights are derived.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, cast

from oracle.document import Node, suggest
from oracle.schema import Between, Count, Fraction, Reader, Whole, fields_of

Extents = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one sample: channels, then extents (pixels, voxels, or one extent of tokens)."""

    channels: int
    extents: Extents = ()
    tokens: bool = False

    @property
    def size(self) -> int:
        return self.channels * math.prod(self.extents)

    def __str__(self) -> str:
        return "×".join(map(str, (self.channels, *self.extents)))


class Misfit(ValueError):
    """A layer that its input's shape does not fit."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a model's columns: one kernel's work for one sample, at full size."""

    name: str
    kind: str
    work: Literal["gemm", "conv", "attention", "stream"]
    given: Shape
    made: Shape
    window: Extents = ()
    stride: Extents = ()
    groups: int = 1
    weights: int = 0  # trainable elements, vectors (bias, scale, shift) included
    role: str = ""  # how tensor parallelism may cut it: column row heads vocab expert
    sequence: bool = False  # a region that sequence parallelism cuts along the tokens
    heads: int = 0
    kv_heads: int = 0
    width: int = 0  # of one head
    keys: int = 0  # positions attended to
    causal: bool = False
    flash: bool = False
    reads: tuple[float, float] = (0.0, 0.0)  # forward passes over (|x|, |y|) of a stream
    rereads: tuple[float, float] = (0.0, 0.0)  # backward passes
    pieces: int = 1  # kernels that a stream is written out as
    adds: bool = False  # its product adds the weights' gradient up: no pass of its own for that
    needs: str = ""  # what its backward pass wants of its own tensors: "x", "y", "xy"
    extra_kept: float = 0.0  # further elements kept per sample, in the working precision
    extra_bytes: float = 0.0  # further bytes kept per sample whatever the precision: masks, fp32
    experts: int = 0
    active: float = 1.0  # experts a token visits; the work is `active` times one expert's
    tied: bool = False  # uses weights that another row holds
    after: int = -1  # kept tensor bookkeeping, set by the model


def _tuple(value: int | tuple[int, ...], rank: int) -> Extents:
    found = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(found) != rank:
        raise Misfit(f"{len(found)} numbers for {rank} extents")
    return found


@dataclass(frozen=True)
class Layer:
    """What every kind has: a name to refer to, and where its input comes from."""

    name: str = field(default="", kw_only=True)
    inputs: tuple[str, ...] = field(default=(), kw_only=True, metadata={"key": "from"})

    several: ClassVar[bool] = False  # takes more than one input

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        """The rows of work this layer becomes; the last one makes its output."""
        raise NotImplementedError


@dataclass(frozen=True)
class Conv(Layer):
    """Convolution over 1-3 extents, with groups, dilation and stride."""

    filters: Count
    kernel: Count | tuple[Count, ...]
    stride: Count | tuple[Count, ...] = 1
    padding: Literal["same", "valid"] | Whole | tuple[Whole, ...] = 0
    dilation: Count | tuple[Count, ...] = 1
    groups: Count = 1
    bias: bool = True

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape, rank = given[0], len(given[0].extents)
        if not 1 <= rank <= 3:
            raise Misfit(f"a convolution takes 1 to 3 extents, its input {shape} has {rank}")
        kernel, stride = _tuple(self.kernel, rank), _tuple(self.stride, rank)
        dilation = _tuple(self.dilation, rank)
        reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        made = tuple(
            (n + pad - r) // s + 1
            for n, pad, r, s in zip(
                shape.extents, self.pads(shape, reach, stride), reach, stride, strict=True
            )
        )
        if min(made) < 1:
            raise Misfit(f"a window of {'×'.join(map(str, reach))} does not fit into {shape}")
        if shape.channels % self.groups or self.filters % self.groups:
            raise Misfit(f"{self.groups} groups do not divide {shape.channels} → {self.filters}")
        weights = self.filters * shape.channels // self.groups * math.prod(kernel)
        yield Row(
            self.name or "conv", "conv", "conv", shape, Shape(self.filters, made, shape.tokens),
            kernel, stride, self.groups, weights + self.bias * self.filters, needs="x",
        )  # fmt: skip

    def pads(self, shape: Shape, reach: Extents, stride: Extents) -> Extents:
        """Both sides together, per extent."""
        if self.padding == "valid":
            return (0,) * len(reach)
        if self.padding == "same":
            sizes = zip(shape.extents, reach, stride, strict=True)
            return tuple(max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in sizes)
        return tuple(2 * p for p in _tuple(self.padding, len(reach)))


@dataclass(frozen=True)
class Deconv(Layer):
    """Transposed convolution: a stride makes the output larger."""

    filters: Count
    kernel: Count | tuple[Count, ...]
    stride: Count | tuple[Count, ...] = 1
    padding: Whole | tuple[Whole, ...] = 0
    output_padding: Whole | tuple[Whole, ...] = 0
    groups: Count = 1
    bias: bool = True

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape, rank = given[0], len(given[0].extents)
        if not 1 <= rank <= 3:
            raise Misfit(f"a transposed convolution takes 1 to 3 extents, its input has {rank}")
        kernel, stride = _tuple(self.kernel, rank), _tuple(self.stride, rank)
        pad, extra = _tuple(self.padding, rank), _tuple(self.output_padding, rank)
        sizes = zip(shape.extents, kernel, stride, pad, extra, strict=True)
        made = tuple((n - 1) * s - 2 * p + k + e for n, k, s, p, e in sizes)
        if min(made) < 1:
            raise Misfit(f"padding {pad} leaves nothing of {shape}")
        if shape.channels % self.groups or self.filters % self.groups:
            raise Misfit(f"{self.groups} groups do not divide {shape.channels} → {self.filters}")
        weights = self.filters * shape.channels // self.groups * math.prod(kernel)
        yield Row(
            self.name or "deconv", "deconv", "conv", shape, Shape(self.filters, made, shape.tokens),
            kernel, stride, self.groups, weights + self.bias * self.filters, needs="x",
        )  # fmt: skip


@dataclass(frozen=True)
class Pool(Layer):
    """Max or mean over a window; `global` makes every extent one."""

    kernel: Count | tuple[Count, ...] | Literal["global"] = 2
    stride: Count | tuple[Count, ...] | None = None
    padding: Literal["same", "valid"] | Whole | tuple[Whole, ...] = 0
    op: Literal["max", "mean"] = "max"
    ceil: bool = False

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape, rank = given[0], len(given[0].extents)
        if not rank:
            raise Misfit("pooling needs extents, its input has none")
        if self.kernel == "global":
            made, kernel, stride = (1,) * rank, shape.extents, shape.extents
        else:
            kernel = _tuple(self.kernel, rank)
            stride = _tuple(kernel if self.stride is None else self.stride, rank)
            pads = Conv(1, kernel, padding=self.padding).pads(shape, kernel, stride)
            sizes = list(zip(shape.extents, kernel, stride, pads, strict=True))
            up = [s - 1 if self.ceil else 0 for s in stride]
            made = tuple(
                (n + p - k + u) // s + 1 for (n, k, s, p), u in zip(sizes, up, strict=True)
            )
            # a window that would start beyond the padded input is dropped, as everybody does
            made = tuple(
                m - 1 if self.ceil and (m - 1) * s >= n + p // 2 else m
                for m, (n, _, s, p) in zip(made, sizes, strict=True)
            )
        if min(made) < 1:
            raise Misfit(f"a window of {kernel} does not fit into {shape}")
        indices = 8.0 * math.prod(made) * shape.channels if self.op == "max" else 0.0
        yield Row(
            self.name or "pool", "pool", "stream", shape, replace(shape, extents=made),
            kernel, stride, reads=(1, 1), rereads=(1, 1),
            needs="x" if self.op == "max" else "", extra_bytes=indices,
        )  # fmt: skip


@dataclass(frozen=True)
class Flatten(Layer):
    """Extents become channels; nothing is moved."""

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        yield Row(self.name or "flatten", "flatten", "stream", given[0], Shape(given[0].size))


@dataclass(frozen=True)
class Reshape(Layer):
    """The same elements under another shape: patches become tokens, tokens a picture."""

    to: tuple[Count, ...]
    tokens: bool = False

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        made = Shape(self.to[0], self.to[1:], self.tokens)
        if made.size != given[0].size:
            raise Misfit(f"{given[0]} has {given[0].size} elements, {made} has {made.size}")
        yield Row(self.name or "reshape", "reshape", "stream", given[0], made)


@dataclass(frozen=True)
class Upsample(Layer):
    """The extents made larger by interpolation, by a factor or to given ones."""

    factor: Count = 2
    to: tuple[Count, ...] = ()

    shorthand: ClassVar[str] = "factor"

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape = given[0]
        extents = self.to or tuple(n * self.factor for n in shape.extents)
        made = replace(shape, extents=_tuple(extents, len(shape.extents)))
        yield Row(self.name or "upsample", "upsample", "stream", shape, made,
                  reads=(1, 1), rereads=(1, 1))  # fmt: skip


@dataclass(frozen=True)
class First(Layer):
    """The first token alone: where a classifier looks."""

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        if not given[0].tokens:
            raise Misfit(f"only tokens have a first one, the input is {given[0]}")
        made = replace(given[0], extents=(1,))
        yield Row(self.name or "first", "first", "stream", given[0], made,
                  reads=(0, 2), rereads=(1, 1))  # fmt: skip


@dataclass(frozen=True)
class Dense(Layer):
    """A matrix applied to the channels at every position."""

    filters: Count
    bias: bool = True
    role: Literal["", "column", "row", "vocab"] = ""
    tied: bool = False

    shorthand: ClassVar[str] = "filters"

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape = given[0]
        weights = (0 if self.tied else shape.channels * self.filters) + self.bias * self.filters
        yield Row(
            self.name or "dense", "dense", "gemm", shape, replace(shape, channels=self.filters),
            weights=weights, role=self.role, needs="x", tied=self.tied,
        )  # fmt: skip


@dataclass(frozen=True)
class Norm(Layer):
    """Batch, layer, group, instance or RMS normalisation.

    Where it is not fused, RMS is written out operator by operator, in fp32 between two casts
    (counted for 16-bit tensors); the others are one kernel in every framework.
    """

    op: Literal["batch", "layer", "rms", "group", "instance"] = "batch"
    affine: bool = True
    bias: bool | None = None
    fused: bool = True

    shorthand: ClassVar[str] = "op"

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape = given[0]
        shift = self.op != "rms" if self.bias is None else self.bias
        weights = shape.channels * (1 + shift) if self.affine else 0
        if self.op == "rms" and not self.fused:  # cast, square, mean, scale, cast, weight
            yield Row(
                self.name or "norm", "norm", "stream", shape, shape, weights=weights, needs="x",
                sequence=shape.tokens, reads=(12, 6), rereads=(18, 18), pieces=4,
                extra_kept=shape.size, extra_bytes=4.0 * shape.size,
            )  # fmt: skip
            return
        # statistics need a pass of their own where they span samples or pixels
        first = 2.0 if self.op in ("batch", "group", "instance") else 1.0
        yield Row(
            self.name or "norm", "norm", "stream", shape, shape, weights=weights, needs="x",
            sequence=shape.tokens, reads=(first, 1), rereads=(first, 1 + first),
        )  # fmt: skip


@dataclass(frozen=True)
class Activation(Layer):
    """A function of each element; relu is done in place and keeps its output only."""

    op: Literal["relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish"] = (
        "relu"
    )

    shorthand: ClassVar[str] = "op"

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        output = self.op in ("relu", "leaky_relu", "tanh", "sigmoid", "softmax")
        yield Row(
            self.name or self.op, "activation", "stream", given[0], given[0],
            reads=(1, 1), rereads=(1, 1 + output), needs="y" if output else "x",
        )  # fmt: skip


@dataclass(frozen=True)
class Dropout(Layer):
    """Zeroes some elements and remembers which, one byte each."""

    rate: Fraction = 0.1

    shorthand: ClassVar[str] = "rate"

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        yield Row(
            self.name or "dropout", "dropout", "stream", given[0], given[0], reads=(1, 1.5),
            rereads=(0.5, 2), sequence=given[0].tokens, extra_bytes=float(given[0].size),
        )  # fmt: skip


@dataclass(frozen=True)
class Add(Layer):
    """The sum of two or more equal shapes: where a residual joins."""

    dropout: bool = False  # of the newest branch, fused into the sum

    several: ClassVar[bool] = True

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        if len(given) < 2 or len({(s.channels, s.extents) for s in given}) > 1:
            shapes = ", ".join(map(str, given))
            raise Misfit(f"only equal shapes add up, here: {shapes}")
        mask = float(given[0].size) if self.dropout else 0.0
        yield Row(
            self.name or "add", "add", "stream", given[0], given[0], sequence=given[0].tokens,
            reads=(len(given), 1), rereads=(1, 0.0 if not mask else 1.0), extra_bytes=mask,
        )  # fmt: skip


@dataclass(frozen=True)
class Concat(Layer):
    """Channels of several inputs side by side."""

    several: ClassVar[bool] = True

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        if len({s.extents for s in given}) > 1:
            raise Misfit(f"extents differ: {', '.join(map(str, given))}")
        made = replace(given[0], channels=sum(s.channels for s in given))
        yield Row(
            self.name or "concat", "concat", "stream", made, made, reads=(1, 1), rereads=(1, 1)
        )


@dataclass(frozen=True)
class Embedding(Layer):
    """A table looked up by token, and optionally one by position."""

    vocab: Count
    hidden: Count
    positions: Whole = 0
    extra: Whole = 0  # further rows of other tables: segments, class token
    dropout: bool = False

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        made = Shape(self.hidden, given[0].extents, True)
        yield Row(
            self.name or "embedding", "embedding", "stream", given[0], made, role="vocab",
            weights=(self.vocab + self.positions + self.extra) * self.hidden, sequence=False,
            reads=(0, 2 + (self.positions > 0) + 2 * self.dropout), rereads=(0, 2),
            extra_bytes=8.0 * given[0].size + made.size * self.dropout,
        )  # fmt: skip


@dataclass(frozen=True)
class Position(Layer):
    """A learned vector added at every position, and extra tokens put before the others."""

    extra_tokens: Whole = 0

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape = given[0]
        made = replace(shape, extents=(shape.extents[0] + self.extra_tokens,), tokens=True)
        weights = made.size + self.extra_tokens * shape.channels
        yield Row(self.name or "position", "position", "stream", shape, made, weights=weights,
                  reads=(1, 2), rereads=(1, 1))  # fmt: skip


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
    fused: bool = True  # rotation as one kernel; else cast, multiply, cast

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape, name = given[0], self.name or "attention"
        if len(shape.extents) != 1:
            raise Misfit(f"attention runs over one extent of tokens, its input is {shape}")
        kv_heads, tokens = self.kv_heads or self.heads, shape.extents[0]
        if self.heads % kv_heads:
            raise Misfit(f"{kv_heads} key-value heads do not divide {self.heads} heads")
        if self.width is None and shape.channels % self.heads:
            raise Misfit(f"{self.heads} heads do not divide {shape.channels} channels")
        width = self.width or shape.channels // self.heads
        inner, joint = self.heads * width, (self.heads + 2 * kv_heads) * width
        keys = min(self.window or tokens, tokens)
        packed, mixed = replace(shape, channels=joint), replace(shape, channels=inner)
        yield Row(f"{name}.qkv", "attention", "gemm", shape, packed, role="column", needs="x",
                  weights=shape.channels * joint + self.bias * joint, adds=self.fused)  # fmt: skip
        if self.rotary:
            passes = 2.0 if self.fused else 10.0
            turned = passes * (self.heads + kv_heads) / (self.heads + 2 * kv_heads)
            yield Row(f"{name}.rotary", "attention", "stream", packed, packed, role="heads",
                      reads=(0, turned), rereads=(0, turned),
                      pieces=1 if self.fused else 4)  # fmt: skip
        scores = float(self.heads * tokens * keys)
        yield Row(
            f"{name}.core", "attention", "attention", packed, mixed, role="heads", needs="xy",
            heads=self.heads, kv_heads=kv_heads, width=width, keys=keys, causal=self.causal,
            flash=self.flash, reads=(2, 2), rereads=(2, 2),  # q, k, v and the result laid out anew
            # unfused: softmax output and what dropout leaves of it; flash: one sum a query
            extra_kept=0.0 if self.flash else scores * (1 + self.dropout),
            extra_bytes=4.0 * self.heads * tokens if self.flash else scores * self.dropout,
        )  # fmt: skip
        yield Row(f"{name}.out", "attention", "gemm", mixed, shape, role="row", needs="x",
                  weights=inner * shape.channels + self.bias * shape.channels,
                  adds=self.fused)  # fmt: skip


@dataclass(frozen=True)
class Mlp(Layer):
    """Two matrices with a function between; gated: three, the first two side by side."""

    ffn: Count
    gated: bool = False
    activation: Literal["gelu", "relu", "silu"] = "gelu"
    bias: bool = True
    fused: bool = True  # a gate as one kernel; else the function, then the product

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape, name = given[0], self.name or "mlp"
        up = replace(shape, channels=self.ffn * (1 + self.gated))
        mid = replace(shape, channels=self.ffn)
        relu = self.activation == "relu" and not self.gated
        yield Row(f"{name}.up", "mlp", "gemm", shape, up, role="column", needs="x",
                  weights=up.channels * (shape.channels + self.bias), adds=self.fused)  # fmt: skip
        apart = self.gated and not self.fused
        yield Row(f"{name}.{self.activation}", "mlp", "stream", up, mid, role="heads",
                  reads=(1 + apart, 1), rereads=(2 + 2 * apart, 1), needs="y" if relu else "x",
                  pieces=1 + apart, extra_kept=apart * mid.size)  # fmt: skip
        yield Row(f"{name}.down", "mlp", "gemm", mid, shape, role="row", needs="x",
                  weights=shape.channels * (self.ffn + self.bias), adds=self.fused)  # fmt: skip


@dataclass(frozen=True)
class Moe(Layer):
    """A mixture of experts: each token visits `active` of them; a router chooses."""

    experts: Annotated[int, Between(2, 100_000)]
    ffn: Count
    active: Count = 2
    gated: bool = True
    shared: Whole = 0  # experts every token visits

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape, name = given[0], self.name or "moe"
        if self.active > self.experts:
            raise Misfit(f"a token cannot visit {self.active} of {self.experts} experts")
        visits, held = self.active + self.shared, self.experts + self.shared
        # a token's copy per visit: the experts' rows are `visits` times as many
        sent = replace(shape, extents=(shape.extents[0] * visits,))
        up = replace(sent, channels=self.ffn * (1 + self.gated))
        mid = replace(sent, channels=self.ffn)
        yield Row(f"{name}.router", "moe", "gemm", shape, replace(shape, channels=self.experts),
                  weights=shape.channels * self.experts, needs="x")  # fmt: skip
        yield Row(f"{name}.dispatch", "moe", "stream", shape, sent, role="expert",
                  reads=(1, 2), rereads=(1, 1), experts=held, active=visits)  # fmt: skip
        yield Row(f"{name}.up", "moe", "gemm", sent, up, role="expert", needs="x", experts=held,
                  active=visits, weights=held * shape.channels * up.channels)  # fmt: skip
        yield Row(f"{name}.act", "moe", "stream", up, mid, role="expert", reads=(1, 1),
                  rereads=(2, 1), needs="x", experts=held, active=visits)  # fmt: skip
        yield Row(f"{name}.down", "moe", "gemm", mid, sent, role="expert", needs="x", experts=held,
                  active=visits, weights=held * shape.channels * self.ffn)  # fmt: skip
        yield Row(f"{name}.combine", "moe", "stream", sent, shape, role="expert", needs="x",
                  reads=(1, 1), rereads=(2, 1), experts=held, active=visits)  # fmt: skip


@dataclass(frozen=True)
class Loss(Layer):
    """Softmax and cross-entropy over the channels, in fp32."""

    op: Literal["cross_entropy", "mse", "bce"] = "cross_entropy"

    shorthand: ClassVar[str] = "op"

    def rows(self, given: Sequence[Shape]) -> Iterator[Row]:
        shape = given[0]
        # cast up, maximum, shift, exponential, sum, division; back: scale, copy, cast down.
        # an fp32 copy of the logits is what is kept; it becomes the gradient in place
        yield Row(self.name or "loss", "loss", "stream", shape, shape, role="vocab",
                  reads=(9.5, 0), rereads=(5.5, 0), extra_bytes=4.0 * shape.size)  # fmt: skip


def kinds() -> dict[str, type[Layer]]:
    """Every layer kind by the word a spec file uses; a new subclass is here at once."""
    return {cls.__name__.lower(): cls for cls in Layer.__subclasses__()}


@dataclass(frozen=True, slots=True)
class Placed:
    """A layer as it stands in a file: the layer, or a block of layers, and where it stands."""

    node: Node
    layer: Layer | None = None
    repeat: int = 1
    block: tuple[Placed, ...] = ()
    name: str = ""  # of a block: what its last layer made

    @classmethod
    def from_node(cls, node: Node, reader: Reader) -> Placed | None:
        if node.kind == "scalar" and not node.empty:  # `- relu`: a kind with nothing to say
            entry = Node(node.place, "mapping", entries={node.text: Node(node.place, "mapping")})
            entry.keys[node.text] = node.place
            return cls.from_node(entry, reader)
        if node.kind != "mapping" or not node.entries:
            reader.fault("E104", "a layer is written `- kind: {fields}`", node)
            return None
        if "layers" in node.entries:
            return cls._block(node, reader)
        word, *rest = node.entries
        known = kinds()
        if word in _ACTIVATIONS and not rest:  # `relu: {name: here}` says an activation's op
            given = node.entries[word]
            if given.kind != "mapping" and not given.empty:
                what = f"`{word}` takes fields such as `name`, not a {given.kind}"
                reader.fault("E104", what, given, f"write `- {word}`")
                return None
            inner = Node(given.place, "mapping", entries={**given.entries}, keys={**given.keys})
            inner.entries["op"] = Node(node.keys[word], "scalar", word)
            plain = reader.record(Activation, inner, word)
            return cls(node, plain) if plain is not None else None
        if word not in known:
            hint = suggest(word, [*known, *_ACTIVATIONS, "layers"], "layer kinds")
            place = node.keys[word]
            at = Node(place, "scalar", word)
            reader.fault("E110", f"no layer kind is called `{word}`", at, hint)
            return None
        if rest:
            at = Node(node.keys[rest[0]], "scalar", rest[0])
            reader.fault(
                "E102", f"`{rest[0]}` stands beside `{word}`", at, "indent it under the kind"
            )
            return None
        inner = node.entries[word]
        if inner.empty:
            inner = Node(inner.place, "mapping")
        layer = reader.record(known[word], inner, word)
        return cls(node, layer) if layer is not None else None

    @classmethod
    def _block(cls, node: Node, reader: Reader) -> Placed | None:
        for key in node.entries:
            if key not in ("name", "repeat", "layers"):
                at = Node(node.keys[key], "scalar", key)
                reader.fault(
                    "E102", f"unknown field `{key}`", at, suggest(key, ["name", "repeat", "layers"])
                )
        times = 1
        if "repeat" in node.entries:
            hint = Annotated[int, Between(1, 10_000)]
            times = reader.read(hint, node.entries["repeat"], "repeat") or 1
        name = reader.read(str, node.entries["name"], "name") if "name" in node.entries else ""
        inner = reader.read(tuple[Placed, ...], node.entries["layers"], "layers") or ()
        return cls(node, None, times, tuple(p for p in inner if p is not None), name or "")

    @classmethod
    def json_schema(cls, schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        options: list[dict[str, Any]] = [
            {"type": "object", "properties": {word: _said(kind, schema)}, "required": [word],
             "additionalProperties": False}
            for word, kind in {**kinds(), **dict.fromkeys(_ACTIVATIONS, Activation)}.items()
        ]  # fmt: skip
        blocks = {"type": "object", "required": ["layers"], "additionalProperties": False,
                  "properties": {"name": {"type": "string"}, "repeat": {"type": "integer"},
                                 "layers": {"type": "array"}}}  # fmt: skip
        plain = sorted({*_ACTIVATIONS, *(w for w, k in kinds().items() if _plain(k))})
        return {"anyOf": [*options, blocks, {"enum": plain}]}


def _said(kind: type[Layer], schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Its fields; or the one field it is mostly about; or nothing, where nothing must be said."""
    forms = [schema(kind)]
    if shorthand := getattr(kind, "shorthand", None):
        forms.append(schema(fields_of(cast(Any, kind))[shorthand][1]))
    return {"anyOf": [*forms, *([{"type": "null"}] if _plain(kind) else [])]}


def _plain(kind: type) -> bool:
    return not any(required for _, _, required in fields_of(cast(Any, kind)).values())


_ACTIVATIONS = ("relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish")
