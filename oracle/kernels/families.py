"""Rows of a model by what prices them, and a shard seen at the rows of one such family."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from oracle.kernels.conv import family_of
from oracle.models import masks
from oracle.models.model import Axes, Floats, Model
from oracle.models.shard import Numbers, Shard


class Family:
    """Rows that one call prices together, and what is known of them beside their local shapes."""

    def __init__(self, key: tuple[Any, ...], model: Model, columns: list[int]) -> None:
        (self.kind, *self.more), self.columns = key, np.array(columns)
        self.rows = rows = [model.rows[i] for i in columns]
        self.experts = np.array([r.experts for r in rows], float)
        self.narrow = np.array([r.narrow for r in rows])
        self.vocab = np.array([r.role == "vocab" for r in rows])
        self.frozen = np.array([r.frozen for r in rows])
        self.loss = np.array([r.kind == "loss" for r in rows])
        self.gates = np.array([r.kind == "mlp" and "x" in r.needs for r in rows])
        self.adds = np.array([r.adds for r in rows])
        self.normed, self.summed = (
            np.array([r.kind == kind and r.made.tokens for r in rows]) for kind in ("norm", "add")
        )
        self.sent, self.returned = (
            np.array([r.role == role for r in rows]) for role in ("dispatch", "combine")
        )
        self.bias = np.array([r.bias for r in rows])
        self.reads, self.rereads = (
            np.array([getattr(r, passes) for r in rows], float).T for passes in ("reads", "rereads")
        )
        self.width, self.keys = np.array([(r.width, r.keys) for r in rows], float).T


@lru_cache(masks.MODELS)
def families(model: Model) -> tuple[Family, ...]:
    """A model's rows by what prices them."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(model.rows):
        key: tuple[Any, ...] = (row.work,)
        if row.work == "gemm":
            key = ("gemm", "experts" if row.experts else "gemm")
        elif row.work == "counted":
            key = ("counted", row.family or "counted")
        elif row.work == "stream" and row.family:
            key = ("stream", row.family)
        elif row.work == "attention":
            kernels = row.family or "attention"
            key = ("attention", row.causal, row.flash, row.version, row.apart, kernels)
        elif row.work == "conv":
            rank = len(row.made.extents)
            kind = family_of(row.given.channels, row.made.channels, row.groups, rank)
            key = ("deconv" if row.kind == "deconv" else "conv", kind, rank)
        elif row.spans or row.kind == "pool":
            rank = len(row.given.extents)
            key = ("reduction", "norm" if row.spans else "pool", row.spans, rank)
        found.setdefault(key, []).append(i)
    return tuple(Family(key, model, columns) for key, columns in found.items())


class At:
    """A shard seen at the rows of a family."""

    def __init__(self, shard: Shard, family: Family) -> None:
        self.shard, self.family = shard, family

    def __call__(self, values: Numbers) -> Floats:
        values = np.asarray(values, float)
        if values.ndim == 0 or values.shape[-1] == 1:
            return values
        return values[..., self.family.columns]

    def three(self, extents: Axes) -> Axes:
        """Three extents with what is not there in front, as convolutions are priced."""
        first, second, third = (self(e) for e in extents)
        return third, first, second
