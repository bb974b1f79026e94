"""Plans over unlike devices: each stage priced by the device that holds it, the slowest replica.

A replica's stage takes as long as the slowest of the devices that hold it, a message of groups with
members on several partitions as on the slowest of their networks. A step in which all wait for
all is a maximum of sums: its end is that of the slowest replica, priced as if all were like it.

It names the `pipeline`, whose stages are cut by what they take of each partition's devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, reduce
from typing import Any

import numpy as np

from oracle.kernels.provenance import Provenance
from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.network.contention.line import Offer, slowest
from oracle.plan.cuts import device_of
from oracle.plan.mesh import Kinds, Pattern, Slice
from oracle.plan.partition import unlike_cuts
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies import Rule
from oracle.predict import memory
from oracle.predict.block import Block, Prices, between, prices_of, sources_of
from oracle.predict.exchange import Priced
from oracle.predict.faces import Faces, Flags, spans
from oracle.predict.limits import limits, placed, rules_of
from oracle.predict.offers import Lines, Menu
from oracle.predict.reading import Loads
from oracle.predict.sides import Side
from oracle.predict.stage_work import StageWork
from oracle.predict.step import Step, step
from oracle.predict.uncertainty import Sources, fed
from oracle.predict.ways import Cuts, shapes_of, ways_of
from oracle.predict.workload import Rows, chooses, rows_of, workload
from oracle.spec.options import Options
from oracle.spec.partitions import Part
from oracle.spec.system import System


@dataclass(frozen=True)
class Unlike:
    """Plans on several partitions whose rows were priced together: as `Shared` of plans on one."""

    model: Model
    plan: Plan
    faces: Faces
    parts: tuple[Part, ...]
    rows: tuple[Rows, ...]  # of each partition's machine
    rules: list[Rule]
    system: System
    options: Options
    lines: Lines
    loads: Loads | None

    @classmethod
    def of(
        cls, model: Model, system: System, job: tuple[Part, ...], plan: Plan, options: Options,
        lines: Lines,
    ) -> Unlike:  # fmt: skip
        faces = Faces.of(plan, job)
        lines = _over_all(job, lines)
        rows = tuple(rows_of(model, one.view, faces.plan, options) for one in job)
        rules = [*faces.worst(rules_of(faces.plan, model, options)), *placed(plan, system)]
        what = "what units do with activations is not chosen by room on unlike devices"
        rules.append(Rule.never(np.broadcast_to(chooses(plan), (len(plan), 1)), what))
        loads = Loads.of(model, system, plan, options)
        return cls(model, plan, faces, job, rows, rules, system, options, lines, loads)

    @cached_property
    def share(self) -> Array:
        """Seconds of each plan's own passes, shared evenly by stages as fast as its fastest."""
        p = self.faces.plan.axis("pipeline").degree[:, 0]
        least = np.full(len(p), np.inf)
        for one in self.rows:
            whole = self._through(one, "forward", "data", "weight") * one.state.segments
            each = np.broadcast_to(whole, (len(p), 1))[:, 0] / p
            least = np.minimum(least, each)
        found = least[self.faces.most(least)]
        return np.asarray(found if self.loads is None else np.maximum(found, self.loads.least))

    @property
    def least(self) -> Array:
        """Seconds that no plan is faster than."""
        return self.share

    @property
    def lightest(self) -> Array:
        """Share of a device's memory that each plan needs at least: nothing is known of it."""
        return np.zeros(len(self.plan))

    def _through(self, rows: Rows, *passes: str) -> Array:
        """(faces, 1): the sum over all units."""
        units = rows.shard.model.units[0].sum(axis=0)[:, None]
        each = sum((getattr(rows.times, name) for name in passes), np.zeros(1))
        found = rows.kinds.spread(each @ units)
        return np.broadcast_to(found, (len(self.faces.row), 1))

    @cached_property
    def cuts(self) -> Cuts:
        """Ways to cut: those of like stages, and those that balance these of the first of a shape.

        Each unit takes what it does on the slowest of the devices that hold its stage.
        """
        first, shape = shapes_of(self.plan)
        return Cuts.joined(self.model, [self._ways(row) for row in first.tolist()], shape)

    def _ways(self, row: int) -> Sequence[tuple[int, ...]]:
        found = ways_of(self.model, self.plan[[row]], self.options)
        pipeline = self.plan.axis("pipeline")
        p = int(pipeline.degree[row, 0])
        if p == 1 or len(found) == 1 or pipeline.edges(self.model, row):
            return found
        device = device_of(len(found[0]) - 1, p, bool(pipeline.vee[row, 0]))
        faces, _ = self.faces.of_plans(np.array([row]))
        for each, held in zip(self._units[:, faces].swapaxes(0, 1),
                              self.faces.take(np.array([row])).held, strict=True):  # fmt: skip
            loads = np.where(held[:, :, None], each[None], 0.0).max(axis=1)
            found = (*found, unlike_cuts(loads[device]))
        return tuple(dict.fromkeys(found))

    def bound(self, plans: Array, way: Array) -> Array:
        """Seconds that some plans take at least, each cut one way.

        Of the fullest device, were it the fastest.
        """
        faces, plan = self.faces.of_plans(plans)
        pipeline = self.plan[plans[plan]].axis("pipeline")
        stages = Stages.along(self.model, pipeline, self.cuts.edges[way[plan]])
        each = stages.gather(self._units[:, faces].min(axis=0))
        found = np.zeros(len(plans))
        np.maximum.at(found, plan, each.max(axis=-1) * self.faces.pieces[faces])
        return found

    @cached_property
    def _units(self) -> Array:
        """(partitions, faces, units) seconds of a micro-batch's passes on the machine of each."""
        shape = len(self.faces.row), len(self.model.units[1])
        times = [one.times.forward + one.times.data + one.times.weight for one in self.rows]
        return np.stack([np.broadcast_to(one.kinds.spread(each @ self.model.units[0].T), shape)
                         for one, each in zip(self.rows, times, strict=True)])  # fmt: skip

    def block(self, plans: Array, way: Array) -> Block:
        """The estimate of some of these plans, each cut one way."""
        at, options, faces = plans, self.options, self.faces.take(plans)
        mine, plan = self.faces.of_plans(plans)
        every = Kinds.apart(len(mine)).row
        loads = []
        for one in self.rows:
            rows = one.take(mine, way[plan])
            edges = self.cuts.edges[way[plan][rows.kinds.first]]
            loads.append(workload(rows, options, edges))
        views = [one.view for one in self.parts]
        priced = [
            prices_of(load, faces.plan, every, view, options, self.lines)
            for load, view in zip(loads, views, strict=True)
        ]
        held = faces.held
        found = _joined(priced, held)
        lead = _most([one.work.forward + one.work.backward for one in priced], held)

        def sources() -> Sources:
            known = [sources_of(load, view, options)
                     for load, view in zip(loads, views, strict=True)]  # fmt: skip
            return tuple(_mixed([each[i] for each in known], lead) for i in range(3))  # type: ignore[return-value]

        eats = fed(self.model, faces.plan, options.software)
        every_face = step(faces.plan, every, found.work, found.talk, options, sources, eats,
                          self._unlike(held))  # fmt: skip
        slowest = faces.most(every_face.seconds)
        taken = every_face.take(slowest)
        rules = [rule.take(at) for rule in self.rules]
        read = None
        if self.loads is not None:
            waits = self.loads.take(at)
            read = waits.beside(taken.seconds, lambda: between(taken, self.system))

        @cache
        def bytes_of() -> list[memory.Held]:
            return [
                memory.held(load, faces.plan, every, view.device, options,
                            None if one.choice is None else one.choice.left, held[:, :, k])
                for k, (load, view, one) in enumerate(zip(loads, views, priced, strict=True))
            ]  # fmt: skip

        def keep() -> tuple[memory.Held, list[Rule]]:
            each, some = bytes_of(), [] if read is None else read.rules
            own = [limits([], faces.plan, view, one, options)
                   for view, one in zip(views, each, strict=True)]  # fmt: skip
            rooms = [many[-1] for many in own]
            full = np.stack([room.wanted / np.maximum(room.allowed, 1.0) for room in rooms])
            full = np.where(held.any(axis=1).T, full, -1.0)
            which, face = full.argmax(axis=0), faces.most(full.max(axis=0))
            which = which[face]
            wanted, allowed = (
                np.stack([getattr(room, name) for room in rooms])[which, face]
                for name in ("wanted", "allowed")
            )
            beside = [rule for many in own for rule in faces.worst(many[1:-1])]
            room = Rule(wanted, allowed, rooms[0].says)
            return _chosen(each, which, face), [*rules, *some, *beside, room]

        @cache
        def alone() -> list[Array]:
            each = []
            for one in priced:
                many = step(faces.plan, every, one.work, one.talk, options, sources, eats)
                each.append(_busy(many, one.work))
            return each

        def sides(row: int) -> tuple[Side, ...]:
            return tuple(_sides(row, self, faces, every_face, alone(), bytes_of()))

        return Block(self.plan[at], taken, loads[0].stages, loads[0].kinds.row, keep,
                     lambda rows: self.block(plans[rows], way[rows]), self.model, read,
                     priced[0].choice, sides)  # fmt: skip

    def _unlike(self, held: Flags) -> Flags:
        """(faces,) whose stages are not all on the same kinds of devices."""
        first, *others = (one.view.device for one in self.parts)
        if all(one == first for one in others):
            return np.zeros(len(held), bool)
        there = held.any(axis=-1, keepdims=True)
        return np.asarray(((held != held[:, :1]) & there).any(axis=(1, 2)))


