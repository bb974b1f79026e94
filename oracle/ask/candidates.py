"""Candidates of a search that were evaluated, and what each product of degrees stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from oracle.ask.space import Floats, Space
from oracle.models.model import Flags
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.predict import evaluate
from oracle.spec.options import Options
from oracle.spec.system import System

NO_RIVAL = 1.4  # times the best: from there on a plan is none
HOPE = 1.1  # times the best: what a plan may come to whose stages shall be dealt otherwise
ROUNDED = 12  # digits to which values differ
# of the fastest, that a plan which nobody runs must win by: judged, no measurement says it
CLEARLY = 0.05
TIE = 0.01  # settings of one product this near to its best are told apart by simplicity


@dataclass(frozen=True)
class Representative:
    """One product of degrees with the setting of its knobs that stands for it."""

    pool: Candidates
    row: int  # of the pool
    fastest: int  # the best of all its settings, however many knobs it turns
    fits: bool
    value: float
    least: float  # of `fastest`
    short: float  # how far from feasible
    unusual: bool = False  # those who train such models do not run such plans

    @property
    def simplicity(self) -> tuple[float, ...]:
        """Axes beside replicas, devices, bytes of a device: the fewer the simpler."""
        space = self.pool.space
        used = self.pool.rows[self.row, : space.micro] > 1
        axes = used.sum() - used[space.dealt].sum()
        return float(axes), float(space.devices), float(self.pool.held[self.row])


class Candidates:
    """All candidates that were evaluated, each once: a row of numbers, its value, what it lacks."""

    def __init__(
        self, space: Space, system: System, options: Options, objective: str, lines: Any, top: int,
        rival: float | None = None, other_values: Floats | None = None,
    ) -> None:  # fmt: skip
        self.space, self.system, self.options = space, system, options
        self.beside = (
            np.empty(0) if other_values is None else other_values
        )  # least values of other pools
        self.rival = (
            NO_RIVAL if rival is None else rival
        )  # times the best: from there on a plan is none
        self.objective, self.lines, self.top = objective, lines, top
        self.rows = np.empty((0, len(space.columns)))
        self.value, self.short = np.empty(0), np.empty(0)  # how far from feasible: 0 where it fits
        self.even = np.empty(0)  # the value if stages were equal and none waited for another
        self.held = np.empty(0)  # bytes of a device; infinite where a plan breaks another rule
        self.room = np.empty(0)  # bytes that it has, of unlike devices that which is most short
        self.known: set[bytes] = set()
        self.least: dict[bytes, float] = {}  # what no plan of a product of degrees is better than
        # products of which no plan has room, whatever its knobs: share of it that each wants
        self.hopeless: dict[bytes, float] = {}

    def bound(self, usual: Floats) -> Floats:
        """What candidates come to if their work is all there is; remembered of their products."""
        bounds: Floats = np.zeros(len(usual))
        if self.objective != "memory" and len(usual):
            plan = self.space.plan(usual)
            bounds = evaluate.least(self.space.model, self.system, plan, self.options)
            bounds = _judged(bounds, plan, self.objective)
        self.least = dict(zip(self.degrees(usual), bounds.tolist(), strict=True))
        return bounds

    def degrees(self, rows: Floats) -> list[bytes]:
        """The product of each candidate."""
        return [row.tobytes() for row in rows[:, : self.space.micro]]

    def rivals(self, rows: Floats) -> Floats:
        """Candidates of products that may be rivals of the best, whatever their knobs."""
        limit, names = self.most(), self.degrees(rows)
        return rows[[name not in self.hopeless and self.least.get(name, 0.0) <= limit
                     for name in names]]  # fmt: skip

    def give_up(self, products: Floats) -> None:
        """Add nothing more of products whose largest row alone has no room."""
        rows = self.space.lightest(products)
        share = evaluate.lightest(self.space.model, self.system, self.space.plan(rows),
                                  self.options)  # fmt: skip
        least_share: dict[bytes, float] = {}
        for name, share_of_product in zip(self.degrees(rows), share.tolist(), strict=True):
            least_share[name] = min(share_of_product, least_share.get(name, np.inf))
        self.hopeless = {
            name: share_of_product
            for name, share_of_product in least_share.items()
            if share_of_product > 1
        }

    def most(self) -> float:
        """What no candidate is worth a look beyond: neither a rival of the best nor shown."""
        sorted_values = np.sort(np.concatenate([self.leasts(), self.beside]))
        if not len(sorted_values) or not np.isfinite(sorted_values[0]):
            return np.inf
        shown_value = sorted_values[self.top - 1] if len(sorted_values) >= self.top else np.inf
        return float(max(self.rival * sorted_values[0], shown_value))

    def leasts(self) -> Floats:
        """The least value of each product, without end where nothing of it fits."""
        if not self.fits.any():
            return np.empty(0)
        first, product = distinct(self.rows[:, : self.space.micro])
        product_values = np.full(len(first), np.inf)
        np.minimum.at(product_values, product[self.fits], self.value[self.fits])
        return np.asarray(product_values)

    def _most_seconds(self) -> float:
        """The same in seconds, which bound the work of a plan but not what it holds."""
        if self.objective == "memory":
            return np.inf
        return self.most() / (self.space.devices if self.objective == "cost" else 1)

    def add(self, rows: Floats, lawful: bool = True) -> None:
        """Evaluate candidates that nobody has and that are worth it.

        `lawful`: only those that break no rule.
        """
        rows = self.rivals(rows)
        if not len(rows):
            return
        rows = self.space.sound(rows)
        if lawful:
            rows = rows[self.space.ruled(rows)]
        names = [row.tobytes() for row in rows]
        table = rows[[name not in self.known for name in names]]
        if not len(table):
            return
        value, even, short, held_bytes, room = (np.empty(len(table)) for _ in range(5))
        plan, model, worth = self.space.plan(table), self.space.model, np.zeros(len(table), bool)
        for numbers, part in evaluate.blocks(
            model, self.system, plan, self.options, self.lines, self._most_seconds()
        ):
            worth[numbers] = True
            value[numbers] = _value(part, self.objective, part.seconds)
            even[numbers] = _value(part, self.objective, part.step.even)
            short[numbers] = np.where(part.feasible, 0.0, _shortage(part))
            held_bytes[numbers] = np.where(part.lawful, part.held.total, np.inf)
            room[numbers] = part.rules[-1].allowed
        self.rows = np.concatenate([self.rows, table[worth]])
        self.value = np.concatenate([self.value, value[worth]])
        self.even = np.concatenate([self.even, even[worth]])
        self.short = np.concatenate([self.short, short[worth]])
        self.held = np.concatenate([self.held, held_bytes[worth]])
        self.room = np.concatenate([self.room, room[worth]])
        self.known.update(names)

    @property
    def hopeful(self) -> Any:
        """Which may come near the best by the cuts, chunks and turns of their pipeline."""
        return self.even <= HOPE * self.best()

    @property
    def turned(self) -> Any:
        """Which of those behind the best have their knobs turned: all but unlikely pipelines.

        Only of models that are no chain, which are cut in many ways, each of them priced.
        """
        if self.space.model.pieces.links.plain:
            return True
        return (self.even >= self.value * (1 - TIE)) | (self.even <= NO_RIVAL * self.best())

    @property
    def fits(self) -> Any:
        return self.short == 0

    def plan(self, number: int) -> Plan:
        """The plan of one candidate."""
        return self.space.plan(self.rows[number][None])

    def riskier(self) -> Representative:
        """The best of what is expected to fit, but not as surely as is asked for."""
        value = np.where((self.held <= self.room) & ~self.fits, self.value, np.inf)
        row = int(np.argmin(value)) if len(value) else 0
        least_value = float(value[row]) if len(value) else np.inf
        return Representative(self, row, row, False, least_value, least_value, 0.0)

    def products(self) -> tuple[Any, Any]:
        """(a candidate of each product of degrees, the product of each candidate)."""
        plan = self.space.plan(self.rows)
        return distinct(np.hstack([axis.degree for axis in plan.axes if axis.degrees]))

    @property
    def given_up(self) -> int:
        """Products that nobody looked at since they cannot have room."""
        return len(self.hopeless.keys() - {*self.degrees(self.rows)})

    @property
    def slower(self) -> int:
        """Other products of which no candidate was worth a look."""
        return len(self.space.products()) - len({*self.degrees(self.rows)}) - self.given_up

    def best(self) -> float:
        """The least value of what fits."""
        return float(self.value[self.fits].min(initial=np.inf))

    def leading(self, count: int, among: Any = True) -> list[int]:
        """The best candidates of different degrees: those that fit, else the nearest misses."""
        value = self.value / self.value.min(initial=np.inf)
        order = np.lexsort((value.round(ROUNDED), self.short))  # of equals the first
        order = order[np.broadcast_to(among, order.shape)[order]]
        first_of_product: dict[bytes, int] = {}
        for number in order.tolist():
            first_of_product.setdefault(self.rows[number, : self.space.micro].tobytes(), number)
            if len(first_of_product) == count:
                break
        return list(first_of_product.values())

    def unusual(self) -> Flags:
        """Candidates that those who train such models do not run."""
        plan = self.space.plan(self.rows)
        flags = [axis.unusual(self.space.model).reshape(-1, 1) for axis in plan.axes]
        every = np.broadcast_arrays(*flags, np.zeros((len(plan), 1), bool))
        return np.asarray(np.any(every, axis=0)[:, 0])

    def settings(self) -> Iterator[Representative]:
        """Each product once, by its simplest setting among its best; else by its nearest miss."""
        if not len(self.rows):
            return
        first, product = self.products()
        turned, unusual = self.space.turned(self.rows), self.unusual()
        order = np.lexsort((self.value, self.short, product))
        begin = np.searchsorted(product[order], np.arange(len(first) + 1))
        for start, stop in pairwise(begin.tolist()):
            members = order[start:stop]
            fastest = int(members[0])
            if self.short[fastest]:
                yield Representative(self, fastest, fastest, False, self.value[fastest], np.inf,
                              self.short[fastest])  # fmt: skip
                continue
            limit = self.value[fastest] * (1 + TIE)
            near = members[self.fits[members] & (self.value[members] <= limit)]
            row = int(near[np.lexsort((self.value[near], turned[near]))[0]])
            if unusual[row]:
                limit = self.value[fastest] * (1 + CLEARLY)
                near = members[self.fits[members] & (self.value[members] <= limit)]
                row = next((number for number in near.tolist() if not unusual[number]),
                           row)  # fmt: skip
            yield Representative(self, row, fastest, True, self.value[row], self.value[fastest],
                                 0.0, bool(unusual[row]))  # fmt: skip


def _value(part: evaluate.Block, objective: str, seconds: Any) -> Any:
    return part.held.total if objective == "memory" else _judged(seconds, part.plan, objective)


def _judged(seconds: Any, plan: Plan, objective: str) -> Any:
    """What so many seconds of plans count for."""
    return seconds * plan.devices[:, 0] if objective == "cost" else seconds


def _shortage(part: evaluate.Block) -> Any:
    """How far a plan is from feasible: the sum over broken limits of how much is missing.

    A limit more that is broken is farther than any one; but room that is short in several places
    is one limit.
    """
    over = [
        np.maximum(rule.wanted / np.maximum(rule.allowed, 1e-9), 1) - 1
        for rule in part.rules
    ]  # fmt: skip
    rooms = [o > 0 for o, rule in zip(over, part.rules, strict=True) if rule.room]
    broken = sum(o > 0 for o, rule in zip(over, part.rules, strict=True) if not rule.room)
    broken = broken + np.any(np.broadcast_arrays(*rooms), axis=0)
    return np.where(broken > 0, 10.0 * (broken - 1), 0.0) + np.minimum(sum(over), 1e6)
