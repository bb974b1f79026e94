"""Where a plan's ranks had best sit: ways to deal them out, priced by the links that they fill.

Every message of a plan is priced anew for each way to cut its axes by the levels of the network
[xie2022]: what was hidden stays hidden, and what the loads of the links add shows. The best few
are then estimated as they are; block, rank r on slot r, is one of them, so no answer is worse.
On nodes that a scheduler scattered, nodes are swapped in pairs as well while that brings those
that talk nearer to each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, prod
from typing import Any

import numpy as np

from oracle.ask.joined import joined
from oracle.ask.ranking import Ranking
from oracle.models.model import Model
from oracle.network import contention
from oracle.network.arrays import Floats, Ints
from oracle.network.contention import RankGroups
from oracle.network.topology import network_of, placement, swapping
from oracle.network.topology.placement import Parts
from oracle.plan.laid import as_used, numbers_of
from oracle.plan.plan import Plan, parse
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.spec import hostlist
from oracle.spec.document import refusal
from oracle.spec.options import Options
from oracle.spec.seats import Seats, given
from oracle.spec.system import System

_NUMBERS = re.compile(r"\d{1,9}(-\d{1,9}(/\d{1,9})?)?( *, *\d{1,9}(-\d{1,9}(/\d{1,9})?)?)*")
PAIRS = ("sendrecv", "halo")  # neighbours of a group talk, not all with all
WAYS = ("block", "cyclic", "best")
MOST = 2000  # ways to cut the axes of one plan that are priced
CLOSEST = 12  # of them that are priced on scattered nodes, which takes longer
SWAPPED = 2  # of these from which nodes are swapped
FINALS = 4  # and that are estimated in full
BETTER = 1e-9  # relative; what is no faster does not move a rank


@dataclass(frozen=True, eq=False)
class Placing:
    """How a plan's ranks were placed, and what that saves."""

    seats: Seats | None
    words: str  # which parts of which axes each level joins
    seconds: float
    block: float  # seconds of an iteration with rank r on slot r
    neighbours: float | None  # on as many neighbouring nodes, where some were given
    tried: int

    @property
    def saved(self) -> float:
        """Seconds of an iteration that it saves over block."""
        return self.block - self.seconds

    @property
    def scattered(self) -> float:
        """Seconds that the nodes given cost over neighbouring ones, each by block."""
        return 0.0 if self.neighbours is None else self.block - self.neighbours

    @property
    def nodes(self) -> str:
        """Those that were given, as a list: of names, or of numbers where they have none."""
        said = hostlist.folded(self.seats.nodes if self.seats else ())
        return said[1:-1] if said.startswith("[") and "[" not in said[1:] else said

    def to_dict(self) -> dict[str, Any]:
        """The same as data."""
        seats = self.seats or Seats()
        return {
            "how": seats.how, "levels": self.words, "nodes": self.nodes or None,
            "seconds": self.seconds, "seconds_block": self.block, "saved": self.saved,
            "seconds_neighbours": self.neighbours, "tried": self.tried,
        }  # fmt: skip