def _busy(each: Step, work: StageWork) -> Array:
    """(faces, stages) seconds of a step in which a device has work of its own."""
    passes = each.passes
    own = passes.forward + passes.backward - passes.forward_messages - passes.backward_messages
    return np.asarray(each.segments[:, None] * own[passes.row] + work.update)


def _sides(
    row: int, job: Unlike, faces: Faces, each: Step, busy: list[Array], held: list[memory.Held]
) -> Iterator[Side]:
    """What each partition does in the step of one plan."""
    mine = np.flatnonzero(faces.row == row)
    seconds, ranks = float(each.seconds[mine].max()), faces.ranks[mine]
    tall = [np.where(ranks[:, :, k] > 0, one[mine], 0.0) for k, one in enumerate(busy)]
    most = max(float(one.max()) for one in tall)
    for k, (one, taken, bytes_) in enumerate(zip(job.parts, tall, held, strict=True)):
        here = np.flatnonzero(ranks[:, :, k].any(axis=1))
        if not len(here):
            continue
        face, top = mine[here[np.argmax(taken[here].max(axis=1))]], float(taken.max())
        count = ranks[:, :, k]
        yield Side(
            one.number, one.name, one.view.device.title or one.view.device.name,
            int(count.sum()), float(faces.samples[face]), int(each.segments[face]), top,
            float((count * taken).sum() / count.sum()), max(seconds - top, 0.0),
            float(bytes_.total[mine[here]].max()),
            float(job.options.max_memory or one.view.device.memory), top >= most * (1 - 1e-9),
        )  # fmt: skip


