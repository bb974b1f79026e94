"""Kernels as torch runs them in a step, and their seconds: what is made is made anew each time.

Inputs are dealt from several copies, as many as exceed the largest cache twice where eight do:
a step rarely finds its tensors in a cache. Small kernels are timed several in a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oracle.executor.kernel_shapes import PASSES, Shape, Wanted

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
COPIES = 8  # of the inputs, at most
AT_LEAST = 2e-4  # seconds of a timing, by calls in a row
REPEATS = (3, 15)  # of a timing, fewest and most
Call = Callable[[], Any]


class Tensors:
    """Makes random tensors by copying one: drawing each takes longer than the kernel."""

    def __init__(self, device: Any, cache: float) -> None:
        import torch

        self.device, self.cache = device, cache
        self.base = torch.randn(2**20, generator=torch.Generator().manual_seed(1)).to(device)

    def __call__(self, precision: str, *shape: int) -> Tensor:
        """A tensor of a shape."""
        import math

        count = math.prod(shape)
        whole = self.base.repeat(-(-count // self.base.numel()))[:count]
        import torch

        return whole.to(getattr(torch, DTYPES[precision])).reshape(shape)

    def copies(self, made: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """The same inputs several times over in memory."""
        nbytes = sum(each.numel() * each.element_size() for each in made)
        more = min(COPIES, int(2 * self.cache / max(nbytes, 1)) + 1) - 1
        return [made, *(tuple(each.detach().clone() for each in made) for _ in range(more))]


def call(wanted: Wanted, tensors: Tensors) -> Call:
    """A function that runs the kernel once."""
    run, inputs = MAKE[wanted.family](wanted, tensors)
    dealt, at = tensors.copies(inputs), 0
    if wanted.part == "backward":
        dealt = [_graph(run, each) for each in dealt]
        run = _differentiated

    def once() -> Any:
        nonlocal at
        at = (at + 1) % len(dealt)
        return run(*dealt[at])

    return once


def _graph(run: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """What is made of inputs that want gradients, these, and a gradient that is of memory."""
    import torch

    inputs = tuple(each.requires_grad_() for each in inputs)
    with torch.enable_grad():
        made = run(*inputs)
    return made, inputs, torch.ones_like(made)


def _differentiated(made: Tensor, inputs: tuple[Tensor, ...], back: Tensor) -> Any:
    import torch

    return torch.autograd.grad(made, inputs, back, retain_graph=True)


Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _gemm(wanted: Wanted, tensors: Tensors) -> Made:
    """A dense layer's three products turn one of their factors, or none."""
    m, n, k, _ = wanted.shape
    turn = (m // 8 + n // 8) % 3
    a = tensors(wanted.precision, k, m) if turn == 2 else tensors(wanted.precision, m, k)
    b = tensors(wanted.precision, n, k) if turn == 1 else tensors(wanted.precision, k, n)
    import torch

    return lambda a, b: torch.mm(a.t() if turn == 2 else a, b.t() if turn == 1 else b), (a, b)


def _conv(wanted: Wanted, tensors: Tensors) -> Made:
    import torch

    planes = wanted.family == "conv"
    batch, channels, filters = wanted.shape[:3]
    out, window, stride = (list(wanted.shape[at + planes : at + 3]) for at in (3, 6, 9))
    pad = [side // 2 for side in window]
    seen = [(o - 1) * s + w - 2 * p for o, s, w, p in zip(out, stride, window, pad, strict=True)]
    seen = [max(1, extent) for extent in seen]
    x = tensors(wanted.precision, batch, channels, *seen)
    w = tensors(wanted.precision, filters, channels, *window)
    one, none = [1] * len(out), [0] * len(out)
    if wanted.part == "forward":
        return lambda x, w: torch.ops.aten.convolution(
            x, w, None, stride, pad, one, False, none, 1
        ), (x, w)
    mask = [wanted.part == "data", wanted.part == "weight", False]
    g = tensors(wanted.precision, batch, filters, *out)
    return lambda g, x, w: torch.ops.aten.convolution_backward(
        g, x, w, None, stride, pad, one, False, none, 1, mask
    ), (g, x, w)


def _attention(wanted: Wanted, tensors: Tensors) -> Made:
    import torch

    batch, heads, _, queries, keys, width, causal = wanted.shape
    function = torch.nn.functional.scaled_dot_product_attention
    q = tensors(wanted.precision, batch, heads, queries, width)
    k, v = (tensors(wanted.precision, batch, heads, keys, width) for _ in range(2))
    return lambda q, k, v: function(q, k, v, is_causal=bool(causal)), (q, k, v)


def _stream(wanted: Wanted, tensors: Tensors) -> Made:
    import torch

    return torch.relu, (tensors(wanted.precision, max(1, wanted.shape[0] // 8)),)


def norm_input(shape: Shape, part: str = "forward") -> Shape:
    """Samples, channels and points of a batch norm of these bytes, elements and blocks."""
    _, elements, channels = shape
    return 1, channels, elements // PASSES["norm"][part == "backward"] // channels


def _norm(wanted: Wanted, tensors: Tensors) -> Made:
    import torch

    _, channels, points = norm_input(wanted.shape, wanted.part)
    batch = next((n for n in (64, 32, 16, 8, 4, 2) if points % n == 0), 1)
    x = tensors(wanted.precision, batch, channels, points // batch)
    w = tensors(wanted.precision, channels)
    norm = torch.nn.functional.batch_norm
    return lambda x, w: norm(x, None, None, w, w, training=True), (x, w)


def _pool(wanted: Wanted, tensors: Tensors) -> Made:
    import torch

    _, elements, blocks = wanted.shape
    side = round((elements / blocks / 1.25) ** 0.5)
    x = tensors(wanted.precision, 1, blocks, side, side)
    return lambda x: torch.nn.functional.max_pool2d(x, 2), (x,)


MAKE: dict[str, Callable[[Wanted, Tensors], Made]] = {
    "gemm": _gemm, "conv": _conv, "conv3d": _conv, "attention": _attention, "stream": _stream,
    "norm": _norm, "pool": _pool,
}  # fmt: skip


def seconds(
    once: Call, longest: float, wait: Call = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:  # fmt: skip
    """Seconds of a call, several times over: after one that warms up, several in a row.

    One that takes much longer than `longest` is timed once.
    """

    def timed(calls: int) -> float:
        wait()
        began = clock()
        for _ in range(calls):
            once()
        wait()
        return (clock() - began) / calls

    timed(1)
    first = timed(1)
    if first > 3 * longest:
        return [first]
    calls = max(1, round(AT_LEAST / max(first, 1e-7)))
    few, many = REPEATS
    count = max(few, min(many, int(6 * longest / max(first * calls, 1e-9))))
    return [timed(calls) for _ in range(count)]


def undisturbed(each: list[float]) -> float:
    """The lower quartile: what others do meanwhile is no part of what a device can do."""
    return sorted(each)[len(each) // 4]
