"""Cost of each message on each stage: bytes and calls added up, the cheapest algorithm chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oracle.kernels.profile.factors import NOTHING
from oracle.kernels.provenance import MEASURED
from oracle.models.shard import Array
from oracle.network import nccl
from oracle.network.collectives import Message, named, plain
from oracle.plan.mesh import Slice
from oracle.plan.strategies import Strategy
from oracle.predict.offers import (
    Lines,
    Menu,
    as_logged,
    cheapest,
    menu_of,
    negotiated,
    senders,
)
from oracle.predict.overlap import Cover, slowed
from oracle.predict.workload import Workload
from oracle.spec.options import Options
from oracle.spec.system import System


@dataclass(frozen=True)
class Priced:
    """A message with its price on each stage: (plans, p), or (plans,) where said."""

    message: Message
    axis: str  # the strategy that sends it
    groups: Slice  # who sends it to whom
    menu: Menu
    when: str  # in the "forward" or "backward" pass, once a "step", or at a stage "border"
    group: Array  # (plans,)
    largest: Callable[[], Array]  # bytes of the largest call, asked where they are shown
    calls: Array  # per micro-batch, or per iteration (`step`); ideally per crossing (`border`)
    host: Array  # as often, seconds that the host needs to launch it
    seconds: Array  # as often
    exposed: Array  # of that, what nothing hides, and what hiding costs the work it hides under
    later: dict[str, Array]  # the same where it is sent elsewhere too, see `Cover.others`
    phi: Array  # (plans,)
    best: Array  # (plans,) index into names
    names: tuple[str, ...]  # of algorithms
    full: tuple[tuple[str, ...], ...]  # links that set the pace, by the same index
    rough: Array  # (plans,) relative 1σ
    longer: Array  # 1σ of what more of it nothing hides, if the network falls short
    origins: tuple[str, ...]  # where a line comes from, by the same index
    outside: Array  # (plans,) whether no measurement covers its size and group
    ahead: Array | float = 0.0  # of `exposed` at a border, the receive time before the forward pass
    ahead_calls: Array | float = 0.0  # of `calls` likewise
    # of a border's largest calls, those received before a forward and before a backward pass
    sides: tuple[Array, Array] | None = None
    # (plans,) whether logged runs told of it, and whether it goes between nodes
    logged: Array = field(default_factory=lambda: np.zeros(1, bool))
    between: Array = field(default_factory=lambda: np.zeros(1, bool))
    # (plans,) whether its network has good and bad moments, which all its messages share
    varies: Array = field(default_factory=lambda: np.zeros(1, bool))

    @cached_property
    def nbytes(self) -> Array:
        """Bytes of the largest call."""
        return self.largest()

    @property
    def what(self) -> str:
        """As reports call it, `data: gradients`."""
        return f"{self.axis}: {self.message.what}"

    def left(self, elsewhere: str) -> Array:
        """Seconds that nothing hides where it is sent in another place of its pass."""
        return self.later.get(elsewhere, self.exposed)

    @property
    def op(self) -> str:
        return self.message.op

    @property
    def meshed(self) -> bool:
        """Whether devices of a group send it to each other."""
        return self.message.over == "mesh"

    @property
    def stays(self) -> bool:
        """Whether recomputation finds what was sent: weights that were gathered to run back."""
        return self.message.when == "unit forward"

    @property
    def covered(self) -> Array:
        """(plans,) whether its price was fitted to measurements, and errs by itself."""
        return np.isin(np.array([*self.origins, ""])[self.best], MEASURED) & ~self.varies

    def pattern(self, plan: int) -> tuple[Any, int]:
        """The groups that send it under one plan, and the number of devices in all."""
        return self.groups.patterns[int(self.groups.row[plan])]

    def line(self, plan: int) -> Any:
        """The line that one plan is priced by; None past the system's end."""
        name = self.names[int(self.best[plan])] if self.names else ""
        offer = self.menu[int(self.groups.row[plan])]
        named_lines = [line for line in offer if line.algorithm == name]
        nbytes = float(self.nbytes[plan].max())
        return min(named_lines, key=lambda line: line.start + line.per_byte * nbytes, default=None)


