"""Signatures of rows: their layer and local shape, as text in a profile and as numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from oracle.models.model import Floats, Model
from oracle.models.shard import Shard, serial

LOCAL = ("n", "c", "f", "i", "o", "x", "y", "h")  # what strategies change, by its letter


def shape_of(shard: Shard) -> dict[str, tuple[Floats, ...]]:
    """The local shape of every row, by letter."""
    return {
        "n": (shard.micro,), "c": (shard.channels,), "f": (shard.filters,), "i": shard.given,
        "o": shard.made, "x": (shard.x,), "y": (shard.y,), "h": (shard.heads,),
    }  # fmt: skip


def signature(shard: Shard, row: int, plan: int = 0) -> str:
    """What tells one row's work on one device from another's: its layer and local shape."""
    full = (plan + 1, len(shard.model))

    def at(value: Any) -> str:
        return f"{np.broadcast_to(value, full)[plan, row] + 0.0:g}"

    shape = shape_of(shard)
    own = {letter: letter + "x".join(map(at, shape[letter])) for letter in LOCAL}
    what = layer(shard.model, row).split(" ")
    words = [*what[:2], *(own[c] for c in "ncfioxy"), *what[2:-1], own["h"], what[-1]]
    return " ".join(words)


def layer(model: Model, row: int) -> str:
    """What a row is whatever its local shape: two rows with the same text are the same layer."""
    what = model.rows[row]
    parts = [
        what.kind, what.work, f"w{what.weights}", f"g{what.groups}",
        f"k{'x'.join(map(str, what.window))}", f"s{'x'.join(map(str, what.stride))}",
        f"r{what.reads}{what.rereads}{f'macs{what.macs:g}' if what.macs else ''}"
        f"{'first' if model.feeds[row] == (-1,) else ''}",
    ]  # fmt: skip
    return " ".join(parts).replace(", ", ",")


def taken_apart(text: str) -> tuple[str, tuple[float, ...]]:
    """(layer, local shape) of a signature; ValueError if it is none."""
    words = text.split(" ")
    letters = [word[:1] for word in words[2:]]
    if letters != list("ncfioxywgkshr"):
        raise ValueError("`row` is a kind, its work and the words n c f i o x y w g k s h r")
    shape = []
    for letter in LOCAL:
        word = words[2 + letters.index(letter)][1:]
        numbers = [float(part) for part in word.split("x") if re.fullmatch(r"[\d.e+]+", part)]
        if len(numbers) != (3 if letter in "io" else 1) or len(word) > 80:
            raise ValueError(f"`{letter}{word[:40]}` of `row` is no extent")
        shape += numbers
    what = [*words[:2], *(w for w in words[2:] if w[0] not in LOCAL)]
    return " ".join(what), tuple(shape)


def of_shapes(model: Model, shapes: Floats, delta: float) -> Shard:
    """A shard whose plans have these local shapes: (plans, 12, rows), in the order of LOCAL."""
    own = serial(model, 1.0, delta)
    n, c, f, *rest = shapes.transpose(1, 0, 2)
    given, made, (x, y, heads) = tuple(rest[:3]), tuple(rest[3:6]), rest[6:]
    # a device has as many key-value heads as of heads, and of a sequence what it makes
    share = heads / np.maximum(own.heads, 1)
    long = model.made[0] / np.maximum(made[0], 1e-9)
    return own.but(
        batch=n, channels=c, filters=f, given=given, made=made, x=x, y=y, heads=heads,
        kv_heads=np.maximum(own.kv_heads * share, np.minimum(own.kv_heads, 1)),
        long=long, rounds=long,  # as a ring sees it, part by part
    )  # fmt: skip