def _over_all(job: tuple[Part, ...], lines: Lines) -> Lines:
    """Lines of groups with members on several partitions: those of the slowest's library.

    All flows are laid on one graph of all networks, whichever partition's library prices them.
    """
    ends = tuple(one.first + one.devices for one in job)

    def both(system: System, op: str, pattern: Pattern, devices: int, *more: Any) -> Offer:
        if not spans(pattern, devices, ends):
            return lines(system, op, pattern, devices, *more)
        return reduce(slowest, (lines(one.across, op, pattern, devices, *more) for one in job))

    return both


def _most(each: list[Array], mask: Flags) -> Array:
    """(faces,) the partition of the slowest stage."""
    whole = np.stack([np.where(mask[:, :, k], one, 0.0).max(axis=-1)
                      for k, one in enumerate(each)])  # fmt: skip
    return np.asarray(whole.argmax(axis=0))


def _slowest(each: Sequence[Any], mask: Flags) -> Any:
    """(faces, stages) the largest of what the partitions of a stage say; of tuples, one by one."""
    if isinstance(each[0], tuple):
        return tuple(_slowest(some, mask) for some in zip(*each, strict=True))
    if np.ndim(each[0]) < 2:
        return np.maximum.reduce(list(each))
    shape = mask.shape[:2]
    return np.max([np.where(mask[:, :, k], np.broadcast_to(one, shape), 0.0)
                   for k, one in enumerate(each)], axis=0)  # fmt: skip


