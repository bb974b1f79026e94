"""The kind of each torch operation in a traced graph, by the name it is dispatched under."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from oracle.readers.graph import TracedGraph, short


class Tracer(Protocol):
    """The part of a tracer that operations use."""

    graph: TracedGraph
    triangles: set[int]  # masks that are causal

    def feed(self, tensor: torch.Tensor) -> int:
        """Return the operation that made a tensor."""

    def weights(self, tensors: list[torch.Tensor]) -> frozenset[str]:
        """Return the names of the parameters that tensors hold."""


BATCH = 7  # samples traced: a number that no layer has by accident
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
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
    """Return the identity of a tensor's storage, which views share."""
    return int(tensor.untyped_storage()._cdata)


@dataclass(frozen=True, slots=True)
class TorchCall:
    """One call of an operation, and its tensors."""

    args: Sequence[Any]
    out: Any
    inputs: list[torch.Tensor]  # that depend on the sample
    parameters: list[torch.Tensor]


Noted = tuple[Any, ...]  # kind, fields, and perhaps the operations read, if not every input
Method = Callable[[Tracer, TorchCall], Noted]
METHODS: dict[str, Method] = {}


def _noted(*names: str) -> Callable[[Method], Method]:
    def remember(function: Method) -> Method:
        METHODS.update(dict.fromkeys(names, function))
        return function

    return remember


@_noted("convolution", "convolution_overrideable")
def _convolution(tracer: Tracer, call: TorchCall) -> Noted:
    _x, weight, bias, stride, padding, dilation, transposed, extra, groups = call.args[:9]
    fields: dict[str, Any] = {
        "filters": call.out.shape[1], "kernel": short(weight.shape[2:]), "stride": short(stride),
        "padding": short(padding), "groups": groups, "bias": bias is not None,
        "made": list(call.out.shape[1:]),
    }  # fmt: skip
    if transposed:
        if any(d != 1 for d in dilation):
            return "opaque", {}
        return "deconv", {**fields, "output_padding": short(extra)}
    return "conv", {**fields, "dilation": short(dilation)}


