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

BATCH = 7  # in place of a batch that the file leaves open
FUNCTIONS = {
    "Relu": "relu", "LeakyRelu": "leaky_relu", "PRelu": "leaky_relu", "Clip": "relu",
    "Gelu": "gelu", "Sigmoid": "sigmoid", "HardSigmoid": "sigmoid", "Tanh": "tanh",
    "Softmax": "softmax", "LogSoftmax": "softmax", "HardSwish": "swish", "Elu": "silu",
    "Selu": "silu", "Softplus": "silu", "Swish": "silu", "Mish": "silu", "Erf": "",
}  # fmt: skip
NORMS = {"BatchNormalization": "batch", "LayerNormalization": "layer",
         "SimplifiedLayerNormalization": "rms", "RMSNormalization": "rms",
         "GroupNormalization": "group", "InstanceNormalization": "instance"}  # fmt: skip
FLOATS = (1, 10, 11, 16)  # single, half, double, brain: the types of weights
REMADE = ("Transpose", "Reshape", "Cast", "Expand", "Identity", "Squeeze", "Unsqueeze", "Concat")
COMPARED = ("Trilu", "LessOrEqual", "Less", "GreaterOrEqual", "Greater")
LIGHT = {"Sqrt": "sqrt", "Reciprocal": "rsqrt", "Pow": "pow", "Sub": "sub", "Div": "div"}


def read(
    source: str | Path, sample: Sequence[int] | None = None, tokens: int | None = None,
    name: str = "", trust: bool = False,
) -> Imported:  # fmt: skip
    """Return the spec of an `.onnx` file; `sample` or `tokens` fill in extents it leaves open.

    No code is run, so it needs no `trust`.
    """
    path = Path(source)
    try:
        proto = onnx.load_model_from_string(without_values(path))
    except SpecError:
        raise
    except Exception as error:  # protocol buffers raise errors of many kinds
        raise _stop(path, "E101", f"this is no ONNX file: {str(error)[:200]}") from None
    if not proto.graph.node:
        raise _stop(path, "E101", "this is no ONNX file, or its graph is empty")
    return convert(proto, str(path), sample, tokens, name or path.stem)


def convert(
    proto: Any, path: str, sample: Sequence[int] | None = None, tokens: int | None = None,
    name: str = "onnx",
) -> Imported:  # fmt: skip
    """Return the spec of a model that is loaded."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    weights = {
        tensor.name: tuple(tensor.dims)
        for tensor in proto.graph.initializer
        if tensor.data_type in FLOATS and math.prod(tensor.dims) > 1
    }
    inputs = [entry for entry in proto.graph.input if entry.name not in stored]
    if not inputs:
        raise _stop(path, "E110", "the graph has no input")
    dims = _opened(path, inputs[0], sample, tokens)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (ValueError, RuntimeError, onnx.shape_inference.InferenceError) as error:
        raise _stop(path, "E111", f"its shapes do not fit: {str(error)[:200]}") from None
    words = inputs[0].type.tensor_type.elem_type in (6, 7, 12, 13)
    if words:
        sample_shape = Shape(1, dims[1:])
    elif len(dims) == 3:
        sample_shape = Shape(dims[2], dims[1:2], True)
    else:
        sample_shape = Shape(dims[1], dims[2:])
    graph = TracedGraph(path, dims[0], sample_shape)
    tracer = OnnxTracer(graph, proto, weights)
    tracer.op_of[inputs[0].name] = INPUT
    for number, node in enumerate(proto.graph.node):
        try:
            tracer.note(node)
        except (LookupError, ArithmeticError):  # inputs, attributes or extents that are not there
            node_name = f"node {number}, `{node.op_type[:40]}` {node.name[:60]}"
            complaint = (
                f"{node_name}: an input, attribute or extent that its operator needs is missing"
            )
            raise _stop(path, "E111", complaint, "onnx.checker.check_model says which") from None
    outputs = [tracer.op_of[out.name] for out in proto.graph.output if out.name in tracer.op_of]
    if not outputs:
        raise _stop(path, "E110", "no output depends on the input")
    spec_layers = layers(graph, outputs[:1])
    spec = {
        "name": plain_name(name, "onnx"),
        "source": "ONNX graph, shapes inferred",
        "input": [sample_shape.channels, *sample_shape.extents],
        "layers": spec_layers,
    }
    return Imported(spec, tuple(graph.notes))


def _opened(path: str, entry: Any, sample: Sequence[int] | None, tokens: int | None) -> Dims:
    """Return the input's dimensions, open ones filled in (also in the file, for inference)."""
    dim_list = entry.type.tensor_type.shape.dim
    given_dims = [tokens] if tokens else list(sample or ())
    if len(dim_list) < 2 or (given_dims and len(given_dims) != len(dim_list) - 1):
        complaint = f"its input `{entry.name[:60]}` has {len(dim_list)} dimensions, batch included"
        raise _stop(path, "E111", complaint, "say --input or --tokens to fit")
    dims = []
    for i, dim in enumerate(dim_list):
        value = dim.dim_value
        if value <= 0:
            value = BATCH if i == 0 else (given_dims[i - 1] if given_dims else 0)
            if value <= 0:
                complaint = f"dimension {i} of its input `{entry.name[:60]}` is left open"
                raise _stop(path, "E111", complaint, "say --input C,H,W or --tokens T")
            dim.dim_value = value
        dims.append(int(value))
    return tuple(dims)