@dataclass(frozen=True)
class Exchange:
    """One kind of message in an iteration, (plans,) each."""

    what: str  # "data: gradients"
    op: str
    group: Array
    calls: Array
    nbytes: Array  # of one call
    seconds: Array  # sent in all, on the busiest device
    exposed: Array  # of that, what makes the iteration longer
    phi: Array
    algorithm: Array  # index into `names`
    names: tuple[str, ...]
    full: tuple[tuple[str, ...], ...]  # links that set the pace, by the same index
    deviation: Array  # 1σ of `exposed`, seconds
    origins: tuple[str, ...] = ()  # by the same index
    outside: Array = field(default_factory=lambda: np.ones(1, bool))


@dataclass(frozen=True)
class Calls:
    """Bytes and number of a message's calls by what sends them, and how they add up on stages.

    In a pass each row sends for itself, or each unit of the model; once a step each stage, or each
    unit where the software sends so; between stages each tensor that another reads.
    """

    nbytes: Array  # (kinds, senders)
    calls: Array
    often: Array  # (plans, 1) how often all of them are sent
    total: Callable[[Array], Array]  # (kinds, senders) -> (kinds, p)
    most: Callable[[Array], Array]  # as `total`, the largest of each stage
    rows: Array  # of the model, that send for themselves
    units: bool = False  # whether each brings or takes a unit of the model
    # as `total`, those that nothing hides, of units that send before their work or after it; None
    # where all are alike
    edge: Callable[[Array], Array] | None = None


def calls_of(message: Message, load: Workload, sends: Array, group: Array) -> Calls:
    """Who sends how much how often, of plans that do."""
    stages, shape = load.stages, (len(sends), len(load.shard.model))
    nbytes, calls = np.broadcast_to(message.nbytes, shape), np.atleast_2d(message.calls)
    rows, once = np.arange(shape[1]), np.ones((1, 1))
    if message.when in ("forward", "backward"):
        rows = np.flatnonzero(np.broadcast_to((calls > 0).any(axis=0), shape[1]))
        calls = np.broadcast_to(calls, shape)[:, rows] * sends
        add = stages.last if message.once else stages.total
        return Calls(nbytes[:, rows], calls, once, lambda values: add(values, rows),
                     lambda values: stages.largest(values, rows), rows)  # fmt: skip
    often = load.kinds.spread(np.max(calls, axis=-1, keepdims=True))
    by_unit = load.shard.software.exchange.by_unit and not load.shard.ideal
    by_unit = by_unit and message.when == "step" and message.over == "mesh"
    if by_unit or message.when.startswith("unit"):
        nbytes = stages.units(nbytes)
        edge = None if message.when == "unit backward" else stages.opening
        return Calls(nbytes, sends * (nbytes > 0), often, stages.gather, stages.most, rows,
                     message.over == "mesh", edge)  # fmt: skip
    if message.when == "border":
        nbytes = stages.borders(nbytes)
        return Calls(nbytes, stages.crosses(nbytes), once, stages.received,
                     lambda values: np.maximum(*stages.received_most(values)), rows)  # fmt: skip
    nbytes = stages.total(nbytes)
    calls = sends * (nbytes > 0)
    if message.hides and not load.shard.ideal:
        stage_bytes = nbytes
        if message.stands_for is not None:
            stage_bytes = stages.total(np.broadcast_to(message.stands_for, shape))
        pieces = _pieces(message, stage_bytes, load, group)
        calls, nbytes = calls * pieces, nbytes / pieces
    return Calls(nbytes, calls, often, np.asarray, np.asarray, rows)


def _pieces(message: Message, nbytes: Array, load: Workload, group: Array) -> Array:
    """Into how many pieces each stage's weights or gradients are cut, (kinds, p).

    Where only the first stage cuts them, others send what each of their chunks has at once.
    """
    rule, width = load.shard.software.exchange, load.shard.wire
    if message.op == "allgather" and message.stands_for is None:
        width = load.shard.gathered
    size = rule.piece(width, {"data": group, "devices": load.plan.devices})
    pieces = np.maximum(1.0, np.ceil(nbytes / size))
    if rule.pieces and rule.pieces.of == "first_stage":
        pieces = np.where(np.arange(nbytes.shape[-1]) > 0, load.stages.v * 1.0, pieces)
    return pieces


