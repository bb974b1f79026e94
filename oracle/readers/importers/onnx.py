"""A model spec from an ONNX file: its graph and the shapes of its weights, never their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from oracle.models.layers import Shape
from oracle.readers.graph import TracedGraph, short
from oracle.readers.importers import Imported
from oracle.readers.layering import layers
from oracle.readers.onnx_bytes import without_values
from oracle.readers.operations import INPUT, Dims, Op
from oracle.readers.spec_text import plain_name
from oracle.spec.document import SpecError, refusal

BATCH = 7  # where the file leaves the batch open
FUNCTIONS = {
    "Relu": "relu", "LeakyRelu": "leaky_relu", "PRelu": "leaky_relu", "Clip": "relu",
    "Gelu": "gelu", "Sigmoid": "sigmoid", "HardSigmoid": "sigmoid", "Tanh": "tanh",
    "Softmax": "softmax", "LogSoftmax": "softmax", "HardSwish": "swish", "Elu": "silu",
    "Selu": "silu", "Softplus": "silu", "Swish": "silu", "Mish": "silu", "Erf": "",
}  # fmt: skip
NORMS = {"BatchNormalization": "batch", "LayerNormalization": "layer",
         "SimplifiedLayerNormalization": "rms", "RMSNormalization": "rms",
         "GroupNormalization": "group", "InstanceNormalization": "instance"}  # fmt: skip
FLOATS = (1, 10, 11, 16)  # single, half, double, brain: what weights are
REMADE = ("Transpose", "Reshape", "Cast", "Expand", "Identity", "Squeeze", "Unsqueeze", "Concat")
COMPARED = ("Trilu", "LessOrEqual", "Less", "GreaterOrEqual", "Greater")
LIGHT = {"Sqrt": "sqrt", "Reciprocal": "rsqrt", "Pow": "pow", "Sub": "sub", "Div": "div"}


def read(
    what: str | Path, sample: Sequence[int] | None = None, tokens: int | None = None,
    name: str = "", trust: bool = False,
) -> Imported:  # fmt: skip
    """The spec of an `.onnx` file; `sample` or `tokens` fill in extents that it leaves open.

    No code is run, so it needs no `trust`.
    """
    path = Path(what)
    try:
        proto = onnx.load_model_from_string(without_values(path))
    except SpecError:
        raise
    except Exception as error:  # whatever the protocol buffers at hand raise
        raise _stop(path, "E101", f"this is no ONNX file: {str(error)[:200]}") from None
    if not proto.graph.node:
        raise _stop(path, "E101", "this is no ONNX file, or its graph is empty")
    return convert(proto, str(path), sample, tokens, name or path.stem)


def convert(
    proto: Any, path: str, sample: Sequence[int] | None = None, tokens: int | None = None,
    name: str = "onnx",
) -> Imported:  # fmt: skip
    """The spec of a model already loaded."""
    stored = {one.name for one in proto.graph.initializer}
    held = {
        one.name: tuple(one.dims)
        for one in proto.graph.initializer
        if one.data_type in FLOATS and math.prod(one.dims) > 1
    }
    inputs = [one for one in proto.graph.input if one.name not in stored]
    if not inputs:
        raise _stop(path, "E110", "the graph has no input")
    dims = _opened(path, inputs[0], sample, tokens)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (ValueError, RuntimeError, onnx.shape_inference.InferenceError) as error:
        raise _stop(path, "E111", f"its shapes do not fit: {str(error)[:200]}") from None
    words = inputs[0].type.tensor_type.elem_type in (6, 7, 12, 13)
    if words:
        one = Shape(1, dims[1:])
    elif len(dims) == 3:
        one = Shape(dims[2], dims[1:2], True)
    else:
        one = Shape(dims[1], dims[2:])
    graph = TracedGraph(path, dims[0], one)
    tracer = OnnxTracer(graph, proto, held)
    tracer.at[inputs[0].name] = INPUT
    for number, node in enumerate(proto.graph.node):
        try:
            tracer.note(node)
        except (LookupError, ArithmeticError):  # inputs, attributes or extents that are not there
            called = f"node {number}, `{node.op_type[:40]}` {node.name[:60]}"
            what = f"{called}: an input, attribute or extent that its operator needs is missing"
            raise _stop(path, "E111", what, "onnx.checker.check_model says which") from None
    outputs = [tracer.at[out.name] for out in proto.graph.output if out.name in tracer.at]
    if not outputs:
        raise _stop(path, "E110", "no output depends on the input")
    found = layers(graph, outputs[:1])
    spec = {"name": plain_name(name, "onnx"), "source": "ONNX graph, shapes inferred",
            "input": [one.channels, *one.extents], "layers": found}  # fmt: skip
    return Imported(spec, tuple(graph.notes))


def _opened(path: str, given: Any, sample: Sequence[int] | None, tokens: int | None) -> Dims:
    """The input's dimensions, those left open filled in (also in the file, for inference)."""
    said = given.type.tensor_type.shape.dim
    wanted = [tokens] if tokens else list(sample or ())
    if len(said) < 2 or (wanted and len(wanted) != len(said) - 1):
        what = f"its input `{given.name[:60]}` has {len(said)} dimensions, batch included"
        raise _stop(path, "E111", what, "say --input or --tokens to fit")
    dims = []
    for i, dim in enumerate(said):
        value = dim.dim_value
        if value <= 0:
            value = BATCH if i == 0 else (wanted[i - 1] if wanted else 0)
            if value <= 0:
                what = f"dimension {i} of its input `{given.name[:60]}` is left open"
                raise _stop(path, "E111", what, "say --input C,H,W or --tokens T")
            dim.dim_value = value
        dims.append(int(value))
    return tuple(dims)