def on_nodes(system: System, wanted: str | None) -> System:
    """The system for a job on the nodes that a scheduler gave; all of it where nobody says.

    By name, or by number as levels join them: `0-15`, `1-63/2`, with commas.
    """
    if wanted is None:
        return system
    system.need_alike("on which nodes a job is")
    known = system.node_names
    if _NUMBERS.fullmatch(wanted) and wanted.split(",")[0] not in known:
        known = known or tuple(map(str, range(system.devices // system.per_host)))
        wanted = ",".join(known[number] for number in _numbered(system, wanted))
    if not known:
        hint = ("their numbers, as 0-7,32-39; or `nodes: rack[1-8]-[1-16]` in its file, in the "
                "order in which levels join them")  # fmt: skip
        raise refusal(system.name, "nobody says what its nodes are called", hint)
    try:
        return system.seated(Seats(**given(known, hostlist.names(wanted), system.per_host)))
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise refusal("--nodes", what, hint, "E110") from None


def _numbered(system: System, text: str) -> Iterator[int]:
    """The numbers that a list says, each a node of the system."""
    most = system.devices // system.per_host
    for part in text.replace(" ", "").split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        low = int(first)
        high = int(last) if dash else low
        if not low <= high < most or (step and not int(step)):
            what = f"no nodes {part[:40]} of {most} of {system.name}"
            raise refusal("options", what, f"numbers from 0 to {most - 1}, as 0-15 or 1-63/2")
        yield from range(low, high + 1, int(step or 1))


def placed(
    model: Model, system: System, plans: Sequence[str | Plan], batch: Any, options: Options,
    how: str = "block",
) -> Estimate:  # fmt: skip
    """The estimate of plans, each with its ranks placed as asked; `placed` says where they sit."""
    if how not in WAYS:
        raise refusal("options", f"no placement is called `{how}`", f"one of {', '.join(WAYS)}")
    if how != "block":
        system.need_alike("where ranks had best sit")
    each = [batch] * len(plans) if np.ndim(batch) == 0 else list(batch)
    return joined([_placed(model, system, plan, size, options, how)
                   for plan, size in zip(plans, each, strict=True)])  # fmt: skip


def _placed(
    model: Model, system: System, text: str | Plan, batch: float, options: Options, how: str
) -> Estimate:
    """The estimate of one plan."""
    plan = parse(text, float(batch)) if isinstance(text, str) else text
    first = predict(model, system, [text], batch, options)
    devices, mesh = int(plan.devices[0, 0]), axes_of(plan)

    def given_by(seats: Seats) -> Seats:
        """Seats among the devices that the machine uses, by the numbers of all of its devices."""
        return replace(seats, slots=numbers_of(system, machine, seats.slots))

    machine = as_used(system, plan)
    seats, tried, found = machine.seats or Seats(), 1, first
    if devices > 1 and devices <= system.devices and not options.ideal:
        if how == "cyclic":
            digits = placement.cyclic(devices, machine.per_host)
            seats = replace(seats, digits=digits, how="cyclic" if digits else "block")
            found = predict(model, system.seated(given_by(seats)), [text], batch, options)
        elif how == "best":
            tried, finals = _finals(first, machine, [size for _, size in mesh], devices, options)
            every = [(first, seats)] + [
                (predict(model, system.seated(given_by(each)), [text], batch, options), each)
                for each in finals
            ]
            found, seats = min(every, key=lambda one: float(one[0].seconds[0]))
            if not found.seconds[0] < first.seconds[0] * (1 - BETTER):
                found, seats = first, machine.seats or Seats()
    near = None
    if seats.slots:
        compact = predict(model, system.bare, [text], batch, options)
        near = float(compact.seconds[0])
    said = Placing(given_by(seats), words(machine, seats, mesh, devices), float(found.seconds[0]),
                   float(first.seconds[0]), near, tried)  # fmt: skip
    return replace(found, placed=(said,))


def axes_of(plan: Plan) -> list[tuple[str, int]]:
    """(name, degree) of the axes that take devices, outermost first."""
    every = [(axis.name, int(axis.degree[0, 0])) for axis in plan.axes if axis.multiplies]
    return [(name, degree) for name, degree in every if degree > 1]


def _finals(
    first: Estimate, system: System, sizes: Sequence[int], devices: int, options: Options
) -> tuple[int, list[Seats]]:
    """How many ways were priced, and the best few of them."""
    seats = system.seats or Seats()
    every = [replace(seats, digits=placement.dealt(sizes, parts), how="best")
             for parts in ways(system, sizes, devices)]  # fmt: skip
    if digits := placement.cyclic(devices, system.per_host):
        every.append(replace(seats, digits=digits, how="best"))
    messages = list(_messages(first))

    def ranked(some: Sequence[Seats], where: System) -> list[Seats]:
        priced = [(_shown(messages, where.seated(each), options.algorithm), number, each)
                  for number, each in enumerate(some)]  # fmt: skip
        return [each for _, _, each in sorted(priced, key=lambda one: one[:2])]

    if not seats.slots:
        return len(every), ranked(every, system)[:FINALS]
    # by what they would be on neighbouring nodes first: that is quick
    near = {id(each): replace(each, slots=()) for each in every}
    by_near = {id(there): each for each in every for there in [near[id(each)]]}
    closest = ranked(list(near.values()), system.bare)[:CLOSEST]
    best = [by_near[id(each)] for each in closest]
    order = tuple(sorted(seats.slots[:devices]))  # nodes side by side, however they were listed
    if order != seats.slots[:devices]:
        best += [replace(each, slots=order) for each in [seats, *best[:FINALS]]]
        best = [replace(each, how="best") for each in best]
    found = ranked(best, system)
    moved = [_swapped(each, system, messages, devices) for each in [*found[:SWAPPED], seats]]
    known = {(each.slots, each.digits) for each in best}
    fresh = [replace(each, how="best") for each in moved if (each.slots, each.digits) not in known]
    return len(every) + len(best) + len(fresh), ranked([*found[:FINALS], *fresh], system)[:FINALS]


def _swapped(
    seats: Seats, system: System, messages: Sequence[tuple[Any, ...]], devices: int
) -> Seats:
    """The seats with nodes swapped in pairs, so that ranks that talk are on near ones."""
    each = system.per_host
    nodes = np.array(seats.slots[:devices:each], np.int64) // each
    if devices % each or not 2 < len(nodes) <= swapping.LARGEST:
        return seats
    where = seats.slot_of(np.arange(devices), devices) // each
    flow = np.zeros((len(nodes), len(nodes)))
    for op, pattern, count, _, _, sent, hidden in messages:
        groups = RankGroups.of(pattern, count)
        if count != devices or groups.p == 1 or sent <= hidden:
            continue
        flow += (sent - hidden) / groups.p * _talk(groups, where, len(nodes), op in PAIRS)
    apart = swapping.distances(network_of(system.bare, int(nodes.max() + 1) * each), nodes * each)
    order = swapping.swapped(flow, apart, np.arange(len(nodes)))
    slots = (nodes[order, None] * each + np.arange(each)).ravel()
    return replace(seats, slots=(*slots.tolist(), *seats.slots[devices:]))


def _talk(groups: RankGroups, where: Ints, count: int, pairs: bool) -> Floats:
    """How often members of one group sit on each two nodes: all of them, or only neighbours."""
    found = np.zeros((count, count))
    places = where[groups.bases()[:, None] + groups.offsets]
    if pairs:
        np.add.at(found, (places[:, :-1], places[:, 1:]), 1.0)
        found += found.T
    else:
        held = np.zeros((len(places), count))
        np.add.at(held, (np.arange(len(places))[:, None], places), 1.0)
        found += held.T @ held
    np.fill_diagonal(found, 0.0)
    return found


def ways(system: System, sizes: Sequence[int], devices: int) -> Iterator[Parts]:
    """Ways to deal axes (outermost first) to the levels of a system, that of block first."""
    seen: set[Any] = set()
    levels = [width for _, width in placement.widths(system.bare, devices)]
    for known in (levels, [*levels[:1], prod(levels[1:])]):  # too many: by node alone
        found = list(islice(placement.matrices(sizes, known), MOST + 1))
        if len(found) <= MOST:
            break
    for parts in (*placement.orders(sizes), *found[:MOST]):
        digits = placement.dealt(sizes, parts)
        if digits not in seen:
            seen.add(digits)
            yield parts


def _messages(first: Estimate) -> Iterator[tuple[str, Any, int, float, float, float, float]]:
    """(op, pattern, devices, bytes, price, seconds, hidden seconds) of what a plan sends."""
    work = first.work[0]
    for priced, whole in work.messages:
        pattern, devices = priced.pattern(work.at)
        line = priced.line(work.at)
        if not priced.meshed or line is None:
            continue
        nbytes = float(whole.nbytes[work.row])
        sent, shown = float(whole.seconds[work.row]), float(whole.exposed[work.row])
        yield (whole.op, pattern, devices, nbytes, line.start + line.per_byte * nbytes, sent,
               sent - shown)  # fmt: skip


def _shown(
    messages: Sequence[tuple[str, Any, int, float, float, float, float]], system: System,
    algorithm: str | None,
) -> float:  # fmt: skip
    """Seconds of messages that nothing hides, with ranks seated so; what was hidden stays so."""
    total = 0.0
    for op, pattern, devices, nbytes, price, sent, hidden in messages:
        offer = contention.lines(system, op, pattern, devices, algorithm)
        now = min((line.start + line.per_byte * nbytes for line in offer), default=inf)
        total += max(0.0, sent * now / max(price, 1e-30) - hidden)
    return total


def words(system: System, seats: Seats, mesh: Sequence[tuple[str, int]], devices: int) -> str:
    """Which parts of which axes each level joins: `node: tensor 8; spine: data 4, pipeline 8`."""
    sizes = [size for _, size in mesh]
    digits = seats.digits if seats.ranks == devices else ()
    digits = digits or placement.dealt(sizes, next(placement.orders(sizes)))
    low, told, levels = 1, [], placement.widths(system.bare, devices)
    if seats.slots:  # which level joins them depends on which they are
        spans = np.cumprod([width for _, width in levels])
        inner = int((spans <= system.node).sum())
        each = int(spans[inner - 1]) if inner else 1
        levels = [*levels[:inner], ("given nodes", devices // each)]
    for name, width in levels:
        high = low * width
        parts: list[str] = []
        for digit in sorted(digits, key=lambda each: each.slot):
            begin, end = max(low, digit.slot), min(high, digit.slot * digit.size)
            if begin < end and end % begin == 0:
                first = digit.rank * (begin // digit.slot)
                parts += _axes(mesh, first, end // begin)
        told.append(f"{name}: {', '.join(parts) or '–'}")
        low = high
    return "; ".join(told)


def _axes(mesh: Sequence[tuple[str, int]], rank: int, size: int) -> Iterator[str]:
    """The axes that so many ranks count along, so far apart, and how many of each."""
    stride = 1
    for name, degree in reversed(mesh):
        begin, end = max(rank, stride), min(rank * size, stride * degree)
        if begin < end:
            yield f"{name} {end // begin}" if end % begin == 0 else name
        stride *= degree


def ranked(found: Ranking, how: str, top: int) -> Ranking:
    """A ranking with the ranks of each of its plans placed, the fastest first again."""
    shown, rivals = found.estimate, found.rivals
    if not len(shown):
        return found
    plans = [*shown.plans, *rivals.plans] if found.objective == "time" else [*shown.plans]
    each = placed(shown.model, shown.system, plans, found.batch, shown.options, how)
    if found.objective != "time":
        return replace(found, estimate=each)
    order = np.argsort(each.seconds, kind="stable")
    first = order[: max(top, 1)]
    return replace(found, estimate=each.take(first.tolist()), fastest=each.take(order[:1].tolist()),
                   rivals=each.take(order[len(first) :].tolist()))  # fmt: skip
