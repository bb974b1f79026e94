"""Software: what a framework does with a plan, and which plans it can be told.

The defaults are the assumptions of `plain`: no framework at all, the library's own arithmetic.
Groups of fields follow the path of an iteration; each has its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from oracle.spec.doubt import CHANGED, MEMORY
from oracle.spec.formula import Formula, Value
from oracle.spec.kernel_choice import (
    CONVOLUTION,
    KERNELS,
    Convolution,
    KernelChoice,
    precisions,
)
from oracle.spec.precision import ACTIVATION_BYTES, MIXED, NARROW
from oracle.spec.schema import Clash, Fraction, Ratio, Whole
from oracle.spec.units import BytesPerSecond, Seconds

if TYPE_CHECKING:
    from oracle.spec.system import System

# bytes of a number: as wide as activations are, or of its own
Width = Literal["compute", "fp32", "bf16", "fp16", "fp8"]
WIDTHS = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "none": 0.0}
# what a message of a row hides under: nothing, a gradient of that row, or its own product in pieces
Under = Literal["none", "data", "weight", "pipelined"]
Ahead = Literal["none", "pipelined"]  # of a forward pass, whose rows have one product each


def bytes_of(width: str, precision: str) -> float:
    """Bytes of a number of this width, in a training of this precision."""
    return ACTIVATION_BYTES[precision] if width == "compute" else WIDTHS[width]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Into what the gradients are cut on their way: messages of so many bytes or elements.

    Or those of each unit of the model go by themselves, whatever their size.
    """

    bytes: Formula | None = None
    elements: Formula | None = None
    # what is cut: all of each stage; of the first, where others send each chunk whole; or nothing
    # further, where units send theirs
    of: Literal["stages", "first_stage", "units"] = "stages"

    def check(self) -> Iterator[Clash]:
        if self.of == "units" and (self.bytes or self.elements):
            yield Clash("of", "units are as large as they are", "neither `bytes:` nor `elements:`")
        elif self.of != "units" and (self.bytes is None) == (self.elements is None):
            yield Clash("elements", "the size of a piece is said once",
                        "`bytes:` or `elements:`, or `of: units`")  # fmt: skip
        strange = self.size.names - {"data", "devices"}
        for name in sorted(strange):
            yield Clash("elements", f"a piece's size cannot depend on `{name}`", "data, devices")
        if not strange:
            some = np.array([1.0, 2.0, 1024.0])
            if not np.all(np.asarray(self.size({"data": some, "devices": some})) >= 1):
                yield Clash("elements", "a piece is no smaller than 1", "e.g. 25e6")

    @property
    def size(self) -> Formula:
        """Of one piece, in bytes or in elements."""
        return self.bytes or self.elements or Formula.of("1e30")


@dataclass(frozen=True, slots=True)
class Gradients:
    """How gradients are added up and agreed on."""

    gradients: Width | dict[str, Width] = "fp32"  # of the buffer; by precision, if it differs
    wire: Width | None = "compute"  # as they are sent; `~`: as the buffer has them
    # of what is sent at once; `~`: everything is
    pieces: Pieces | None = Pieces(bytes=Formula.of("25e6"))
    overlap: Literal["none", "backward"] = "backward"  # what hides them
    # at ZeRO-1: each rank is sent its part; or all has every sum, after the backward pass
    sharded: Literal["scattered", "whole"] = "scattered"
    flat: Ratio = 0.0  # bytes a weight of copies that stay, where replicas add up whole gradients
    passes: Ratio = 0.0  # over the gradients before and after: packed, scaled, checked, unpacked
    cycle: Seconds = 0.0  # between two looks at what is ready
    negotiations: Whole = 0  # small allreduces of hosts, at each look, on what all have ready
    # bytes a second that processes of parameter servers and workers copy: of one connection, and of
    # all that one has; `~`: as fast as the network
    connection: BytesPerSecond | None = None
    process: BytesPerSecond | None = None
    # bytes of gradients a second among which a device finds the largest; `~`: in passes over them
    selection: BytesPerSecond | None = None
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.gradients, "gradients")

    def buffer(self, precision: str) -> float:
        """Bytes of a gradient where micro-batches' are added up."""
        return bytes_of(_of(self.gradients, precision), precision)

    def sent(self, precision: str) -> float:
        """Bytes of a gradient on its way."""
        return self.buffer(precision) if self.wire is None else bytes_of(self.wire, precision)

    @property
    def by_unit(self) -> bool:
        """Whether each unit of the model sends its own."""
        return self.pieces is not None and self.pieces.of == "units"

    def piece(self, width: float, plans: Mapping[str, Value]) -> NDArray[np.float64]:
        """Bytes of a piece whose elements are so wide, of plans of these degrees."""
        if self.pieces is None or self.by_unit:
            return np.full(1, np.inf)
        size = np.asarray(self.pieces.size(plans), float)
        return size if self.pieces.elements is None else width * size


