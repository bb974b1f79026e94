"""A model spec from a torch `nn.Module`: built and run on the meta device, where nothing weighs.

The module is found by import path, which runs its owner's code: only with `trust=True`. Every
operation of one forward pass is noted below autograd, so functional sums and concatenations
count like modules do.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from oracle.document import Fault, Place, SpecError, suggest
from oracle.readers.graph import INPUT, Graph, Op, Shape, _short
from oracle.readers.huggingface import Imported
from oracle.readers.network import plain_name

BATCH = 7  # samples traced: a number that no layer has by accident
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell")
UNARY = {
    "relu": "relu", "relu_": "relu", "leaky_relu": "leaky_relu", "leaky_relu_": "leaky_relu",
    "gelu": "gelu", "silu": "silu", "silu_": "silu", "tanh": "tanh", "tanh_": "tanh",
    "sigmoid": "sigmoid", "sigmoid_": "sigmoid", "_softmax": "softmax", "softmax": "softmax", "_safe_softmax": "softmax",
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


def read(
    path: str, sample: Sequence[int] = (3, 224, 224), *, tokens: bool = False, trust: bool = False,
    name: str = "",
) -> Imported:  # fmt: skip
    """The spec of `package.module:factory`, given the shape of one sample.

    A module of words takes `tokens=True` and the length of a sequence as its sample.
    """
    if not trust:
        what = f"`{path}` is code: to build the model is to run it"
        raise _stop(path, "E107", what, "say --trust-code if you know where it comes from")
    factory = _found(path)
    try:
        with torch.device("meta"):
            module = factory if isinstance(factory, torch.nn.Module) else factory()
    except Exception as error:  # somebody else's code: anything may come
        raise _stop(path, "E110", f"building it failed: {_said(error)}") from None
    if not isinstance(module, torch.nn.Module):
        what = f"it made a {type(module).__name__}, not an nn.Module"
        raise _stop(path, "E110", what, "name a class, or a function without arguments")
    return convert(module, sample, tokens=tokens, name=name or path.rpartition(":")[2])


def _found(path: str) -> Any:
    where, colon, what = path.partition(":")
    if not colon or not all(part.isidentifier() for part in [*where.split("."), *what.split(".")]):
        raise _stop(path, "E110", "an import path is written `package.module:factory`")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(where)
    except Exception as error:  # somebody else's code: anything may come
        raise _stop(path, "E110", f"importing `{where}` failed: {_said(error)}") from None
    for part in what.split("."):
        if not hasattr(found, part):
            known = [word for word in dir(found) if not word.startswith("_")]
            raise _stop(path, "E110", f"`{where}` has no `{what}`", suggest(part, known, "it has"))
        found = getattr(found, part)
    if not callable(found):
        raise _stop(path, "E110", f"`{what}` can be neither called nor run")
    return found


def convert(
    module: torch.nn.Module, sample: Sequence[int], *, tokens: bool = False, name: str = "torch"
) -> Imported:
    """The spec of a module already built, on whatever device; it is moved to the meta device."""
    module = module.to("meta").train()
    given = (
        torch.zeros((BATCH, *sample), dtype=torch.long, device="meta")
        if tokens
        else torch.zeros((BATCH, *sample), device="meta")
    )
    if tokens:
        one = Shape(1, tuple(sample), False)
    elif len(sample) == 2:  # tokens with their channels last
        one = Shape(sample[1], (sample[0],), True)
    else:
        one = Shape(sample[0], tuple(sample[1:]))
    graph = Graph(name, BATCH, one)
    tape = Tape(graph, module, given)
    try:
        with torch.no_grad(), torch.device("meta"), tape, Fused(tape):
            out = module(given)
    except SpecError:
        raise
    except Exception as error:  # somebody else's code: anything may come
        hint = "a forward pass that looks at values (experts, decoding) cannot be traced"
        raise _stop(name, "E110", f"its forward pass failed: {_said(error)}", hint) from None
    layers = graph.layers(*tape.outputs(out))
    lost = [f"left out: {one}" for one in sorted(tape.strange)]
    spec = {
        "name": plain_name(name, "torch"),
        "source": f"torch {type(module).__name__}, traced on the meta device",
        "input": [one.channels, *one.extents], "layers": layers,
    }  # fmt: skip
    notes = [*graph.notes, *_compared(spec, module), *lost]
    return Imported(spec, tuple(dict.fromkeys(notes)))


def _compared(spec: dict[str, Any], module: torch.nn.Module) -> list[str]:
    """What the spec's parameters differ by, said where they do."""
    from oracle.models import model

    have = sum({id(p): p.numel() for p in module.parameters()}.values())
    found = model(spec).parameters
    if found == have:
        return []
    share = abs(found - have) / max(have, 1)
    return [f"{found:.0f} parameters, the module has {have} ({share:.3%} apart)"]


