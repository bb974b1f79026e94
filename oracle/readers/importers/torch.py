"""A model spec from a torch `nn.Module`, built and run on the meta device without memory.

The module is imported by its path, which runs its owner's code: only with `trust=True`. Every
operation of one forward pass is noted below autograd, so functional sums and concatenations
count as modules do.
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
    source: str, sample: Sequence[Any] | None = None, tokens: int | None = None, name: str = "",
    trust: bool = False,
) -> Imported:  # fmt: skip
    """Return the spec of `package.module:factory`, given the shape of one sample (3 × 224 × 224).

    A module of words takes the length of a sequence, `tokens`, instead; one of several inputs takes
    a list of shapes, in which shapes of words begin with "words".
    """
    if not trust:
        why = f"`{source}` is code: to build the model is to run it"
        raise _stop(source, "E107", why, "say --trust-code if you know where it comes from")
    factory = _factory(source)
    try:
        with torch.device("meta"):
            module = factory if isinstance(factory, torch.nn.Module) else factory()
    except Exception as error:  # somebody else's code: anything may come
        raise _stop(source, "E110", f"building it failed: {_error_text(error)}") from None
    if not isinstance(module, torch.nn.Module):
        why = f"it made a {type(module).__name__}, not an nn.Module"
        raise _stop(source, "E110", why, "name a class, or a function without arguments")
    shape = (tokens,) if tokens else sample or (3, 224, 224)
    return convert(module, shape, tokens=bool(tokens), name=name or _named(source, module))


def _named(source: str, module: torch.nn.Module) -> str:
    """Return the factory's name, or the module's class where that says only `make_model`."""
    name = source.rpartition(":")[2]
    says_nothing = set(name.lower().split("_")) <= MAKES
    return type(module).__name__ if says_nothing else name


def _factory(path: str) -> Any:
    module_path, colon, attribute = path.partition(":")
    if module_path.endswith(".py"):  # its file, below this folder
        module_path = ".".join(PurePath(module_path).with_suffix("").parts)
    if not colon or not all(
        part.isidentifier() for part in [*module_path.split("."), *attribute.split(".")]
    ):
        raise _stop(path, "E110", "an import path is written `package.module:factory`")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = importlib.import_module(module_path)
    except Exception as error:  # somebody else's code: anything may come
        raise _stop(
            path, "E110", f"importing `{module_path}` failed: {_error_text(error)}"
        ) from None
    for part in attribute.split("."):
        if not hasattr(factory, part):
            names = [word for word in dir(factory) if not word.startswith("_")]
            raise _stop(
                path,
                "E110",
                f"`{module_path}` has no `{attribute}`",
                suggest(part, names, "it has"),
            )
        factory = getattr(factory, part)
    if not callable(factory):
        raise _stop(path, "E110", f"`{attribute}` can be neither called nor run")
    return factory


def convert(
    module: torch.nn.Module, sample: Sequence[Any], *, tokens: bool = False,
    name: str = "torch",
) -> Imported:  # fmt: skip
    """Return the spec of a module, which is moved to the meta device.

    `sample` is the shape of one sample, or the shapes of several inputs in the order of the forward
    pass; the shape of words begins with the word "words".
    """
    module = module.to("meta").train()
    shapes = [tuple(sample)] if not _several(sample) else [tuple(shape) for shape in sample]
    if tokens:
        shapes = [("words", *shape) for shape in shapes]
    try:
        inputs = [_drawn(shape) for shape in shapes]
    except (RuntimeError, TypeError, ValueError) as error:
        raise _stop(name, "E111", f"no samples of that shape: {_error_text(error)}") from None
    if len(shapes) > 1:  # one after the other
        sample_shape = Shape(sum(math.prod(t.shape[1:]) for t in inputs))
    elif shapes[0][0] == "words":
        sample_shape = Shape(1, shapes[0][1:], False)
    elif len(shapes[0]) == 2:  # tokens with their channels last
        sample_shape = Shape(shapes[0][1], (shapes[0][0],), True)
    else:
        sample_shape = Shape(shapes[0][0], tuple(shapes[0][1:]))
    graph = TracedGraph(name, BATCH, sample_shape)
    graph.sizes = {name: p.numel() for name, p in module.named_parameters()}
    tracer = TorchTracer(graph, module)
    tracer.note_inputs(inputs)
    try:
        with (torch.no_grad(), torch.device("meta"), tracer.places.followed(), tracer,
              Fused(tracer)):  # fmt: skip
            out = module(*inputs)
    except SpecError:
        raise
    except Exception as error:  # somebody else's code: anything may come
        hint = "a forward pass that looks at values (decoding, early exits) cannot be traced"
        place = tracer.places.failed(error.__traceback__)
        complaint = (
            f"its forward pass failed{f' in {place}' if place else ''}: {_error_text(error)}"
        )
        raise _stop(name, "E110", complaint, hint) from None
    spec_layers = layers(graph, tracer.outputs(out))
    spec = {
        "name": plain_name(name, "torch"),
        "source": f"torch {type(module).__name__}, traced on the meta device",
        "input": [sample_shape.channels, *sample_shape.extents], "layers": spec_layers,
    }  # fmt: skip
    _compare(spec, graph)
    return Imported(spec, tuple(dict.fromkeys([*graph.notes, *_left_open(spec)])))


def _several(sample: Any) -> bool:
    return bool(sample) and not isinstance(sample[0], int | str)


def _drawn(shape: tuple[Any, ...]) -> torch.Tensor:
    """Return samples of a shape, or of words where the shape begins with "words"."""
    if shape[0] == "words":
        return torch.zeros((BATCH, *shape[1:]), dtype=torch.long, device="meta")
    return torch.zeros((BATCH, *shape), device="meta")


def _left_open(spec: dict[str, Any]) -> list[str]:
    """Return one sentence on the operators that are only counted, if there are any."""
    from oracle.models.model import model

    net = model(spec)
    counted = net.mask(lambda row: row.kind in ("opaque", "elementwise"))
    names = [row.name.partition(" at ")[0] for row in net.rows if row.kind in (
        "opaque", "elementwise") and (any(row.reads) or row.macs)]  # fmt: skip
    if not names:
        return []
    share = float((net.repeat * net.mac)[counted].sum() / max(1.0, net.repeat @ net.mac))
    listed = ", ".join(sorted(set(names))[:12])
    return [f"operators without a layer kind are counted, not described: {listed} ({share:.0%} of "
            "the FLOP)"]  # fmt: skip


def _compare(spec: dict[str, Any], graph: TracedGraph) -> None:
    """Refuse a spec whose parameters are not the module's, and name the missing modules."""
    from oracle.models.model import model

    have, parameters = sum(graph.sizes.values()), model(spec).parameters
    if parameters == have:
        return
    missing: dict[str, int] = {}
    for name in graph.sizes.keys() - graph.placed:
        owner = name.rpartition(".")[0] or name
        missing[owner] = missing.get(owner, 0) + graph.sizes[name]
    lacking = sorted(missing, key=lambda owner: (-missing[owner], owner))
    listed = ", ".join(f"`{owner}` ({missing[owner]:,})" for owner in lacking[:8])
    more = f" and {len(lacking) - 8} more" if len(lacking) > 8 else ""
    complaint = f"the layers found have {parameters:,.0f} parameters, the module has {have:,}"
    if listed:
        complaint += f": its output does not depend on {listed}{more}"
    raise graph.stop(complaint, "return what those modules make, or leave them out of the module")


def _stop(path: str, code: str, complaint: str, hint: str = "") -> SpecError:
    return refusal(path, complaint, hint, code)


def _error_text(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