def _stop(path: Any, code: str, complaint: str, hint: str = "") -> SpecError:
    return refusal(str(path), complaint, hint, code)


@dataclass(frozen=True, slots=True)
class OnnxCall:
    """One node of a graph, with its inputs and the known shapes of its tensors."""

    node: Any
    feeds: list[int]  # operations whose output it reads
    input_dims: Dims  # of the first of them
    output_dims: Dims
    weights: list[str]
    attributes: dict[str, Any]


class OnnxTracer:
    """A tracer that follows the nodes of a graph in order, by the names of tensors."""

    def __init__(self, graph: TracedGraph, proto: Any, weights: dict[str, Dims]) -> None:
        self.graph, self.weights = graph, weights
        self.op_of: dict[str, int] = {}
        self.triangles: set[str] = set()  # constants made by comparing places
        self.dims: dict[str, Dims] = dict(weights)
        for entry in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
            self.dims[entry.name] = tuple(d.dim_value for d in entry.type.tensor_type.shape.dim)

    def note(self, node: Any) -> None:
        feeds = [self.op_of[name] for name in node.input if name in self.op_of]
        if not feeds:
            self._constant(node)
            return
        first = next(name for name in node.input if name in self.op_of)
        input_dims, output_dims = self.dims.get(first, ()), self.dims.get(node.output[0], ())
        for dims, name in ((input_dims, first), (output_dims, node.output[0])):
            if node.op_type in METHODS and (not dims or min(dims) < 1):
                complaint = f"the shape of `{name[:60]}` cannot be inferred"
                raise self.graph.stop(
                    complaint, "say --input or --tokens, or export with fixed shapes"
                )
        weights = [name for name in node.input if name in self.weights]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if FUNCTIONS.get(node.op_type):
            op = Op("activation", feeds[:1], input_dims, {"op": FUNCTIONS[node.op_type]})
        elif node.op_type in NORMS:
            op = self._norm(node, feeds, input_dims, weights)
        elif method := METHODS.get(node.op_type):
            op = method(self, OnnxCall(node, feeds, input_dims, output_dims, weights, attributes))
        elif any(attribute.type in (5, 10) for attribute in node.attribute):  # a graph inside
            raise self.graph.stop(f"`{node.op_type[:40]}` runs a graph of its own: no layer kind")
        else:
            op = Op(
                "pass", feeds, input_dims, {"op": LIGHT.get(node.op_type, node.op_type.lower())}
            )
        op.weights |= frozenset(weights)
        i = self.graph.append(op)
        self.op_of.update({name: i for name in node.output if name})

    def _constant(self, node: Any) -> None:
        """Note remade weights as weights, and a table looked up at constant places."""
        output_dims = self.dims.get(node.output[0], ())
        if node.op_type in COMPARED or self.triangular(node):
            self.triangles.update(node.output)
        if node.op_type == "Gather" and node.input[0] in self.weights:
            dims = self.weights[node.input[0]]
            if len(dims) == 2 and len(output_dims) > 1:
                fields = {"vocab": dims[0], "hidden": dims[1]}
                self.op_of[node.output[0]] = self.graph.append(
                    Op("table", [], (), fields, frozenset(node.input[:1]))
                )
                return
        if node.op_type in REMADE and node.input[0] in self.weights and output_dims:
            self.weights[node.output[0]] = output_dims

    def triangular(self, node: Any) -> bool:
        """Return whether an input is a mask that hides later words."""
        return any(name in self.triangles for name in node.input)

    def _norm(self, node: Any, feeds: list[int], input_dims: Dims, weights: list[str]) -> Op:
        op = NORMS[node.op_type]
        fields: dict[str, Any] = {"op": op}
        if op in ("layer", "rms") and (len(node.input) > 2) != (op == "layer"):
            fields["bias"] = len(node.input) > 2
        return Op("norm", feeds[:1], input_dims, fields, last=op in ("layer", "rms"))


