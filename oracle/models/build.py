"""Shape inference: from the layers of a model spec to rows, what feeds them, and repeats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from oracle.models.fusion import merged
from oracle.models.layers import Misfit, Placed, Row, Shape
from oracle.models.training import FORMS, FULL, Training, adapters, frozen, training
from oracle.models.transformer import Transformer
from oracle.spec.convergence import Convergence
from oracle.spec.document import Fault, Node, SpecError, suggest
from oracle.spec.kernel_choice import KernelChoice
from oracle.spec.schema import Clash, Count, Unread
from oracle.spec.software import PLAIN

MOST_ROWS = 3072  # of a model, equal blocks counted once; and of layers and blocks in a row
Tensor: TypeAlias = tuple[Shape, int]  # its shape, and the row that made it; -1: the input


@dataclass(frozen=True)
class Network:
    """A model spec: a list of layers after an input, or a family block."""

    name: str
    source: str
    title: str = ""
    input: tuple[Count, ...] = ()  # channels, then extents
    layers: tuple[Placed, ...] = ()
    transformer: Transformer | None = None
    dataset: str = ""  # the usual data set of the model
    # norms do the passes before and after them too, see `fusion`; by default as the software says
    fused: bool | None = None
    train: str = "full"  # the part that is trained, see `training`
    convergence: tuple[Convergence, ...] = ()  # the time to a target, by optimizer

    def check(self) -> Iterator[Clash]:
        if bool(self.layers) == bool(self.transformer):
            yield Clash("name", "a model is either `layers:` or a family block",
                        "write `input:` and `layers:`, or `transformer:`")  # fmt: skip
        if self.transformer and self.fused:
            yield Clash("fused", "a family block has its own `fused`", "fused: in the block")
        try:
            training(self.train)
        except SpecError:
            yield Clash("train", f"no training is called `{self.train[:40]}`", FORMS)
        if self.layers and not self.input:
            yield Clash("layers", "`layers:` need the shape of their `input:`", "[3, 224, 224]")


@dataclass(frozen=True)
class Segment:
    """Rows start to stop, `repeat` times in a row."""

    start: int
    stop: int
    repeat: int = 1
    cuts: tuple[int, ...] = ()  # rows between, where a block inside it ends
    stack: bool = False  # of a stack of layers, even where it doesn't recur
    block: bool = False  # written as a block of layers, even where it doesn't recur
    name: str = ""  # of a block


@dataclass
class Rows:
    """The rows of layers placed one after the other, and which row made which tensor."""

    sample: Shape  # of the input
    train: Training = FULL
    rows: list[Row] = field(default_factory=list)
    feeds: list[tuple[int, ...]] = field(default_factory=list)  # rows whose output a row takes
    segments: list[Segment] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    nested: bool = False
    inner: list[int] = field(default_factory=list)  # ends of the blocks inside the current block

    def place(self, items: tuple[Placed, ...], tensor: Tensor, scope: dict[str, Tensor]) -> Tensor:
        """Add the rows of some layers after a tensor, and return the last layer's tensor."""
        for item in items:
            if len(self.rows) > MOST_ROWS:
                complaint = f"more than {MOST_ROWS} layers that stand one by one"
                hint = "write equal ones once, in a block with `repeat:`"
                self.faults.append(Fault("E108", complaint, item.node.place, hint))
                break
            tensor = (
                self.block(item, tensor, scope)
                if item.layer is None
                else self.layer(item, tensor, scope)
            )
        return tensor

    def layer(self, item: Placed, tensor: Tensor, scope: dict[str, Tensor]) -> Tensor:
        layer = item.layer
        assert layer is not None
        inputs, feeds = [tensor[0]], [tensor[1]]
        if layer.inputs:
            tensors = [scope.get(word) for word in layer.inputs]
            for word, source in zip(layer.inputs, tensors, strict=True):
                if source is None:
                    complaint = f"nothing above is called `{word}`"
                    hint = suggest(word, scope, "names so far")
                    self.faults.append(Fault("E110", complaint, item.node.place, hint))
            existing = [source for source in tensors if source is not None]
            if len(existing) < len(tensors):
                return tensor
            inputs, feeds = [shape for shape, _ in existing], [row for _, row in existing]
        begin, entry = len(self.rows), feeds
        maker_rows: list[int] = []  # the row that makes what each of the layer's rows makes
        try:
            for row in layer.rows(inputs):
                back = [maker_rows[-steps] if steps else entry[0] for steps in row.takes]
                self.add(row, tuple(entry if row.entry else back or feeds))
                feeds = [len(self.rows) - 1]
                maker_rows += feeds
        except Misfit as misfit:
            kind = type(layer).__name__.lower()
            self.faults.append(Fault("E111", f"`{layer.name or kind}`: {misfit}", item.node.place))
            return tensor
        if not self.nested:
            self.segments.append(Segment(begin, len(self.rows)))
        tensor = (self.rows[-1].made, len(self.rows) - 1)
        if layer.name:
            scope[layer.name] = tensor
        return tensor

    def add(self, row: Row, feeds: tuple[int, ...]) -> None:
        """Add a row that reads `feeds`; where the row is frozen, add its adapters too."""
        if self.train.full:
            self.rows.append(row)
            self.feeds.append(feeds)
            return
        index = len(self.rows)
        self.rows.append(frozen(row))
        self.feeds.append(feeds)
        if self.train.adapted(row):
            self.rows += adapters(row, self.train.rank)
            self.feeds += [feeds, (index + 1,), (index, index + 2)]

    def share(self, begin: int) -> None:
        """Let all rows from `begin` on use the weights of an earlier copy, as many as they have."""
        self.rows[begin:] = [
            replace(row, weights=0, tied=bool(row.weights)) for row in self.rows[begin:]
        ]

    def block(self, item: Placed, tensor: Tensor, scope: dict[str, Tensor]) -> Tensor:
        """Place a repeated block: once where its output has its input's shape, else unrolled."""
        left = item.repeat
        while left and not self.faults:
            begin, entered = len(self.rows), tensor[0]
            outer, self.nested = self.nested, True
            if not outer:
                self.inner = []
            tensor = self.place(item.block, tensor, {**scope, "block": tensor})
            self.nested = outer
            same = tensor[0] == entered
            first = item.shared and left == item.repeat
            times = left if same and not self.nested and not first else 1
            if item.shared and not first:
                self.share(begin)
            if self.nested:
                self.inner.append(len(self.rows))
            elif len(self.rows) > begin:
                cuts = tuple(cut for cut in self.inner if cut < len(self.rows))
                segment = Segment(begin, len(self.rows), times, cuts, item.stack, True, item.name)
                self.segments.append(segment)
            left -= times
        if item.name:
            scope[item.name] = tensor
        return tensor


