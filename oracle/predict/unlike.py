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
        rows = tuple(rows_of(model, part.view, faces.plan, options) for part in job)
        rules = [*faces.worst(rules_of(faces.plan, model, options)), *placed(plan, system)]
        complaint = "what units do with activations is not chosen by room on unlike devices"
        rules.append(Rule.never(np.broadcast_to(chooses(plan), (len(plan), 1)), complaint))
        loads = Loads.of(model, system, plan, options)
        return cls(model, plan, faces, job, rows, rules, system, options, lines, loads)

    @cached_property
    def share(self) -> Array:
        """Seconds of each plan's own passes, shared evenly by stages as fast as its fastest."""
        p = self.faces.plan.axis("pipeline").degree[:, 0]
        least_seconds = np.full(len(p), np.inf)
        for rows in self.rows:
            pass_seconds = self._through(rows, "forward", "data", "weight") * rows.state.segments
            share_seconds = np.broadcast_to(pass_seconds, (len(p), 1))[:, 0] / p
            least_seconds = np.minimum(least_seconds, share_seconds)
        of_slowest_face = least_seconds[self.faces.most(least_seconds)]
        return np.asarray(
            of_slowest_face if self.loads is None else np.maximum(of_slowest_face, self.loads.least)
        )

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
        row_seconds = sum((getattr(rows.times, name) for name in passes), np.zeros(1))
        unit_sums = rows.kinds.spread(row_seconds @ units)
        return np.broadcast_to(unit_sums, (len(self.faces.row), 1))

    @cached_property
    def cuts(self) -> Cuts:
        """Ways to cut: those of like stages, and those that balance these of the first of a shape.

        Each unit takes what it does on the slowest of the devices that hold its stage.
        """
        first, shape = shapes_of(self.plan)
        return Cuts.joined(self.model, [self._ways(row) for row in first.tolist()], shape)

    def _ways(self, row: int) -> Sequence[tuple[int, ...]]:
        ways = ways_of(self.model, self.plan[[row]], self.options)
        pipeline = self.plan.axis("pipeline")
        p = int(pipeline.degree[row, 0])
        if p == 1 or len(ways) == 1 or pipeline.edges(self.model, row):
            return ways
        device = device_of(len(ways[0]) - 1, p, bool(pipeline.vee[row, 0]))
        faces, _ = self.faces.of_plans(np.array([row]))
        for unit_seconds, holds in zip(self._units[:, faces].swapaxes(0, 1),
                              self.faces.take(np.array([row])).held, strict=True):  # fmt: skip
            loads = np.where(holds[:, :, None], unit_seconds[None], 0.0).max(axis=1)
            ways = (*ways, unlike_cuts(loads[device]))
        return tuple(dict.fromkeys(ways))

    def bound(self, plans: Array, way: Array) -> Array:
        """Seconds that some plans take at least, each cut one way.

        Of the fullest device, were it the fastest.
        """
        faces, plan = self.faces.of_plans(plans)
        pipeline = self.plan[plans[plan]].axis("pipeline")
        stages = Stages.along(self.model, pipeline, self.cuts.edges[way[plan]])
        device_seconds = stages.gather(self._units[:, faces].min(axis=0))
        bounds = np.zeros(len(plans))
        np.maximum.at(bounds, plan, device_seconds.max(axis=-1) * self.faces.pieces[faces])
        return bounds

    @cached_property
    def _units(self) -> Array:
        """(partitions, faces, units) seconds of a micro-batch's passes on the machine of each."""
        shape = len(self.faces.row), len(self.model.units[1])
        times = [rows.times.forward + rows.times.data + rows.times.weight for rows in self.rows]
        units = [rows.kinds.spread(row_seconds @ self.model.units[0].T)
                 for rows, row_seconds in zip(self.rows, times, strict=True)]  # fmt: skip
        return np.stack([np.broadcast_to(unit_seconds, shape) for unit_seconds in units])

    def block(self, plans: Array, way: Array) -> Block:
        """The estimate of some of these plans, each cut one way."""
        numbers, options, faces = plans, self.options, self.faces.take(plans)
        face_rows, plan = self.faces.of_plans(plans)
        every = Kinds.apart(len(face_rows)).row
        loads = []
        for part in self.rows:
            rows = part.take(face_rows, way[plan])
            edges = self.cuts.edges[way[plan][rows.kinds.first]]
            loads.append(workload(rows, options, edges))
        views = [part.view for part in self.parts]
        priced = [
            prices_of(load, faces.plan, every, view, options, self.lines)
            for load, view in zip(loads, views, strict=True)
        ]
        holds = faces.held
        joined_prices = _joined(priced, holds)
        lead = _slowest_part([part.work.forward + part.work.backward for part in priced], holds)

        def sources() -> Sources:
            part_sources = [sources_of(load, view, options)
                     for load, view in zip(loads, views, strict=True)]  # fmt: skip
            return tuple(
                _mixed([sources_of_part[i] for sources_of_part in part_sources], lead)
                for i in range(3)
            )  # type: ignore[return-value]

        eats = fed(self.model, faces.plan, options.software)
        every_face = step(faces.plan, every, joined_prices.work, joined_prices.talk, options,
                          sources, eats, self._unlike(holds))  # fmt: skip
        slowest = faces.most(every_face.seconds)
        timed_step = every_face.take(slowest)
        rules = [rule.take(numbers) for rule in self.rules]
        read = None
        if self.loads is not None:
            waits = self.loads.take(numbers)
            read = waits.beside(timed_step.seconds, lambda: between(timed_step, self.system))

        @cache
        def bytes_of() -> list[memory.Held]:
            return [
                memory.held_bytes(load, faces.plan, every, view.device, options,
                            None if prices.choice is None else prices.choice.left, holds[:, :, k])
                for k, (load, view, prices) in enumerate(zip(loads, views, priced, strict=True))
            ]  # fmt: skip

        def keep() -> tuple[memory.Held, list[Rule]]:
            part_bytes, reads = bytes_of(), [] if read is None else read.rules
            part_limits = [limits([], faces.plan, view, part_held, options)
                   for view, part_held in zip(views, part_bytes, strict=True)]  # fmt: skip
            rooms = [limits_of_part[-1] for limits_of_part in part_limits]
            full = np.stack([room.wanted / np.maximum(room.allowed, 1.0) for room in rooms])
            full = np.where(holds.any(axis=1).T, full, -1.0)
            which, face = full.argmax(axis=0), faces.most(full.max(axis=0))
            which = which[face]
            needed, allowed = (
                np.stack([getattr(room, name) for room in rooms])[which, face]
                for name in ("wanted", "allowed")
            )
            host_rules = [
                rule for limits_of_part in part_limits for rule in faces.worst(limits_of_part[1:-1])
            ]
            room = Rule(needed, allowed, rooms[0].says)
            return _chosen(part_bytes, which, face), [*rules, *reads, *host_rules, room]

        @cache
        def alone() -> list[Array]:
            busy_seconds = []
            for prices in priced:
                alone_step = step(
                    faces.plan, every, prices.work, prices.talk, options, sources, eats
                )
                busy_seconds.append(_busy(alone_step, prices.work))
            return busy_seconds

        def sides(row: int) -> tuple[Side, ...]:
            return tuple(_sides(row, self, faces, every_face, alone(), bytes_of()))

        return Block(self.plan[numbers], timed_step, loads[0].stages, loads[0].kinds.row, keep,
                     lambda rows: self.block(plans[rows], way[rows]), self.model, read,
                     priced[0].choice, sides)  # fmt: skip

    def _unlike(self, holds: Flags) -> Flags:
        """(faces,) whose stages are not all on the same kinds of devices."""
        first, *other_devices = (device.view.device for device in self.parts)
        if all(device == first for device in other_devices):
            return np.zeros(len(holds), bool)
        has_any = holds.any(axis=-1, keepdims=True)
        return np.asarray(((holds != holds[:, :1]) & has_any).any(axis=(1, 2)))


