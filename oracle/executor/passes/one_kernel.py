"""Functions of several operations that keep what a fused kernel would keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

FORWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu,
}  # fmt: skip

_ATEN = torch.ops.aten
_OUT: dict[str, Callable[..., Tensor]] = {
    "silu": _ATEN.silu.out, "gelu": _ATEN.gelu.out, "relu": _ATEN.relu.out,
}  # fmt: skip
_BACK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # gradients times f'(x), in place
    "silu": lambda g, x: _ATEN.silu_backward.grad_input(g, x, grad_input=g),
    "gelu": lambda g, x: _ATEN.gelu_backward.grad_input(g, x, grad_input=g),
    "relu": lambda g, x: _ATEN.threshold_backward.grad_input(g, x, 0, grad_input=g),
}


class RmsNorm(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """x/√(mean x² + ε) · w, keeping x and the roots for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        root = (x * x).mean(-1, keepdim=True).add_(1e-5).rsqrt_()
        ctx.save_for_backward(x, weight, root)
        return (x * root).mul_(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, root = ctx.saved_tensors
        even = x * root
        of_weight = (gradient * even).sum(tuple(range(x.dim() - 1)))
        weighed = gradient * weight
        share = (weighed * even).mean(-1, keepdim=True)
        return weighed.sub_(even.mul_(share)).mul_(root), of_weight


class Gate(torch.autograd.Function):  # type: ignore[misc]
    """f(a) · b of the two halves of a tensor, which alone are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str) -> Tensor:
        ctx.save_for_backward(x)
        ctx.name = name
        weighed, multiplied = x.chunk(2, -1)
        return FORWARD[name](weighed).mul_(multiplied)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        weighed, multiplied = x.chunk(2, -1)
        gradients = torch.empty_like(x)
        of_weighed, of_multiplied = gradients.chunk(2, -1)
        _OUT[ctx.name](weighed, out=of_multiplied).mul_(gradient)
        torch.mul(gradient, multiplied, out=of_weighed)
        _BACK[ctx.name](of_weighed, weighed)
        return gradients, None


class LeakyRelu(torch.autograd.Function):  # type: ignore[misc]
    """A leaky ReLU that keeps what it makes, as if done in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = functional.leaky_relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.leaky_relu_backward(gradient, y, 0.01, True)