def _stop(path: str, code: str, what: str, hint: str = "") -> SpecError:
    return SpecError(path, [Fault(code, what, Place(), hint)])


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class Fused(TorchFunctionMode):
    """Notes fused attention as one call, before it is taken apart."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in RECURRENT:
            what = f"`{func.__name__}` is no layer kind"
            raise self.tape.graph.stop(what, "recurrent networks are not described")
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v = (args[i] if i < len(args) else kwargs[w]
                   for i, w in enumerate(("query", "key", "value")))  # fmt: skip
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        causal = bool(args[5] if len(args) > 5 else kwargs.get("is_causal", False))
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        self.tape.core(q, k, v, causal or (mask is not None and _key(mask) in self.tape.triangles))
        self.tape.made(out)
        return out


class Tape(TorchDispatchMode):
    """Writes every operation that touches the sample or a parameter to a graph."""

    def __init__(self, graph: Graph, module: torch.nn.Module, given: torch.Tensor) -> None:
        super().__init__()
        self.graph = graph
        self.where: dict[int, int] = {_key(given): INPUT}
        self.names: dict[int, frozenset[str]] = {}
        self.triangles: set[int] = set()
        self.strange: set[str] = set()
        self.kept: list[torch.Tensor] = [given]  # storages must not be used again
        for name, parameter in module.named_parameters():
            self.names.setdefault(_key(parameter), frozenset((name,)))
        for name, buffer in module.named_buffers():
            low, square = name.lower(), buffer.dim() >= 2 and buffer.shape[-1] == buffer.shape[-2]
            if square and (buffer.dtype == torch.bool or "mask" in low or low.endswith("bias")):
                self.triangles.add(_key(buffer))

    def outputs(self, out: Any) -> list[int]:
        """The operations that made the tensors of the module's output."""
        plain = out.to_tuple() if hasattr(out, "to_tuple") else out
        found = [
            self.where[_key(t)]
            for t in tree_flatten(plain)[0]
            if isinstance(t, torch.Tensor) and t.is_floating_point() and _key(t) in self.where
        ]
        if not found:
            raise self.graph.stop("the output is no tensor that depends on the input")
        return found

    def made(self, out: Any) -> None:
        """The last operation noted made these tensors."""
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.where[_key(tensor)] = len(self.graph.ops) - 1
                self.kept.append(tensor)

    def feed(self, tensor: torch.Tensor) -> int:
        return self.where[_key(tensor)]

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> None:
        heads = math.prod(q.shape[:-2]) // BATCH
        fields = {"heads": heads, "width": q.shape[-1], "causal": causal, "flash": True}
        self.graph.put(Op("core", [self.feed(t) for t in (q, k, v)], tuple(q.shape), fields))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and self._answered(args[0]):
            return True
        out = func(*args, **kwargs)
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        name = func._schema.name.partition("::")[2]
        moving = [t for t in tensors if _key(t) in self.where]
        held = [t for t in tensors if _key(t) in self.names]
        results = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        if not moving:
            self._constant(name, tensors, held, results, args)
            return out
        before = {_key(t) for t in tensors}
        if results and all(_key(t) in before for t in results) and not name.endswith("_"):
            return out  # a view
        self._note(name, args, kwargs, out, moving, held, results)
        self.made(out)
        return out

    def _answered(self, asked: torch.Tensor) -> bool:
        """Whether a yes-or-no that does not depend on the sample may be taken as yes.

        Such questions guard the common case: no padding, no packed sequences.
        """
        plain = asked.dtype == torch.bool and _key(asked) not in self.where
        if plain:
            self.graph.notes.append("a question about constant values was answered with yes")
        return plain

    def _constant(
        self, name: str, tensors: list[torch.Tensor], held: list[torch.Tensor],
        results: list[torch.Tensor], args: Any,
    ) -> None:  # fmt: skip
        """Parameters remade, tables looked up at constant places, triangles."""
        if name == "embedding" and held:
            fields = {"vocab": args[0].shape[0], "hidden": args[0].shape[1]}
            self.graph.put(Op("table", [], (), fields, self._weights(held)))
            self.made(results[0])
            return
        triangular = name in ("tril", "triu", "tril_", "triu_", "tril_indices", "triu_indices")
        compared = name in ("le", "lt", "ge", "gt") and results[0].dim() >= 2
        for result in results:
            self.kept.append(result)
            if triangular or compared or any(_key(t) in self.triangles for t in tensors):
                self.triangles.add(_key(result))
            if held:
                self.names.setdefault(_key(result), self._weights(held))

    def _weights(self, held: list[torch.Tensor]) -> frozenset[str]:
        return frozenset[str]().union(*(self.names[_key(t)] for t in held))

    def _note(
        self, name: str, args: Any, kwargs: Any, out: Any, moving: list[torch.Tensor],
        held: list[torch.Tensor], results: list[torch.Tensor],
    ) -> None:  # fmt: skip
        feeds = [self.feed(t) for t in moving]
        given = tuple(moving[0].shape)
        weights = self._weights(held)
        if name in UNARY:
            fields: dict[str, Any] = {"op": UNARY[name], "flash": name == "_safe_softmax"}
            self.graph.put(Op("activation", feeds[:1], given, fields, weights))
        elif name in NORMS:
            self._norm(name, args, held, feeds, given, weights)
        elif method := METHODS.get(name):
            op = method(self, args, kwargs, out, moving, held)
            if op[0] == "pass":
                op[1].setdefault("op", name)
            self.graph.put(Op(op[0], op[2] if len(op) > 2 else feeds, given, op[1], weights,
                              op[0] in ("dense", "norm", "position")))  # fmt: skip
        else:
            self._plain(name, feeds, given, weights, moving, held, results)

    def _norm(
        self, name: str, args: Any, held: list[torch.Tensor], feeds: list[int],
        given: tuple[int, ...], weights: frozenset[str],
    ) -> None:  # fmt: skip
        op = NORMS[name]
        fields: dict[str, Any] = {"op": op}
        vectors = len(held)
        if not vectors:
            fields["affine"] = False
        elif (vectors == 2) != (op != "rms"):
            fields["bias"] = vectors == 2
        self.graph.put(Op("norm", feeds[:1], given, fields, weights, op in ("layer", "rms")))

    def _plain(
        self, name: str, feeds: list[int], given: tuple[int, ...], weights: frozenset[str],
        moving: list[torch.Tensor], held: list[torch.Tensor], results: list[torch.Tensor],
    ) -> None:  # fmt: skip
        """Operations without a kind of their own: element by element, or moving data about."""
        fields: dict[str, Any] = {"op": name}
        if held and results:
            wide = max(held, key=torch.Tensor.numel)
            if name in ("mul", "mul_") and wide.numel() == wide.shape[-1]:
                self.graph.put(Op("norm", feeds[:1], given, {"op": "rms"}, weights))
                return
            if name in ("add", "add_") and wide.numel() > wide.shape[-1]:
                self.graph.put(Op("position", feeds[:1], given, {}, weights))
                return
            self.strange.add(f"parameters of `{name}`: {', '.join(sorted(weights))}"[:200])
        self.graph.put(Op("pass", feeds, given, fields, weights))


