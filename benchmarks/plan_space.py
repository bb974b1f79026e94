"""Every plan a question can be answered with: enumerated, drawn, and walked from one to the next.

The space is every product of degrees that uses all devices, every value a strategy names in `tries`
for each of its knobs, and every number of micro-batches that divides a device's batch evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Model
from oracle.plan.plan import Plan, parse
from oracle.plan.strategies import strategies
from oracle.predict import evaluate
from oracle.spec.options import Options
from oracle.spec.system import System

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-9  # a plan is faster if by more than this
STEP = 2**17  # plans evaluated at a time


@dataclass(frozen=True)
class Found:
    """The fastest feasible plan of many."""

    plans: int
    fitting: int
    faster: int  # than a time that was given
    seconds: float  # infinite where nothing fits
    plan: str | None

    def joined(self, other: Found) -> Found:
        """The faster of two, and how many both are of."""
        best = other if other.seconds < self.seconds * (1 - ROUNDING) else self
        return Found(
            self.plans + other.plans, self.fitting + other.fitting, self.faster + other.faster,
            best.seconds, best.plan,
        )  # fmt: skip


class Space:
    """Every plan of a question: a product of degrees, a value of each knob, micro-batches.

    A plan is a row of `degrees` (of `axes`), one of `values` (of `knobs`) and a number of
    micro-batches. What has no effect, a knob of an axis of degree 1, keeps its plain value.
    """

    def __init__(
        self, model: Model, system: System, devices: int, batch: int, options: Options,
        only: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.model, self.system, self.batch, self.options = model, system, batch, options
        self.known = strategies()
        # what is slow is searched where nothing fits without it: there it is said by `only`
        allowed = [name for name, new in self.known.items()
                   if (name in only if only else not new.resort)]  # fmt: skip
        limits = {
            name: int(min(np.max(new().limit(model, np.float64(batch))), devices))
            for name, new in self.known.items()
            if name in allowed and new.degrees and new.multiplies
            if not set(new.by_hand) & set(allowed)
        }
        self.limits = {name: limit for name, limit in limits.items() if limit > 1}
        self.axes = list(self.limits)
        self.knobs = [
            (name, knob, np.array(values))
            for name in allowed
            for knob, values in self.known[name].tries(model).items()
            if len(values) > 1
        ]
        self.cutters = [  # knobs that say into how many micro-batches a device's batch is cut
            (name, knob)
            for name in allowed
            for knob, field in self.known[name].knobs().items()
            if field.metadata.get("micro_batches")
        ]
        rows = [*products(devices, list(self.limits.values()))]
        self.products = np.array(rows, float).reshape(len(rows), len(self.axes))

    def wide(self, degrees: Floats, name: str) -> NDArray[np.bool_]:
        """Where an axis has devices of its own."""
        if name not in self.axes:
            return np.zeros(len(degrees), bool)
        return degrees[:, self.axes.index(name)] > 1

    def works(self, degrees: Floats, name: str, knob: str) -> NDArray[np.bool_]:
        """Where a knob has an effect: beside a degree, or alone."""
        cls = self.known[name]
        alone = knob == "degree" or not cls.degrees or cls.knobs()[knob].metadata.get("alone")
        return self.wide(degrees, name) | bool(alone)

    def table(self, degrees: Floats, values: Floats, pieces: Floats) -> Plan:
        """The plans of these rows."""
        columns: dict[str, dict[str, Any]] = {
            name: {"degree": degrees[:, i]} for i, name in enumerate(self.axes)
        }
        for i, (name, knob, known) in enumerate(self.knobs):
            works = self.works(degrees, name, knob)
            columns.setdefault(name, {})[knob] = np.where(works, values[:, i], known[0])
        left = np.ones(len(degrees), bool)  # whose batch nobody has cut yet: the outermost does
        for name, knob in self.cutters:
            mine = left & self.works(degrees, name, knob)
            columns.setdefault(name, {})[knob] = np.where(mine, pieces, 1)
            left &= ~mine
        axes = (new(**columns.get(name, {})) for name, new in self.known.items())
        return Plan.of(np.full(len(degrees), float(self.batch)), *axes)

    def shares(self, degrees: Floats) -> Floats:
        """Samples of a device, as the strategies deal them."""
        if not degrees.size:
            return np.full(len(degrees), float(self.batch))
        few, row = np.unique(degrees, axis=0, return_inverse=True)
        plain = np.tile([float(known[0]) for *_, known in self.knobs], (len(few), 1))
        shard = evaluate.split(self.model, self.table(few, plain, np.ones(len(few))), self.options)
        mine: Floats = np.broadcast_to(np.asarray(shard.batch, float), (len(few), 1))
        return mine[row.reshape(-1), 0]

    @cached_property
    def cuts(self) -> list[Floats]:
        """Numbers of micro-batches to try for each product of degrees."""
        cut = np.zeros(len(self.products), bool)
        for name, knob in self.cutters:
            cut |= self.works(self.products, name, knob)
        found = zip(self.shares(self.products), cut, strict=True)
        return [divisors(int(share)) if may else np.ones(1) for share, may in found]

    @cached_property
    def radix(self) -> Ints:
        """(products, knobs + 1): how many values each has, the micro-batches last."""
        counts = [
            np.where(self.works(self.products, name, knob), len(known), 1)
            for name, knob, known in self.knobs
        ]
        return np.array([*counts, [len(cuts) for cuts in self.cuts]], np.int64).T

    @cached_property
    def ends(self) -> Ints:
        """Plans of each product and of those before it."""
        return np.cumsum(np.prod(self.radix, axis=1))

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def plans(self, numbers: Ints) -> Plan:
        """The plans of these numbers, from 0 to the length of the space."""
        product = np.searchsorted(self.ends, numbers, side="right")
        rest = numbers - self.ends[product] + np.prod(self.radix, axis=1)[product]
        values = np.zeros((len(numbers), len(self.knobs)))
        for i, (*_, known) in enumerate(self.knobs):
            count = self.radix[product, i]
            values[:, i] = known[rest % count]
            rest = rest // count
        longest = max(map(len, self.cuts))
        cuts = np.array([np.pad(each, (0, longest - len(each))) for each in self.cuts])
        return self.table(self.products[product], values, cuts[product, rest])

    def all(self) -> Iterator[Plan]:
        """The whole space, part by part."""
        for begin in range(0, len(self), STEP):
            yield self.plans(np.arange(begin, min(begin + STEP, len(self))))

    def draw(self, count: int, chance: np.random.Generator) -> Iterator[Plan]:
        """Random plans, each product of degrees as likely as any other."""
        if len(self):
            product = chance.integers(len(self.products), size=count)
            size = np.prod(self.radix, axis=1)[product]
            yield self.plans(self.ends[product] - 1 - chance.integers(size))

    def read(self, text: str) -> Floats:
        """(1, axes + knobs + 1): a plan's degrees, knobs and number of micro-batches."""
        plan = parse(text, self.batch)
        fields = [(name, "degree") for name in self.axes]
        fields += [(name, knob) for name, knob, _ in self.knobs]
        found = [float(getattr(plan.axis(name), knob)[0, 0]) for name, knob in fields]
        pieces = [float(getattr(plan.axis(name), knob)[0, 0]) for name, knob in self.cutters]
        return np.array([[*found, max(pieces, default=1.0)]])

    def of(self, rows: Floats) -> Plan:
        """The plans of rows as `read` gives them."""
        k = len(self.axes)
        return self.table(rows[:, :k], rows[:, k:-1], rows[:, -1])

    def neighbours(self, text: str, most: int) -> Iterator[Plan]:
        """The plan itself, and every change of at most so many things of it."""
        rows = self.read(text)
        for _ in range(most):
            rows = np.unique(np.vstack([rows, *self.changes(rows)]), axis=0)
        for begin in range(0, len(rows), STEP):
            yield self.of(rows[begin : begin + STEP])

    def changes(self, rows: Floats) -> Iterator[Floats]:
        """Rows with one knob, the micro-batch or the degrees of two axes changed."""
        k, share = len(self.axes), self.shares(rows[:, : len(self.axes)])
        for i, (name, knob, known) in enumerate(self.knobs):
            some = rows[self.works(rows[:, :k], name, knob)]
            for value in known:
                yield with_columns(some, {k + i: value})
        for each in np.unique(share):
            some = rows[share == each]
            for pieces in divisors(int(each)):
                yield with_columns(some, {-1: pieces})
        for i in range(k):
            for j in range(k):
                if i != j:
                    yield from self.moves(rows, share, i, j)

    def moves(self, rows: Floats, share: Floats, i: int, j: int) -> Iterator[Floats]:
        """Rows with a factor of one degree moved to another, the micro-batch kept if it can be."""
        limit = self.limits[self.axes[j]]
        for factor in np.unique(np.concatenate([divisors(int(d)) for d in np.unique(rows[:, i])])):
            may = (rows[:, i] % factor == 0) & (rows[:, j] * factor <= limit)
            moved = with_columns(rows[may], {i: rows[may, i] / factor, j: rows[may, j] * factor})
            if factor == 1 or not len(moved):
                continue
            now = self.shares(moved[:, : len(self.axes)])
            wanted = np.maximum(now * moved[:, -1] / share[may], 1)
            for each in np.unique(now):
                cuts, at = divisors(int(each)), now == each
                moved[at, -1] = cuts[np.searchsorted(cuts, wanted[at], side="right") - 1]
            yield moved

    def legal(self, plan: Plan) -> Plan:
        """The plans that break no rule of a strategy, whatever memory they need."""
        beside = {axis.name: axis for axis in plan.axes}
        rules = [rule for a in plan.axes for rule in a.rules(self.model, plan.batch, beside)]
        return plan[np.all([rule.wanted <= rule.allowed for rule in rules], axis=0)]

    def fastest(self, tables: Iterable[Plan], than: float | None = None) -> Found:
        """Evaluate tables of plans and keep the best; how many are faster than a time."""
        plans = fitting = faster = 0
        best, text = np.inf, None
        for table in map(self.legal, tables):
            for _, block in evaluate.blocks(self.model, self.system, table, self.options):
                seconds = np.where(block.feasible, block.seconds, np.inf)
                plans, fitting = plans + len(seconds), fitting + int(block.feasible.sum())
                faster += int((seconds < (than or 0.0) * (1 - ROUNDING)).sum())
                row = int(np.argmin(seconds))
                if seconds[row] < best:
                    best, text = float(seconds[row]), block.plan.text(row)
        return Found(plans, fitting, faster, best, text)

    def walk(self, start: Found, most: int, than: float | None = None) -> Found:
        """On from a plan, to the best of its neighbours each time, until none is faster."""
        best = start
        while best.plan is not None:
            further = self.fastest(self.neighbours(best.plan, most), than)
            best, last = best.joined(further), best
            if best.seconds >= last.seconds * (1 - ROUNDING):
                break
        return best

    def plainest(self, best: Found) -> Found:
        """The same with each knob at its plain value that nothing is lost by."""
        for i, (*_, known) in enumerate(self.knobs if best.plan else (), len(self.axes)):
            row = with_columns(self.read(str(best.plan)), {i: known[0]})
            plain = self.fastest([self.of(row)])
            if plain.seconds <= best.seconds * (1 + ROUNDING):
                best = replace(best, plan=plain.plan)
        return best


def with_columns(rows: Floats, columns: dict[int, Any]) -> Floats:
    """The rows with some columns set to something else."""
    found = rows.copy()
    for i, values in columns.items():
        found[:, i] = values
    return found


def products(n: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to write n as a product of degrees, each within its limit.

    >>> [*products(8, [8, 2])]
    [(4, 2), (8, 1)]
    """
    if not limits:
        yield from [()] if n == 1 else []
        return
    for degree in divisors(n).astype(int).tolist():
        if degree <= limits[0]:
            yield from ((degree, *rest) for rest in products(n // degree, limits[1:]))


def divisors(n: int) -> Floats:
    """Divisors, the least first.

    >>> divisors(12).tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 12.0]
    """
    below = np.arange(1, int(np.sqrt(n)) + 1)
    small = below[n % below == 0]
    return np.unique(np.concatenate([small, n // small])).astype(float)
