"""A model as columns, one row a kernel; equal blocks folded with a repeat count.

Every spec, importer and dict ends here. Rows carry shapes at full size for one sample;
strategies cut them, the machine prices them. `units` are the pieces a pipeline may deal out:
runs of rows, see `places`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.models import kept
from oracle.models.build import Network, Segment, misfits, rows_of
from oracle.models.layers import Extents, Row, Shape
from oracle.models.places import Units, units_of
from oracle.models.training import FULL, Training, training
from oracle.models.transformer import Transformer
from oracle.spec import catalogue
from oracle.spec.changes import parted, rewrite, scalars
from oracle.spec.convergence import Convergence
from oracle.spec.dataset import Dataset
from oracle.spec.document import Node, fingerprint
from oracle.spec.kernel_choice import KernelChoice
from oracle.spec.schema import read
from oracle.spec.software import PLAIN

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Axes: TypeAlias = tuple[Floats, Floats, Floats]  # three extents of each row; 1 where none is


@dataclass(frozen=True, eq=False)
class Written:
    """A model spec as it was read, and the kernels that its rows were made for."""

    spec: Network
    node: Node
    name: str
    text: str
    kernels: KernelChoice


@dataclass(frozen=True, eq=False)
class Model:
    """Columns of equal length L, one entry a row; `repeat` says how often each row recurs."""

    name: str
    rows: tuple[Row, ...]
    feeds: tuple[tuple[int, ...], ...]  # rows whose output each row takes; -1: the input
    segments: tuple[Segment, ...]
    title: str = ""
    source: str = ""
    dataset: Dataset | None = None  # that it is usually trained on, or was opened with
    fingerprint: str = ""  # a hash of the spec's layers: what results of it belong to
    written: Written | None = None  # as a spec has it; None where its rows are all that is known

    @property
    def kernels(self) -> KernelChoice:
        """The kernels that its rows were made for."""
        return PLAIN.kernels if self.written is None else self.written.kernels

    def under(self, kernels: KernelChoice) -> Model:
        """The model as these kernels run it, where its spec leaves them open."""
        if self.written is None or self.written.kernels == kernels:
            return self
        return _run_with(self, kernels)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, read: Callable[[Row], float]) -> Floats:
        """Return `read(row)` of each row."""
        return np.array([read(row) for row in self.rows], dtype=float)

    @cached_property
    def repeat(self) -> Floats:
        """How often each row recurs."""
        counts = np.ones(len(self.rows))
        for segment in self.segments:
            counts[segment.start : segment.stop] = segment.repeat
        return counts

    @cached_property
    def folded(self) -> Flags:
        """Rows that stand in a repeated block, or in a layer of a stack."""
        folded = self.repeat > 1
        for segment in self.segments:
            folded[segment.start : segment.stop] |= segment.stack
        return folded

    @cached_property
    def blocks(self) -> Flags:
        """Rows of blocks, the first of a stage too, which doesn't recur; all, where none does."""
        if not self.folded.any():
            return np.ones(len(self.rows), bool)
        blocks = self.folded.copy()
        for segment in self.segments:
            blocks[segment.start : segment.stop] |= segment.block
        return blocks

    @cached_property
    def x(self) -> Floats:
        """|x|, input elements of one sample."""
        return self.column(lambda row: row.given.size)

    @cached_property
    def y(self) -> Floats:
        """|y|, output elements of one sample."""
        return self.column(lambda row: row.made.size)

    @cached_property
    def w(self) -> Floats:
        """|w|, weights, biases included."""
        return self.column(lambda row: row.weights)

    @cached_property
    def trained(self) -> Floats:
        """1 for rows whose weights are trained, 0 for those that are frozen."""
        return self.column(lambda row: not row.frozen)

    @property
    def training(self) -> Training:
        """The part of the model that is trained."""
        return FULL if self.written is None else training(self.written.spec.train)

    @cached_property
    def channels(self) -> Floats:
        return self.column(lambda row: row.given.channels)

    @cached_property
    def filters(self) -> Floats:
        return self.column(lambda row: row.made.channels)

    @cached_property
    def heads(self) -> Floats:
        return self.column(lambda row: row.heads)

    @cached_property
    def kv_heads(self) -> Floats:
        return self.column(lambda row: row.kv_heads)

    @cached_property
    def groups(self) -> Floats:
        return self.column(lambda row: row.groups)

    def _axes(self, read: Callable[[Row], Extents]) -> Axes:
        padded = np.array([(*read(row), 1, 1, 1)[:3] for row in self.rows], dtype=float)
        return tuple(padded.T)

    @cached_property
    def given(self) -> Axes:
        """Input extents."""
        return self._axes(lambda row: row.given.extents)

    @cached_property
    def made(self) -> Axes:
        """Output extents."""
        return self._axes(lambda row: row.made.extents)

    @cached_property
    def window(self) -> Axes:
        return self._axes(lambda row: row.window)

    @cached_property
    def stride(self) -> Axes:
        return self._axes(lambda row: row.stride)

    def mask(self, test: Callable[..., object]) -> Flags:
        """Rows that pass a test."""
        return np.array([bool(test(row)) for row in self.rows])

    @cached_property
    def names(self) -> list[str]:
        """The names of rows; where several share a name, with their number in the model."""
        words = [row.name for row in self.rows]
        often = Counter(words)
        return [f"{word}#{i + 1}" if often[word] > 1 else word for i, word in enumerate(words)]

    @cached_property
    def weighted(self) -> Flags:
        """Rows whose weights meet every input channel: convolutions and matrices."""
        return self.mask(lambda row: row.work in ("gemm", "conv"))

    @cached_property
    def layers(self) -> Flags:
        """Rows that count as a layer in the published table: matrices, attention, pooling."""
        return self.weighted | self.mask(lambda row: row.work == "attention" or row.kind == "pool")

    @cached_property
    def tokens(self) -> Flags:
        """Rows whose first extent counts tokens."""
        return self.mask(lambda row: row.made.tokens or row.given.tokens)

    @cached_property
    def kept(self) -> Floats:
        """|elements| of each row's output, per sample, that the backward pass wants."""
        return kept.kept_elements(self)

    @cached_property
    def fed(self) -> Flags:
        """Rows whose output only linear layers want again, so that it can be kept in 8 bits."""
        return kept.wanted_by(self, narrow=True)

    @cached_property
    def gated(self) -> Flags:
        """Rows whose output only gates of MLPs want again."""
        return kept.wanted_by(self, narrow=False)

    @cached_property
    def kept_bytes(self) -> Floats:
        """Further bytes that each row keeps per sample: masks, indices, fp32 copies."""
        return kept.kept_bytes(self)

    @cached_property
    def mac(self) -> Floats:
        """Multiply-accumulates of a forward pass, per sample and row."""
        return self.column(lambda row: row.mac)

    @property
    def parameters(self) -> float:
        return float(self.repeat @ self.w)

    @property
    def convergence(self) -> tuple[Convergence, ...]:
        """What its spec says of the time to a target."""
        return () if self.written is None else self.written.spec.convergence

    @property
    def flop(self) -> float:
        """Forward and backward, per sample: 3 × 2 × MAC; frozen weights have no gradient."""
        passes = 1.0 if self.training.forward else 2.0 + self.trained
        return float(2 * self.repeat @ (self.mac * passes))

    @property
    def units(self) -> tuple[Floats, Floats]:
        """(U, L) counts of each row in each unit, and the row that ends each unit (U,)."""
        return self.pieces.counts, self.pieces.ends

    @cached_property
    def pieces(self) -> Units:
        """The units that a pipeline may deal out, and what passes between them."""
        moved = self.x + self.y
        shares = (part / max(float(self.repeat @ part), 1.0) for part in (self.mac, moved))
        return units_of(self.feeds, self.segments, self.y, sum(shares, np.zeros(len(self))) / 2)


