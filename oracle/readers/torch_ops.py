"""What each operation of torch is in a graph of layers, by the name it is dispatched under."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from oracle.readers.graph import Graph, short


class Tape(Protocol):
    """What an operation may ask of the tape that writes it down."""

    graph: Graph
    triangles: set[int]  # masks that are causal
    strange: set[str]

    def feed(self, tensor: torch.Tensor) -> int:
        """The operation that made a tensor."""

    def weights(self, *tensors: Any) -> Any: ...


BATCH = 7  # samples traced: a number that no layer has by accident
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell")
UNARY = {
    "relu": "relu", "relu_": "relu", "leaky_relu": "leaky_relu", "leaky_relu_": "leaky_relu",
    "gelu": "gelu", "silu": "silu", "silu_": "silu", "tanh": "tanh", "tanh_": "tanh",
    "sigmoid": "sigmoid", "sigmoid_": "sigmoid", "_softmax": "softmax", "softmax": "softmax",
    "_safe_softmax": "softmax",
    "hardtanh": "relu", "hardtanh_": "relu", "relu6": "relu", "hardswish": "swish",
    "hardswish_": "swish", "hardsigmoid": "sigmoid", "hardsigmoid_": "sigmoid", "elu": "silu",
    "elu_": "silu", "mish": "silu", "mish_": "silu", "_log_softmax": "softmax", "celu": "silu",
    "log_sigmoid_forward": "sigmoid", "softplus": "silu", "_prelu_kernel": "leaky_relu",
}  # fmt: skip
NORMS = {
    "native_batch_norm": "batch", "_native_batch_norm_legit": "batch", "cudnn_batch_norm": "batch",
    "_batch_norm_with_update": "batch", "native_layer_norm": "layer", "rms_norm": "rms",
    "_fused_rms_norm": "rms", "native_group_norm": "group", "_native_batch_norm_legit_no_training":
    "batch", "_batch_norm_no_update": "batch", "batch_norm_update_stats": "batch",
}  # fmt: skip


def key(tensor: torch.Tensor) -> int:
    """What tells storages apart: views share it."""
    return int(tensor.untyped_storage()._cdata)


Row = tuple[Any, ...]
METHODS: dict[str, Callable[..., Row]] = {}


def _noted(*names: str) -> Callable[[Callable[..., Row]], Callable[..., Row]]:
    def remember(function: Callable[..., Row]) -> Callable[..., Row]:
        METHODS.update(dict.fromkeys(names, function))
        return function

    return remember


@_noted("convolution", "convolution_overrideable")
def _convolution(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    _x, weight, bias, stride, padding, dilation, transposed, extra, groups = args[:9]
    fields: dict[str, Any] = {
        "filters": out.shape[1], "kernel": short(weight.shape[2:]), "stride": short(stride),
        "padding": short(padding), "groups": groups, "bias": bias is not None,
        "made": list(out.shape[1:]),
    }  # fmt: skip
    if transposed:
        if any(d != 1 for d in dilation):
            raise tape.graph.stop("a transposed convolution with holes is no layer kind")
        return "deconv", {**fields, "output_padding": short(extra)}
    return "conv", {**fields, "dilation": short(dilation)}


@_noted("addmm", "mm", "linear", "matmul", "bmm", "baddbmm", "_addmm_activation")
def _matrix(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    if not held:
        if len(moving) < 2:
            return "pass", {"op": "matrix with a constant"}
        q, k = moving[-2:]
        fields = {"heads": math.prod(q.shape[:-2]) // BATCH or 1, "width": q.shape[-1]}
        return "product", fields, [tape.feed(q), tape.feed(k)]
    bias = any(t.dim() == 1 or (t.dim() == 2 and t.shape[0] == 1 < out.shape[0]) for t in held)
    x = moving[0]
    return "dense", {"filters": out.shape[-1], "channels": x.shape[-1], "bias": bias}


@_noted("max_pool1d", "max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d",
        "avg_pool1d", "avg_pool2d", "avg_pool3d")  # fmt: skip
def _pooling(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    made = out[0] if isinstance(out, tuple) else out
    x, kernel = args[0], list(args[1])
    rank = len(kernel)
    stride = list(args[2]) if len(args) > 2 and args[2] else kernel
    padding = list(args[3]) if len(args) > 3 else [0]
    mean = not isinstance(out, tuple)
    ceil = bool((args[4] if mean else args[5]) if len(args) > (4 if mean else 5) else False)
    padding = padding * (rank // len(padding))
    sizes = zip(x.shape[2:], kernel, stride, padding, strict=True)
    floored = [(n + 2 * p - k) // s + 1 for n, k, s, p in sizes]
    fields = {"kernel": short(kernel), "made": list(made.shape[2:])}
    if stride != kernel:
        fields["stride"] = short(stride)
    if any(padding):
        fields["padding"] = short(padding)
    if ceil and floored != list(made.shape[2:]):
        fields["ceil"] = True
    if mean:
        fields["op"] = "mean"
    return "pool", fields


@_noted(
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"
)
def _adaptive(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    made = out[0] if isinstance(out, tuple) else out
    before, after = list(args[0].shape[2:]), list(made.shape[2:])
    op = {} if isinstance(out, tuple) else {"op": "mean"}
    if any(b % a for b, a in zip(before, after, strict=True)):
        raise tape.graph.stop(f"pooling of {before} to {after} is no layer kind")
    kernel = [b // a for b, a in zip(before, after, strict=True)]
    whole = all(a == 1 for a in after)
    return "pool", {"kernel": "global" if whole else short(kernel), **op, "made": after}


@_noted("mean", "amax", "sum")
def _mean(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "mean", {"op": "mean", "size": out.numel()}


@_noted("rsqrt", "sqrt", "erf", "pow", "rsub", "reciprocal", "neg", "sub", "div", "exp", "cos",
        "sin", "square")  # fmt: skip
def _light(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "pass", {}


@_noted("mul", "mul_")
def _multiply(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    if held:
        wide = max(held, key=torch.Tensor.numel)
        if wide.numel() == wide.shape[-1]:
            return "norm", {"op": "rms"}, [tape.feed(moving[0])]
        tape.strange.add("parameters that multiply")
    ops = tape.graph.ops
    noise = [t for t in moving if (i := tape.graph.root(tape.feed(t))) >= 0
             and ops[i].kind == "noise"]  # fmt: skip
    if noise and len(moving) > 1:
        rate = ops[tape.graph.root(tape.feed(noise[0]))].fields["rate"]
        return "dropout", {"rate": rate}, [tape.feed(t) for t in moving if t is not noise[0]]
    if len(moving) > 1 or _tensors(args) > 1:
        return "multiply", {}
    return "pass", {"op": "scale"}


def _tensors(args: Any) -> int:
    return sum(isinstance(t, torch.Tensor) and t.dim() > 0 for t in args)


@_noted("add", "add_")
def _sum(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    if held:
        wide = max(held, key=torch.Tensor.numel)
        if wide.numel() > wide.shape[-1]:
            return "position", {}
        made = tape.graph.root(tape.feed(moving[0]))
        if made >= 0 and tape.graph.ops[made].kind == "dense":
            op = tape.graph.ops[made]
            op.fields["bias"], op.weights = True, op.weights | tape.weights(held)
        else:
            tape.strange.add("a parameter that is added to channels")
        return "pass", {}
    if len(moving) > 1 and moving[0].shape == moving[1].shape:
        return "add", {}
    if len(moving) > 1 and {tape.graph.ops[i].kind for i in map(tape.feed, moving) if i >= 0} <= {
        "embedding", "table", "add"
    }:  # fmt: skip
        return "add", {}
    masked = any(isinstance(t, torch.Tensor) and key(t) in tape.triangles for t in args)
    return "pass", {"op": "masked", "causal": True} if masked else {}


@_noted("masked_fill", "masked_fill_", "where")
def _mask(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "pass", {"op": "masked", "causal": any(
        isinstance(t, torch.Tensor) and key(t) in tape.triangles for t in args)}  # fmt: skip


@_noted("cat")
def _cat(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    axis = args[1] if len(args) > 1 else 0
    x = moving[0]
    if held:  # class tokens: the position table that follows knows them
        return "pass", {"op": "tokens", "extra": out.shape[1] - x.shape[1]}
    if axis % x.dim() in (1, x.dim() - 1):
        return "concat", {}
    return "pass", {"op": "cat"}


@_noted("embedding")
def _lookup(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "embedding", {"vocab": args[0].shape[0], "hidden": args[0].shape[1]}


@_noted("bernoulli_")
def _noise(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "noise", {"rate": round(1 - float(args[1]), 6) if len(args) > 1 else 0.5}, []


@_noted("native_dropout", "dropout")
def _dropped(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    rate = float(args[1]) if len(args) > 1 else 0.1
    return ("dropout", {"rate": rate}) if rate else ("pass", {})


@_noted("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
        "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact2d")  # fmt: skip
def _upsampled(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "upsample", {"to": list(out.shape[2:])}