@dataclass(frozen=True, slots=True)
class Gather:
    """How weights that are sharded come back."""

    wire: Width | dict[str, Width] = "compute"  # as they are sent
    overlap: Literal["none", "forward"] = "none"  # of renewed weights (ZeRO 1 and 2)
    prefetch: Whole = 1  # units whose weights are gathered ahead of their use (ZeRO 3)
    placed: bool = True  # and copied to where they are used; else they are gathered there
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.wire, "wire")

    def sent(self, precision: str) -> float:
        """Bytes of a weight on its way."""
        return bytes_of(_of(self.wire, precision), precision)


@dataclass(frozen=True, slots=True)
class TensorMessages:
    """What each message of tensor parallelism hides under.

    A column's product takes what was gathered, a row's makes what is reduced.
    """

    forward_column: Ahead = "none"  # gathered before it
    forward_row: Ahead = "none"  # scattered, or added up, after it
    backward_row: Under = "none"  # gradients gathered before it
    backward_column_gather: Under = "data"  # its input once more
    backward_column_reduce: Under = "weight"  # gradients of its input, after it
    shown: Fraction = 0.25  # of a pipelined message, its first or last piece
    lingers: bool = False  # what a pass scatters stays until it was sent, the host a pass ahead
    gather: Width | dict[str, Width] = "compute"  # as activations are sent to be gathered
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.gather, "gather")

    def sent(self, precision: str) -> float:
        """Bytes of an activation that is gathered."""
        return bytes_of(_of(self.gather, precision), precision)


@dataclass(frozen=True, slots=True)
class ExpertMessages:
    """How tokens go to the experts of a mixture and come back."""

    out: Width | dict[str, Width] = "compute"  # on their way, and gradients of what came back
    back: Width | dict[str, Width] = "compute"  # as they come back, and gradients of what went out
    overlap: Literal["none", "pass"] = "none"  # what hides them: passes of another micro-batch
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.out, "out")
        yield from precisions(self.back, "back")

    def sent(self, precision: str) -> tuple[float, float]:
        """Bytes of an activation on its way to experts, and back."""
        first, last = (_of(each, precision) for each in (self.out, self.back))
        return bytes_of(first, precision), bytes_of(last, precision)


@dataclass(frozen=True, slots=True)
class Borders:
    """How stages of a pipeline pass activations on."""

    scattered: bool = True  # each tensor rank sends a part, gathered on the other side
    overlap: Literal["none", "interleaved", "all"] = "none"  # schedules that send beside work
    cuts: Literal["even", "cost"] = "even"  # how `cuts=even` deals: as many, or by their products
    held: bool = False  # what was sent stays until its gradient is there; else until it arrived
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def hide(self, chunks: Any) -> Any:
        """Whether stages of so many chunks send beside their work once the pipeline is full."""
        return chunks > {"all": 0, "interleaved": 1}.get(self.overlap, np.inf)


@dataclass(frozen=True, slots=True)
class Beside:
    """What becomes of state that lies beside the device, in its host's memory."""

    # where micro-batches' gradients are added up: they stay until the update, or leave each time
    sums: Literal["device", "host"] = "host"
    # what chooses what becomes of its activations: whole units of a model alone, or, where these
    # have no room, parts of them too, and inputs of what is made again
    units: Literal["whole", "parts"] = "parts"
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})


@dataclass(frozen=True, slots=True)
class State:
    """Widths of what training keeps for each weight, and what the update adds to its passes."""

    # as they stay between steps, or sharded; by precision, if it differs
    weights: Width | dict[str, Width] = "compute"
    # bytes a weight that the update takes of the share whose state is here: gradients cast up
    step: Ratio | dict[str, Ratio] = 0.0
    # beside weights of 16 bits; none, where those that are kept are masters themselves
    masters: Literal["compute", "fp32", "bf16", "fp16", "none"] = "fp32"
    moments: Width = "fp32"  # each of the optimizer's numbers
    # further bytes of each gradient: flat copies, 16-bit originals
    beside: Ratio | dict[str, Ratio] = 0.0
    # bytes of mixed precision a weight: gradients cast up (6) where not added up in fp32, unscaled
    # (8) where scaled, weights cast down (6); by precision, if it differs
    casts: Ratio | dict[str, Ratio] = field(default_factory=lambda: {"fp16": 14.0, "other": 6.0})
    buckets: Whole = 2  # pieces of gradients in flight that are copies
    fp8_casts: Literal["use", "step"] = "use"  # when weights are cast to 8 bits
    fp8_inputs: Literal["compute", "fp8"] = "compute"  # of linear layers, as they are kept
    fp8_copies: Ratio = 0.0  # bytes of 8-bit copies that stay beside each weight
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.weights, "weights")
        yield from precisions(self.beside, "beside")
        yield from precisions(self.step, "step")
        yield from precisions(self.casts, "casts")

    def kept(self, precision: str) -> float:
        """Bytes of a weight between steps, with what of it stays in 8 bits."""
        copies = self.fp8_copies * NARROW.get(precision, 0.0)
        return bytes_of(_of(self.weights, precision), precision) + copies

    def fed(self, precision: str) -> float:
        """Bytes of an activation that only linear layers want again."""
        if precision in NARROW and self.fp8_inputs == "fp8":
            return NARROW[precision]
        return bytes_of("compute", precision)

    def copies(self, precision: str) -> float:
        """Further bytes of each gradient."""
        return _number_of(self.beside, precision)

    def updating(self, precision: str) -> float:
        """Bytes that the update takes for each weight whose state is here."""
        return _number_of(self.step, precision)

    def cast(self, precision: str) -> float:
        """Bytes of mixed precision that the update reads and writes for each weight."""
        return _number_of(self.casts, precision) if precision in MIXED else 0.0

    def master(self, precision: str) -> float:
        """Bytes of a weight's master; where weights are as wide, they are their own."""
        return bytes_of(self.masters, precision) if precision in MIXED else 0.0

    def moment(self, precision: str) -> float:
        """Bytes of each of the optimizer's numbers."""
        return bytes_of(self.moments, precision)


