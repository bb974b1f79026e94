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
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from oracle.models.layers import Shape
from oracle.readers.graph import INPUT, Op, TracedGraph
from oracle.readers.importers import Imported
from oracle.readers.layering import layers
from oracle.readers.spec_text import plain_name
from oracle.readers.torch_ops import BATCH, METHODS, NORMS, RECURRENT, UNARY, TorchCall, key
from oracle.spec.document import SpecError, refusal, suggest


def read(
    what: str, sample: Sequence[int] | None = None, tokens: int | None = None, name: str = "",
    trust: bool = False,
) -> Imported:  # fmt: skip
    """The spec of `package.module:factory`, given the shape of one sample (3 × 224 × 224).

    A module of words takes the length of a sequence, `tokens`, instead.
    """
    if not trust:
        why = f"`{what}` is code: to build the model is to run it"
        raise _stop(what, "E107", why, "say --trust-code if you know where it comes from")
    factory = _found(what)
    try:
        with torch.device("meta"):
            module = factory if isinstance(factory, torch.nn.Module) else factory()
    except Exception as error:  # somebody else's code: anything may come
        raise _stop(what, "E110", f"building it failed: {_said(error)}") from None
    if not isinstance(module, torch.nn.Module):
        why = f"it made a {type(module).__name__}, not an nn.Module"
        raise _stop(what, "E110", why, "name a class, or a function without arguments")
    shape = (tokens,) if tokens else sample or (3, 224, 224)
    return convert(module, shape, tokens=bool(tokens), name=name or what.rpartition(":")[2])


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
    graph = TracedGraph(name, BATCH, one)
    tracer = TorchTracer(graph, module, given)
    try:
        with torch.no_grad(), torch.device("meta"), tracer, Fused(tracer):
            out = module(given)
    except SpecError:
        raise
    except Exception as error:  # somebody else's code: anything may come
        hint = "a forward pass that looks at values (experts, decoding) cannot be traced"
        raise _stop(name, "E110", f"its forward pass failed: {_said(error)}", hint) from None
    found = layers(graph, tracer.outputs(out))
    lost = [f"left out: {one}" for one in sorted(tracer.unplaced)]
    spec = {
        "name": plain_name(name, "torch"),
        "source": f"torch {type(module).__name__}, traced on the meta device",
        "input": [one.channels, *one.extents], "layers": found,
    }  # fmt: skip
    notes = [*graph.notes, *_compared(spec, module), *lost]
    return Imported(spec, tuple(dict.fromkeys(notes)))


def _compared(spec: dict[str, Any], module: torch.nn.Module) -> list[str]:
    """What the spec's parameters differ by, said where they do."""
    from oracle.models.model import model

    have = sum({id(p): p.numel() for p in module.parameters()}.values())
    found = model(spec).parameters
    if found == have:
        return []
    share = abs(found - have) / max(have, 1)
    return [f"{found:.0f} parameters, the module has {have} ({share:.3%} apart)"]


def _stop(path: str, code: str, what: str, hint: str = "") -> SpecError:
    return refusal(path, what, hint, code)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Fused(TorchFunctionMode):  # type: ignore[misc]  # untyped where torch is not
    """Notes fused attention as one call, before it is taken apart."""

    def __init__(self, tracer: TorchTracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in RECURRENT:
            what = f"`{func.__name__}` is no layer kind"
            raise self.tracer.graph.stop(what, "recurrent networks are not described")
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


class TorchTracer(TorchDispatchMode):  # type: ignore[misc]
    """Writes every operation that touches the sample or a parameter to a graph."""

    def __init__(self, graph: TracedGraph, module: torch.nn.Module, given: torch.Tensor) -> None:
        super().__init__()
        self.graph = graph
        self.where: dict[int, int] = {key(given): INPUT}
        self.names: dict[int, frozenset[str]] = {}
        self.triangles: set[int] = set()
        self.unplaced: set[str] = set()  # parameters that no layer kind has a place for
        self.kept: list[torch.Tensor] = [given]  # storages must not be used again
        for name, parameter in module.named_parameters():
            self.names.setdefault(key(parameter), frozenset((name,)))
        for name, buffer in module.named_buffers():
            low, square = name.lower(), buffer.dim() >= 2 and buffer.shape[-1] == buffer.shape[-2]
            if square and (buffer.dtype == torch.bool or "mask" in low or low.endswith("bias")):
                self.triangles.add(key(buffer))

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
        self.graph.put(Op("core", [self.feed(t) for t in (q, k, v)], tuple(q.shape), fields))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and self._answered(args[0]):
            return True
        out = func(*args, **kwargs)
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        name = func._schema.name.partition("::")[2]
        moving = [t for t in tensors if key(t) in self.where]
        held = [t for t in tensors if key(t) in self.names]
        results = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        if not moving:
            self._constant(name, tensors, held, results, args)
            return out
        before = {key(t) for t in tensors}
        if results and all(key(t) in before for t in results) and not name.endswith("_"):
            return out  # a view
        self._note(name, args, kwargs, out, moving, held, results)
        self.made(out)
        return out

    def _answered(self, asked: torch.Tensor) -> bool:
        """Whether a yes-or-no that does not depend on the sample may be taken as yes.

        Such questions guard the common case: no padding, no packed sequences.
        """
        plain = asked.dtype == torch.bool and key(asked) not in self.where
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
            self.graph.put(Op("table", [], (), fields, self.weights(held)))
            self.made(results[0])
            return
        triangular = name in ("tril", "triu", "tril_", "triu_", "tril_indices", "triu_indices")
        compared = name in ("le", "lt", "ge", "gt") and results[0].dim() >= 2
        for result in results:
            self.kept.append(result)
            if triangular or compared or any(key(t) in self.triangles for t in tensors):
                self.triangles.add(key(result))
            if held:
                self.names.setdefault(key(result), self.weights(held))

    def weights(self, held: list[torch.Tensor]) -> frozenset[str]:
        return frozenset[str]().union(*(self.names[key(t)] for t in held))

    def _note(
        self, name: str, args: Any, kwargs: Any, out: Any, moving: list[torch.Tensor],
        held: list[torch.Tensor], results: list[torch.Tensor],
    ) -> None:  # fmt: skip
        feeds = [self.feed(t) for t in moving]
        given = tuple(moving[0].shape)
        weights = self.weights(held)
        if name in UNARY:
            fields: dict[str, Any] = {"op": UNARY[name], "flash": name == "_safe_softmax"}
            self.graph.put(Op("activation", feeds[:1], given, fields, weights))
        elif name in NORMS:
            self._norm(name, args, held, feeds, given, weights)
        elif method := METHODS.get(name):
            op = method(self, TorchCall(args, out, moving, held))
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
        if op == "batch" and given[0] == 1 < BATCH:  # each sample by itself: samples as channels
            op, given = "instance", (BATCH, given[1] // BATCH, *given[2:])
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
            self.unplaced.add(f"parameters of `{name}`: {', '.join(sorted(weights))}"[:200])
        self.graph.put(Op("pass", feeds, given, fields, weights))