def _stop(path: Any, code: str, what: str, hint: str = "") -> SpecError:
    return refusal(str(path), what, hint, code)


@dataclass(frozen=True, slots=True)
class OnnxCall:
    """One node of a graph, and what is known of its tensors."""

    node: Any
    feeds: list[int]  # operations whose output it reads
    given: Dims  # of the first of them
    made: Dims
    weights: list[str]
    attributes: dict[str, Any]


class OnnxTracer:
    """Follows the nodes of a graph in their order, by the names of tensors."""

    def __init__(self, graph: TracedGraph, proto: Any, held: dict[str, Dims]) -> None:
        self.graph, self.held = graph, held
        self.at: dict[str, int] = {}
        self.triangles: set[str] = set()  # constants made by comparing places
        self.dims: dict[str, Dims] = dict(held)
        for one in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
            self.dims[one.name] = tuple(d.dim_value for d in one.type.tensor_type.shape.dim)

    def note(self, node: Any) -> None:
        feeds = [self.at[name] for name in node.input if name in self.at]
        if not feeds:
            self._constant(node)
            return
        first = next(name for name in node.input if name in self.at)
        given, made = self.dims.get(first, ()), self.dims.get(node.output[0], ())
        for dims, name in ((given, first), (made, node.output[0])):
            if node.op_type in METHODS and (not dims or min(dims) < 1):
                what = f"the shape of `{name[:60]}` cannot be inferred"
                raise self.graph.stop(what, "say --input or --tokens, or export with fixed shapes")
        weights = [name for name in node.input if name in self.held]
        attributes = {one.name: one for one in node.attribute}
        if FUNCTIONS.get(node.op_type):
            op = Op("activation", feeds[:1], given, {"op": FUNCTIONS[node.op_type]})
        elif node.op_type in NORMS:
            op = self._norm(node, feeds, given, weights)
        elif method := METHODS.get(node.op_type):
            op = method(self, OnnxCall(node, feeds, given, made, weights, attributes))
        elif any(one.type in (5, 10) for one in node.attribute):  # a graph inside
            raise self.graph.stop(f"`{node.op_type[:40]}` runs a graph of its own: no layer kind")
        else:
            op = Op("pass", feeds, given, {"op": LIGHT.get(node.op_type, node.op_type.lower())})
        op.weights |= frozenset(weights)
        i = self.graph.put(op)
        self.at.update({name: i for name in node.output if name})

    def _constant(self, node: Any) -> None:
        """Weights remade stay weights; a table looked up at constant places is one of positions."""
        made = self.dims.get(node.output[0], ())
        if node.op_type in COMPARED or self.triangular(node):
            self.triangles.update(node.output)
        if node.op_type == "Gather" and node.input[0] in self.held:
            dims = self.held[node.input[0]]
            if len(dims) == 2 and len(made) > 1:
                fields = {"vocab": dims[0], "hidden": dims[1]}
                self.at[node.output[0]] = self.graph.put(
                    Op("table", [], (), fields, frozenset(node.input[:1]))
                )
                return
        if node.op_type in REMADE and node.input[0] in self.held and made:
            self.held[node.output[0]] = made

    def triangular(self, node: Any) -> bool:
        """Whether a mask that hides later words goes in."""
        return any(name in self.triangles for name in node.input)

    def _norm(self, node: Any, feeds: list[int], given: Dims, weights: list[str]) -> Op:
        op = NORMS[node.op_type]
        fields: dict[str, Any] = {"op": op}
        if op in ("layer", "rms") and (len(node.input) > 2) != (op == "layer"):
            fields["bias"] = len(node.input) > 2
        return Op("norm", feeds[:1], given, fields, last=op in ("layer", "rms"))


