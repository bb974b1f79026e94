"""A profile: measured seconds of a model's rows at the shapes that a plan leaves on one device.

ParaDL takes FW_l, BW_l and WU_l from profiles of the layers [kahira2021, §5]. A profile is the
truth at every shape it has; elsewhere the kernel model is scaled to it, layer by layer:

    T(s) = h(model(s))        h: the measured seconds of that layer over what the model says of
                              the measured shapes, made monotone, linear in between; beyond the
                              least and the largest the ratio measured / model stays as it is there

so T is exact where it was measured, continuous, and never falls where the model grows. On another
device or in another precision than the profile's, T grows by the model's ratio of the two. Rows
of layers that were never measured are the model's alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from oracle.kernels.passes import Passes
from oracle.kernels.profile.factors import NOTHING, Factors
from oracle.kernels.profile.scale import NEAR, MeasuredRows, Ramp, ratio
from oracle.kernels.profile.shape import signature, taken_apart
from oracle.models.model import Flags, Floats, Model
from oracle.models.shard import Shard
from oracle.spec.device import Device
from oracle.spec.precision import ACTIVATION_BYTES
from oracle.spec.software import Software

Price: TypeAlias = Callable[[Shard, Device, str], Passes]


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one row and micro-batch, measured."""

    forward: float
    data: float  # gradient of the input; the whole backward pass where both were timed as one
    weight: float = 0.0
    spread: float = 0.0  # relative, between ranks and steps
    samples: float = 1.0  # that these are the middle of

    @property
    def backward(self) -> float:
        return self.data + self.weight

    @property
    def doubt(self) -> float:
        """1σ of the middle of its samples, relative."""
        return self.spread / math.sqrt(max(self.samples, 1.0))


@dataclass(frozen=True, slots=True)
class Update:
    """Seconds that an optimizer took over so many weights."""

    optimizer: str
    weights: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Profile:
    """Measured seconds by signature, and of updates, with where they come from."""

    rows: dict[str, Timed]
    updates: tuple[Update, ...] = ()
    source: str = "measured"
    precision: str = ""  # "" where the file does not say
    device: Device | None = None  # as it is modelled where this was measured
    factors: Factors = NOTHING  # of what no row of its own was measured for
    of: str = ""  # the device that runs were logged on, where the file says it
    under: str = ""  # and the software that ran them
    trained: str = ""  # and the model
    _tables: WeakKeyDictionary[Model, dict[str, tuple[Software, MeasuredRows]]] = field(
        init=False, repr=False, default_factory=WeakKeyDictionary
    )

    def on(self, device: Device) -> Profile:
        """The same, as a profile of this device: what is scaled later is scaled from it."""
        return replace(self, device=self.device or device)

    def lookup(self, shard: Shard, plan: int, row: int) -> Timed | None:
        """What was measured at exactly this shape."""
        return self.rows.get(signature(shard, row, plan))

    @cached_property
    def _layers(self) -> dict[str, list[tuple[tuple[float, ...], Timed]]]:
        found: dict[str, list[tuple[tuple[float, ...], Timed]]] = {}
        for text, timed in self.rows.items():
            what, shape = taken_apart(text)
            found.setdefault(what, []).append((shape, timed))
        return found

    def passes(self, shard: Shard, device: Device, precision: str, price: Price) -> Passes:
        """Every row's passes: as measured where they were, as the scaled model says elsewhere."""
        base, own = self.device or device, self.precision or precision
        width = ACTIVATION_BYTES[own]
        tables = self._tables.setdefault(shard.model, {})
        by, measured = tables.get(own, (None, None))
        if self.device is None or measured is None or by != shard.software:
            measured = MeasuredRows.of(
                shard.model, self._layers, width,
                lambda each: price(each.but(software=shard.software), base, own),
            )  # fmt: skip
            tables[own] = shard.software, measured
        now = price(shard, device, precision)
        if not measured.known.any():
            return self.factors.scaled(now, shard.model)
        same = base == device and own == precision
        then = now if same else price(shard.but(delta=width, gate=width), base, own)
        return self.factors.scaled(measured.passes(shard, then, now), shard.model)

    def has(self, optimizer: str) -> bool:
        """Whether updates by this optimizer were measured."""
        return any(each.optimizer == optimizer for each in self.updates)

    def has_of(self, optimizer: str, weights: Floats) -> Flags:
        """Whether updates of so many weights were, for each number of them."""
        own = [each.weights for each in self.updates if each.optimizer == optimizer]
        found: Flags = np.any(np.isclose(weights[..., None], own, rtol=NEAR), axis=-1)
        return found

    def update(
        self, optimizer: str, weights: Floats, device: Device, precision: str,
        price: Callable[[Device, str, Floats], Floats],
    ) -> Floats:  # fmt: skip
        """Seconds of an update, scaled likewise over how many weights it is of."""
        own = [u for u in self.updates if u.optimizer == optimizer and u.weights > 0]
        now = price(device, precision, weights)
        if not own:
            return now * self.factors.times("update")
        base = (self.device or device, self.precision or precision)
        then = now if base == (device, precision) else price(*base, weights)
        model = price(*base, np.array([each.weights for each in own]))
        seconds = Ramp.of(model, np.array([each.seconds for each in own]))(then)
        return seconds * ratio(now, then, 1.0)
