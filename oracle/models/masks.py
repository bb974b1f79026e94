"""Rows of a model by what they do, found once for each model."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.models.model import Flags, Floats, Model

MODELS = 32  # whose masks are kept


@lru_cache(MODELS)
def apart(model: Model) -> Flags:
    """Rows whose products make gradients of weights that are added up after."""
    return model.mask(lambda row: row.work in ("gemm", "conv") and not row.adds and not row.frozen)


@lru_cache(MODELS)
def attention(model: Model) -> Flags:
    return model.mask(lambda row: row.work == "attention")


@lru_cache(MODELS)
def borrowed(model: Model) -> Floats:
    """The weights of the table of words that the last stage copies, at the row that uses the copy.

    That row is the matrix of words at the model's end, where it is tied, or else an embedding
    behind it.
    """
    weights = np.zeros(len(model))
    ends = [i for i, row in enumerate(model.rows) if row.work == "gemm" and row.role == "vocab"]
    for i in range(ends[0], len(model)) if ends else ():
        row, end = model.rows[i], model.rows[ends[0]]
        if row.tied and (end.tied or row.kind == "embedding"):
            weights[i] = end.given.channels * end.made.channels
            break
    return weights


@lru_cache(MODELS)
def borrowed_share(model: Model) -> Floats:
    """The share of such a copy in the weights of its row."""
    copy = borrowed(model)
    return np.asarray(np.divide(copy, model.w + copy, out=np.zeros(len(model)), where=copy > 0))


@lru_cache(MODELS)
def convolutions(model: Model) -> Flags:
    return model.mask(lambda row: row.work == "conv")


@lru_cache(MODELS)
def after_instance_norms(model: Model) -> Flags:
    """Activations that are done in place on what an instance norm made."""
    return np.array([
        row.kind == "activation" and "y" in row.needs
        and any(feed >= 0 and model.rows[feed].spans == "instance" for feed in feeds)
        for row, feeds in zip(model.rows, model.feeds, strict=True)
    ], bool)  # fmt: skip


@lru_cache(MODELS)
def embeddings(model: Model) -> Flags:
    return model.mask(lambda row: row.kind == "embedding")


@lru_cache(MODELS)
def entries(model: Model) -> Flags:
    """Rows that read the samples themselves."""
    return np.array([feeds == (-1,) for feeds in model.feeds])


@lru_cache(MODELS)
def experts(model: Model) -> Flags:
    """Rows of a mixture's experts."""
    return model.mask(lambda row: row.experts > 0)


@lru_cache(MODELS)
def shared_experts(model: Model) -> Flags:
    """Rows of experts that every token visits, beside a mixture."""
    return model.mask(lambda row: row.kind == "mlp" and ".shared." in row.name)


@lru_cache(MODELS)
def factored(model: Model) -> Flags:
    """Rows whose curvature K-FAC factors: matrices and filters that see all channels."""
    return matrices(model) & model.mask(
        lambda row: row.groups == 1 and row.kind != "deconv" and not row.experts
    )


@lru_cache(MODELS)
def losses(model: Model) -> Flags:
    return model.mask(lambda row: row.kind == "loss")


@lru_cache(MODELS)
def matrices(model: Model) -> Flags:
    """Rows with a trained matrix or trained filters, except the matrix of words."""
    return model.mask(
        lambda row: row.work in ("gemm", "conv") and row.role != "vocab" and not row.frozen
    )


@lru_cache(MODELS)
def moved(model: Model) -> Flags:
    """Rows that make a tensor of their own; flatten and reshape make none."""
    return model.mask(lambda row: row.kind not in ("flatten", "reshape"))


@lru_cache(MODELS)
def opaque(model: Model) -> Flags:
    """Rows that may read any position: nobody knows how to cut them, or nobody does."""
    return model.mask(lambda row: row.kind == "opaque" or row.family == "scan")


@lru_cache(MODELS)
def tables(model: Model) -> Flags:
    """Rows that look up bags of rows in tables."""
    return model.mask(lambda row: row.family == "tables" and row.weights > 0)


@lru_cache(MODELS)
def streams(model: Model) -> Flags:
    """Rows that wait for memory, whatever the clock."""
    return model.mask(lambda row: row.work == "stream")


@lru_cache(MODELS)
def of_words(model: Model) -> bool:
    """Whether a model reads words and nothing else: tables of words take all of its input."""
    takes = [row for row, sources in zip(model.rows, model.feeds, strict=True) if -1 in sources]
    return all(row.kind == "embedding" and row.made.tokens for row in takes)


@lru_cache(MODELS)
def of_tokens(model: Model) -> bool:
    """Whether a model is a language model, or attends and does most of its work on tokens."""
    share = model.mac[model.tokens].sum() / max(model.mac.sum(), 1.0)
    return of_words(model) or bool(attention(model).any() and share > 0.5)
