"""Small models that strategies can cut: a convolutional network, a transformer, experts."""

from __future__ import annotations

from typing import Any

BATCH = 16


def _conv(filters: int, kernel: int = 3) -> dict[str, Any]:
    return {"conv": {"filters": filters, "kernel": kernel, "padding": kernel // 2}}


IMAGES = {"name": "images", "source": "made to prove a machine", "input": [8, 32, 32], "layers": [
    _conv(16), "relu", _conv(16), "relu", {"pool": {"kernel": 2}}, _conv(32), "relu",
    _conv(16, 1), "relu", "flatten", {"dense": 32}, "relu", {"dense": 16}, "loss",
]}  # fmt: skip
WORDS = {"name": "words", "source": "made to prove a machine", "transformer": {
    "layers": 8, "hidden": 64, "heads": 8, "vocab": 96, "sequence": 32, "tied_embeddings": False,
}}  # fmt: skip
EXPERTS = {"name": "experts", "source": "made to prove a machine", "transformer": {
    "layers": 2, "hidden": 64, "heads": 8, "ffn": 32, "vocab": 96, "sequence": 32,
    "tied_embeddings": False, "experts": 8, "active": 2}}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {"images": IMAGES, "words": WORDS, "experts": EXPERTS}
