"""A job among others on the same network: what their exchanges cost on the links they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from oracle.ask.placing import on_nodes
from oracle.models.model import model as load_model
from oracle.network import contention
from oracle.network.contention.line import Offer
from oracle.network.contention.neighbours import STATES, Neighbour, Slowdown, slowdown, traffic
from oracle.network.topology import network_of
from oracle.plan.laid import devices_of, laid_out
from oracle.plan.plan import parse
from oracle.predict.defaults import options_for, room_for
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.spec.document import from_data, load, refusal
from oracle.spec.files import read_text
from oracle.spec.schema import Between, Clash, Count, read
from oracle.spec.system import System


@dataclass(frozen=True, slots=True)
class OtherJob:
    """A job that runs on the same machine at the same time."""

    model: str
    plan: str
    batch: Count
    nodes: str  # that it has: by name, or by number as `64-127`, `1-63/2`
    name: str = ""
    precision: str | None = None
    optimizer: str | None = None
    software: str | None = None
    active: Annotated[float, Between(0, 1)] = 1.0  # part of the time that it runs at all

    @property
    def called(self) -> str:
        """Its name, or what it is."""
        return self.name or f"{self.model} {self.plan} on {self.nodes}"


@dataclass(frozen=True, slots=True)
class OtherJobs:
    """What runs beside a job, and the nodes that it has itself where they are not the first."""

    jobs: tuple[OtherJob, ...]
    nodes: str = ""

    def check(self) -> Iterator[Clash]:
        if not self.jobs:
            yield Clash("jobs", "no other job", "- {model: …, plan: …, batch: …, nodes: …}")


@dataclass(frozen=True, eq=False)
class Beside:
    """One plan alone, as it runs on average beside others, and at worst."""

    alone: Estimate
    mean: Estimate
    worst: Estimate
    jobs: tuple[str, ...]
    messages: tuple[tuple[str, Slowdown], ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as data."""
        return {
            "jobs": list(self.jobs), "alone": float(self.alone.seconds[0]),
            "mean": float(self.mean.seconds[0]), "worst": float(self.worst.seconds[0]),
            "messages": [{"what": what, "mean": one.mean, "worst": one.worst, "link": one.link}
                         for what, one in self.messages],
        }  # fmt: skip


def other_jobs(what: Any) -> OtherJobs:
    """The jobs of a file, or of a dict; a list is one of jobs."""
    if isinstance(what, OtherJobs):
        return what
    if isinstance(what, Mapping | list | tuple):
        body, name, text = what, "jobs", ""
        data = {"jobs": list(body)} if not isinstance(body, Mapping) else dict(body)
        return read(OtherJobs, from_data(data), name, text, label="jobs")
    name = os.fspath(what)
    text = read_text(Path(name), "file of other jobs")
    return read(OtherJobs, load(text, name), name, text, label="jobs")


def beside(shown: Estimate, row: int, jobs: Any) -> Beside:
    """One plan of an estimate beside other jobs; its interference with each of their exchanges."""
    given = other_jobs(jobs)
    shown.system.need_alike("what several jobs share")
    system = shown.system
    if given.nodes and not (system.seats and system.seats.slots):
        if system.seats is not None:
            what = "ranks were placed on other nodes than those of the file"
            raise refusal("jobs", what, "`--nodes` as the file has them")
        system = on_nodes(system, given.nodes)
    text, batch = shown.plans[row], float(shown.batch[row])
    room_for(system, [text])
    alone = predict(shown.model, system, [text], batch, shown.options)
    others = [_estimated(system.bare, job) for job in given.jobs]
    taken = _apart(alone, others, given.jobs)
    reach = 1 + max(taken)
    if 4 ** len(others) > STATES:
        raise refusal("options", f"{len(others)} other jobs", "the nearest six")
    neighbours = [_neighbour(one, job, reach) for one, job in zip(others, given.jobs, strict=True)]
    graph = network_of(system.bare, reach)
    there = laid_out(system, alone.work[0].plan)
    found: dict[tuple[str, Any, int], Slowdown] = {}
    said: list[tuple[str, Slowdown]] = []
    for what, op, pattern, devices, algorithm, _ in _exchanges(alone):
        mine = traffic(there, op, pattern, devices, algorithm, reach)
        slower = slowdown(mine, neighbours, graph)
        found[op, pattern, devices] = slower
        said.append((what, slower))
    each = [
        predict(shown.model, system, [text], batch, shown.options, _slowed(found, which))
        for which in ("mean", "worst")
    ]
    return Beside(alone, each[0], each[1], tuple(one.name for one in neighbours), tuple(said))


def _estimated(system: System, job: OtherJob) -> Estimate:
    """What another job does in an iteration, on its own nodes."""
    model, where = load_model(job.model), on_nodes(system, job.nodes)
    options = options_for(model, where, job.precision, job.optimizer, software=job.software)
    wanted = int(parse(job.plan, float(job.batch)).devices[0, 0])
    if wanted > where.devices:
        what = f"{job.called} has {wanted} devices, its nodes {where.devices}"
        raise refusal("jobs", what, "more `nodes`, or a plan of fewer devices")
    return predict(model, where, [job.plan], float(job.batch), options)


def _apart(alone: Estimate, others: list[Estimate], jobs: tuple[OtherJob, ...]) -> list[int]:
    """The devices of all jobs; two jobs cannot have one."""
    every: list[int] = []
    for one, job in zip([alone, *others], [None, *jobs], strict=True):
        mine = devices_of(one.system, one.work[0].plan).tolist()
        if met := set(mine) & set(every):
            name = job.nodes if job else ""
            what = f"device {min(met)} is in two jobs ({name})"
            raise refusal("options", what, "say other `nodes` of one of them")
        every += mine
    return every


def _exchanges(shown: Estimate) -> Iterator[tuple[str, str, Any, int, str, float]]:
    """(what, operation, pattern, devices, algorithm, seconds) of all that goes over the mesh."""
    work = shown.work[0]
    for message, whole in work.messages:
        if not message.meshed or not whole.names:
            continue
        pattern, devices = message.pattern(work.at)
        algorithm = whole.names[int(whole.algorithm[work.row])]
        yield (message.what, message.op, pattern, devices, algorithm,
               float(whole.seconds[work.row]))  # fmt: skip


def _neighbour(shown: Estimate, job: OtherJob, reach: int) -> Neighbour:
    """Its longest exchanges, at most as many as can be looked at."""
    every = sorted(_exchanges(shown), key=lambda one: -one[-1])[:3]
    step = float(shown.seconds[0])
    system = laid_out(shown.system, shown.work[0].plan)
    loads = [traffic(system, op, pattern, devices, algorithm, reach)
             for _, op, pattern, devices, algorithm, _ in every]  # fmt: skip
    active = tuple(job.active * min(1.0, one[-1] / step) for one in every)
    return Neighbour(job.called, active, tuple(loads))


def _slowed(found: dict[tuple[str, Any, int], Slowdown], which: str) -> Any:
    """Lines whose bytes take as much longer as others make them."""

    def lines(system: System, op: str, pattern: Any, devices: int, *more: Any) -> Iterable[Any]:
        offer = contention.lines(system, op, pattern, devices, *more)
        times = found.get((op, pattern, devices))
        if times is None:
            return offer
        factor = getattr(times, which)
        return Offer(replace(line, per_byte=line.per_byte * factor) for line in offer)

    return lines
