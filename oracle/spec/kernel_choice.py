"""Which kernels a software runs a model with, and how its convolutions keep their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from oracle.spec.device import Device
from oracle.spec.document import refusal, suggest
from oracle.spec.precision import ACTIVATION_BYTES
from oracle.spec.schema import Clash, Whole
from oracle.spec.units import Bytes, Seconds, parse

# where channels stand: before the extents, or after; or after, but turned before and after each
# convolution by the framework itself
Layout = Literal["", "first", "last", "turned"]

# parts of layers whose kernels are launched as one, where not all of an iteration's are
GRAPHED = ("attn", "mlp", "moe_router", "moe_preprocess", "mamba")


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Which kernels a model is run with, where the model does not say."""

    # FlashAttention of 2022 or 2023, products through memory, or the fastest that there is
    attention: Literal["unfused", "flash1", "flash2", "best"] = "best"
    fused: bool = True  # norms, rotations, gates one kernel each; products add gradients up
    written: bool = False  # norms of tokens and rotations are one kernel each, whatever is fused
    # its gradient stands in the place of an fp32 copy of the logits, or beside it; or one kernel
    # reads the logits as they are
    loss: Literal["in_place", "beside", "one_kernel"] = "in_place"
    # where the weights that a router gives its experts multiply: before or after the second product
    experts: Literal["inside", "outside"] = "outside"
    # products of a mixture's experts, and casts of what they take: one kernel, or one an expert
    grouped: Literal["one", "each"] = "one"
    # what the product over the vocabulary computes in: 16 bits beside narrow products, or as they
    head: Literal["wide", "narrow"] = "wide"
    repeated: bool = False  # keys and values that several heads ask stand once for each of them
    strided: bool = False  # attention takes queries, keys and values as they lie
    packed: bool = True  # one matrix makes q, k and v; another the gate and what it opens
    biases: Literal["product", "apart"] = "product"  # what sums up the gradient of a bias
    # what recompute:operators keeps: what attention and every other matrix made, or all matrices
    operators: Literal["turns", "matrices"] = "turns"
    remade: Literal["block", "wanted"] = "block"  # all that is made again, or what passes back want
    logged: Whole = 0  # times that the loss is taken once more, to be logged
    # softmaxes, norms of tokens and sums with them in 32 bits: PyTorch's autocast
    autocast: bool = False
    # of what is asked for in fp32, what NVIDIA's matrix units of Ampere and later make as TF32
    tf32: Literal["none", "convolutions", "all"] = "convolutions"
    norms: Literal["apart", "fused"] = "apart"  # batch norms take along what is beside them
    # what is done in place on an instance norm's result, which is a view: the gradient goes back
    # through five copies, three of them there at once
    rebased: bool = False
    # one kernel updates all weights, or each term of the rule is one of each tensor's
    optimizer: Literal["fused", "apart"] = "fused"
    # what a processor loses to every row of a norm of tokens beside its bytes: a block each
    row: Seconds = 0.0  # forward
    row_back: Seconds = 0.0  # backward
    source: str = field(default="", compare=False)
    sources: dict[str, str] = field(default_factory=dict, compare=False,
                                    metadata={"hidden": True})  # fmt: skip

    @property
    def flash_version(self) -> int | None:
        """Of FlashAttention, where it is not the fastest kernel that the device has."""
        return {"flash1": 1, "flash2": 2}.get(self.attention)

    def computed(self, precision: str, device: Device, convolutions: bool = False) -> str:
        """The precision that products, or convolutions, of one asked for are made in."""
        may = self.tf32 == "all" or (convolutions and self.tf32 == "convolutions")
        units = device.platform == "cuda" and "tf32" in device.peak
        return "tf32" if precision == "fp32" and may and units else precision


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a convolution's algorithm may take."""

    workspace: Bytes | None = None  # no limit if not said
    # what a batch is run as: whole, or in pieces where that is faster in the same workspace
    micro: Literal["whole", "best"] = "whole"
    # what is taken: what a library takes by itself, or the fastest of all, as if they were timed
    algorithms: Literal["usual", "all"] = "usual"
    shared: bool = False  # the workspace is one for all layers and passes, not one for each
    # where channels stand in its tensors; by precision, if that differs; not said: as kernels like
    # them
    layout: Layout | dict[str, Layout] = ""
    volumes: Layout | dict[str, Layout] | None = None  # the same of volumes, if it differs
    # units that take the data gradient of volumes, channels first, where windows are wider than
    # their strides
    strided_volumes: Literal["matrix", "vector"] = "matrix"
    # parts of samples and borders that windows see: where they lie, or copied together
    parts: Literal["in_place", "copied"] = "in_place"
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict, metadata={"hidden": True})

    def check(self) -> Iterator[Clash]:
        yield from precisions(self.layout, "layout")
        yield from precisions(self.volumes, "volumes")

    @property
    def limit(self) -> float:
        """Bytes, or infinity."""
        return np.inf if self.workspace is None else self.workspace

    @property
    def text(self) -> str | None:
        """As `--workspace` says it; None where nobody says anything."""
        if self.workspace is None and self.algorithms == "usual":
            return None
        size, units = self.workspace, ("GiB", "MiB", "KiB", "B")
        if size is not None:
            scale, unit = next((s, u) for s, u in zip((2**30, 2**20, 2**10, 1), units, strict=True)
                               if s == 1 or (size and not size % s))  # fmt: skip
        told = "none" if size is None else f"{size / scale:.0f}{unit}"
        micro = ",micro=best" if self.micro == "best" else ""
        return f"{told}{micro}{',shared=on' if self.shared else ''}"

    def said(self, text: str | float) -> Convolution:
        """The same with a workspace of `64MiB`, `none`, `64MiB,micro=best` or `1GiB,shared=on`.

        Whoever says what there is has every algorithm timed.

        >>> CONVOLUTION.said("64MiB,micro=best").text
        '64MiB,micro=best'
        """
        said = text if isinstance(text, str) else f"{text:.0f} B"
        first, *more = [word.strip() for word in said.split(",")]
        first = "0 B" if first == "0" else first
        try:
            size = None if first == "none" else parse(first, "B")
        except ValueError as error:
            raise refusal("options", f"the workspace: {error}", "e.g. 64MiB, or none") from None
        if size is not None and not 0 <= size < np.inf:
            raise refusal("options", f"a workspace of {size:g} bytes", "e.g. 64MiB, or none")
        found = replace(self, workspace=size, algorithms="all")
        for word in more:
            if word not in WORKSPACE:
                hint = suggest(word, WORKSPACE, "write one of")
                raise refusal("options", f"`{word}` says nothing of a workspace", hint)
            found = replace(found, **WORKSPACE[word])
        return found

    def stands(self, precision: str, rank: int) -> Layout:
        """Where channels stand in tensors of so many extents."""
        said = self.layout if rank < 3 or self.volumes is None else self.volumes
        if isinstance(said, str):
            return said
        return said.get(precision) or said.get("other") or ""


# words of `--workspace` behind its size
WORKSPACE: dict[str, dict[str, Any]] = {
    "micro=best": {"micro": "best"}, "micro=whole": {"micro": "whole"},
    "shared=on": {"shared": True}, "shared=off": {"shared": False},
}  # fmt: skip
# of a software that says nothing
KERNELS, CONVOLUTION = KernelChoice(), Convolution()


def precisions(width: object, name: str) -> Iterator[Clash]:
    """Faults of a field that is said by precision."""
    known = (*ACTIVATION_BYTES, "other")
    for key in width if isinstance(width, dict) else ():
        if key not in known:
            yield Clash(f"{name}.{key}", f"unknown precision `{key}`", suggest(key, known), True)
