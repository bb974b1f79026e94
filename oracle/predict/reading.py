"""What plans wait for samples: each way to read beside a step, the chosen one, its interval.

A step takes as long as its work or as the reading of its batch, whichever is longer
(`oracle.storage.loader`). Reading only ever adds to a step: bounds of its work stay bounds.

Of the ways that make a step the shortest in the end the one is chosen that costs the least before
that: staging, listing, epochs that are slower. Where the number of epochs is said, it is the one of
which all of them together are the shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.network.contention.cached import cache_of
from oracle.network.topology import node_ports
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.plan.strategies import Rule
from oracle.spec.doubt import DATASHEET, NINETY
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.units import show
from oracle.storage import MODES, Machine, Question, Reading, Samples, loader, shuffle

ALIKE = 1e-3  # relative, of ways to read that make a step as long
# seconds of exchange between nodes that a step waits for, and those that it takes in all
Talk = Callable[[], tuple[Array, Array]]


def uncounted(model: Model, system: System, options: Options) -> str:
    """Why reading is not counted; nothing where it is."""
    if options.reading == "none" or options.ideal:
        return "it is left out" if options.reading == "none" else "ideal assumptions"
    if system.storage is None:
        return f"{system.name} says nothing of its storage"
    if model.dataset is None:
        return f"no data set is said for {model.name}"
    return "" if model.dataset.size else f"{model.dataset.name} does not say how large it is"


@dataclass(frozen=True, eq=False)
class Table:
    """Ways to read and kinds of plans, (m, k) each."""

    names: list[str]
    load: Array
    alone: Array  # without end where it is not possible
    once: Array
    late: list[int]  # of which the first epochs are slower
    sent: list[int]  # that send samples from node to node


@dataclass(frozen=True, eq=False)
class Loads:
    """Seconds of every way to read, of plans that are alike to storage: k kinds of them."""

    question: Question
    modes: dict[str, Reading]  # (k,) each
    row: Array  # (n,) the kind of each plan

    @classmethod
    def of(cls, model: Model, system: System, plan: Plan, options: Options) -> Loads | None:
        """Of each plan; None where reading is not counted."""
        if uncounted(model, system, options):
            return None
        assert model.dataset is not None
        samples = Samples.of(model.dataset)
        assert samples is not None
        batch, devices, groups, parts = (
            np.broadcast_to(column, (len(plan), 1))[:, 0] for column in _storage_columns(plan)
        )
        first, row = distinct(np.stack([batch, devices, groups, parts], axis=-1))
        system_cache, kinds = cache_of(system), np.stack([batch, devices, groups, parts])[:, first]
        key = ("reading", model.dataset, options.reading, options.shuffle, options.epochs,
               kinds.tobytes())  # fmt: skip
        if key in system_cache:  # the same kinds come up again and again in a search
            alike: Loads = system_cache[key]
            return alike.over(row)
        inner = parts[first] <= system.node  # ranks that share a sample sit in one node
        question = Question(
            machine_of(system), samples, batch[first], np.ceil(devices[first] / system.per_host),
            groups[first], parts[first], shuffle(options.shuffle),
            np.where(inner, system.levels[0].bandwidth, 0.0), options.epochs,
        )  # fmt: skip
        ways = MODES if options.reading == "best" else (options.reading,)
        loads = cls(question, {name: MODES[name](question) for name in ways}, row)
        system_cache[key] = loads.over(np.arange(len(first)))
        return loads.over(row)

    def take(self, rows: Array) -> Loads:
        return self.over(self.row[rows])

    def over(self, row: Array) -> Loads:
        """The same kinds of other plans."""
        loads = Loads(self.question, self.modes, row)
        loads.__dict__["table"] = self.table  # worked out once
        return loads

    @cached_property
    def table(self) -> Table:
        """All ways to read, one under the other."""
        modes, shape = list(self.modes.values()), np.shape(self.question.batch)
        load, alone, once = (
            np.stack([np.broadcast_to(values, shape) for values in column])
            for column in (
                [np.where(mode.possible, mode.load, 0.0) for mode in modes],
                [np.where(mode.possible, mode.alone, np.inf) for mode in modes],
                [mode.once for mode in modes],
            )
        )
        late = [n for n, mode in enumerate(modes) if mode.first is not mode.load]
        sent = [n for n, mode in enumerate(modes) if not mode.why and np.any(mode.network)]
        return Table(list(self.modes), load, alone, once, late, sent)

    @cached_property
    def least(self) -> Array:
        """(n,) seconds that no step is faster than, however it reads."""
        least_seconds = (self.table.load + self.table.alone).min(axis=0)
        return np.where(np.isfinite(least_seconds), least_seconds, 0.0)[self.row]

    def of_name(self, name: str) -> Reading:
        """One way to read, chosen from or not."""
        return self.modes[name] if name in self.modes else self._not_chosen_from[name]

    @cached_property
    def _not_chosen_from(self) -> dict[str, Reading]:
        return {name: mode(self.question) for name, mode in MODES.items() if name not in self.modes}

    def column(self, values: float | Array) -> Array:
        """(k,) → (n,)"""
        return np.broadcast_to(np.asarray(values), np.shape(self.question.batch))[self.row]

    def beside(self, work: Array, talk: Talk) -> Read:
        """Which way each plan reads whose step takes so long without."""
        return Read(self, work, talk)


def machine_of(system: System) -> Machine:
    """The storage of a system, with what is assumed of it."""
    system_cache = cache_of(system)
    if "storage" not in system_cache:
        system_cache["storage"] = Machine.of(system, *node_ports(system))
    machine: Machine = system_cache["storage"]
    return machine


def _storage_columns(plan: Plan) -> tuple[Array, Array, Array, Array]:
    """Of each plan: batch, devices, groups with samples of their own, parts of a sample."""
    groups = parts = np.ones_like(plan.batch)
    for axis in plan.lean:
        if axis.deals_batch:
            groups = groups * axis.degree
        elif axis.cuts_samples:
            parts = parts * axis.degree
    return plan.batch, plan.devices, groups, parts


@dataclass(frozen=True, eq=False)
class Read:
    """How each of n plans reads, and what its step takes with it."""

    loads: Loads
    work: Array  # seconds of a step that waits for no sample
    talk: Talk

    @cached_property
    def talked(self) -> tuple[Array, Array]:
        return self.talk()

    def step(self, name: str, work: Array | None = None, times: float | Array = 1.0) -> Array:
        """Seconds of a step that reads this way, were its work other or reading so much slower."""
        mode, column = self.loads.of_name(name), self.loads.column
        work = self.work if work is None else work
        if mode.why:
            return work
        load, alone, network = (
            times * column(seconds_of_kind)
            for seconds_of_kind in (mode.load, mode.alone, mode.network)
        )
        if not network.any():
            return loader.step(work, load, alone)
        return loader.step(work, load, alone, network, *self.talked)

    def first(self, name: str, step: Array) -> Array:
        """Seconds of a step of the first epoch."""
        mode, column = self.loads.of_name(name), self.loads.column
        if mode.why:
            return step
        return np.maximum(step, loader.step(self.work, column(mode.first), column(mode.alone)))

    def before(self, name: str, step: Array, epochs: float = np.inf) -> Array:
        """Seconds that it costs before steps take so long: what is done once, slower epochs."""
        mode, column = self.loads.of_name(name), self.loads.column
        if mode.first is mode.load:
            return column(mode.once)
        full = mode.load if mode.full is None else mode.full
        loaded = step - column(mode.alone)
        slower = loader.slower(loaded, column(mode.first), column(full), column(mode.left), epochs)
        return np.asarray(column(mode.once) + slower * column(self.loads.question.steps))

    @cached_property
    def steps(self) -> dict[str, Array]:
        """Seconds of a step with each way to read that is possible at all."""
        return {name: self.step(name) for name in MODES if not self.loads.of_name(name).why}

    @cached_property
    def _chosen(self) -> tuple[Array, Array]:
        """(which of the modes, seconds of a step with it), (n,) each.

        What takes the exchange of a plan to say is asked of ways that may be chosen alone.
        """
        table, row = self.loads.table, self.loads.row
        steps = np.maximum(self.work, table.load[:, row]) + table.alone[:, row]
        best_mode, is_bound = self._best(steps), np.isin(np.arange(len(steps)), table.sent)[:, None]
        is_bound = np.repeat(is_bound, len(row), axis=1)  # what is less than a step really is
        while (bounded := np.flatnonzero(is_bound[best_mode, np.arange(len(best_mode))])).size:
            for number in np.unique(best_mode[bounded]).tolist():
                rows = bounded[best_mode[bounded] == number]
                steps[number, rows] = self.step(table.names[number])[rows]
                is_bound[number, rows] = False
            best_mode = self._best(steps)
        best = steps[best_mode, np.arange(len(best_mode))]
        return best_mode, np.where(np.isfinite(best), best, self.work)

    def _best(self, steps: Array) -> Array:
        """Which way is the best of each plan, (modes, n) seconds of a step with each."""
        table, epochs = self.loads.table, self.loads.question.epochs
        before = table.once[:, self.loads.row]
        if epochs is None:
            near = steps <= steps.min(axis=0) * (1 + ALIKE)
        else:
            near = np.isfinite(steps)
            before = before + epochs * self.loads.column(self.loads.question.steps) * steps
        for number in table.late:
            if near[number].any():
                slower = self.before(table.names[number], steps[number], epochs or np.inf)
                before[number] += slower - table.once[number, self.loads.row]
        return np.asarray(np.argmin(np.where(near, before, np.inf), axis=0))

    @property
    def mode(self) -> Array:
        """Which way each plan reads, a number of `loads.modes`."""
        return self._chosen[0]

    @property
    def seconds(self) -> Array:
        return self._chosen[1]

    def picked(self, values: Callable[[Reading], float | Array]) -> Array:
        """A figure of each plan's own way to read."""
        by_mode = [np.where(mode.why != "", np.inf, self.loads.column(values(mode)))
                for mode in self.loads.modes.values()]  # fmt: skip
        return np.asarray(np.choose(self.mode, by_mode))

    @cached_property
    def rules(self) -> list[Rule]:
        """What plans must satisfy to read as they do: it is possible, and disks have the room."""
        reading_rules = []
        for number in np.unique(self.mode).tolist():
            name, mode = list(self.loads.modes.items())[number]
            reads_so = self.mode == number
            if mode.why:
                reading_rules.append(Rule.never(reads_so[:, None], f"reading {name}: {mode.why}"))
                continue
            barred = self.loads.column(mode.barred) & reads_so
            if barred.any():
                reading_rules.append(Rule.never(barred[:, None], f"reading {name}: {mode.bar}"))
            if np.any(np.asarray(mode.short) > 0):
                lacks = np.where(reads_so, self.loads.column(mode.short), 0.0)
                reading_rules.append(Rule(lacks, np.zeros(len(reads_so)), partial(_lacks, name)))
        return reading_rules

    # --- how far it can be trusted -----------------------------------------------------------

    @cached_property
    def _sigma(self) -> Array:
        """Relative 1σ of what each plan's reading takes: what is stated, and what is assumed."""
        question = self.loads.question
        names = np.array(list(self.loads.modes))[np.unique(self.mode)].tolist()
        variance = {name: np.full(np.shape(question.batch), DATASHEET**2) for name in names}
        for assumption in question.machine.assumed:
            *_, part, number = assumption.key.split(".")
            concerned = [name for name in names if part in (MODES[name].store, "host")
                         and number != "write" and not self.loads.modes[name].why]  # fmt: skip
            if concerned:
                worse = 1 if number == "open" else -1  # what does not bind may come to bind
                by = assumption.factor ** (worse / NINETY)
                turned_question = replace(
                    question, machine=question.machine.turned(assumption.key, by)
                )
            for name in concerned:
                change = _loaded(MODES[name](turned_question)) / _loaded(self.loads.modes[name])
                variance[name] = variance[name] + np.log(change) ** 2
        spread = [np.sqrt(variance.get(name, 0.0 * np.asarray(question.batch)))
                  for name in self.loads.modes]  # fmt: skip
        return np.asarray(
            np.choose(self.mode, [self.loads.column(deviations) for deviations in spread])
        )

    def _step(self, work: Array | None = None, times: float | Array = 1.0) -> Array:
        """Seconds of a step with each plan's own way to read."""
        used = np.unique(self.mode)
        step_by_mode = [self.step(name, work, times) if number in used else self.work
                for number, name in enumerate(self.loads.modes)]  # fmt: skip
        return np.asarray(np.choose(self.mode, step_by_mode))

    def doubted(self, deviation: Array, more: Array) -> tuple[Array, Array]:
        """1σ either way and of what can only slow a step, given those of its work.

        What errs under the other does not show; reading that is hidden may still come out.
        """
        seconds = self.seconds
        longer, shorter = self._step(self.work + deviation), self._step(self.work - deviation)
        of_work = np.maximum(longer - seconds, seconds - shorter)
        by = np.exp(self._sigma)
        up, down = self._step(times=by) - seconds, seconds - self._step(times=1 / by)
        beyond = np.sqrt(np.maximum(up**2 - down**2, 0.0))
        return np.hypot(of_work, down), np.hypot(self._step(self.work + more) - seconds, beyond)

    @property
    def assumed(self) -> Sequence[str]:
        """What nobody says of storage and data set, as keys of specs."""
        question = self.loads.question
        return [*(assumption.key for assumption in question.machine.assumed),
                *(f"dataset.{name}" for name in question.samples.assumed)]  # fmt: skip


def _lacks(name: str, lacks: float, _: float) -> str:
    return f"reading {name}: the disks of each node lack {show(lacks, 'B')}"


def _loaded(reading: Reading) -> Array:
    return np.asarray(np.maximum(reading.load + reading.alone, 1e-30))