@_noted("addmm", "mm", "linear", "matmul", "bmm", "baddbmm", "_addmm_activation")
def _matrix(tracer: Tracer, call: TorchCall) -> Noted:
    if not call.parameters:
        if len(call.inputs) < 2:
            return "opaque", {}
        q, k = call.inputs[-2:]
        fields = {"heads": math.prod(q.shape[:-2]) // BATCH or 1, "width": q.shape[-1]}
        return "product", fields, [tracer.feed(q), tracer.feed(k)]
    rows, filters = call.out.shape[0], call.out.shape[-1]
    bias = any(t.dim() == 1 or (t.dim() == 2 and t.shape[0] == 1 < rows) for t in call.parameters)
    return "dense", {"filters": filters, "channels": call.inputs[0].shape[-1], "bias": bias}


@_noted("max_pool1d", "max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d",
        "avg_pool1d", "avg_pool2d", "avg_pool3d")  # fmt: skip
def _pooling(tracer: Tracer, call: TorchCall) -> Noted:
    args, mean = call.args, not isinstance(call.out, tuple)  # a maximum returns its places too
    output = call.out if mean else call.out[0]
    x, kernel = args[0], list(args[1])
    rank = len(kernel)
    stride = list(args[2]) if len(args) > 2 and args[2] else kernel
    padding = list(args[3]) if len(args) > 3 else [0]
    ceil = bool(args[4 if mean else 5]) if len(args) > (4 if mean else 5) else False
    padding = padding * (rank // len(padding))
    sizes = zip(x.shape[2:], kernel, stride, padding, strict=True)
    floored = [(n + 2 * p - k) // s + 1 for n, k, s, p in sizes]
    fields = {"kernel": short(kernel), "made": list(output.shape[2:])}
    if stride != kernel:
        fields["stride"] = short(stride)
    if any(padding):
        fields["padding"] = short(padding)
    if ceil and floored != list(output.shape[2:]):
        fields["ceil"] = True
    if mean:
        fields["op"] = "mean"
    return "pool", fields


@_noted(
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"
)
def _adaptive(tracer: Tracer, call: TorchCall) -> Noted:
    output = call.out[0] if isinstance(call.out, tuple) else call.out
    before, after = list(call.args[0].shape[2:]), list(output.shape[2:])
    op = {} if isinstance(call.out, tuple) else {"op": "mean"}
    if any(b % a for b, a in zip(before, after, strict=True)):
        return "opaque", {}
    kernel = [b // a for b, a in zip(before, after, strict=True)]
    is_global = all(a == 1 for a in after)
    return "pool", {"kernel": "global" if is_global else short(kernel), **op, "made": after}


@_noted("mean", "amax", "sum")
def _mean(tracer: Tracer, call: TorchCall) -> Noted:
    return "mean", {"op": "mean", "size": call.out.numel()}


@_noted("rsqrt", "sqrt", "erf", "pow", "rsub", "reciprocal", "neg", "sub", "div", "exp", "cos",
        "sin", "square")  # fmt: skip
def _light(tracer: Tracer, call: TorchCall) -> Noted:
    return "pass", {}


@_noted("mul", "mul_")
def _multiply(tracer: Tracer, call: TorchCall) -> Noted:
    if call.parameters:
        wide = max(call.parameters, key=torch.Tensor.numel)
        if wide.numel() == wide.shape[-1] and len(call.inputs) == 1:
            return "norm", {"op": "rms"}, [tracer.feed(call.inputs[0])]
        return "opaque", {}
    ops = tracer.graph.ops
    noise = [t for t in call.inputs if (i := tracer.graph.root(tracer.feed(t))) >= 0
             and ops[i].kind == "noise"]  # fmt: skip
    if noise and len(call.inputs) > 1:
        rate = ops[tracer.graph.root(tracer.feed(noise[0]))].fields["rate"]
        return "dropout", {"rate": rate}, [tracer.feed(t) for t in call.inputs if t is not noise[0]]
    if len(call.inputs) > 1 or _tensors(call.args) > 1:
        return "multiply", {}
    return "pass", {"op": "scale"}


def _tensors(args: Sequence[Any]) -> int:
    return sum(isinstance(t, torch.Tensor) and t.dim() > 0 for t in args)


@_noted("add", "add_")
def _sum(tracer: Tracer, call: TorchCall) -> Noted:
    if call.parameters:
        wide = max(call.parameters, key=torch.Tensor.numel)
        if wide.numel() > wide.shape[-1] and wide.shape[-1] > 1 and call.out.dim() == 3:
            return "position", {}
        source = tracer.graph.root(tracer.feed(call.inputs[0]))
        vector = wide.numel() == wide.shape[-1] == call.out.shape[-1]
        op = tracer.graph.ops[source]
        if source >= 0 and op.kind == "dense" and vector and not op.fields["bias"]:
            op.fields["bias"], op.weights = True, op.weights | tracer.weights(call.parameters)
            return "view", {}
        return "opaque", {}
    if len(call.inputs) > 1 and call.inputs[0].shape == call.inputs[1].shape:
        return "add", {}
    kinds = {tracer.graph.ops[i].kind for i in map(tracer.feed, call.inputs) if i >= 0}
    if len(call.inputs) > 1 and kinds <= {"embedding", "table", "add"}:
        return "add", {}
    masked = any(isinstance(t, torch.Tensor) and key(t) in tracer.triangles for t in call.args)
    return "pass", {"op": "masked", "causal": True} if masked else {}


@_noted("masked_fill", "masked_fill_", "where")
def _mask(tracer: Tracer, call: TorchCall) -> Noted:
    return "pass", {"op": "masked", "causal": any(
        isinstance(t, torch.Tensor) and key(t) in tracer.triangles for t in call.args)}  # fmt: skip


@_noted("cat")
def _cat(tracer: Tracer, call: TorchCall) -> Noted:
    axis = call.args[1] if len(call.args) > 1 else 0
    x = call.inputs[0]
    if call.parameters:  # class tokens: the position table that follows knows them
        return "pass", {"op": "tokens", "extra": call.out.shape[1] - x.shape[1]}
    if axis % x.dim() in (1, x.dim() - 1):
        return "concat", {}
    return "pass", {"op": "cat"}


@_noted("embedding")
def _lookup(tracer: Tracer, call: TorchCall) -> Noted:
    return "embedding", {"vocab": call.args[0].shape[0], "hidden": call.args[0].shape[1]}


@_noted("bernoulli_")
def _noise(tracer: Tracer, call: TorchCall) -> Noted:
    return "noise", {"rate": round(1 - float(call.args[1]), 6) if len(call.args) > 1 else 0.5}, []


@_noted("native_dropout", "dropout")
def _dropped(tracer: Tracer, call: TorchCall) -> Noted:
    rate = float(call.args[1]) if len(call.args) > 1 else 0.1
    return ("dropout", {"rate": rate}) if rate else ("pass", {})


@_noted("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
        "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact2d")  # fmt: skip
def _upsampled(tracer: Tracer, call: TorchCall) -> Noted:
    return "upsample", {"to": list(call.out.shape[2:])}