def _busy(step: Step, work: StageWork) -> Array:
    """(faces, stages) seconds of a step in which a device has work of its own."""
    passes = step.passes
    pass_seconds = (
        passes.forward + passes.backward - passes.forward_messages - passes.backward_messages
    )
    return np.asarray(step.segments[:, None] * pass_seconds[passes.row] + work.update)


def _sides(
    row: int,
    job: Unlike,
    faces: Faces,
    step: Step,
    busy: list[Array],
    part_bytes: list[memory.Held],
) -> Iterator[Side]:
    """What each partition does in the step of one plan."""
    faces_of_plan = np.flatnonzero(faces.row == row)
    seconds, ranks = float(step.seconds[faces_of_plan].max()), faces.ranks[faces_of_plan]
    tall = [np.where(ranks[:, :, k] > 0, part[faces_of_plan], 0.0) for k, part in enumerate(busy)]
    busiest = max(float(part.max()) for part in tall)
    for k, (part, busy_here, bytes_) in enumerate(zip(job.parts, tall, part_bytes, strict=True)):
        faces_here = np.flatnonzero(ranks[:, :, k].any(axis=1))
        if not len(faces_here):
            continue
        face, top = (
            faces_of_plan[faces_here[np.argmax(busy_here[faces_here].max(axis=1))]],
            float(busy_here.max()),
        )
        count = ranks[:, :, k]
        yield Side(
            part.number, part.name, part.view.device.title or part.view.device.name,
            int(count.sum()), float(faces.samples[face]), int(step.segments[face]), top,
            float((count * busy_here).sum() / count.sum()), max(seconds - top, 0.0),
            float(bytes_.total[faces_of_plan[faces_here]].max()),
            float(job.options.max_memory or part.view.device.memory), top >= busiest * (1 - 1e-9),
        )  # fmt: skip


