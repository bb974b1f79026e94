"""A device: its datasheet, and the fitted kernel curves beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, get_args

from oracle.spec.document import suggest
from oracle.spec.precision import PRECISIONS
from oracle.spec.running import Power
from oracle.spec.schema import Between, Clash, Count, Ratio
from oracle.spec.units import Bytes, BytesPerSecond, Flop, FlopPerSecond, Price, Seconds

FAMILIES = (
    "gemm", "conv", "winograd", "conv3d", "grouped", "depthwise", "attention", "stream", "norm",
    "pool", "scan", "tables", "recurrent", "fft", "products", "experts", "latent",
    "conv1d",
)  # fmt: skip
PARTS = ("forward", "data", "weight", "backward")
Reached = Annotated[float, Between(1e-3, 1)]  # of what a datasheet says
ORIGINS = ("measured", "fitted", "datasheet", "assumed")
Cuda = Literal["pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"]
Rocm = Literal["cdna2", "cdna3", "cdna4"]
Tpu = Literal["tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"]
# what programs for a kind of device are written for
PLATFORMS = {kind: platform for platform, kinds in
             {"cuda": Cuda, "rocm": Rocm, "tpu": Tpu, "cpu": Literal["cpu"]}.items()
             for kind in get_args(kinds)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curve:
    """How one family of kernels uses a device: a few numbers, their origin and their reach.

    `oracle.kernels` has the equation; a fit writes one for each family, precision and part.
    """

    family: str  # one of FAMILIES
    source: str
    precision: str = ""  # "" for any
    part: str = ""  # "" for any; else "forward", "data", "weight", "backward"
    start: Seconds = 3e-6  # on the device, of one kernel
    sustained: Reached = 0.8  # of the peak, reached by a large kernel
    traffic: Reached = 0.8  # of the memory bandwidth, likewise
    tile: Ratio = 32.0  # rows and columns that a kernel computes at least
    prologue: Ratio = 64.0  # steps of the inner loop lost to its start and end
    ramp: Ratio = 0.05  # waves of tiles (128² a processor) that any kernel costs beyond its own
    granule: Ratio = 1.0  # channels that a convolution's inner loop takes at least
    zeros: Ratio = 0.0  # taps that a strided data gradient multiplies by zeros
    strided: Ratio = 1.0  # times as long for the data gradient of windows larger than their strides
    # times that each sample reads all weights of a convolution: cores that share no cache
    sweeps: Ratio = 0.0
    # elements a second that one processor reads where it reduces them: norms, pools; 0: any number
    pace: Ratio = 0.0
    waves: bool = False  # whole waves of whole tiles show; `tile` is then what a border costs
    origin: str = "fitted"
    reach: tuple[Flop, ...] = ()  # of the smallest and of the largest kernel measured
    uncertainty: Ratio = 0.2  # relative, 1σ, of one kernel

    def check(self) -> Iterator[Clash]:
        for name, known in (("family", FAMILIES), ("origin", ORIGINS), ("part", PARTS)):
            value = getattr(self, name)
            if value and value not in known:
                yield Clash(name, f"unknown {name} `{value}`", suggest(value, known, "known"))


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: its datasheet, and beside it what was calibrated."""

    name: str
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    peak: dict[str, FlopPerSecond]  # dense, by precision
    source: str
    launch: Seconds = 5e-6  # host-side cost of one kernel
    processors: Count = 100  # SMs, cores: what a kernel's tiles are dealt to
    reserve: Bytes = 1.2e9  # context, framework and libraries, before the first tensor
    host_link: BytesPerSecond | None = None  # to the host's memory, one way; its own, not shared
    price: Price | None = None  # of one, rented
    price_source: str = ""  # whose list, and of when
    power: Power | None = None
    title: str = ""
    library: Literal["", "nccl"] = ""  # of its collectives, where their model is known
    host: bool = False  # processors of the node itself: no queue is asked for them as GPUs
    # what its libraries are written for
    generation: Literal["", Cuda, Rocm, Tpu] = ""
    kernels: tuple[Curve, ...] = ()  # calibrated; beside the datasheet, never over it
    # of the peak rate, what matrix units keep up under the power that training is granted
    loaded: Annotated[float, Between(0.1, 1)] = 1.0
    loaded_doubt: Annotated[float, Between(0, 1)] = 0.0  # 1σ of `loaded`, relative
    variation: Annotated[float, Between(0, 0.2)] = 0.0  # 1σ of speed from one device to the next

    GONE: ClassVar[dict[str, str]] = {"cache": "nothing was priced by it: leave the line out"}

    @property
    def kind(self) -> str:
        """What software that was measured on one of these was measured on."""
        return self.generation or ("cpu" if self.host else self.name)

    @property
    def platform(self) -> str:
        """What its programs are written for; nothing where nobody says its generation."""
        return PLATFORMS.get(self.kind, "")

    def slowed(self, times: float) -> Device:
        """One that takes so many times as long for the same kernels; launching them costs the same.

        Its rates are as much less, and what a kernel takes before it works as much more.
        """
        if times == 1:
            return self
        kernels = tuple(
            replace(one, start=one.start * times, pace=one.pace / times) for one in self.kernels
        )
        return replace(
            self, memory_bandwidth=self.memory_bandwidth / times, kernels=kernels,
            peak={name: rate / times for name, rate in self.peak.items()},
        )  # fmt: skip

    def check(self) -> Iterator[Clash]:
        for key in self.peak:
            if key not in PRECISIONS:
                hint = suggest(key, PRECISIONS, "known")
                yield Clash(f"peak.{key}", f"unknown precision `{key}`", hint, True)
        if not self.peak:
            yield Clash("peak", "a device needs a peak for at least one precision", "fp32: …")
