"""Follows one forward pass of a torch module, every operation of it, below autograd."""

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
    """Notes fused attention and recurrent networks as one call, before they are taken apart."""

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
        self.tracer.made(out)
        return out

    def _recurrent(self, name: str, args: Any) -> Any:
        """`(x, state, weights, …)`, or packed `(x, sizes, state, weights, …)`."""
        x, tracer = args[0], self.tracer
        packed = not isinstance(args[2], list | tuple)
        states, weights = args[2:4] if packed else args[1:3]
        states = list(states) if isinstance(states, list | tuple) else [states]
        wide = states[0].shape[-1]
        at = 7 + packed
        both = len(args) > at and bool(args[at])  # ways through the sequence
        out = x.new_empty((*x.shape[:-1], wide * (1 + both)))
        feeds = [tracer.feed(t) for t in (x, *states) if key(t) in tracer.where]
        cost = recurrent(name, x, weights, out, tracer.places.here())
        known = [t for t in weights if key(t) in tracer.names]
        tracer.graph.put(Op("opaque", feeds, tuple(x.shape), {"op": name}, tracer.weights(known),
                            counted=cost))  # fmt: skip
        ends = [x.new_empty(state.shape) for state in states]
        tracer.made((out, *ends))
        return (out, *ends)


class TorchTracer(TorchDispatchMode):  # type: ignore[misc]
    """Writes every operation that touches a sample or a parameter to a graph."""

    def __init__(self, graph: TracedGraph, module: torch.nn.Module) -> None:
        super().__init__()
        self.graph, self.places = graph, Places(module)
        self.where: dict[int, int] = {}
        self.names: dict[int, frozenset[str]] = {}
        self.triangles: set[int] = set()
        self.experts = 0  # that a router chose among last
        self.kept: list[torch.Tensor] = []  # storages must not be used again
        for name, parameter in module.named_parameters():
            self.names.setdefault(key(parameter), frozenset((name,)))
        for name, buffer in module.named_buffers():
            low, square = name.lower(), buffer.dim() >= 2 and buffer.shape[-1] == buffer.shape[-2]
            if square and (buffer.dtype == torch.bool or "mask" in low or low.endswith("bias")):
                self.triangles.add(key(buffer))

    def given(self, samples: list[torch.Tensor]) -> None:
        """The tensors that the module is called with; several lie one after the other."""
        self.kept += samples
        for number, sample in enumerate(samples, 1):
            at = INPUT
            if len(samples) > 1:
                cost = Counted(f"input {number}", "", tuple(sample.shape))
                at = self.graph.put(Op("opaque", [INPUT], (), {}, counted=cost))
            self.where[key(sample)] = at

    def outputs(self, out: Any) -> list[int]:
        """The operations that made the tensors of the module's output."""
        plain = out.to_tuple() if hasattr(out, "to_tuple") else out
        found = [
            self.where[key(t)]
            for t in tree_flatten(plain)[0]
            if isinstance(t, torch.Tensor) and t.is_floating_point() and key(t) in self.where
        ]
        if not found:
            raise self.graph.stop("the output is no tensor that depends on the input")
        return found

    def made(self, out: Any) -> None:
        """The last operation noted made these tensors."""
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.where[key(tensor)] = len(self.graph.ops) - 1
                self.kept.append(tensor)

    def feed(self, tensor: torch.Tensor) -> int:
        return self.where[key(tensor)]

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> None:
        heads = math.prod(q.shape[:-2]) // BATCH
        fields = {"heads": heads, "width": q.shape[-1], "causal": causal, "flash": True}
        made = (*q.shape[:-1], v.shape[-1])
        flop = 2.0 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])
        moved = sum(map(words_of, (q, k, v))) + math.prod(made)
        cost = Counted("attention", self.places.here(), made, flop, moved, 2 * moved, keeps=True)
        feeds = [self.feed(t) for t in (q, k, v) if key(t) in self.where]
        kind = "core" if len(feeds) == 3 else "opaque"
        weights = self.weights([t for t in (q, k, v) if key(t) in self.names])
        self.graph.put(Op(kind, feeds, tuple(q.shape), fields, weights, counted=cost))

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
        moving = [t for t in tensors if key(t) in self.where]
        held = [t for t in tensors if key(t) in self.names]
        results = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        if name in ("topk", "argmax") and moving:
            self.experts = args[0].shape[-1]
        if not moving or name in MADE_ANEW:
            self._constant(name, tensors, held, results, args)
            return out
        before = {key(t) for t in tensors}
        if results and all(key(t) in before for t in results) and not name.endswith("_"):
            return out  # a view
        self._note(name, args, out, moving, held, results)
        if results:
            op = self.graph.ops[-1]
            if op.kind != "view" and name != "empty_like":
                at = self.places.here()
                op.counted = counted(func, args, kwargs, out, tensors, results, at)
            if op.kind == "pass" and len({self.graph.root(feed) for feed in op.feeds}) > 1:
                op.kind = "join"
            op.kind = "pass" if op.kind == "view" else op.kind
        self.made(out)
        return out

    def _chosen(self, func: Any, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What a router's yes-or-no picks: its share of the tokens, were all experts alike."""

        def places(mask: torch.Tensor) -> torch.Tensor:
            if EVEN not in self.graph.notes:
                self.graph.notes.append(EVEN)
            found = max(1, round(mask.numel() / self.experts))
            return mask.new_empty((found, mask.dim()), dtype=torch.long)

        if name == "nonzero":
            return places(args[0]), args
        picked: list[Any] = []
        for one in args[1]:
            yes = isinstance(one, torch.Tensor) and one.dtype == torch.bool
            picked += places(one).unbind(1) if yes else [one]
        args = (args[0], picked, *args[2:])
        return func(*args, **kwargs), args

    def _answered(self, asked: torch.Tensor) -> bool:
        """Whether a yes-or-no that does not depend on the sample may be taken as yes.

        Such questions guard the common case: no padding, no packed sequences.
        """
        plain = asked.dtype == torch.bool and key(asked) not in self.where
        if plain:
            self.graph.note("a question about constant values was answered with yes")
        return plain

    def _constant(
        self, name: str, tensors: list[torch.Tensor], held: list[torch.Tensor],
        results: list[torch.Tensor], args: Any,
    ) -> None:  # fmt: skip
        """Parameters remade, tables looked up at constant places, triangles."""
        if name == "embedding" and held:
            fields = {"vocab": args[0].shape[0], "hidden": args[0].shape[1]}
            self.graph.put(Op("table", [], (), fields, self.weights(held)))
            self.made(results[0])
            return
        triangular = name in ("tril", "triu", "tril_", "triu_", "tril_indices", "triu_indices")
        compared = name in ("le", "lt", "ge", "gt") and results[0].dim() >= 2
        for result in results:
            self.kept.append(result)
            if triangular or compared or any(key(t) in self.triangles for t in tensors):
                self.triangles.add(key(result))
            if held and name not in MADE_ANEW:
                known = self.names.get(key(result), frozenset())
                self.names[key(result)] = known | self.weights(held)

    def weights(self, held: list[torch.Tensor]) -> frozenset[str]:
        return frozenset[str]().union(*(self.names[key(t)] for t in held))

    def _note(
        self, name: str, args: Any, out: Any, moving: list[torch.Tensor],
        held: list[torch.Tensor], results: list[torch.Tensor],
    ) -> None:  # fmt: skip
        feeds = [self.feed(t) for t in moving]
        given = tuple(moving[0].shape)
        weights = self.weights(held)
        if name in UNARY:
            fields: dict[str, Any] = {"op": UNARY[name], "flash": name == "_safe_softmax"}
            self.graph.put(Op("activation", feeds[:1], given, fields, weights))
        elif name in NORMS:
            self._norm(name, held, feeds, given, weights)
        elif method := METHODS.get(name):
            op = method(self, TorchCall(args, out, moving, held))
            if op[0] == "pass":
                op[1].setdefault("op", name)
            if op[0] == "view":
                weights = frozenset()
            self.graph.put(Op(op[0], op[2] if len(op) > 2 else feeds, given, op[1], weights,
                              op[0] in ("dense", "norm", "position")))  # fmt: skip
        else:
            self.graph.put(Op("pass", feeds, given, {"op": name}, weights))

    def _norm(
        self, name: str, held: list[torch.Tensor], feeds: list[int],
        given: tuple[int, ...], weights: frozenset[str],
    ) -> None:  # fmt: skip
        op = NORMS[name]
        if op == "batch" and given[0] == 1 < BATCH:  # each sample by itself: samples as channels
            op, given = "instance", (BATCH, given[1] // BATCH, *given[2:])
        fields: dict[str, Any] = {"op": op}
        vectors = len(held)
        if not vectors:
            fields["affine"] = False
        elif (vectors == 2) != (op != "rms"):
            fields["bias"] = vectors == 2
        self.graph.put(Op("norm", feeds[:1], given, fields, weights, op in ("layer", "rms")))
