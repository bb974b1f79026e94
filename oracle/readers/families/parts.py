"""Layers that families of lists are made of: stacks of attention and MLP, a second sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Layer = dict[str, Any]  # one layer of a spec file


def norm(op: str, name: str = "", source: str = "") -> Layer:
    """Return a layer, RMS or batch norm."""
    fields = {"name": name, "from": [source] if source else "", "op": op}
    return {"norm": {key: value for key, value in fields.items() if value}}


def dense(filters: int, name: str = "", source: str = "", **more: Any) -> Layer:
    """Return a matrix on the layer `source`, or on the layer before it."""
    fields = {"name": name, "from": [source] if source else "", "filters": filters}
    return {"dense": {**{key: value for key, value in fields.items() if value}, **more}}


def conv(filters: int, kernel: int, stride: int = 1, **more: Any) -> Layer:
    """Return a convolution without biases, padded to keep its extents but for the stride."""
    padding = {"padding": kernel // 2} if kernel > 1 else {}
    return {"conv": {"filters": filters, "kernel": kernel, "bias": False, **padding,
                     **({"stride": stride} if stride > 1 else {}), **more}}  # fmt: skip


def attention(heads: int, **more: Any) -> list[Layer]:
    """Return the attention of a sequence to itself."""
    fields = {key: value for key, value in more.items() if value is not None}
    return [{"attention": {"name": "attention", "heads": heads, **fields}}]


def mlp(ffn: int, **more: Any) -> list[Layer]:
    """Return two matrices, or three, with a function between them."""
    return [{"mlp": {"name": "mlp", "ffn": ffn, **more}}]


def cross(memory: str, heads: int, **more: Any) -> list[Layer]:
    """Return the attention of a sequence to the output of an encoder.

    `stack` sets the source of its queries; its keys and values are the layer `memory`.
    """
    fields = {key: value for key, value in more.items() if value is not None}
    return [{"cross": {"name": "cross", "from": ["", memory], "heads": heads, **fields}}]


def stack(
    times: int, parts: Sequence[list[Layer]], op: str = "layer", after: bool = False,
    dropout: bool = False,
) -> Layer:  # fmt: skip
    """Return equal layers of a transformer, with a norm before each part or after its sum."""
    layers: list[Layer] = []
    source = "block"
    for i, part in enumerate(parts, 1):
        if not after:
            layers.append(norm(op, f"norm{i}", "" if source == "block" else source))
        (last,) = part[-1].values()
        if "cross" in part[0]:  # its queries come from the layer before it
            last = {**last, "from": [source if after else f"norm{i}", last["from"][1]]}
            part = [{"cross": last}]
        layers += part
        add: Layer = {"name": f"sum{i}", "from": [source, last["name"]]}
        layers.append({"add": {**add, **({"dropout": True} if dropout else {})}})
        source = f"sum{i}"
        if after:
            layers.append(norm(op, source := f"norm{i}"))
    return {"repeat": times, "layers": layers}


def scaled(channels: int, extents: Sequence[int], tokens: bool) -> Layer:
    """Return a layer that multiplies each channel by a learned number."""
    size = channels
    for extent in extents:
        size *= extent
    return {
        "opaque": {
            "name": "scaled", "op": "scale of each channel",
            **output_fields(channels, extents, tokens), "weights": channels, "moves": 2 * size,
            "moves_back": 3 * size, "keeps": True, "each": True,
        }
    }  # fmt: skip


def vectors(op: str, weights: int, channels: int, tokens: int) -> Layer:
    """Return a layer of few learned numbers: relative positions, a token for masked words."""
    return {"opaque": {"op": op, **output_fields(channels, [tokens], True), "weights": weights,
                       "each": True}}  # fmt: skip


def second(vocab: int, hidden: int, tokens: int, **more: Any) -> Layer:
    """Return the embedding of a second sequence of the sample."""
    return {"embedding": {"from": ["input"], "vocab": vocab, "hidden": hidden, "tokens": tokens,
                          **more}}  # fmt: skip


def output_fields(channels: int, extents: Sequence[int], tokens: bool) -> Layer:
    return {"made": [channels, *extents], **({"tokens": True} if tokens else {})}


def classes(fields: Mapping[str, Any]) -> int:
    """Return the labels of a classifier, by default two, as the library does."""
    labels = fields.get("id2label")
    return len(labels) if isinstance(labels, Mapping) and labels else 2
