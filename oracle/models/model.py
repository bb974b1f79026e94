"""A model as columns, one row a kernel; equal blocks folded with a repeat count.

Every spec, importer and dict ends here. Rows carry shapes at full size for one sample;
strategies cut them, the machine prices them. `units` are the pieces a pipeline may deal out:
runs of rows between which exactly one tensor is passed on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.models.fusion import merged
from oracle.models.layers import Misfit, Placed, Row, Shape
from oracle.models.transformer import Transformer
from oracle.spec import catalogue
from oracle.spec.dataset import Dataset
from oracle.spec.document import Fault, Node, SpecError, suggest
from oracle.spec.schema import Clash, Count, read

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Network:
    """A model spec: a list of layers after an input, or a family block."""

    name: str
    source: str
    title: str = ""
    input: tuple[Count, ...] = ()  # channels, then extents
    layers: tuple[Placed, ...] = ()
    transformer: Transformer | None = None
    dataset: str = ""  # the data set it is usually trained on
    fused: bool = False  # norms take along what is before and after them, see `fusion`

    def check(self) -> Iterator[Clash]:
        if bool(self.layers) == bool(self.transformer):
            yield Clash("name", "a model is either `layers:` or a family block",
                        "write `input:` and `layers:`, or `transformer:`")  # fmt: skip
        if self.transformer and self.fused:
            yield Clash("fused", "a family block says so itself", "fused: in the block")
        if self.layers and not self.input:
            yield Clash("layers", "`layers:` need the shape of their `input:`", "[3, 224, 224]")


@dataclass(frozen=True)
class Segment:
    """Rows start to stop, `repeat` times in a row."""

    start: int
    stop: int
    repeat: int = 1


@dataclass
class _Builder:
    """Places layers one after the other and keeps track of who made which tensor."""

    name: str
    text: str
    rows: list[Row] = field(default_factory=list)
    feeds: list[tuple[int, ...]] = field(default_factory=list)  # rows whose output a row takes
    segments: list[Segment] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    nested: bool = False

    def place(
        self, items: tuple[Placed, ...], at: tuple[Shape, int], scope: dict[str, tuple[Shape, int]]
    ) -> tuple[Shape, int]:
        for item in items:
            at = self.block(item, at, scope) if item.layer is None else self.layer(item, at, scope)
        return at

    def layer(
        self, item: Placed, at: tuple[Shape, int], scope: dict[str, tuple[Shape, int]]
    ) -> tuple[Shape, int]:
        layer = item.layer
        assert layer is not None
        given, feeds = [at[0]], [at[1]]
        if layer.inputs:
            taken = [scope.get(word) for word in layer.inputs]
            for word, found in zip(layer.inputs, taken, strict=True):
                if found is None:
                    what = f"nothing above is called `{word}`"
                    hint = suggest(word, scope, "names so far")
                    self.faults.append(Fault("E110", what, item.node.place, hint))
            known = [found for found in taken if found is not None]
            if len(known) < len(taken):
                return at
            given, feeds = [shape for shape, _ in known], [row for _, row in known]
        begin = len(self.rows)
        try:
            for row in layer.rows(given):
                self.rows.append(row)
                self.feeds.append(tuple(feeds))
                feeds = [len(self.rows) - 1]
        except Misfit as misfit:
            kind = type(layer).__name__.lower()
            self.faults.append(Fault("E111", f"`{layer.name or kind}`: {misfit}", item.node.place))
            return at
        if not self.nested:
            self.segments.append(Segment(begin, len(self.rows)))
        at = (self.rows[-1].made, len(self.rows) - 1)
        if layer.name:
            scope[layer.name] = at
        return at

    def block(
        self, item: Placed, at: tuple[Shape, int], scope: dict[str, tuple[Shape, int]]
    ) -> tuple[Shape, int]:
        """A repeated block: placed once where its output has its input's shape, else unrolled."""
        left = item.repeat
        while left and not self.faults:
            begin, entered = len(self.rows), at[0]
            outer, self.nested = self.nested, True
            at = self.place(item.block, at, {**scope, "block": at})
            self.nested = outer
            same = at[0] == entered
            times = left if same and not self.nested else 1
            if not self.nested and len(self.rows) > begin:
                self.segments.append(Segment(begin, len(self.rows), times))
            left -= times
        if item.name:
            scope[item.name] = at
        return at


