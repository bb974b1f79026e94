"""How replicas agree on gradients, and how weights that are sharded come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oracle.spec.formula import Formula, Value
from oracle.spec.kernel_choice import precisions
from oracle.spec.schema import Clash, Ratio, Whole
from oracle.spec.units import BytesPerSecond, Seconds
from oracle.spec.widths import Width, bytes_of, width_of


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
        return bytes_of(width_of(self.gradients, precision), precision)

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
    # in a pipeline: units come and go with each micro-batch; or all that came stays, and gradients
    # are whole until the last one
    pipelined: Literal["units", "whole"] = "units"
    overlap: Literal["none", "forward"] = "none"  # of renewed weights (ZeRO 1 and 2)
    prefetch: Whole = 1  # units whose weights are gathered ahead of their use (ZeRO 3)
    placed: bool = True  # and copied to where they are used; else they are gathered there
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.wire, "wire")

    def sent(self, precision: str) -> float:
        """Bytes of a weight on its way."""
        return bytes_of(width_of(self.wire, precision), precision)


GRADIENTS, GATHER = Gradients(), Gather()  # of a software that says nothing