def price(
    message: Message, axis: Strategy, load: Workload, cover: Cover, system: System,
    options: Options, lines: Lines,
) -> Priced:  # fmt: skip
    """What a message takes on each stage, and what is left of it beside the work it hides under."""
    stages, spread, ideal = load.stages, load.kinds.spread, load.shard.ideal
    meshed, when = message.over == "mesh", message.when.removeprefix("unit ")
    senders_of = senders(message, load.groups)
    menu = menu_of(message, senders_of, system, options, lines)
    sends = senders_of.size > 1.0 if meshed else np.ones_like(senders_of.size)
    sent = calls_of(message, load, sends, senders_of.size)
    called = np.where(sent.calls > 0, sent.nbytes, 0.0)  # not what others of the table send
    chosen = cheapest(menu, senders_of.row, called)
    factors = NOTHING if ideal or options.profile is None else options.profile.factors
    logged = between = np.zeros(len(senders_of.row), bool)
    if meshed and factors and senders_of.patterns:
        chosen, logged, between = as_logged(chosen, factors, senders_of, system.node)
    ahead: Array = np.zeros(1)
    ahead_calls: Array = ahead
    sides: tuple[Array, Array] | None = None
    if message.when == "border" and ideal:  # every crossing is as slow as the slowest
        size, call_seconds = len(senders_of.size), chosen.seconds * (sent.calls > 0)
        tensors = np.ones((1, 1))
        if not stages.plain:
            call_seconds, tensors = (
                stages.received_ahead(call_seconds),
                stages.received_ahead(sent.calls),
            )
        worst = (
            call_seconds.max(axis=-1, keepdims=True) if call_seconds.size else np.zeros((size, 1))
        )
        seconds = np.repeat(worst, stages.devices, axis=1)
        count = np.ones((size, stages.devices)) * tensors.max(axis=-1, keepdims=True, initial=1.0)
    else:
        call_seconds = sent.calls * chosen.seconds
        seconds, count = (
            sent.often * spread(a) for a in sent.total(np.stack([call_seconds, sent.calls]))
        )
        if np.any(message.share != 1.0):  # of the bytes; a call starts as slowly for few of them
            first = sent.calls * cheapest(menu, senders_of.row, 0 * called).seconds
            fixed = sent.often * spread(sent.total(first))
            seconds = fixed + (seconds - fixed) * message.share
        if message.when == "border":
            ahead, ahead_calls = (
                spread(stages.received_ahead(a)) for a in (call_seconds, sent.calls)
            )
            before, behind = stages.received_most(called)
            sides = spread(before), spread(behind)
            if load.shard.model.training.forward:  # nothing comes back
                seconds, count, sides = ahead, ahead_calls, (sides[0], 0 * sides[1])
    short = chosen.short[:, None]
    exposed, longer = seconds, seconds * spread(short)
    left: dict[str, Array] = {}
    if message.hides and not (ideal and message.when == "step"):
        may = spread(np.atleast_2d(getattr(axis, "overlap", 1.0))) > 0
        name = message.when if message.overlapped_product else message.hides
        beside_own_pass = name == ("backward" if when == "step" else when)
        exposed = _left(message, load, cover, sent, call_seconds, seconds, count, may, name)
        if short.any():  # what hides today shows where the network falls short
            more = call_seconds * (1 + short), seconds + longer
            longer = _left(message, load, cover, sent, *more, count, may, name) - exposed
        cover.took(name, exposed, seconds, alone=when == "step", over=message.over)
        if message.under:  # what else these rows hide finds the rest
            cover.hid(message, seconds - exposed)
        left = {name: exposed}
        for other_pass in (
            cover.others(when) if beside_own_pass and message.when != "unit forward" else ()
        ):
            left[other_pass] = _left(
                message, load, cover, sent, call_seconds, seconds, count, may, other_pass
            )
            cover.took(
                other_pass, left[other_pass], seconds, alone=when == "step", over=message.over
            )
        if message.when == "step":  # the last piece waits for somebody to look, on average half
            exchange_spec = options.software.exchange
            agreed = spread(negotiated(senders_of, system, exchange_spec.negotiations))
            looked = (0.5 * exchange_spec.cycle + agreed) * (count > 0)
            left = {place: exposed_there + looked for place, exposed_there in left.items()}
        if "shown" in factors.told:
            left = {place: np.minimum(factors.times("shown") * exposed_there, seconds)
                    for place, exposed_there in left.items()}  # fmt: skip
        # work makes way
        if meshed and not ideal and (cost := nccl.slowdown(system, message.processors)):
            by = named(message.op, message.by) if message.by else plain(message.op)
            volume = by.volume(np.maximum(senders_of.size, 1.0))
            lost = sent.often * spread(sent.total(cost * volume * sent.nbytes * sent.calls))
            lost = lost + seconds * message.processors / system.device.processors
            left = {
                place: slowed(exposed_there, seconds, lost) for place, exposed_there in left.items()
            }
        exposed = left.pop(name)
    host = options.software.host
    launches = count * (0.0 if ideal else host.sending(system))
    if sent.units and not ideal:
        hooks = count * host.around_unit
        if system.device.host:  # nothing runs beside what its own processors do
            seconds, exposed = seconds + hooks, exposed + hooks
            left = {place: exposed_there + hooks for place, exposed_there in left.items()}
        else:
            launches = launches + hooks
    cover.show(when, exposed, launches, message.over)
    if when == "forward" and message.when != "unit forward":
        cover.show("again", left.get("again", exposed), launches, message.over)
    if when == "backward":  # beside the gradient of the input alone
        cover.show("input", left.get("input", exposed), launches, message.over)

    def largest() -> Array:
        stage_bytes = sent.most(called)
        if message.when == "border" and ideal:
            stage_bytes = np.repeat(stage_bytes.max(axis=-1, keepdims=True), stages.devices, axis=1)
        return np.asarray(spread(stage_bytes) * (sent.often > 0) * message.share)

    plan_groups = Slice(senders_of.patterns, spread(senders_of.row), spread(senders_of.size))
    return Priced(
        message, axis.name, plan_groups, menu, when, plan_groups.size[:, 0],
        largest, count, launches, seconds,
        exposed, left,
        spread(chosen.phi), spread(chosen.best), chosen.names, chosen.full, spread(chosen.rough),
        longer, chosen.origins, spread(chosen.outside), ahead, ahead_calls, sides,
        spread(logged), spread(between), spread(chosen.short > 0),
    )  # fmt: skip


