"""The weights that one device holds: parts of full tensors, in flat buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from oracle.executor.local.graph import Operation
from oracle.executor.local.parts import Interval
from oracle.executor.messages.mesh import Group

LARGE = 2**20  # numbers of a weight
Axes: TypeAlias = tuple[str, ...]


@dataclass
class HeldWeight:
    """The part of one weight that this device holds."""

    op: Operation
    name: str
    full: tuple[int, ...]
    intervals: list[list[Interval]]  # by axis
    offset: int = 0  # where it begins in its bundle
    value: Tensor = field(default_factory=lambda: torch.empty(0))
    gradient: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(sum(stop - start for start, stop in axis) for axis in self.intervals)

    def cut(self, tensor: Tensor) -> Tensor:
        """The part of a tensor of full size that this device holds."""
        for dim, intervals in enumerate(self.intervals):
            if intervals != [(0, self.full[dim])]:
                tensor = torch.cat([tensor.narrow(dim, a, b - a) for a, b in intervals], dim)
        return tensor


class Bundle:
    """Weights that are exchanged together: flat buffers of weights, gradients, optimizer state.

    Ranks along `replicas` hold the same weights, and those along `shards` share their state.
    Weights of 16 bits have masters of 32 bits, of this device's part, and gradients are added up
    in 32 bits [micikevicius2018, §3.1].
    """

    def __init__(
        self, held_weights: Sequence[HeldWeight], like: Tensor, shared: Group, replicas: Axes,
        shards: Axes, prefix: str = "",
    ) -> None:  # fmt: skip
        self.held_weights, self.parts, self.place = list(held_weights), shared.size, shared.place
        self.replicas, self.shards, self.prefix = replicas, shards, prefix
        parts = self.parts
        end = 0
        for weight in self.held_weights:
            weight.offset, end = end, end + math.prod(weight.shape)
        self.size = -(-end // parts) * parts
        self.wide = wide_of(like.dtype)
        self.weights = like.new_zeros(self.size)
        self.gradients = like.new_zeros(self.size, dtype=self.wide)
        self.masters = like.new_zeros(self.size // parts if self.mixed else 0, dtype=self.wide)
        self.slots: list[Tensor] = []
        self.steps = 0
        for weight in self.held_weights:
            begin, count = weight.offset, math.prod(weight.shape)
            # .data: an alias with a version of its own, so that a gather may write under it
            alias = self.weights.data[begin : begin + count].view(weight.shape)
            weight.value = alias.requires_grad_()
            weight.gradient = self.gradients.data[begin : begin + count].view(weight.shape)
            if self.mixed:
                weight.value.register_post_accumulate_grad_hook(_widened(weight))
            else:
                weight.value.grad = weight.gradient
        self.shard = self.weights[:0]  # what is kept while the buffer is freed
        # this device's part, of all replicas and micro-batches
        self.summed = self.gradients[self.shard_slice]

    @property
    def mixed(self) -> bool:
        """Whether weights are narrower than what is added to them."""
        return bool(self.weights.dtype != self.wide)

    def fill(self, weight: HeldWeight, value: Tensor) -> None:
        """Set a weight, and this device's part of its masters."""
        first, offset, flat = self.shard_slice.start, weight.offset, value.flatten()
        begin, end = max(offset, first), min(offset + len(flat), self.shard_slice.stop)
        with torch.no_grad():
            weight.value.copy_(value)
            if self.mixed and begin < end:
                self.masters[begin - first : end - first] = flat[begin - offset : end - offset]

    def updated(self) -> Tensor:
        """What an optimizer updates on this device: its masters, or its part of the weights."""
        return self.masters if self.mixed else self.owned

    @property
    def owned(self) -> Tensor:
        """The part of the weights that this device updates."""
        return (self.weights[self.shard_slice] if self.has_weights else self.shard).detach()

    @property
    def rest(self) -> Axes:
        """Axes of replicas that do not share state."""
        return tuple(axis for axis in self.replicas if axis not in self.shards)

    @property
    def shard_slice(self) -> slice:
        shard_size = self.size // self.parts
        return slice(self.place * shard_size, (self.place + 1) * shard_size)

    def release(self, keep: bool = True) -> None:
        """Free the buffer of weights; this device's shard stays, unless it lies elsewhere."""
        if self.weights.untyped_storage().size():
            if keep:
                self.shard = self.weights[self.shard_slice].clone()
            self.weights.untyped_storage().resize_(0)

    def restore(self) -> Tensor:
        """Allocate the buffer of weights again."""
        self.weights.untyped_storage().resize_(self.size * self.weights.element_size())
        return self.weights

    @property
    def has_weights(self) -> bool:
        return bool(self.weights.untyped_storage().size())

    def part(self) -> None:
        """Keep this device's sum of gradients apart: complete ones live for one pass at most."""
        self.summed = torch.zeros_like(self.gradients[self.shard_slice])
        self.free()

    def allocate(self) -> None:
        """Allocate the buffer of gradients, empty, unless it is there."""
        if not self.allocated:
            self.gradients.untyped_storage().resize_(self.size * self.gradients.element_size())
            self.gradients.zero_()

    def free(self) -> None:
        """Free the buffer of gradients."""
        self.gradients.untyped_storage().resize_(0)

    @property
    def allocated(self) -> bool:
        return bool(self.gradients.untyped_storage().size())


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """The type in which weights are summed and updated: fp32 for narrower ones too."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def _widened(held_weight: HeldWeight) -> Callable[[Tensor], None]:
    """A hook that adds a weight's gradient to a wider buffer, and frees it."""

    def add(weight: Tensor) -> None:
        assert weight.grad is not None
        held_weight.gradient.add_(weight.grad)
        weight.grad = None

    return add


def initial(op: Operation, name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """The same weights for every plan and precision; large ones in 32 bits, a quarter as long."""
    mark = sum(ord(c) * 31**i for i, c in enumerate(name)) % 99991
    random = torch.Generator().manual_seed(seed * 1_000_003 + op.index * 100_003 + mark)
    width = torch.float64 if math.prod(shape) < LARGE else torch.float32
    values = torch.randn(shape, generator=random, dtype=width)
    if len(shape) == 1 or name == "bias":
        return values.mul_(0.1).add_(1.0 if name == "weight" else 0.0)
    if name in ("table", "positions", "extra"):
        return values.mul_(0.5)
    fan = shape[2:] if op.shape.experts else shape[1:]
    return values.mul_(math.sqrt(2 / math.prod(fan)))
