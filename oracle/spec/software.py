"""Software: what a framework does with a plan, and which plans it can be told.

The defaults are the assumptions of `plain`: no framework at all, the library's own arithmetic.
Groups of fields follow the path of an iteration; each has its source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from oracle.spec.device import PLATFORMS, Device
from oracle.spec.document import suggest
from oracle.spec.doubt import CHANGED, MEMORY
from oracle.spec.formula import Formula
from oracle.spec.gradients import GATHER, GRADIENTS, Gather, Gradients
from oracle.spec.kernel_choice import (
    CONVOLUTION,
    GRAPHED,
    KERNELS,
    Convolution,
    KernelChoice,
    precisions,
)
from oracle.spec.precision import MIXED, NARROW
from oracle.spec.schema import Clash, Fraction, Ratio, Whole
from oracle.spec.units import Bytes, Seconds
from oracle.spec.widths import Width, bytes_of, number_of, width_of

if TYPE_CHECKING:
    from oracle.spec.system import System

# what a message of a row hides under: nothing, a gradient of the same row, or its own product
# piece by piece
Under = Literal["none", "data", "weight", "pipelined"]
Ahead = Literal["none", "pipelined"]  # of a forward pass, whose rows have one product each


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
    buffers: Whole = 0  # that stay, each as large as the largest tensor that a pass gathers
    gather: Width | dict[str, Width] = "compute"  # as activations are sent to be gathered
    library: Bytes | None = None  # that the library of messages keeps on each device of the group
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.gather, "gather")

    def sent(self, precision: str) -> float:
        """Bytes of an activation that is gathered."""
        return bytes_of(width_of(self.gather, precision), precision)


@dataclass(frozen=True, slots=True)
class ExpertMessages:
    """How tokens go to the experts of a mixture and come back."""

    # what sends them: a copy for each expert, to all devices of the group, or once to each place
    dispatcher: Literal["alltoall", "allgather", "deepep", "hybridep"] = "alltoall"
    out: Width | dict[str, Width] = "compute"  # on their way, and gradients of what came back
    back: Width | dict[str, Width] = "compute"  # as they come back, and gradients of what went out
    # what hides them: the passes of another micro-batch, where one runs forward beside one back;
    # `batch`: so, but for the micro-batches that fill and drain the pipeline
    overlap: Literal["none", "pass", "batch"] = "none"
    # experts that all tokens visit: by themselves, or while tokens are sent to the others
    shared_experts: Literal["apart", "beside"] = "apart"
    # gradients of weights: with those of their inputs, or later, while tokens are sent
    weight_gradients: Literal["at_once", "delayed"] = "at_once"
    processors: Whole = 0  # of the device's, that messages take while they are sent
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.out, "out")
        yield from precisions(self.back, "back")

    def sent(self, precision: str) -> tuple[float, float]:
        """Bytes of an activation on its way to experts, and back."""
        first, last = (width_of(each, precision) for each in (self.out, self.back))
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
    # bytes a weight that the update takes for itself, where its state is: gradients cast up
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
    # copies in operands' precision that stay beside each weight; by precision, if it differs
    fp8_copies: Ratio | dict[str, Ratio] = 0.0
    # the same beside weights that are never trained; as many if not said
    frozen_copies: Ratio | dict[str, Ratio] | None = None
    # when what gates of MLPs take is kept in 8 bits, cast on the way out and back
    fp8_gates: Literal["never", "frozen", "always"] = "never"
    slack: Fraction = 0.05  # of what the allocator hands out: rounding and holes between blocks
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        for name in ("weights", "beside", "step", "casts", "fp8_copies", "frozen_copies"):
            yield from precisions(getattr(self, name), name)

    def weight(self, precision: str) -> float:
        """Bytes of a weight between steps, without copies that are made anew from it."""
        return bytes_of(width_of(self.weights, precision), precision)

    def kept(self, precision: str, narrow: bool, frozen: bool) -> float:
        """The same with what of it stays in operands' precision; of others as wide as they are."""
        if not narrow and precision in NARROW:
            width = width_of(self.weights, precision)
            return bytes_of("compute" if width in ("narrow", "fp8") else width, precision)
        return self.weight(precision) + self.copied(precision, frozen) * NARROW.get(precision, 0.0)

    def copied(self, precision: str, frozen: bool) -> float:
        """Copies that stay beside a weight in operands' precision."""
        if frozen and self.frozen_copies is not None:
            return number_of(self.frozen_copies, precision)
        return number_of(self.fp8_copies, precision)

    def gate(self, precision: str, frozen: bool) -> float:
        """Bytes of an activation that only gates want again."""
        eight = self.fp8_gates == "always" or (self.fp8_gates == "frozen" and frozen)
        return 1.0 if eight and precision in NARROW else bytes_of("compute", precision)

    def fed(self, precision: str) -> float:
        """Bytes of an activation that only linear layers want again."""
        if precision in NARROW and self.fp8_inputs == "fp8":
            return NARROW[precision]
        return bytes_of("compute", precision)

    def copies(self, precision: str) -> float:
        """Further bytes of each gradient."""
        return number_of(self.beside, precision)

    def updating(self, precision: str) -> float:
        """Bytes that the update takes for each weight whose state is here."""
        return number_of(self.step, precision)

    def cast(self, precision: str) -> float:
        """Bytes of mixed precision that the update reads and writes for each weight."""
        return number_of(self.casts, precision) if precision in MIXED else 0.0

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
    narrow: Seconds = 0.0  # beside, around each product in 8 or 4 bits, forward
    around: Ratio = 60.0  # kernels around each micro-batch: fetching it, scaling its loss
    # what is launched as one: `none`, an `iteration`, or parts of layers, `attn+moe_router`
    graphs: str = "none"
    # whether what is not tokens is read and decoded ahead of any device; or nobody knows
    reader: Literal["open", "ahead"] = "open"
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})
    times: float = field(default=1.0, metadata={"hidden": True})  # as long, in logged runs

    def check(self) -> Iterator[Clash]:
        if self.graphs not in ("none", "iteration") and {*self.graphs.split("+")} - {*GRAPHED}:
            yield Clash("graphs", f"`{self.graphs}` is not launched as one",
                        f"none, iteration, or joined by +: {', '.join(GRAPHED)}")  # fmt: skip

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
    platforms: tuple[Literal["cuda", "rocm", "tpu", "cpu"], ...] = ()  # that it runs on; none: any
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
    exchange: Gradients = GRADIENTS
    gather: Gather = GATHER
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
    # published tables, or runs of ours, that its time was held against, and the kinds of device
    # that these are of
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counted: bool = field(default=False, metadata={"hidden": True})  # its memory, on devices alike
    changed: tuple[str, ...] = field(default=(), metadata={"hidden": True})  # by the user

    def check(self) -> Iterator[Clash]:
        if not self.source:
            yield Clash("source", "nobody says where this is from", "source: repository and commit")
        for table, kinds in self.held.items():
            for kind in kinds:
                if kind not in PLATFORMS:
                    hint = suggest(kind, PLATFORMS, "known")
                    yield Clash(f"held.{table}", f"no kind of device is called `{kind}`", hint)

    def on(self, device: Device, known: bool = True) -> Software:
        """What of it is known on a device: its time on this kind, its memory on the platform.

        Its time is not where it is not `known` to run so.
        """
        tables = {table: kinds for table, kinds in self.held.items() if device.kind in kinds}
        platforms = {PLATFORMS[kind] for kinds in self.held.values() for kind in kinds}
        return replace(self, held=tables if known else {},
                       counted=self.counted or device.platform in platforms)  # fmt: skip

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
        return 0.0 if self.held or self.counted else MEMORY

    def but(self, **changes: Any) -> Software:
        """A copy with some groups or fields of its own replaced."""
        return replace(self, **changes)


PLAIN = Software()
