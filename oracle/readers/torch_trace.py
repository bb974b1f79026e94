"""The trace of one forward pass of a torch module, every operation of it, below autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from oracle.readers.graph import TracedGraph
from oracle.readers.operations import INPUT, Counted, Op
from oracle.readers.torch_counts import Places, counted, recurrent, words_of
from oracle.readers.torch_ops import BATCH, METHODS, NORMS, RECURRENT, UNARY, TorchCall, key

MADE_ANEW = ("new_empty", "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like",
             "full_like", "rand_like", "randn_like", "new_empty_strided")  # fmt: skip
EVEN = "which tokens visit which expert is not looked at: all are taken as equally busy"


class Fused(TorchFunctionMode):  # type: ignore[misc]  # untyped where torch is not
    """A mode that notes fused attention and recurrent networks as one call each."""

    def __init__(self, tracer: TorchTracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in RECURRENT:
            return self._recurrent(name, args)
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v = (args[i] if i < len(args) else kwargs[w]
                   for i, w in enumerate(("query", "key", "value")))  # fmt: skip
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        causal = bool(args[5] if len(args) > 5 else kwargs.get("is_causal", False))
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        masked = mask is not None and key(mask) in self.tracer.triangles
        self.tracer.core(q, k, v, causal or masked)
        self.tracer.note_outputs(out)
        return out

    def _recurrent(self, name: str, args: Any) -> Any:
        """Note a call of `(x, state, weights, …)`, or packed `(x, sizes, state, weights, …)`."""
        x, tracer = args[0], self.tracer
        packed = not isinstance(args[2], list | tuple)
        states, weights = args[2:4] if packed else args[1:3]
        states = list(states) if isinstance(states, list | tuple) else [states]
        wide = states[0].shape[-1]
        position = 7 + packed
        bidirectional = len(args) > position and bool(args[position])
        out = x.new_empty((*x.shape[:-1], wide * (1 + bidirectional)))
        feeds = [tracer.feed(t) for t in (x, *states) if key(t) in tracer.op_of]
        cost = recurrent(name, x, weights, out, tracer.places.current_place())
        parameters = [t for t in weights if key(t) in tracer.names]
        tracer.graph.append(
            Op(
                "opaque", feeds, tuple(x.shape), {"op": name}, tracer.weights(parameters),
                counted=cost,
            )
        )  # fmt: skip
        ends = [x.new_empty(state.shape) for state in states]
        tracer.note_outputs((out, *ends))
        return (out, *ends)


class TorchTracer(TorchDispatchMode):  # type: ignore[misc]
    """A mode that writes every operation on a sample or a parameter to a graph."""

    def __init__(self, graph: TracedGraph, module: torch.nn.Module) -> None:
        super().__init__()
        self.graph, self.places = graph, Places(module)
        self.op_of: dict[int, int] = {}
        self.names: dict[int, frozenset[str]] = {}
        self.triangles: set[int] = set()
        self.experts = 0  # among which the last router chose
        self.alive: list[torch.Tensor] = []  # storages must not be used again
        for name, parameter in module.named_parameters():
            self.names.setdefault(key(parameter), frozenset((name,)))
        for name, buffer in module.named_buffers():
            low, square = name.lower(), buffer.dim() >= 2 and buffer.shape[-1] == buffer.shape[-2]
            if square and (buffer.dtype == torch.bool or "mask" in low or low.endswith("bias")):
                self.triangles.add(key(buffer))

    def note_inputs(self, samples: list[torch.Tensor]) -> None:
        """Note the tensors that the module is called with, one after the other."""
        self.alive += samples
        for number, sample in enumerate(samples, 1):
            operation = INPUT
            if len(samples) > 1:
                cost = Counted(f"input {number}", "", tuple(sample.shape))
                operation = self.graph.append(Op("opaque", [INPUT], (), {}, counted=cost))
            self.op_of[key(sample)] = operation

    def outputs(self, out: Any) -> list[int]:
        """Return the operations that made the tensors of the module's output."""
        plain = out.to_tuple() if hasattr(out, "to_tuple") else out
        operations = [
            self.op_of[key(t)]
            for t in tree_flatten(plain)[0]
            if isinstance(t, torch.Tensor) and t.is_floating_point() and key(t) in self.op_of
        ]
        if not operations:
            raise self.graph.stop("the output is no tensor that depends on the input")
        return operations

    def note_outputs(self, out: Any) -> None:
        """Note that the last operation made these tensors."""
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.op_of[key(tensor)] = len(self.graph.ops) - 1
                self.alive.append(tensor)

    def feed(self, tensor: torch.Tensor) -> int:
        return self.op_of[key(tensor)]

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> None:
        heads = math.prod(q.shape[:-2]) // BATCH
        fields = {"heads": heads, "width": q.shape[-1], "causal": causal, "flash": True}
        output_dims = (*q.shape[:-1], v.shape[-1])
        flop = 2.0 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])
        moved = sum(map(words_of, (q, k, v))) + math.prod(output_dims)
        cost = Counted(
            "attention", self.places.current_place(), output_dims, flop, moved, 2 * moved,
            keeps=True,
        )  # fmt: skip
        feeds = [self.feed(t) for t in (q, k, v) if key(t) in self.op_of]
        kind = "core" if len(feeds) == 3 else "opaque"
        weights = self.weights([t for t in (q, k, v) if key(t) in self.names])
        self.graph.append(Op(kind, feeds, tuple(q.shape), fields, weights, counted=cost))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and self._answered(args[0]):
            return True
        name = func._schema.name.partition("::")[2]
        if self.experts and name in ("nonzero", "index", "index_put_", "index_put"):
            out, args = self._chosen(func, name, args, kwargs)
        else:
            out = func(*args, **kwargs)
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        moving = [t for t in tensors if key(t) in self.op_of]
        parameters = [t for t in tensors if key(t) in self.names]
        results = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        if name in ("topk", "argmax") and moving:
            self.experts = args[0].shape[-1]
        if not moving or name in MADE_ANEW:
            self._constant(name, tensors, parameters, results, args)
            return out
        before = {key(t) for t in tensors}
        if results and all(key(t) in before for t in results) and not name.endswith("_"):
            return out  # a view
        self._note(name, args, out, moving, parameters, results)
        if results:
            op = self.graph.ops[-1]
            if op.kind != "view" and name != "empty_like":
                place = self.places.current_place()
                op.counted = counted(func, args, kwargs, out, tensors, results, place)
            if op.kind == "pass" and len({self.graph.root(feed) for feed in op.feeds}) > 1:
                op.kind = "join"
            op.kind = "pass" if op.kind == "view" else op.kind
        self.note_outputs(out)
        return out

    def _chosen(self, func: Any, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the result of a router's yes-or-no mask as if all experts were equally busy."""

        def places(mask: torch.Tensor) -> torch.Tensor:
            if EVEN not in self.graph.notes:
                self.graph.notes.append(EVEN)
            count = max(1, round(mask.numel() / self.experts))
            return mask.new_empty((count, mask.dim()), dtype=torch.long)

        if name == "nonzero":
            return places(args[0]), args
        picked: list[Any] = []
        for index in args[1]:
            yes = isinstance(index, torch.Tensor) and index.dtype == torch.bool
            picked += places(index).unbind(1) if yes else [index]
        args = (args[0], picked, *args[2:])
        return func(*args, **kwargs), args

    def _answered(self, condition: torch.Tensor) -> bool:
        """Return whether a condition does not depend on the sample, and so counts as true.

        Such conditions guard the common case: no padding, no packed sequences.
        """
        plain = condition.dtype == torch.bool and key(condition) not in self.op_of
        if plain:
            self.graph.note("a question about constant values was answered with yes")
        return plain

    def _constant(
        self, name: str, tensors: list[torch.Tensor], parameters: list[torch.Tensor],
        results: list[torch.Tensor], args: Any,
    ) -> None:  # fmt: skip
        """Note remade parameters, tables looked up at constant places, and triangles."""
        if name == "embedding" and parameters:
            fields = {"vocab": args[0].shape[0], "hidden": args[0].shape[1]}
            self.graph.append(Op("table", [], (), fields, self.weights(parameters)))
            self.note_outputs(results[0])
            return
        triangular = name in ("tril", "triu", "tril_", "triu_", "tril_indices", "triu_indices")
        compared = name in ("le", "lt", "ge", "gt") and results[0].dim() >= 2
        for result in results:
            self.alive.append(result)
            if triangular or compared or any(key(t) in self.triangles for t in tensors):
                self.triangles.add(key(result))
            if parameters and name not in MADE_ANEW:
                names = self.names.get(key(result), frozenset())
                self.names[key(result)] = names | self.weights(parameters)

    def weights(self, tensors: list[torch.Tensor]) -> frozenset[str]:
        return frozenset[str]().union(*(self.names[key(t)] for t in tensors))

    def _note(
        self, name: str, args: Any, out: Any, moving: list[torch.Tensor],
        parameters: list[torch.Tensor], results: list[torch.Tensor],
    ) -> None:  # fmt: skip
        feeds = [self.feed(t) for t in moving]
        input_dims = tuple(moving[0].shape)
        weights = self.weights(parameters)
        if name in UNARY:
            fields: dict[str, Any] = {"op": UNARY[name], "flash": name == "_safe_softmax"}
            self.graph.append(Op("activation", feeds[:1], input_dims, fields, weights))
        elif name in NORMS:
            self._norm(name, parameters, feeds, input_dims, weights)
        elif method := METHODS.get(name):
            op = method(self, TorchCall(args, out, moving, parameters))
            if op[0] == "pass":
                op[1].setdefault("op", name)
            if op[0] == "view":
                weights = frozenset()
            self.graph.append(Op(op[0], op[2] if len(op) > 2 else feeds, input_dims, op[1], weights,
                                 op[0] in ("dense", "norm", "position")))  # fmt: skip
        else:
            self.graph.append(Op("pass", feeds, input_dims, {"op": name}, weights))

    def _norm(
        self, name: str, parameters: list[torch.Tensor], feeds: list[int],
        input_dims: tuple[int, ...], weights: frozenset[str],
    ) -> None:  # fmt: skip
        op = NORMS[name]
        if (
            op == "batch" and input_dims[0] == 1 < BATCH
        ):  # each sample by itself: samples as channels
            op, input_dims = "instance", (BATCH, input_dims[1] // BATCH, *input_dims[2:])
        fields: dict[str, Any] = {"op": op}
        vectors = len(parameters)
        if not vectors:
            fields["affine"] = False
        elif (vectors == 2) != (op != "rms"):
            fields["bias"] = vectors == 2
        self.graph.append(
            Op("norm", feeds[:1], input_dims, fields, weights, op in ("layer", "rms"))
        )