@dataclass(frozen=True, eq=False)
class Model:
    """Columns of equal length L, one entry a row; `repeat` says how often each row recurs."""

    name: str
    rows: tuple[Row, ...]
    feeds: tuple[tuple[int, ...], ...]
    segments: tuple[Segment, ...]
    title: str = ""
    source: str = ""
    dataset: Dataset | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, read: Any) -> Floats:
        return np.array([read(row) for row in self.rows], dtype=float)

    @cached_property
    def repeat(self) -> Floats:
        found = np.ones(len(self.rows))
        for segment in self.segments:
            found[segment.start : segment.stop] = segment.repeat
        return found

    @cached_property
    def folded(self) -> NDArray[np.bool_]:
        """Rows that stand in a repeated block."""
        return self.repeat > 1

    @cached_property
    def x(self) -> Floats:
        return self.column(lambda row: row.given.size)

    @cached_property
    def y(self) -> Floats:
        return self.column(lambda row: row.made.size)

    @cached_property
    def w(self) -> Floats:
        return self.column(lambda row: row.weights)

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

    def _axes(self, read: Any) -> tuple[Floats, Floats, Floats]:
        padded = np.array([(*read(row), 1, 1, 1)[:3] for row in self.rows], dtype=float)
        return tuple(padded.T)

    @cached_property
    def given(self) -> tuple[Floats, Floats, Floats]:
        """Input extents, three of them; what is not there is 1."""
        return self._axes(lambda row: row.given.extents)

    @cached_property
    def made(self) -> tuple[Floats, Floats, Floats]:
        return self._axes(lambda row: row.made.extents)

    @cached_property
    def window(self) -> tuple[Floats, Floats, Floats]:
        return self._axes(lambda row: row.window)

    @cached_property
    def stride(self) -> tuple[Floats, Floats, Floats]:
        return self._axes(lambda row: row.stride)

    def mask(self, test: Any) -> NDArray[np.bool_]:
        return np.array([bool(test(row)) for row in self.rows])

    @cached_property
    def weighted(self) -> NDArray[np.bool_]:
        """Rows whose weights meet every input channel: convolutions and matrices."""
        return self.mask(lambda row: row.work in ("gemm", "conv"))

    @cached_property
    def layers(self) -> NDArray[np.bool_]:
        """Rows that count as a layer in the published table: matrices, attention, pooling."""
        return self.weighted | self.mask(lambda row: row.work == "attention" or row.kind == "pool")

    @cached_property
    def tokens(self) -> NDArray[np.bool_]:
        """Rows whose first extent counts tokens."""
        return self.mask(lambda row: row.made.tokens or row.given.tokens)

    @cached_property
    def kept(self) -> Floats:
        """|elements| of each row's output, per sample, that the backward pass wants.

        A tensor is kept once, whoever wants it: the row that made it or rows that read it.
        """
        here, next_, after = np.zeros((3, len(self.rows)), bool)
        for i, row in enumerate(self.rows):
            if "y" in row.needs:
                here[self._origin(i)] = True
            if "x" not in row.needs:
                continue
            own = self._segment(i)
            for feed in self.feeds[i]:
                if feed < own.start and own.repeat > 1:  # from the second copy on: the copy before
                    next_[self._origin(own.stop - 1)] = True
                if feed >= 0:
                    made = self._segment(feed)
                    (here if made is own or made.repeat == 1 else after)[self._origin(feed)] = True
        # the last row of a repeated block: all copies but one are read by the next copy
        share = np.maximum(here, ((self.repeat - 1) * next_ + after) / self.repeat)
        kept = share * self.y + self.column(lambda row: row.extra_kept)
        kept[0] += self.x[0] / self.repeat[0]  # the samples themselves
        return kept

    def _segment(self, i: int) -> Segment:
        return next(s for s in self.segments if s.start <= i < s.stop)

    def _origin(self, i: int) -> int:
        """The row whose memory row i's output lives in: flatten and reshape make none."""
        while self.rows[i].kind in ("flatten", "reshape") and self.feeds[i][0] >= 0:
            i = self.feeds[i][0]
        return i

    @cached_property
    def kept_bytes(self) -> Floats:
        return self.column(lambda row: row.extra_bytes)

    @cached_property
    def mac(self) -> Floats:
        """Multiply-accumulates of a forward pass, per sample and row."""
        return self.column(_mac)

    @property
    def parameters(self) -> float:
        return float(self.repeat @ self.w)

    @property
    def flop(self) -> float:
        """Forward and backward, per sample: 3 × 2 × MAC."""
        return float(6 * self.repeat @ self.mac)

    @cached_property
    def units(self) -> tuple[Floats, Floats]:
        """(U, L) counts of each row in each unit, and the row that ends each unit (U,)."""
        counts: list[Floats] = []
        ends: list[int] = []
        begin = 0
        for segment in self.segments:
            if not self._closed(segment.stop):
                continue
            one = np.zeros(len(self.rows))
            one[begin : segment.stop] = self.repeat[begin : segment.stop]
            if segment.repeat > 1:  # open rows before a block join its first copy
                one[segment.start : segment.stop] = 1
            counts.append(one)
            one = np.zeros(len(self.rows))
            one[segment.start : segment.stop] = 1
            counts += [one] * (segment.repeat - 1)
            ends += [segment.stop - 1] * segment.repeat
            begin = segment.stop
        if begin < len(self.rows):
            rest = np.zeros(len(self.rows))
            rest[begin:] = self.repeat[begin:]
            counts.append(rest)
            ends.append(len(self.rows) - 1)
        return np.array(counts), np.array(ends, dtype=float)

    def _closed(self, stop: int) -> bool:
        """Whether only the last tensor made is read from here on."""
        return all(feed >= stop - 1 for i in range(stop, len(self.rows)) for feed in self.feeds[i])


