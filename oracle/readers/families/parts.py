"""Layers that families of lists are made of: stacks of attention and MLP, a second sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Said = dict[str, Any]  # one layer, as a spec file has it


def norm(op: str, name: str = "", of: str = "") -> Said:
    """A layer, RMS or batch norm."""
    said = {"name": name, "from": [of] if of else "", "op": op}
    return {"norm": {key: value for key, value in said.items() if value}}


def dense(filters: int, name: str = "", of: str = "", **more: Any) -> Said:
    """A matrix, of what is called `of` or of what stands before it."""
    said = {"name": name, "from": [of] if of else "", "filters": filters}
    return {"dense": {**{key: value for key, value in said.items() if value}, **more}}


def conv(filters: int, kernel: int, stride: int = 1, **more: Any) -> Said:
    """A convolution padded to keep its extents, but for the stride; without biases."""
    padding = {"padding": kernel // 2} if kernel > 1 else {}
    return {"conv": {"filters": filters, "kernel": kernel, "bias": False, **padding,
                     **({"stride": stride} if stride > 1 else {}), **more}}  # fmt: skip


def attention(heads: int, **more: Any) -> list[Said]:
    """Attention of a sequence to itself."""
    said = {key: value for key, value in more.items() if value is not None}
    return [{"attention": {"name": "attention", "heads": heads, **said}}]


def mlp(ffn: int, **more: Any) -> list[Said]:
    """Two matrices, or three, with a function between them."""
    return [{"mlp": {"name": "mlp", "ffn": ffn, **more}}]


def cross(memory: str, heads: int, **more: Any) -> list[Said]:
    """Attention of a sequence to another one, which was made by an encoder.

    Its queries are what `stack` has at hand, its keys and values what is called `memory`.
    """
    said = {key: value for key, value in more.items() if value is not None}
    return [{"cross": {"name": "cross", "from": ["", memory], "heads": heads, **said}}]


def stack(
    times: int, parts: Sequence[list[Said]], op: str = "layer", after: bool = False,
    dropout: bool = False,
) -> Said:  # fmt: skip
    """Equal layers of a transformer: each part is normed before it, or after it is added."""
    found: list[Said] = []
    at = "block"
    for i, part in enumerate(parts, 1):
        if not after:
            found.append(norm(op, f"norm{i}", "" if at == "block" else at))
        (last,) = part[-1].values()
        if "cross" in part[0]:  # to what stands before it
            last = {**last, "from": [at if after else f"norm{i}", last["from"][1]]}
            part = [{"cross": last}]
        found += part
        add: Said = {"name": f"sum{i}", "from": [at, last["name"]]}
        found.append({"add": {**add, **({"dropout": True} if dropout else {})}})
        at = f"sum{i}"
        if after:
            found.append(norm(op, at := f"norm{i}"))
    return {"repeat": times, "layers": found}


def scaled(channels: int, extents: Sequence[int], tokens: bool) -> Said:
    """Each channel times a learned number."""
    size = channels
    for extent in extents:
        size *= extent
    return {"opaque": {"name": "scaled", "op": "scale of each channel", **made(channels, extents,
            tokens), "weights": channels, "moves": 2 * size, "moves_back": 3 * size, "keeps": True,
            "each": True}}  # fmt: skip


def vectors(what: str, weights: int, channels: int, tokens: int) -> Said:
    """Learned numbers that are few: relative positions, a token for what is masked."""
    return {"opaque": {"op": what, **made(channels, [tokens], True), "weights": weights,
                       "each": True}}  # fmt: skip


def second(vocab: int, hidden: int, tokens: int, **more: Any) -> Said:
    """Words of a second sequence, which the sample brings along, looked up."""
    return {"embedding": {"from": ["input"], "vocab": vocab, "hidden": hidden, "tokens": tokens,
                          **more}}  # fmt: skip


def made(channels: int, extents: Sequence[int], tokens: bool) -> Said:
    return {"made": [channels, *extents], **({"tokens": True} if tokens else {})}


def classes(fields: Mapping[str, Any]) -> int:
    """Labels of a classifier; two where none are named, as the library does."""
    labels = fields.get("id2label")
    return len(labels) if isinstance(labels, Mapping) and labels else 2