def _joined(each: list[Prices], mask: Flags) -> Prices:
    """Each stage with what it takes on the slowest of the devices that hold it."""
    works = [one.work for one in each]
    work = replace(works[0], **{
        f.name: _slowest([getattr(one, f.name) for one in works], mask)
        for f in fields(StageWork) if f.name != "segments"
    })  # fmt: skip
    talks = zip(*(one.talk for one in each), strict=True)
    return Prices(work, [_message(some, mask) for some in talks], each[0].choice)


def _message(each: Sequence[Priced], mask: Flags) -> Priced:
    """A message beside the work of the slowest of the devices that hold a stage."""
    one, count = each[0], len(each)
    lead = _most([other.seconds for other in each], mask)
    at = np.arange(len(lead))

    def leading(name: str) -> Array:
        rows = [np.broadcast_to(getattr(other, name), lead.shape) for other in each]
        return np.stack(rows)[lead, at]

    starts = np.cumsum([0, *(len(other.names) for other in each)])
    kinds = len(one.groups.patterns)
    groups = Slice(one.groups.patterns * count, one.groups.row + lead * kinds, one.groups.size)
    every: dict[str, Any] = {name: tuple(word for other in each for word in getattr(other, name))
             for name in ("names", "full", "origins")}  # fmt: skip
    every |= {name: leading(name) for name in ("phi", "rough", "outside", "logged", "between")}
    every |= {name: _slowest([getattr(other, name) for other in each], mask)
            for name in ("calls", "seconds", "exposed", "longer", "ahead",
                         "ahead_calls")}  # fmt: skip
    sides = None
    if one.sides is not None:
        sides = _slowest([other.sides for other in each], mask)
    later = {place: _slowest([other.left(place) for other in each], mask)
             for place in one.later}  # fmt: skip
    return replace(
        one, groups=groups, menu=Menu(offer for other in each for offer in other.menu),
        largest=lambda: np.asarray(_slowest([other.nbytes for other in each], mask)),
        best=leading("best") + starts[lead], later=later, sides=sides, **every,
    )  # fmt: skip


def _chosen(each: list[memory.Held], which: Array, face: Array) -> memory.Held:
    """Of each plan the bytes of one partition's fullest device."""
    size = len(each[0].stage)

    def pick(values: list[Any]) -> Array:
        return np.stack([np.broadcast_to(one, (size,)) for one in values])[which, face]

    kinds = {kind: pick([one.kinds[kind] for one in each]) for kind in memory.KINDS}
    return memory.Held(
        kinds, pick([one.stage for one in each]), pick([one.cached for one in each]),
        each[0].doubt, pick([one.beside for one in each]), pick([one.on_disk for one in each]),
    )  # fmt: skip


def _mixed(each: list[Provenance], lead: Array) -> Provenance:
    """Where each row's seconds come from: its slowest partition."""
    found = Provenance()
    found.outside, found.convolved = np.zeros(len(lead)), np.zeros(len(lead))
    for k, one in enumerate(each):

        def mine(values: Array, k: int = k) -> Array:
            return np.where(lead == k, np.broadcast_to(values, lead.shape), 0.0)

        its = one.spread(mine)
        found.outside = found.outside + its.outside
        found.convolved = found.convolved + its.convolved
        for name in ("seconds", "doubts", "told"):
            whole = getattr(found, name)
            for key, values in getattr(its, name).items():
                whole[key] = whole.get(key, 0.0) + values
    return found