def _mac(row: Row) -> float:
    if row.work == "conv":
        window = float(np.prod(row.window))
        if row.kind == "deconv":
            return row.given.size * row.made.channels / row.groups * window
        return row.made.size * row.given.channels / row.groups * window
    if row.work == "gemm":
        return float(row.given.size) * row.made.channels
    if row.work == "attention":
        queries = row.made.extents[0]
        seen = (row.keys + 1) / 2 / row.keys if row.causal and row.keys == queries else 1.0
        return 2.0 * row.heads * queries * row.keys * row.width * (seen if row.flash else 1.0)
    return 0.0


def model(what: Any, dataset: Any = None) -> Model:
    """A model by shipped name, path or dict; `dataset` says how many samples an epoch has."""
    if isinstance(what, Model):
        found = what
    elif isinstance(what, Mapping):
        found = _load(what)
    else:
        path = catalogue.find(os.fspath(what), "models")
        found = _cached(str(path), path.stat().st_mtime_ns if os.path.isfile(path) else 0)
    if dataset is None:
        return found
    return _with_dataset(found, catalogue.dataset(dataset))


def _with_dataset(found: Model, data: Dataset) -> Model:
    data = _as_read(data, found.rows[0].given)
    return Model(
        found.name, found.rows, found.feeds, found.segments, found.title, found.source, data
    )


def _as_read(data: Dataset, given: Shape) -> Dataset:
    """The data set as a model reads it: text is cut into sequences of the model's own length."""
    if not given.tokens or len(data.sample) != 2 or data.sample[1:] == given.extents:
        return data
    samples = max(1, data.samples * data.sample[1] // given.extents[0])
    return replace(data, samples=samples, sample=(data.sample[0], *given.extents))


@lru_cache(maxsize=32)
def _cached(path: str, stamp: int) -> Model:
    return _load(path)


def network(what: Any) -> tuple[Network, Node, str, str]:
    """The model spec as written, with its tree, file name and text for messages."""
    node, name, text = catalogue.document(what, "models")
    return read(Network, node, name, text, label="model"), node, name, text


def _load(what: Any) -> Model:
    spec, node, name, text = network(what)
    data = catalogue.dataset(spec.dataset) if spec.dataset else None
    return build(spec, node, name, text, data)


def build(
    spec: Network, node: Node, name: str, text: str = "", data: Dataset | None = None
) -> Model:
    """Shape inference: from a network as written to the columns of its rows."""
    builder = _Builder(name, text)
    if spec.transformer is not None:
        items = spec.transformer.placed(node)
        given = Shape(1, (spec.transformer.sequence,), tokens=True)
    else:
        items = spec.layers
        given = Shape(spec.input[0], tuple(spec.input[1:]))
    builder.place(items, (given, -1), {"input": (given, -1)})
    if not builder.faults and not builder.rows:
        builder.faults.append(Fault("E103", "a model needs at least one layer", node.place))
    if builder.faults:
        raise SpecError(name, builder.faults, text)
    rows = merged(builder.rows, builder.feeds) if spec.fused else builder.rows
    return Model(
        spec.name, tuple(rows), tuple(builder.feeds), tuple(builder.segments),
        spec.title, spec.source, data and _as_read(data, given),
    )  # fmt: skip