def _over_all(job: tuple[Part, ...], lines: Lines) -> Lines:
    """Lines of groups with members on several partitions: those of the slowest's library.

    All flows are laid on one graph of all networks, whichever partition's library prices them.
    """
    ends = tuple(part.first + part.devices for part in job)

    def slowest_lines(system: System, op: str, pattern: Pattern, devices: int, *more: Any) -> Offer:
        if not spans(pattern, devices, ends):
            return lines(system, op, pattern, devices, *more)
        return reduce(slowest, (lines(part.across, op, pattern, devices, *more) for part in job))

    return slowest_lines


def _slowest_part(part_seconds: list[Array], mask: Flags) -> Array:
    """(faces,) the partition of the slowest stage."""
    stage_maxima = np.stack([np.where(mask[:, :, k], seconds, 0.0).max(axis=-1)
                      for k, seconds in enumerate(part_seconds)])  # fmt: skip
    return np.asarray(stage_maxima.argmax(axis=0))


def _slowest(part_values: Sequence[Any], mask: Flags) -> Any:
    """(faces, stages) the largest of what the partitions of a stage say; of several, one by one."""
    if isinstance(first := part_values[0], dict):
        return {key: _slowest([values[key] for values in part_values], mask) for key in first}
    if isinstance(first, tuple):
        return tuple(_slowest(values, mask) for values in zip(*part_values, strict=True))
    if np.ndim(part_values[0]) < 2:
        return np.maximum.reduce(list(part_values))
    shape = mask.shape[:2]
    return np.max([np.where(mask[:, :, k], np.broadcast_to(column, shape), 0.0)
                   for k, column in enumerate(part_values)], axis=0)  # fmt: skip


