"""The arithmetic of each operation on its inputs and this device's part of the weights.

Tokens are held as (batch, tokens, channels), everything else as (batch, channels, extents…).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.local.graph import Operation
from oracle.executor.local.weights import wide_of
from oracle.executor.passes.one_kernel import Gate, LeakyRelu, RmsNorm
from oracle.executor.supported import NotSupported
from oracle.models.layers import (
    Conv,
    Deconv,
    Embedding,
    Mlp,
    Moe,
    Norm,
    Pool,
    Position,
    Shape,
    along,
)

_POOLS = {
    ("max", 1): functional.max_pool1d,
    ("max", 2): functional.max_pool2d,
    ("max", 3): functional.max_pool3d,
    ("mean", 1): functional.avg_pool1d,
    ("mean", 2): functional.avg_pool2d,
    ("mean", 3): functional.avg_pool3d,
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "leaky_relu": lambda x: LeakyRelu.apply(x),
    "gelu": functional.gelu,
    "silu": functional.silu,
    "swish": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def weights_of(op: Operation) -> dict[str, tuple[int, ...]]:
    """The full shapes of an operation's weights, by name."""
    shape, layer = op.shape, op.layer
    c, f = shape.given.channels, shape.made.channels
    shapes: dict[str, tuple[int, ...]] = {}
    if shape.tied or shape.weights == 0:
        return shapes
    if isinstance(layer, Deconv):
        shapes["weight"] = (c, f // shape.groups, *shape.window)
    elif isinstance(layer, Conv):
        shapes["weight"] = (f, c // shape.groups, *shape.window)
    elif shape.experts:
        shapes["weight"] = (shape.experts, f, c)
    elif shape.work == "gemm":
        shapes["weight"] = (f, c)
    elif isinstance(layer, Norm):
        shapes["weight"] = (c,)
    elif isinstance(layer, Embedding):
        shapes["table"] = (layer.vocab, layer.hidden)
        if layer.positions:
            shapes["positions"] = (layer.positions, layer.hidden)
        if layer.extra:
            shapes["extra"] = (layer.extra, layer.hidden)
    elif isinstance(layer, Position):
        shapes["positions"] = (shape.made.extents[0], c)
        if layer.extra_tokens:
            shapes["extra"] = (layer.extra_tokens, c)
    else:
        raise NotSupported(f"{op.label}: {shape.kind} has weights that cannot be run yet")
    rest = shape.weights - sum(map(math.prod, shapes.values()))
    if rest == shape.experts * f > 0:
        shapes["bias"] = (shape.experts, f)
    elif rest == f:
        shapes["bias"] = (f,)
    elif rest:
        raise NotSupported(f"{op.label}: {rest} weights more than the executor knows of")
    return shapes


def paddings(op: Operation) -> list[tuple[int, int]]:
    """(before, after) of each extent of a convolution or pool."""
    shape, layer = op.shape, op.layer
    rank, extents = len(shape.window), shape.given.extents
    padding: Any = layer.padding  # type: ignore[attr-defined]
    if padding == "valid":
        return [(0, 0)] * rank
    reach = reaches(op)
    if padding == "same":
        sizes = zip(extents, shape.made.extents, shape.stride, reach, strict=True)
        totals = [max((m - 1) * s + r - n, 0) for n, m, s, r in sizes]
        return [(b // 2, b - b // 2) for b in totals]
    return [(p, p) for p in along(padding, rank)]


def dilations(op: Operation) -> tuple[int, ...]:
    dilation = op.layer.dilation if isinstance(op.layer, Conv) else 1
    return along(dilation, len(op.shape.window))


def reaches(op: Operation) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(op.shape.window, dilations(op), strict=True)]


def convolution(op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolution over whole extents; groups follow from the channels that are held."""
    pads, rank = paddings(op), len(op.shape.window)
    groups = x.shape[1] // weight.shape[1]
    symmetric = [before for before, _ in pads]
    if any(before != after for before, after in pads):
        x = functional.pad(x, [p for pair in reversed(pads) for p in pair])
        symmetric = [0] * rank
    return torch.convolution(
        x, weight, bias, list(op.shape.stride), symmetric, list(dilations(op)), False,
        [0] * rank, groups,
    )  # fmt: skip


def deconvolution(op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    layer, rank = op.layer, len(op.shape.window)
    assert isinstance(layer, Deconv)
    return torch.convolution(
        x, weight, bias, list(op.shape.stride), list(along(layer.padding, rank)), [1] * rank, True,
        list(along(layer.output_padding, rank)), op.shape.groups,
    )  # fmt: skip


def filters_of(op: Operation) -> int:
    """The extent of a weight that counts filters: the second of a transposed convolution."""
    return int(op.shape.kind == "deconv")


def pool(op: Operation, x: Tensor) -> Tensor:
    """Pool over whole extents; padding counts as zero for a mean and never for a maximum."""
    layer = op.layer
    assert isinstance(layer, Pool)
    if layer.kernel == "global":
        dims = list(range(2, x.dim()))
        return x.amax(dims, keepdim=True) if layer.op == "max" else x.mean(dims, keepdim=True)
    pads: list[int] = []
    sizes = zip(paddings(op), x.shape[2:], op.shape.made.extents, op.shape.stride,
                op.shape.window, strict=True)  # fmt: skip
    for (before, _), n, m, s, k in sizes:
        pads = [before, max((m - 1) * s + k - n - before, 0), *pads]
    if any(pads):
        x = functional.pad(x, pads, value=padding_value(op))
    return pool_padded(op, x)


def padding_value(op: Operation) -> float:
    """The value of padding: -∞ for a maximum, else 0."""
    return -math.inf if isinstance(op.layer, Pool) and op.layer.op == "max" else 0.0


def pool_padded(op: Operation, x: Tensor) -> Tensor:
    layer = op.layer
    assert isinstance(layer, Pool)
    return _POOLS[layer.op, x.dim() - 2](x, op.shape.window, op.shape.stride)


def norm(op: Operation, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalise with the statistics of the part that is held."""
    layer = op.layer
    assert isinstance(layer, Norm)
    tokens = op.shape.given.tokens
    if layer.op in ("layer", "rms"):
        last = x if tokens else x.movedim(1, -1)
        if layer.op == "layer":
            normalised = functional.layer_norm(last, last.shape[-1:], weight, bias)
        else:
            normalised = RmsNorm.apply(last, weight)
        return normalised if tokens else normalised.movedim(-1, 1)
    if tokens:
        x = x.movedim(-1, 1)
    if layer.op == "batch":
        normalised = functional.batch_norm(x, None, None, weight, bias, training=True)
    elif layer.op == "instance":
        normalised = functional.instance_norm(x, None, None, weight, bias)
    else:
        groups = math.gcd(32, x.shape[1])
        normalised = functional.group_norm(x, groups, weight, bias)
    return normalised.movedim(1, -1) if tokens else normalised


def activation(op: Operation, x: Tensor) -> Tensor:
    name = op.layer.op  # type: ignore[attr-defined]
    if name == "softmax":
        return x.softmax(-1 if op.shape.given.tokens else 1)
    return _FUNCTIONS[name](x)


def mlp_function(op: Operation, x: Tensor) -> Tensor:
    """The activation function of an MLP; gated, its value multiplies the other half."""
    layer = op.layer
    assert isinstance(layer, Mlp | Moe)  # experts that all tokens share are an MLP
    name = ("silu" if layer.gated else "gelu") if isinstance(layer, Moe) else layer.activation
    return Gate.apply(x, name) if layer.gated else _FUNCTIONS[name](x)


def matrix(op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Matrix product over the channels at every position."""
    if op.shape.given.tokens or x.dim() == 2:
        return functional.linear(x, weight, bias)
    return functional.linear(x.movedim(1, -1), weight, bias).movedim(-1, 1)


def rotary(x: Tensor, heads: int, kv_heads: int, width: int, positions: int | Tensor) -> Tensor:
    """Rotary embedding of queries and keys, of tokens from a first number on, or of these numbers.

    `positions` is the number of the first token, or the numbers of tokens that are not one run.
    """
    wide = wide_of(x.dtype)  # bf16 cannot count to 257
    if isinstance(positions, int):
        positions = torch.arange(positions, positions + x.shape[1], dtype=wide, device=x.device)
    positions = positions.to(wide)
    steps = torch.arange(0, width // 2, dtype=wide, device=x.device)
    angle = positions[:, None] * 10000.0 ** (-steps / (width // 2))
    turned, rest = x.split([(heads + kv_heads) * width, kv_heads * width], -1)
    a, b = turned.unflatten(-1, (-1, 2, width // 2)).unbind(-2)
    cos, sin = angle.cos()[:, None].to(x.dtype), angle.sin()[:, None].to(x.dtype)
    rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], -2).flatten(-3)
    return torch.cat([rotated, rest], -1)


def split_heads(op: Operation, x: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values (batch, heads, tokens, width) of all three, side by side."""
    width = op.shape.width
    parts = x.split([heads * width, kv_heads * width, kv_heads * width], -1)
    return tuple(part.unflatten(-1, (-1, width)).transpose(1, 2) for part in parts)


def attention(op: Operation, x: Tensor, heads: int, kv_heads: int) -> Tensor:
    """Softmax(q kᵀ/√w) v; x is queries, keys and values side by side."""
    if op.shape.keys != x.shape[1]:
        raise NotSupported(f"{op.label}: attention over a window")
    return _attend(op, split_heads(op, x, heads, kv_heads), kv_heads != heads)


def cross_attention(op: Operation, queries: Tensor, memory: Tensor) -> Tensor:
    """Softmax(q kᵀ/√w) v; queries of one sequence, keys and values of another."""
    q, k, v = (part.unflatten(-1, (-1, op.shape.width)).transpose(1, 2)
               for part in (queries, *memory.chunk(2, -1)))  # fmt: skip
    return _attend(op, (q, k, v))


def _attend(op: Operation, parts: tuple[Tensor, ...], shared: bool = False) -> Tensor:
    """Attend in one kernel, or with the scores in memory."""
    q, k, v = parts
    if op.shape.flash:
        output = functional.scaled_dot_product_attention(
            q, k, v, is_causal=op.shape.causal, enable_gqa=shared
        )
    else:
        output = _attention_of_scores(q, k, v, op.shape.causal)
    return output.transpose(1, 2).flatten(-2)


def _attention_of_scores(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attend with the scores in memory; queries that share keys are rows of one product."""
    several = q.shape[1] // k.shape[1], q.shape[2]
    if q.shape[1] > 1:  # queries are copied into rows, so the tensor of all three can be freed
        k, v = k.contiguous(), v.contiguous()
    scores = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3) @ k.transpose(-2, -1)
    scores = scores / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(several[1], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.unflatten(2, several).masked_fill(hidden, -math.inf).flatten(2, 3)
    return (scores.softmax(-1) @ v).unflatten(2, several).flatten(1, 2)


def lookup(tokens: Tensor, table: Tensor, first: int = 0, parted: bool = False) -> Tensor:
    """Rows of a table; of one that is `parted`, held from row `first` on, zeros for other rows."""
    if not parted:
        return functional.embedding(tokens, table)
    held_here = (tokens >= first) & (tokens < first + table.shape[0])
    rows = functional.embedding(torch.where(held_here, tokens - first, 0), table)
    return rows * held_here[..., None]


def add_positions(x: Tensor, positions: Tensor, first: int, begin: int) -> Tensor:
    """Add the vectors of positions, from `first` on, to tokens that begin at number `begin`."""
    low, high = max(first, begin), min(first + positions.shape[0], begin + x.shape[1])
    vectors = positions[low - first : max(high, low) - first]
    if vectors.shape[0] == x.shape[1]:
        return x + vectors
    after = x.shape[1] - (low - begin) - vectors.shape[0]
    return x + functional.pad(vectors, (0, 0, low - begin, after))


def reshape(x: Tensor, input_shape: Shape, output_shape: Shape) -> Tensor:
    """The same elements, channels first, under another shape."""
    if input_shape.tokens:
        x = x.movedim(-1, 1)
    x = x.reshape(x.shape[0], output_shape.channels, *output_shape.extents)
    return x.movedim(1, -1) if output_shape.tokens else x


def cross_entropy(x: Tensor, target: Tensor, tokens: bool) -> Tensor:
    """Cross-entropy, summed over samples and positions."""
    if tokens:  # rows of logits lie together; with channels first it takes ten times as long
        x, target = x.flatten(0, -2), target.flatten()
    return functional.cross_entropy(x, target, reduction="sum")


def mean_square(y: Tensor, batch: int) -> Tensor:
    """The loss of a model that ends without one."""
    return (y**2).sum() / (batch * math.prod(y.shape[1:]))


def summed_loss(op: Operation, x: Tensor, target: Tensor) -> Tensor:
    """The loss, summed over samples and positions."""
    name: Any = getattr(op.layer, "op", "cross_entropy")
    if name == "cross_entropy":
        return cross_entropy(x, target, op.shape.given.tokens)
    target = target.to(x.dtype)
    scored = (x - target) ** 2 if name == "mse" else functional.binary_cross_entropy_with_logits(
        x, target, reduction="none"
    )  # fmt: skip
    return scored.sum() / op.shape.given.channels
