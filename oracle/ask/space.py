"""The space of plans: every product of degrees, and the knobs that strategies want tried.

A candidate is a row of numbers: the degree of each axis, the samples of a micro-batch, the knobs.
A device's share of the batch is cut where strategies meet: by the pipeline if there is one, else
by accumulation; so the knob that counts micro-batches follows from their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.ask.partitions import ANYWHERE, Where
from oracle.models.model import Flags, Model
from oracle.plan import launchable
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.plan.strategies import Strategy, strategies
from oracle.spec.software import Software

Floats: TypeAlias = NDArray[np.float64]
MOST = 6000  # products that are looked at one by one; of more, every k-th comes first
MANY, FEW = 2**16, 150  # devices from where each pattern of groups takes long to count


@dataclass(frozen=True)
class Space:
    """Plans of some strategies over so many devices at one global batch."""

    model: Model
    devices: int
    batch: int
    allowed: tuple[str, ...]
    plain: bool = False  # no knob is turned: the published assumptions know none
    software: Software | None = None  # whose plans alone are looked at
    resort: bool = False  # values of knobs are tried that are slow, since nothing fits without
    where: Where = ANYWHERE  # the partitions that plans run on, of unlike devices

    @cached_property
    def known(self) -> dict[str, type[Strategy]]:
        return {name: new for name, new in strategies().items()
                if name in self.allowed or (new.places and self.where.shares)}  # fmt: skip

    @cached_property
    def limits(self) -> dict[str, int]:
        """The widest that each axis may be, of those that may be wider than one."""
        widest = {
            name: int(
                min(np.max(new().limit(self.model, np.array(self.batch, float))), self.devices)
            )
            for name, new in self.known.items()
            if new.degrees and new.multiplies and not set(new.by_hand) & set(self.known)
        }
        return {name: limit for name, limit in widest.items() if limit > 1}

    @cached_property
    def knobs(self) -> dict[tuple[str, str], tuple[float, ...]]:
        """(strategy, knob) -> the values worth trying, the usual one first."""
        values_of_knobs = {
            (name, knob): (*values, *(new.resorts(self.model).get(knob, ()) if self.resort else ()))
            for name, new in self.known.items()
            if name in self.limits or not new.multiplies or new.speaks_for_all
            for knob, values in new.tries(self.model).items()
        }
        if self.software is not None and not self.software.launch.strategies:
            values_of_knobs = {
                (name, knob): tuple(value for value in values
                                    if value not in self.known[name].unnamed().get(knob, ()))
                for (name, knob), values in values_of_knobs.items()
            }  # fmt: skip
        if self.where.shares:
            values_of_knobs["on", "shares"] = self.where.shares
        return {
            key: values[:1] if self.plain else values for key, values in values_of_knobs.items()
        }

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """What the columns of a table of candidates are."""
        return [*((name, "degree") for name in self.limits), ("", "micro-batch"), *self.knobs]

    @property
    def micro(self) -> int:
        """The column of the samples of a micro-batch."""
        return len(self.limits)

    @cached_property
    def dealt(self) -> list[int]:
        """Columns of axes that deal the batch."""
        return [i for i, name in enumerate(self.limits) if self.known[name].deals_batch]

    def products(self) -> Floats:
        """Every way to write the devices as a product of degrees, or a lattice of them."""
        limits = tuple(self.limits.values())
        degrees = _products(self.devices, limits)
        limit_of_products = MOST if self.devices <= MANY else FEW
        degrees = degrees[
            :: max(1, -(-len(degrees) // limit_of_products))
        ]  # each has a neighbour nearby
        if not degrees:  # too many devices for every product: show how far off the widest is
            degrees = [tuple(min(self.devices, limit) for limit in limits)]
        rows = np.array(degrees, float).reshape(len(degrees), len(limits))
        return rows[self._spanning(rows)]

    def _spanning(self, rows: Floats) -> Flags:
        """Candidates that are like none that is tried in another order of partitions or axes."""
        spans, partitions_used = np.ones(len(rows), bool), self.where
        if partitions_used.staged:
            staged = [i for i, name in enumerate(self.limits) if name == "pipeline"]
            spans &= (rows[:, staged] > 1).any(axis=1)
        if partitions_used.dealt_first:
            spans &= (rows[:, self.dealt] > 1).any(axis=1)
        return spans

    def usual(self, products: Floats) -> Floats:
        """Candidates of these degrees, the whole share at once, every knob as usual."""
        rows = np.ones((len(products), len(self.columns)))
        rows[:, : self.micro] = products
        for i, values in enumerate(self.knobs.values(), self.micro + 1):
            rows[:, i] = values[0]
        rows[:, self.micro] = self.share(rows)
        return rows

    def share(self, rows: Floats) -> Floats:
        """Samples of one device."""
        replicas = rows[:, self.dealt].prod(axis=1)
        return np.asarray(np.maximum(np.ceil(self.batch / replicas), 1.0))

    def turned(self, rows: Floats) -> Floats:
        """How many knobs of each candidate are not as usual."""
        usual = np.array([values[0] for values in self.knobs.values()])
        return np.asarray((rows[:, self.micro + 1 :] != usual).sum(axis=1), float)

    def sparing(self, rows: Floats) -> Floats:
        """The same candidates with all that spares memory, one sample at a time."""
        rows = rows.copy()
        rows[:, self.micro] = 1.0
        for i, (name, knob) in enumerate(self.columns):
            if name and (values := self.known[name].spares(self.model)) and knob in values:
                rows[:, i] = values[knob]
        return rows

    def lightest(self, products: Floats) -> Floats:
        """Candidates of these degrees of which a device has least of each row at once.

        One sample at a time, with all values of the knobs that may change what is left of a row.
        """
        rows = self.usual(products)
        rows[:, self.micro] = 1.0
        for i, ((name, knob), values) in enumerate(self.knobs.items(), self.micro + 1):
            if knob == "degree" or knob in self.known[name].row_knobs():
                rows = np.concatenate([_with(rows, i, value) for value in values])
        return self.sound(rows)

    def values(self, row: Floats, column: int, reach: int | None = None) -> list[float]:
        """What one candidate may have in a column instead; of numbers those within reach."""
        if column == self.micro:
            share = int(self.share(row[None])[0])
            choices = [float(n) for n in range(1, share + 1) if share % n == 0]
            counted = True
        else:
            dear = self.dear(column)
            choices = [value for value in self.knobs[self.columns[column]] if value not in dear]
            counted = self.counted(column)
        if counted and reach is not None:
            choices = sorted(choices)
            place = int(np.searchsorted(choices, row[column]))
            choices = choices[max(0, place - reach) : place + reach + 1]
        return [value for value in choices if value != row[column]]

    def dear(self, column: int) -> tuple[float, ...]:
        """Values of a knob that take long to price."""
        name, knob = self.columns[column]
        dear = self.known[name].dear(self.model).get(knob, ()) if name else ()
        return tuple(value for value in dear if value in self.knobs[name, knob])

    def counted(self, column: int) -> bool:
        """Whether a knob is a number, not a word."""
        name, knob = self.columns[column]
        return knob == "degree" or "words" not in self.known[name].knobs()[knob].metadata

    def moved(self, row: Floats) -> Floats:
        """One candidate with a prime factor of a degree moved to another axis."""
        moved_rows = []
        for source in range(self.micro):
            for prime in _primes(int(row[source])):
                for target, limit in enumerate(self.limits.values()):
                    if target != source and row[target] * prime <= limit:
                        new = row.copy()
                        new[source], new[target] = new[source] / prime, new[target] * prime
                        moved_rows.append(new)
        return np.array(moved_rows).reshape(-1, len(row))

    def sound(self, rows: Floats) -> Floats:
        """Each candidate once, with the knobs of axes that it does not use as usual."""
        rows = rows[self._spanning(rows)]
        if not len(rows):
            return rows
        rows[:, self.micro] = np.minimum(rows[:, self.micro], self.share(rows))
        widths = {name: rows[:, i] for i, name in enumerate(self.limits)}
        for i, ((name, knob), values) in enumerate(self.knobs.items(), self.micro + 1):
            if name in widths and not self.known[name].knobs()[knob].metadata.get("alone"):
                rows[widths[name] == 1, i] = values[0]
        if self.where.shares:  # of replicas that are unlike
            alike = (rows[:, self.dealt] == 1).all(axis=1)
            if not self.where.dealt_first:
                alike |= widths.get("pipeline", np.ones(len(rows))) > 1
            rows[alike, self.columns.index(("on", "shares"))] = 0.0
        return np.asarray(rows[np.sort(distinct(rows)[0])])

    def ruled(self, rows: Floats) -> Flags:
        """Candidates that break no rule of a strategy, whatever they hold."""
        plan = self.plan(rows)
        axes = {axis.name: axis for axis in plan.axes}
        obeyed = [rule.wanted <= rule.allowed for axis in plan.axes
                for rule in axis.rules(self.model, plan.batch, axes)]  # fmt: skip
        if self.software is not None:
            obeyed += [rule.wanted <= rule.allowed
                     for rule in launchable.rules(self.software, self.model, plan)]  # fmt: skip
        return np.asarray(np.logical_and.reduce(obeyed))

    def plan(self, rows: Floats) -> Plan:
        """The table of plans that candidates stand for."""
        fields: dict[str, dict[str, Floats]] = {name: {} for name in strategies()}
        for i, (name, knob) in enumerate(self.columns):
            if name:
                fields[name][knob] = rows[:, i]
        # a share that was rounded up has a sample more than every device can cut off
        whole_pieces = np.maximum(self.batch // rows[:, self.dealt].prod(axis=1), 1.0)
        pieces = np.minimum(np.ceil(self.share(rows) / rows[:, self.micro]), whole_pieces)
        left = np.ones(len(rows), bool)  # whose batch nobody has cut so far
        for name, new in self.known.items():
            for knob, knob_field in new.knobs().items():
                if knob_field.metadata.get("micro_batches"):
                    wide = fields[name].get("degree", np.ones(len(rows))) > 1
                    cuts_here = left & (wide | bool(knob_field.metadata.get("alone")))
                    fields[name][knob] = np.where(cuts_here, pieces, 1.0)
                    left &= ~cuts_here
        fields["on"]["parts"] = np.full(len(rows), self.where.on)
        axes = [new(**fields[name]) for name, new in strategies().items()]
        if self.where.dealt_first:
            axes.sort(key=lambda axis: not (axis.deals_batch and axis.multiplies))
        return Plan.of(np.full(len(rows), float(self.batch)), *axes)


def _with(rows: Floats, column: int, value: float) -> Floats:
    rows = rows.copy()
    rows[:, column] = value
    return rows


@lru_cache(maxsize=256)
def _products(n: int, limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to write n as a product of degrees, each within its limit."""
    if not limits:
        return [()] if n == 1 else []
    rest = limits[1:]
    return [
        (d, *more)
        for d in range(1, min(n, limits[0]) + 1) if n % d == 0
        for more in _products(n // d, rest)
    ]  # fmt: skip


@lru_cache(maxsize=1024)
def _primes(n: int) -> tuple[int, ...]:
    """The distinct prime factors of a number."""
    primes, p = [], 2
    while p * p <= n:
        if n % p == 0:
            primes.append(p)
            while n % p == 0:
                n //= p
        p += 1
    return tuple([*primes, n] if n > 1 else primes)
