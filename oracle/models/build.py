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
    dataset: str = ""  # the data set it is usually trained on
    # norms take along what is before and after them, see `fusion`; as the software has it if
    # not said
    fused: bool | None = None
    train: str = "full"  # what of it is trained, see `training`
    convergence: tuple[Convergence, ...] = ()  # how long it takes to a target, by optimizer

    def check(self) -> Iterator[Clash]:
        if bool(self.layers) == bool(self.transformer):
            yield Clash("name", "a model is either `layers:` or a family block",
                        "write `input:` and `layers:`, or `transformer:`")  # fmt: skip
        if self.transformer and self.fused:
            yield Clash("fused", "a family block says so itself", "fused: in the block")
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

    given: Shape  # of one sample
    train: Training = FULL
    rows: list[Row] = field(default_factory=list)
    feeds: list[tuple[int, ...]] = field(default_factory=list)  # rows whose output a row takes
    segments: list[Segment] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    nested: bool = False
    inner: list[int] = field(default_factory=list)  # where blocks inside the one at hand end

    def place(self, items: tuple[Placed, ...], at: Tensor, scope: dict[str, Tensor]) -> Tensor:
        """Add the rows of some layers after `at`; the tensor that the last of them makes."""
        for item in items:
            if len(self.rows) > MOST_ROWS:
                what = f"more than {MOST_ROWS} layers that stand one by one"
                hint = "write equal ones once, in a block with `repeat:`"
                self.faults.append(Fault("E108", what, item.node.place, hint))
                break
            at = self.block(item, at, scope) if item.layer is None else self.layer(item, at, scope)
        return at

    def layer(self, item: Placed, at: Tensor, scope: dict[str, Tensor]) -> Tensor:
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
        begin, entry = len(self.rows), feeds
        made: list[int] = []  # the row that makes what each of the layer's rows makes
        try:
            for row in layer.rows(given):
                back = [made[-steps] if steps else entry[0] for steps in row.takes]
                self.add(row, tuple(entry if row.entry else back or feeds))
                feeds = [len(self.rows) - 1]
                made += feeds
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

    def add(self, row: Row, feeds: tuple[int, ...]) -> None:
        """Add a row that reads others; where it is frozen, with what stands beside it."""
        if self.train.full:
            self.rows.append(row)
            self.feeds.append(feeds)
            return
        at = len(self.rows)
        self.rows.append(frozen(row))
        self.feeds.append(feeds)
        if self.train.adapted(row):
            self.rows += adapters(row, self.train.rank)
            self.feeds += [feeds, (at + 1,), (at, at + 2)]

    def share(self, begin: int) -> None:
        """The rows from one on use weights that others hold, of which they have as many."""
        self.rows[begin:] = [
            replace(row, weights=0, tied=bool(row.weights)) for row in self.rows[begin:]
        ]

    def block(self, item: Placed, at: Tensor, scope: dict[str, Tensor]) -> Tensor:
        """A repeated block: placed once where its output has its input's shape, else unrolled."""
        left = item.repeat
        while left and not self.faults:
            begin, entered = len(self.rows), at[0]
            outer, self.nested = self.nested, True
            if not outer:
                self.inner = []
            at = self.place(item.block, at, {**scope, "block": at})
            self.nested = outer
            same = at[0] == entered
            first = item.shared and left == item.repeat
            times = left if same and not self.nested and not first else 1
            if item.shared and not first:
                self.share(begin)
            if self.nested:
                self.inner.append(len(self.rows))
            elif len(self.rows) > begin:
                cuts = tuple(cut for cut in self.inner if cut < len(self.rows))
                one = Segment(begin, len(self.rows), times, cuts, item.stack, True, item.name)
                self.segments.append(one)
            left -= times
        if item.name:
            scope[item.name] = at
        return at


def misfits(spec: Network) -> list[Fault]:
    """Layers that do not fit of a network with faults: those before the first that has one."""
    found: list[Fault] = []
    with suppress(Unread):
        if spec.layers and spec.input:
            given = Shape(spec.input[0], tuple(spec.input[1:]))
            placed = Rows(given, faults=found)
            placed.place(spec.layers, (given, -1), {"input": (given, -1)})
    return found


def rows_of(
    spec: Network, node: Node, name: str, text: str = "", kernels: KernelChoice = PLAIN.kernels
) -> Rows:
    """The rows of a network as written; a SpecError with every layer that does not fit."""
    if spec.transformer is not None:
        items = spec.transformer.placed(node, kernels)
        given = Shape(1, (spec.transformer.sequence,), tokens=True)
    else:
        items = spec.layers
        given = Shape(spec.input[0], tuple(spec.input[1:]))
    found = Rows(given, training(spec.train))
    found.place(items, (given, -1), {"input": (given, -1)})
    if not found.faults and not found.rows:
        found.faults.append(Fault("E103", "a model needs at least one layer", node.place))
    if not found.faults and sum(segment.repeat for segment in found.segments) > MOST_ROWS:
        what = f"more than {MOST_ROWS} layers and blocks in all"
        found.faults.append(Fault("E108", what, node.place, "a smaller `repeat:`"))
    if found.faults:
        raise SpecError(name, found.faults, text)
    if kernels.norms == "fused" if spec.fused is None else spec.fused:
        found.rows = merged(found.rows, found.feeds)
    return found