def window_of(message: Message, load: Workload) -> Array:
    """Seconds, on each stage, of the products of rows that alone hide a message."""
    parts = [load.stages.total(np.where(rows, getattr(load.times, product), 0.0))
             for product, rows in message.under]  # fmt: skip
    window: Array = load.kinds.spread(sum(parts[1:], parts[0]))
    return window


def unpaired(load: Workload, seconds: Array) -> Array:
    """Of a message's seconds in each pass, those in which no other micro-batch runs the other way.

        (2 (p − 1 − i) + (v − 1) p + 1) / (S v)      of the passes of stage i fill the pipeline

    [NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/schedules.py@d98e8a64dd:966-972]: one more
    micro-batch fills it than without the overlap. Without a pipeline the first and the last are
    alone.
    """
    stages = load.stages
    p, v = np.asarray(stages.p, float), np.asarray(stages.v, float)
    place = np.arange(seconds.shape[-1])
    filling = 2 * np.maximum(p - 1 - place, 0) + (v - 1) * p + 1
    share = load.kinds.spread(filling) / (
        np.asarray(load.state.segments)[:, :1] * load.kinds.spread(v)
    )
    return np.asarray(seconds * np.minimum(share, 1.0))


def _left(
    message: Message, load: Workload, cover: Cover, sent: Calls, call_seconds: Array,
    seconds: Array, count: Array, may: Array, name: str,
) -> Array:  # fmt: skip
    """What is left on each stage, under the work of that name, of messages that take so long:
    `call_seconds` sender's, and together.
    """
    if message.under or message.paired:
        left = cover.left(message, seconds, count, may, name, np.zeros(1))  # layer by layer
        if message.paired:
            left = np.maximum(left, unpaired(load, seconds))
        if message.under:
            left = np.maximum(left, seconds - window_of(message, load) + cover.hidden_by(message))
        return left
    product = message.overlapped_product
    if not product:
        edge = None
        if sent.edge is not None:
            first, all_seconds = map(
                load.kinds.spread, (sent.edge(call_seconds), sent.total(call_seconds))
            )
            share = np.divide(
                first, all_seconds, out=np.zeros_like(all_seconds), where=all_seconds > 0
            )
            edge = seconds * share  # of the bytes too that each sends only a part of
        return cover.left(message, seconds, count, may, name, edge)
    # a product of the row that sends
    alone = (getattr(load.times, product) * cover.part(name, product))[:, sent.rows]
    left = load.stages.total(
        np.maximum(call_seconds - alone, message.least_exposed * call_seconds), sent.rows
    )
    return cover.beside(name, load.kinds.spread(left), seconds, may)
