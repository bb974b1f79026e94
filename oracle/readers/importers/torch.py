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
from pathlib import PurePath
from typing import Any

import torch

from oracle.models.layers import Shape
from oracle.readers.graph import TracedGraph
from oracle.readers.importers import Imported
from oracle.readers.layering import layers
from oracle.readers.spec_text import plain_name
from oracle.readers.torch_ops import BATCH
from oracle.readers.torch_trace import Fused, TorchTracer
from oracle.spec.document import SpecError, refusal, suggest

MAKES = {"build", "create", "factory", "get", "main", "make", "model", "module", "net", "network",
         "new"}  # fmt: skip


def read(
    what: str, sample: Sequence[Any] | None = None, tokens: int | None = None, name: str = "",
    trust: bool = False,
) -> Imported:  # fmt: skip
    """The spec of `package.module:factory`, given the shape of one sample (3 × 224 × 224).

    A module of words takes the length of a sequence, `tokens`, instead; one of several inputs a
    list of shapes, those of words beginning with "words".
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
    return convert(module, shape, tokens=bool(tokens), name=name or _named(what, module))


def _named(what: str, module: torch.nn.Module) -> str:
    """The factory's name; the module's class where that says only that something is made."""
    name = what.rpartition(":")[2]
    says_nothing = set(name.lower().split("_")) <= MAKES
    return type(module).__name__ if says_nothing else name


def _found(path: str) -> Any:
    where, colon, what = path.partition(":")
    if where.endswith(".py"):  # its file, below this folder
        where = ".".join(PurePath(where).with_suffix("").parts)
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
    module: torch.nn.Module, sample: Sequence[Any], *, tokens: bool = False,
    name: str = "torch",
) -> Imported:  # fmt: skip
    """The spec of a module already built, on whatever device; it is moved to the meta device.

    `sample` is the shape of one sample, or the shapes of several inputs in the order of the forward
    pass; the shape of words begins with the word "words".
    """
    module = module.to("meta").train()
    shapes = [tuple(sample)] if not _several(sample) else [tuple(one) for one in sample]
    if tokens:
        shapes = [("words", *shape) for shape in shapes]
    try:
        given = [_drawn(shape) for shape in shapes]
    except (RuntimeError, TypeError, ValueError) as error:
        raise _stop(name, "E111", f"no samples of that shape: {_said(error)}") from None
    if len(shapes) > 1:  # one after the other
        one = Shape(sum(math.prod(t.shape[1:]) for t in given))
    elif shapes[0][0] == "words":
        one = Shape(1, shapes[0][1:], False)
    elif len(shapes[0]) == 2:  # tokens with their channels last
        one = Shape(shapes[0][1], (shapes[0][0],), True)
    else:
        one = Shape(shapes[0][0], tuple(shapes[0][1:]))
    graph = TracedGraph(name, BATCH, one)
    graph.sizes = {name: p.numel() for name, p in module.named_parameters()}
    tracer = TorchTracer(graph, module)
    tracer.given(given)
    try:
        with (torch.no_grad(), torch.device("meta"), tracer.places.followed(), tracer,
              Fused(tracer)):  # fmt: skip
            out = module(*given)
    except SpecError:
        raise
    except Exception as error:  # somebody else's code: anything may come
        hint = "a forward pass that looks at values (decoding, early exits) cannot be traced"
        where = tracer.places.failed(error.__traceback__)
        what = f"its forward pass failed{f' in {where}' if where else ''}: {_said(error)}"
        raise _stop(name, "E110", what, hint) from None
    found = layers(graph, tracer.outputs(out))
    spec = {
        "name": plain_name(name, "torch"),
        "source": f"torch {type(module).__name__}, traced on the meta device",
        "input": [one.channels, *one.extents], "layers": found,
    }  # fmt: skip
    _compare(spec, graph)
    return Imported(spec, tuple(dict.fromkeys([*graph.notes, *_left_open(spec)])))


def _several(sample: Any) -> bool:
    return bool(sample) and not isinstance(sample[0], int | str)


def _drawn(shape: tuple[Any, ...]) -> torch.Tensor:
    """Samples of a shape; of words, where it begins so."""
    if shape[0] == "words":
        return torch.zeros((BATCH, *shape[1:]), dtype=torch.long, device="meta")
    return torch.zeros((BATCH, *shape), device="meta")


def _left_open(spec: dict[str, Any]) -> list[str]:
    """What is counted only, in one sentence."""
    from oracle.models.model import model

    found = model(spec)
    counted = found.mask(lambda row: row.kind in ("opaque", "elementwise"))
    names = [row.name.partition(" at ")[0] for row in found.rows if row.kind in (
        "opaque", "elementwise") and (any(row.reads) or row.macs)]  # fmt: skip
    if not names:
        return []
    share = float((found.repeat * found.mac)[counted].sum() / max(1.0, found.repeat @ found.mac))
    listed = ", ".join(sorted(set(names))[:12])
    return [f"operators without a layer kind are counted, not described: {listed} ({share:.0%} of "
            "the FLOP)"]  # fmt: skip


def _compare(spec: dict[str, Any], graph: TracedGraph) -> None:
    """Refuse a spec whose parameters are not the module's, and name the modules that lack."""
    from oracle.models.model import model

    have, found = sum(graph.sizes.values()), model(spec).parameters
    if found == have:
        return
    missing: dict[str, int] = {}
    for name in graph.sizes.keys() - graph.placed:
        owner = name.rpartition(".")[0] or name
        missing[owner] = missing.get(owner, 0) + graph.sizes[name]
    lacking = sorted(missing, key=lambda owner: (-missing[owner], owner))
    named = ", ".join(f"`{owner}` ({missing[owner]:,})" for owner in lacking[:8])
    more = f" and {len(lacking) - 8} more" if len(lacking) > 8 else ""
    what = f"the layers found have {found:,.0f} parameters, the module has {have:,}"
    if named:
        what += f": its output does not depend on {named}{more}"
    raise graph.stop(what, "return what those modules make, or leave them out of the module")


def _stop(path: str, code: str, what: str, hint: str = "") -> SpecError:
    return refusal(path, what, hint, code)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