def _joined(part_prices: list[Prices], mask: Flags) -> Prices:
    """Each stage with what it takes on the slowest of the devices that hold it."""
    works = [prices.work for prices in part_prices]
    work = replace(works[0], **{
        f.name: _slowest([getattr(prices, f.name) for prices in works], mask)
        for f in fields(StageWork) if f.name != "segments"
    })  # fmt: skip
    talks = zip(*(prices.talk for prices in part_prices), strict=True)
    return Prices(work, [_message(messages, mask) for messages in talks], part_prices[0].choice)


def _message(part_messages: Sequence[Priced], mask: Flags) -> Priced:
    """A message beside the work of the slowest of the devices that hold a stage."""
    message, count = part_messages[0], len(part_messages)
    lead = _slowest_part([part_message.seconds for part_message in part_messages], mask)
    faces = np.arange(len(lead))

    def leading(name: str) -> Array:
        rows = (getattr(part_message, name) for part_message in part_messages)
        return np.stack([np.broadcast_to(row, lead.shape) for row in rows])[lead, faces]

    starts = np.cumsum([0, *(len(part_message.names) for part_message in part_messages)])
    kinds = len(message.groups.patterns)
    groups = Slice(
        message.groups.patterns * count, message.groups.row + lead * kinds, message.groups.size
    )
    every: dict[str, Any] = {
        name: tuple(word for part_message in part_messages for word in getattr(part_message, name))
        for name in ("names", "full", "origins")
    }
    led = ("phi", "rough", "outside", "logged", "between", "varies")
    every |= {name: leading(name) for name in led}
    every |= {name: _slowest([getattr(part_message, name) for part_message in part_messages], mask)
            for name in ("calls", "seconds", "exposed", "longer", "ahead",
                         "ahead_calls")}  # fmt: skip
    sides = None
    if message.sides is not None:
        sides = _slowest([part_message.sides for part_message in part_messages], mask)
    later = {place: _slowest([part_message.left(place) for part_message in part_messages], mask)
             for place in message.later}  # fmt: skip
    return replace(
        message, groups=groups,
        menu=Menu(offer for part_message in part_messages for offer in part_message.menu),
        largest=lambda: np.asarray(_slowest([one_part.nbytes for one_part in part_messages], mask)),
        best=leading("best") + starts[lead], later=later, sides=sides, **every,
    )  # fmt: skip


def _chosen(part_bytes: list[memory.Held], which: Array, face: Array) -> memory.Held:
    """Of each plan the bytes of one partition's fullest device."""
    size = len(part_bytes[0].stage)

    def pick(values: list[Any]) -> Array:
        return np.stack([np.broadcast_to(column, (size,)) for column in values])[which, face]

    kinds = {kind: pick([one_part.kinds[kind] for one_part in part_bytes]) for kind in memory.KINDS}
    return memory.Held(
        kinds, pick([one_part.stage for one_part in part_bytes]),
        pick([one_part.cached for one_part in part_bytes]), part_bytes[0].doubt,
        pick([one_part.beside for one_part in part_bytes]),
        pick([one_part.on_disk for one_part in part_bytes]),
        pick([one_part.first for one_part in part_bytes]),
    )  # fmt: skip


def _mixed(part_sources: list[Provenance], lead: Array) -> Provenance:
    """Where each row's seconds come from: its slowest partition."""
    mixed = Provenance()
    mixed.outside, mixed.convolved = np.zeros(len(lead)), np.zeros(len(lead))
    for k, provenance in enumerate(part_sources):

        def of_lead(values: Array, k: int = k) -> Array:
            return np.where(lead == k, np.broadcast_to(values, lead.shape), 0.0)

        its = provenance.spread(of_lead)
        mixed.outside = mixed.outside + its.outside
        mixed.convolved = mixed.convolved + its.convolved
        for name in ("seconds", "doubts", "told"):
            sums = getattr(mixed, name)
            for key, values in getattr(its, name).items():
                sums[key] = sums.get(key, 0.0) + values
    return mixed