Method = Callable[[OnnxTracer, OnnxCall], Op]
METHODS: dict[str, Method] = {}


def _noted(*names: str) -> Callable[[Method], Method]:
    def remember(function: Method) -> Method:
        METHODS.update(dict.fromkeys(names, function))
        return function

    return remember


def _window(call: OnnxCall, kernel: list[int]) -> dict[str, Any]:
    """Return stride, padding and dilation as fields of a spec."""
    rank, attributes = len(kernel), call.attributes

    def ints(name: str, otherwise: int) -> list[int]:
        return list(attributes[name].ints) if name in attributes else [otherwise] * rank

    pads = list(attributes["pads"].ints) if "pads" in attributes else [0] * (2 * rank)
    fields: dict[str, Any] = {"kernel": short(kernel), "stride": short(ints("strides", 1))}
    if "auto_pad" in attributes and attributes["auto_pad"].s not in (b"NOTSET", b"VALID"):
        fields["padding"] = "same"
    elif pads[:rank] == pads[rank:]:
        fields["padding"] = short(pads[:rank])
    else:
        fields["padding"] = pads
    return {**fields, "dilation": short(ints("dilations", 1)), "made": list(call.output_dims[1:])}


@_noted("Conv", "ConvTranspose")
def _conv(tracer: OnnxTracer, call: OnnxCall) -> Op:
    dims = tracer.weights.get(call.node.input[1]) or tracer.dims.get(call.node.input[1], ())
    fields = {"filters": call.output_dims[1], **_window(call, list(dims[2:]))}
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
        return Op("deconv", call.feeds[:1], call.input_dims, fields, last=False)
    return Op("conv", call.feeds[:1], call.input_dims, fields, last=False)


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
    fields["made"] = list(call.output_dims[2:])
    return Op("pool", call.feeds[:1], call.input_dims, fields, last=False)


@_noted("GlobalAveragePool", "GlobalMaxPool", "ReduceMean")
def _mean(tracer: OnnxTracer, call: OnnxCall) -> Op:
    return Op(
        "mean", call.feeds[:1], call.input_dims, {"op": "mean", "size": math.prod(call.output_dims)}
    )


@_noted("Gemm", "MatMul")
def _matrix(tracer: OnnxTracer, call: OnnxCall) -> Op:
    if not call.weights:
        if len(call.feeds) < 2:
            return Op("pass", call.feeds, call.input_dims, {"op": "matrix with a constant"})
        heads = math.prod(call.input_dims[:-2]) // tracer.graph.batch or 1
        return Op(
            "product",
            call.feeds[:2],
            call.input_dims,
            {"heads": heads, "width": call.input_dims[-1]},
        )
    bias = len(call.node.input) > 2
    fields = {"filters": call.output_dims[-1], "channels": call.input_dims[-1], "bias": bias}
    return Op("dense", call.feeds[:1], call.input_dims, fields)


