"""Runs kernels as torch runs them in a step, and times them.

Inputs are dealt from several copies, as many as exceed the largest cache twice where eight do:
a step rarely finds its tensors in a cache. Small kernels are timed several in a row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oracle.executor.measure.kernel_shapes import PASSES, Shape, Wanted

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
COPIES = 8  # copies of the inputs, at most
AT_LEAST = 2e-4  # seconds of a timing, by calls in a row
REPEATS = (3, 15)  # repeats of a timing, fewest and most
Call = Callable[[], Any]


class Tensors:
    """Makes random tensors by copying one: drawing each takes longer than the kernel."""

    def __init__(self, device: Any, cache: float) -> None:
        import torch

        self.device, self.cache = device, cache
        self.base = torch.randn(2**20, generator=torch.Generator().manual_seed(1)).to(device)

    def __call__(self, precision: str, *shape: int) -> Tensor:
        """A tensor of a shape."""
        import torch

        count = math.prod(shape)
        values = self.base.repeat(-(-count // self.base.numel()))[:count]
        return values.to(getattr(torch, DTYPES[precision])).reshape(shape)

    def copies(self, inputs: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """The same inputs several times over in memory."""
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
        extra = min(COPIES, int(2 * self.cache / max(nbytes, 1)) + 1) - 1
        copies = (tuple(tensor.detach().clone() for tensor in inputs) for _ in range(extra))
        return [inputs, *copies]


def call(kernel: Wanted, tensors: Tensors) -> Call:
    """A function that runs the kernel once."""
    run, inputs = MAKE[kernel.family](kernel, tensors)
    dealt, turn = tensors.copies(inputs), 0
    if kernel.part == "backward":
        dealt = [_graph(run, inputs_copy) for inputs_copy in dealt]
        run = _differentiated

    def once() -> Any:
        nonlocal turn
        turn = (turn + 1) % len(dealt)
        return run(*dealt[turn])

    return once


def _graph(run: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """The output of a run, the inputs that want gradients, and a gradient in memory of its own."""
    import torch

    inputs = tuple(tensor.requires_grad_() for tensor in inputs)
    with torch.enable_grad():
        output = run(*inputs)
    return output, inputs, torch.ones_like(output)


def _differentiated(output: Tensor, inputs: tuple[Tensor, ...], gradient: Tensor) -> Any:
    import torch

    return torch.autograd.grad(output, inputs, gradient, retain_graph=True)


Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _gemm(kernel: Wanted, tensors: Tensors) -> Made:
    """A matrix product with one factor, or none, transposed, as a dense layer's three are."""
    m, n, k, _ = kernel.shape
    turn = (m // 8 + n // 8) % 3
    a = tensors(kernel.precision, k, m) if turn == 2 else tensors(kernel.precision, m, k)
    b = tensors(kernel.precision, n, k) if turn == 1 else tensors(kernel.precision, k, n)
    import torch

    return lambda a, b: torch.mm(a.t() if turn == 2 else a, b.t() if turn == 1 else b), (a, b)


def _conv(kernel: Wanted, tensors: Tensors) -> Made:
    import torch

    planes = kernel.family == "conv"
    batch, channels, filters = kernel.shape[:3]
    out, window, stride = (list(kernel.shape[first + planes : first + 3]) for first in (3, 6, 9))
    pad = [side // 2 for side in window]
    sides = zip(out, stride, window, pad, strict=True)
    inputs = [max(1, (o - 1) * s + w - 2 * p) for o, s, w, p in sides]
    x = tensors(kernel.precision, batch, channels, *inputs)
    w = tensors(kernel.precision, filters, channels, *window)
    ones, zeros = [1] * len(out), [0] * len(out)
    if kernel.part == "forward":
        return lambda x, w: torch.ops.aten.convolution(
            x, w, None, stride, pad, ones, False, zeros, 1
        ), (x, w)
    mask = [kernel.part == "data", kernel.part == "weight", False]
    g = tensors(kernel.precision, batch, filters, *out)
    return lambda g, x, w: torch.ops.aten.convolution_backward(
        g, x, w, None, stride, pad, ones, False, zeros, 1, mask
    ), (g, x, w)


def _attention(kernel: Wanted, tensors: Tensors) -> Made:
    import torch

    batch, heads, _, queries, keys, width, causal = kernel.shape
    function = torch.nn.functional.scaled_dot_product_attention
    q = tensors(kernel.precision, batch, heads, queries, width)
    k, v = (tensors(kernel.precision, batch, heads, keys, width) for _ in range(2))
    return lambda q, k, v: function(q, k, v, is_causal=bool(causal)), (q, k, v)


def _stream(kernel: Wanted, tensors: Tensors) -> Made:
    import torch

    return torch.relu, (tensors(kernel.precision, max(1, kernel.shape[0] // 8)),)


def norm_input(shape: Shape, part: str = "forward") -> Shape:
    """(samples, channels, points) of a batch norm of these bytes, elements and blocks."""
    _, elements, channels = shape
    return 1, channels, elements // PASSES["norm"][part == "backward"] // channels


def _norm(kernel: Wanted, tensors: Tensors) -> Made:
    import torch

    _, channels, points = norm_input(kernel.shape, kernel.part)
    batch = next((n for n in (64, 32, 16, 8, 4, 2) if points % n == 0), 1)
    x = tensors(kernel.precision, batch, channels, points // batch)
    w = tensors(kernel.precision, channels)
    norm = torch.nn.functional.batch_norm
    return lambda x, w: norm(x, None, None, w, w, training=True), (x, w)


def _pool(kernel: Wanted, tensors: Tensors) -> Made:
    import torch

    _, elements, blocks = kernel.shape
    side = round((elements / blocks / 1.25) ** 0.5)
    x = tensors(kernel.precision, 1, blocks, side, side)
    return lambda x: torch.nn.functional.max_pool2d(x, 2), (x,)


MAKE: dict[str, Callable[[Wanted, Tensors], Made]] = {
    "gemm": _gemm, "conv": _conv, "conv3d": _conv, "attention": _attention, "stream": _stream,
    "norm": _norm, "pool": _pool,
}  # fmt: skip


def seconds(
    once: Call, longest: float, wait: Call = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:  # fmt: skip
    """Seconds of a call, timed several times after one that warms up.

    A call that takes much longer than `longest` is timed once.
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
    fewest, repeats_limit = REPEATS
    count = max(fewest, min(repeats_limit, int(6 * longest / max(first * calls, 1e-9))))
    return [timed(calls) for _ in range(count)]


def undisturbed(seconds: list[float]) -> float:
    """The lower quartile: what others do meanwhile is not the device's time."""
    return sorted(seconds)[len(seconds) // 4]