def model(what: Any, dataset: Any = None) -> Model:
    """Return a model by shipped name, path or dict; `dataset` sets the samples of an epoch.

    A name may be followed by fields to change: `llama2-70b,sequence=8192,train=lora:16`.
    """
    if isinstance(what, Model):
        opened = what
    elif isinstance(what, Mapping):
        opened = _load(what)
    else:
        text = catalogue.name_of(what, "models")
        name, changes = parted(text)
        path = catalogue.find(name, "models").absolute()
        opened = _OPENED.get((path, *changes), lambda: _load(text))
    if dataset is None:
        return opened
    return _with_dataset(opened, catalogue.dataset(dataset))


def _with_dataset(model: Model, data: Dataset) -> Model:
    data = _as_read(data, model.rows[0].given)
    return replace(model, dataset=data)


def _as_read(data: Dataset, sample: Shape) -> Dataset:
    """Return the data set as a model reads it: text is cut into sequences of the model's length."""
    if not sample.tokens or len(data.sample) != 2 or data.sample[1:] == sample.extents:
        return data
    samples = max(1, data.samples * data.sample[1] // sample.extents[0])
    return replace(data, samples=samples, sample=(data.sample[0], *sample.extents))


_OPENED = catalogue.Kept(32)


def network(source: Any) -> tuple[Network, Node, str, str]:
    """Return the model spec as written, with its tree, file name and text for messages."""
    if isinstance(source, Mapping):
        node, name, text = catalogue.document(source, "models")
        catalogue.note_unknown(node, "dataset", "datasets")
        return read(Network, node, name, text, label="model", beyond=misfits), node, name, text
    base, changes = parted(catalogue.name_of(source, "models"))
    node, name, text = catalogue.document(base, "models")
    whole_keys, family = ("train", "dataset"), node.entries.get("transformer", node)
    keys = [*whole_keys, *(scalars(Transformer) if family is not node else ())]
    for change in changes:
        target = node if change.split("=")[0] in whole_keys else family
        rewrite(target, change, keys, "model", "gpt2,sequence=2048")
    catalogue.note_unknown(node, "dataset", "datasets")
    spec = read(Network, node, name, text, label="model", beyond=misfits)
    if changes:
        full_name = ",".join((spec.name, *changes))
        spec = replace(spec, name=full_name, title=", ".join((spec.title, *changes)))
    return spec, node, name, text


def _load(source: Any) -> Model:
    spec, node, name, text = network(source)
    folder = catalogue.folder_of(source, name)
    data = catalogue.dataset(spec.dataset, folder) if spec.dataset else None
    return build(spec, node, name, text, data)


def build(
    spec: Network, node: Node, name: str, text: str = "", data: Dataset | None = None,
    kernels: KernelChoice = PLAIN.kernels,
) -> Model:  # fmt: skip
    """Return the model of a network, run with these kernels where the spec leaves them open."""
    built = rows_of(spec, node, name, text, kernels)
    return Model(
        spec.name, tuple(built.rows), tuple(built.feeds), tuple(built.segments),
        spec.title, spec.source, data and _as_read(data, built.sample),
        fingerprint(node, ("name", "title", "source", "dataset", "convergence")),
        Written(spec, node, name, text, kernels),
    )  # fmt: skip


@lru_cache(maxsize=32)
def _run_with(model: Model, kernels: KernelChoice) -> Model:
    """Return a model with these kernels where its spec leaves them open; once for each pair."""
    was = model.written
    assert was is not None
    return build(was.spec, was.node, was.name, was.text, model.dataset, kernels)