@_noted("Add")
def _add(tracer: OnnxTracer, call: OnnxCall) -> Op:
    graph = tracer.graph
    if call.weights and len(call.input_dims) < 4:
        dims = tracer.weights[call.weights[0]]
        if math.prod(dims) > (dims[-1] if dims else 1):
            return Op("position", call.feeds[:1], call.input_dims, {})
        i = graph.root(call.feeds[0])
        if i >= 0 and graph.ops[i].kind == "dense":
            graph.ops[i].fields["bias"] = True
            graph.ops[i].weights |= frozenset(call.weights)
        return Op("pass", call.feeds[:1], call.input_dims)
    if len(call.feeds) > 1:
        kinds = {graph.ops[i].kind for i in map(graph.root, call.feeds) if i >= 0}
        second_dims = tracer.dims.get(call.node.input[1], ())
        if call.input_dims == second_dims or kinds <= {"embedding", "table", "add"}:
            return Op("add", call.feeds, call.input_dims)
    masked = {"op": "masked", "causal": tracer.triangular(call.node)}
    return Op("pass", call.feeds, call.input_dims, masked)


@_noted("Mul")
def _mul(tracer: OnnxTracer, call: OnnxCall) -> Op:
    dims = tracer.weights[call.weights[0]] if call.weights else ()
    if dims and math.prod(dims) == dims[-1] == call.input_dims[-1] > 1:
        return Op("norm", call.feeds[:1], call.input_dims, {"op": "rms"})
    if len(call.feeds) > 1:
        return Op("multiply", call.feeds[:2], call.input_dims)
    constant = next((name for name in call.node.input if name not in tracer.op_of), "")
    turned = math.prod(tracer.dims.get(constant, ())) > 1  # by a table of angles
    kind = "multiply" if turned else "pass"
    return Op(kind, call.feeds, call.input_dims, {} if turned else {"op": "scale"})


@_noted("Where")
def _where(tracer: OnnxTracer, call: OnnxCall) -> Op:
    feeds = [tracer.op_of[name] for name in call.node.input[1:] if name in tracer.op_of]
    masked = {"op": "masked", "causal": tracer.triangular(call.node)}
    return Op("pass", feeds or call.feeds, call.output_dims, masked)


@_noted("Erf")
def _erf(tracer: OnnxTracer, call: OnnxCall) -> Op:
    return Op("pass", call.feeds, call.input_dims, {"op": "erf"})


@_noted("Concat")
def _cat(tracer: OnnxTracer, call: OnnxCall) -> Op:
    axis = call.attributes["axis"].i % len(call.output_dims)
    if call.weights:
        extra = call.output_dims[1] - call.input_dims[1]
        return Op("pass", call.feeds[:1], call.input_dims, {"op": "tokens", "extra": extra})
    is_plain = len(call.feeds) == len(call.node.input) and axis in (1, len(call.output_dims) - 1)
    return Op(
        "concat" if is_plain else "pass",
        call.feeds,
        call.input_dims,
        {} if is_plain else {"op": "cat"},
    )


@_noted("Gather")
def _lookup(tracer: OnnxTracer, call: OnnxCall) -> Op:
    dims = tracer.weights.get(call.node.input[0], ())
    if len(dims) == 2:
        return Op(
            "embedding", call.feeds[:1], call.input_dims, {"vocab": dims[0], "hidden": dims[1]}
        )
    return Op("pass", call.feeds, call.input_dims, {"op": "gather"})


@_noted("Resize", "Upsample")
def _resize(tracer: OnnxTracer, call: OnnxCall) -> Op:
    return Op(
        "upsample", call.feeds[:1], call.input_dims, {"to": list(call.output_dims[2:])}, last=False
    )


@_noted("LSTM", "GRU", "RNN")
def _recurrent(tracer: OnnxTracer, call: OnnxCall) -> Op:
    complaint = f"`{call.node.op_type}` is no layer kind"
    raise tracer.graph.stop(complaint, "recurrent networks are not described")