Row = tuple[Any, ...]
METHODS: dict[str, Callable[..., Row]] = {}


def _noted(*names: str) -> Callable[[Callable[..., Row]], Callable[..., Row]]:
    def remember(function: Callable[..., Row]) -> Callable[..., Row]:
        METHODS.update(dict.fromkeys(names, function))
        return function

    return remember


@_noted("convolution", "convolution_overrideable")
def _convolution(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = args[:9]
    fields: dict[str, Any] = {
        "filters": out.shape[1], "kernel": _short(weight.shape[2:]), "stride": _short(stride),
        "padding": _short(padding), "groups": groups, "bias": bias is not None,
        "made": list(out.shape[1:]),
    }  # fmt: skip
    if transposed:
        if any(d != 1 for d in dilation):
            raise tape.graph.stop("a transposed convolution with holes is no layer kind")
        return "deconv", {**fields, "output_padding": _short(extra)}
    return "conv", {**fields, "dilation": _short(dilation)}


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
    floored = [(n + 2 * p - k) // s + 1 for n, k, s, p in
               zip(x.shape[2:], kernel, stride, padding * (rank // len(padding)), strict=True)]  # fmt: skip
    fields = {"kernel": _short(kernel), "made": list(made.shape[2:])}
    if stride != kernel:
        fields["stride"] = _short(stride)
    if any(padding):
        fields["padding"] = _short(padding)
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
    return "pool", {"kernel": "global" if whole else _short(kernel), **op, "made": after}


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
            op.fields["bias"], op.weights = True, op.weights | tape._weights(held)
        else:
            tape.strange.add("a parameter that is added to channels")
        return "pass", {}
    if len(moving) > 1 and moving[0].shape == moving[1].shape:
        return "add", {}
    if len(moving) > 1 and {tape.graph.ops[i].kind for i in map(tape.feed, moving) if i >= 0} <= {
        "embedding", "table", "add"
    }:  # fmt: skip
        return "add", {}
    masked = any(isinstance(t, torch.Tensor) and _key(t) in tape.triangles for t in args)
    return "pass", {"op": "masked", "causal": True} if masked else {}


@_noted("masked_fill", "masked_fill_", "where")
def _mask(tape: Tape, args: Any, kwargs: Any, out: Any, moving: Any, held: Any) -> Row:
    return "pass", {"op": "masked", "causal": any(
        isinstance(t, torch.Tensor) and _key(t) in tape.triangles for t in args)}  # fmt: skip


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