Method = Callable[[OnnxTracer, OnnxCall], Op]
METHODS: dict[str, Method] = {}


def _noted(*names: str) -> Callable[[Method], Method]:
    def remember(function: Method) -> Method:
        METHODS.update(dict.fromkeys(names, function))
        return function

    return remember


def _window(call: OnnxCall, kernel: list[int]) -> dict[str, Any]:
    """Stride, padding and holes as a spec says them."""
    rank, said = len(kernel), call.attributes

    def ints(name: str, otherwise: int) -> list[int]:
        return list(said[name].ints) if name in said else [otherwise] * rank

    pads = list(said["pads"].ints) if "pads" in said else [0] * (2 * rank)
    fields: dict[str, Any] = {"kernel": short(kernel), "stride": short(ints("strides", 1))}
    if "auto_pad" in said and said["auto_pad"].s not in (b"NOTSET", b"VALID"):
        fields["padding"] = "same"
    elif pads[:rank] == pads[rank:]:
        fields["padding"] = short(pads[:rank])
    else:
        fields["padding"] = pads
    return {**fields, "dilation": short(ints("dilations", 1)), "made": list(call.made[1:])}


@_noted("Conv", "ConvTranspose")
def _conv(tracer: OnnxTracer, call: OnnxCall) -> Op:
    dims = tracer.held.get(call.node.input[1]) or tracer.dims.get(call.node.input[1], ())
    fields = {"filters": call.made[1], **_window(call, list(dims[2:]))}
    fields["groups"] = call.attributes["group"].i if "group" in call.attributes else 1
    fields["bias"] = len(call.node.input) > 2
    if fields["padding"] != "same" and isinstance(fields["padding"], list) and len(
        fields["padding"]
    ) > len(dims) - 2:  # fmt: skip
        raise tracer.graph.stop("a convolution padded on one side only is no layer kind")
    if call.node.op_type == "ConvTranspose":
        if fields.pop("dilation") != 1:
            raise tracer.graph.stop("a transposed convolution with holes is no layer kind")
        extra = (
            list(call.attributes["output_padding"].ints)
            if "output_padding" in call.attributes
            else [0]
        )
        fields["output_padding"] = short(extra)
        return Op("deconv", call.feeds[:1], call.given, fields, last=False)
    return Op("conv", call.feeds[:1], call.given, fields, last=False)


@_noted("MaxPool", "AveragePool")
def _pool(tracer: OnnxTracer, call: OnnxCall) -> Op:
    kernel = list(call.attributes["kernel_shape"].ints)
    fields = _window(call, kernel)
    fields.pop("dilation")
    if fields["stride"] == fields["kernel"]:
        fields.pop("stride")
    if fields["padding"] == 0:
        fields.pop("padding")
    elif isinstance(fields["padding"], list) and len(fields["padding"]) > len(kernel):
        fields["padding"] = "same"  # one side only: the nearest that the layer kind has
    if "ceil_mode" in call.attributes and call.attributes["ceil_mode"].i:
        fields["ceil"] = True
    if call.node.op_type == "AveragePool":
        fields["op"] = "mean"
    fields["made"] = list(call.made[2:])
    return Op("pool", call.feeds[:1], call.given, fields, last=False)


@_noted("GlobalAveragePool", "GlobalMaxPool", "ReduceMean")
def _mean(tracer: OnnxTracer, call: OnnxCall) -> Op:
    return Op("mean", call.feeds[:1], call.given, {"op": "mean", "size": math.prod(call.made)})