def misfits(spec: Network) -> list[Fault]:
    """Return the layers that do not fit in a network with faults, up to the first faulty layer."""
    faults: list[Fault] = []
    with suppress(Unread):
        if spec.layers and spec.input:
            sample = Shape(spec.input[0], tuple(spec.input[1:]))
            placed = Rows(sample, faults=faults)
            placed.place(spec.layers, (sample, -1), {"input": (sample, -1)})
    return faults


def rows_of(
    spec: Network, node: Node, name: str, text: str = "", kernels: KernelChoice = PLAIN.kernels
) -> Rows:
    """Return the rows of a network; raise a SpecError with every layer that does not fit."""
    if spec.transformer is not None:
        items = spec.transformer.placed(node, kernels)
        sample = Shape(1, (spec.transformer.sequence,), tokens=True)
    else:
        items = spec.layers
        sample = Shape(spec.input[0], tuple(spec.input[1:]))
    built = Rows(sample, training(spec.train))
    built.place(items, (sample, -1), {"input": (sample, -1)})
    if not built.faults and not built.rows:
        built.faults.append(Fault("E103", "a model needs at least one layer", node.place))
    if not built.faults and sum(segment.repeat for segment in built.segments) > MOST_ROWS:
        complaint = f"more than {MOST_ROWS} layers and blocks in all"
        built.faults.append(Fault("E108", complaint, node.place, "a smaller `repeat:`"))
    if built.faults:
        raise SpecError(name, built.faults, text)
    if kernels.norms == "fused" if spec.fused is None else spec.fused:
        built.rows = merged(built.rows, built.feeds)
    return built