@dataclass(frozen=True, slots=True)
class Host:
    """The framework's own work on the host."""

    dispatch: Seconds = 20e-6  # for each kernel, where the system does not say
    call: Ratio = 2.0  # kernels that a collective costs as much as
    unit: Seconds = 0.0  # beside, for each message that brings or takes a unit of the model
    around: Ratio = 60.0  # kernels around each micro-batch: fetching it, scaling its loss
    graphs: Literal["none", "iteration"] = "none"  # what is launched as one
    reader: Literal["open", "ahead"] = "open"  # of what is no tokens: decoded ahead, or unknown
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})
    times: float = field(default=1.0, metadata={"hidden": True})  # as long, in logged runs

    def dispatched(self, system: System) -> float:
        """Seconds of the framework's own work for a kernel."""
        return self.dispatch if system.dispatch is None else system.dispatch

    def launch(self, system: System) -> float:
        """Seconds that the host needs for a kernel, its driver's among them."""
        if self.graphs == "iteration":
            return 0.0
        return (system.device.launch + self.dispatched(system)) * self.times

    def sending(self, system: System) -> float:
        """Seconds that the host needs for a message."""
        return self.call * self.launch(system)

    @property
    def around_unit(self) -> float:
        """Further seconds of the host for a message that brings or takes a unit of the model."""
        return 0.0 if self.graphs == "iteration" else self.unit * self.times


@dataclass(frozen=True, slots=True)
class LaunchRule:
    """What a plan must satisfy to be started, and how it reads where it does not."""

    must: Formula
    why: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Which plans the framework can be told."""

    strategies: tuple[str, ...] = ()  # that it has; none named: all
    # `strategy.knob` -> the words or numbers that it can be told; not named: any
    knobs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[LaunchRule, ...] = ()
    models: dict[str, str] = field(default_factory=dict)  # it ships, as it calls them; none: any
    writer: str = ""  # of jobs: what `export` writes for it
    engines: tuple[str, ...] = ()  # of `oracle run`: the first that runs a plan does
    flags: tuple[str, ...] = ()  # said beside the plan's own
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})


@dataclass(frozen=True, eq=False)
class Software:
    """A framework of some date: what it does with a plan, and which plans it can be told."""

    name: str = "plain"
    source: str = ""
    title: str = ""
    framework: str = ""
    version: str = ""
    exchange: Gradients = Gradients()
    gather: Gather = Gather()
    tensor: TensorMessages = TensorMessages()
    context: Literal["beside", "exposed"] = "beside"  # keys and values, and attention to others
    experts: ExpertMessages = ExpertMessages()
    borders: Borders = Borders()
    state: State = State()
    offload: Beside = Beside()
    kernels: KernelChoice = KERNELS
    convolution: Convolution = CONVOLUTION
    host: Host = Host()
    launch: Launch = Launch()
    held: tuple[str, ...] = ()  # published tables, or runs of ours, that its time was held against
    changed: tuple[str, ...] = field(default=(), metadata={"hidden": True})  # by the user

    def check(self) -> Iterator[Clash]:
        if not self.source:
            yield Clash("source", "nobody says where this is from", "source: repository and commit")

    @property
    def label(self) -> str:
        """Its name, with what a user changed of it."""
        return ",".join((self.name, *self.changed))

    @property
    def changed_doubt(self) -> float:
        """1σ of a step's seconds, relative, for what a user changed of it."""
        return float(CHANGED * len(self.changed) ** 0.5)

    @property
    def memory_doubt(self) -> float:
        """1σ of a device's bytes, relative, for want of a framework that is known."""
        return 0.0 if self.held else MEMORY

    def but(self, **changes: Any) -> Software:
        """A copy with some groups or fields of its own replaced."""
        return replace(self, **changes)


PLAIN = Software()


def _of(width: Width | dict[str, Width], precision: str) -> str:
    if isinstance(width, str):
        return width
    return width.get(precision) or width.get("other") or "compute"


def _number_of(value: float | dict[str, float], precision: str) -> float:
    if isinstance(value, dict):
        return value.get(precision, value.get("other", 0.0))
    return value