@_noted("Gemm", "MatMul")
def _matrix(tracer: OnnxTracer, call: OnnxCall) -> Op:
    if not call.weights:
        if len(call.feeds) < 2:
            return Op("pass", call.feeds, call.given, {"op": "matrix with a constant"})
        heads = math.prod(call.given[:-2]) // tracer.graph.batch or 1
        return Op("product", call.feeds[:2], call.given, {"heads": heads, "width": call.given[-1]})
    bias = len(call.node.input) > 2
    fields = {"filters": call.made[-1], "channels": call.given[-1], "bias": bias}
    return Op("dense", call.feeds[:1], call.given, fields)


@_noted("Add")
def _add(tracer: OnnxTracer, call: OnnxCall) -> Op:
    graph = tracer.graph
    if call.weights and len(call.given) < 4:
        dims = tracer.held[call.weights[0]]
        if math.prod(dims) > (dims[-1] if dims else 1):
            return Op("position", call.feeds[:1], call.given, {})
        i = graph.root(call.feeds[0])
        if i >= 0 and graph.ops[i].kind == "dense":
            graph.ops[i].fields["bias"] = True
            graph.ops[i].weights |= frozenset(call.weights)
        return Op("pass", call.feeds[:1], call.given)
    if len(call.feeds) > 1:
        kinds = {graph.ops[i].kind for i in map(graph.root, call.feeds) if i >= 0}
        other = tracer.dims.get(call.node.input[1], ())
        if call.given == other or kinds <= {"embedding", "table", "add"}:
            return Op("add", call.feeds, call.given)
    masked = {"op": "masked", "causal": tracer.triangular(call.node)}
    return Op("pass", call.feeds, call.given, masked)


@_noted("Mul")
def _mul(tracer: OnnxTracer, call: OnnxCall) -> Op:
    dims = tracer.held[call.weights[0]] if call.weights else ()
    if dims and math.prod(dims) == dims[-1] == call.given[-1] > 1:
        return Op("norm", call.feeds[:1], call.given, {"op": "rms"})
    if len(call.feeds) > 1:
        return Op("multiply", call.feeds[:2], call.given)
    constant = next((name for name in call.node.input if name not in tracer.at), "")
    turned = math.prod(tracer.dims.get(constant, ())) > 1  # by a table of angles
    kind = "multiply" if turned else "pass"
    return Op(kind, call.feeds, call.given, {} if turned else {"op": "scale"})


@_noted("Where")
def _where(tracer: OnnxTracer, call: OnnxCall) -> Op:
    kept = [tracer.at[name] for name in call.node.input[1:] if name in tracer.at]
    masked = {"op": "masked", "causal": tracer.triangular(call.node)}
    return Op("pass", kept or call.feeds, call.made, masked)


@_noted("Erf")
def _erf(tracer: OnnxTracer, call: OnnxCall) -> Op:
    return Op("pass", call.feeds, call.given, {"op": "erf"})


@_noted("Concat")
def _cat(tracer: OnnxTracer, call: OnnxCall) -> Op:
    axis = call.attributes["axis"].i % len(call.made)
    if call.weights:
        extra = call.made[1] - call.given[1]
        return Op("pass", call.feeds[:1], call.given, {"op": "tokens", "extra": extra})
    whole = len(call.feeds) == len(call.node.input) and axis in (1, len(call.made) - 1)
    return Op("concat" if whole else "pass", call.feeds, call.given, {} if whole else {"op": "cat"})


@_noted("Gather")
def _lookup(tracer: OnnxTracer, call: OnnxCall) -> Op:
    dims = tracer.held.get(call.node.input[0], ())
    if len(dims) == 2:
        return Op("embedding", call.feeds[:1], call.given, {"vocab": dims[0], "hidden": dims[1]})
    return Op("pass", call.feeds, call.given, {"op": "gather"})


@_noted("Resize", "Upsample")
def _resize(tracer: OnnxTracer, call: OnnxCall) -> Op:
    return Op("upsample", call.feeds[:1], call.given, {"to": list(call.made[2:])}, last=False)


@_noted("LSTM", "GRU", "RNN")
def _recurrent(tracer: OnnxTracer, call: OnnxCall) -> Op:
    what = f"`{call.node.op_type}` is no layer kind"
    raise tracer.graph.stop(what, "recurrent networks are not described")
