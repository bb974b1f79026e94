"""Messages with their price: what each stage sends, and how much of it nothing hides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oracle.kernels.passes import Passes
from oracle.kernels.provenance import FOLD, MEASURED
from oracle.models.shard import Array, Shard
from oracle.network import nccl
from oracle.network.collectives import Message, plain
from oracle.plan.mesh import Groups
from oracle.plan.stages import Stages
from oracle.plan.strategies import Strategy
from oracle.spec.options import Options
from oracle.spec.system import System

BUCKET = 25e6  # bytes of gradients exchanged at once while the backward pass runs

Lines = Callable[..., Any]  # contention.lines or contention.alone


@dataclass(frozen=True)
class Priced:
    """A message with its price on each stage: (plans, p), or (plans,) where said."""

    what: str  # "data: gradients"
    op: str
    when: str  # in the "forward" or "backward" pass, once a "step", or at a stage "border"
    group: Array  # (plans,)
    nbytes: Array  # (plans,) of the largest call
    calls: Array  # per micro-batch, or per iteration (`step`); ideally per crossing (`border`)
    seconds: Array  # as often
    exposed: Array  # of that, what nothing hides, and what hiding costs the work it hides under
    phi: Array  # (plans,)
    best: Array  # (plans,) index into names
    names: tuple[str, ...]  # of algorithms
    full: tuple[tuple[str, ...], ...]  # links that set the pace, by the same index
    rough: Array  # (plans,) relative 1σ
    origins: tuple[str, ...]  # where a line comes from, by the same index
    outside: Array  # (plans,) whether no measurement covers its size and group
    ahead: Array = 0.0  # of `exposed` at a border, what comes in for the forward pass

    @property
    def covered(self) -> Array:
        """(plans,) whether its price was fitted to measurements, at whatever size."""
        return np.isin(np.array([*self.origins, ""])[self.best], MEASURED)


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
    outside: Array = True


def price(
    message: Message, axis: Strategy, shard: Shard, groups: Groups, stages: Stages, times: Passes,
    cover: Cover, system: System, options: Options, lines: Lines,
) -> Priced:  # fmt: skip
    """What a message takes on each stage, and what is left of it beside the work it hides under."""
    found = groups.of(message)
    row, group = found.row, found.size
    menu = [
        lines(system, message.op, pattern, devices, options.algorithm)
        # what reaches past the system is not priced: it is infeasible, and says so
        if pattern and devices <= system.devices
        else ()
        for pattern, devices in found.patterns
    ]
    shape = size, rows = len(group), len(shard.model)
    nbytes, calls = np.broadcast_to(message.nbytes, shape), np.atleast_2d(message.calls)
    columns, ahead = np.arange(rows), np.zeros(1)
    if message.when in ("forward", "backward"):  # said by some rows, each for itself
        columns = np.flatnonzero(np.broadcast_to((calls > 0).any(axis=0), rows))
        nbytes = nbytes[:, columns]
        calls = np.broadcast_to(calls, shape)[:, columns] * (group > 1.0)
    else:
        calls = np.max(calls, axis=-1, keepdims=True) * (group > 1.0)
    if message.when == "step":
        nbytes = stages.total(nbytes)
        calls = np.broadcast_to(calls, nbytes.shape)
        if message.hides and not shard.ideal:
            pieces = np.maximum(1.0, np.ceil(nbytes / BUCKET))
            calls, nbytes = calls * pieces, nbytes / pieces
    elif message.when.startswith("unit"):
        nbytes = stages.units(nbytes)
        calls = calls * (nbytes > 0)
    elif message.when == "border":
        nbytes = stages.borders(nbytes)
        calls = np.ones_like(nbytes)
    each, best, (names, full, origins), phi, rough, outside = _menu(menu, row, nbytes)
    sent = calls * each
    added: Callable[[Array], Array] = np.asarray
    if message.when in ("forward", "backward"):
        add = stages.last if message.once else stages.total
        added = partial(add, columns=columns)
        seconds, count = added(sent), added(calls)
    elif message.when.startswith("unit"):
        added = stages.gather
        seconds, count = added(sent), added(calls)
    elif message.when == "border" and shard.ideal:
        worst = each.max(axis=-1, keepdims=True) if each.size else np.zeros((size, 1))
        seconds, count = np.repeat(worst, stages.p, axis=1), np.ones((size, stages.p))
    elif message.when == "border":  # a stage waits for what comes in, whichever way
        ahead, calls_ahead = (stages.fold(np.pad(v, [(0, 0), (1, 0)])) for v in (each, calls))
        seconds, count = (stages.fold(np.pad(v, [(0, 0), (0, 1)])) for v in (each, calls))
        seconds, count = seconds + ahead, count + calls_ahead
    else:
        seconds, count = sent, calls
    exposed = seconds
    if message.hides and not (shard.ideal and message.when == "step"):
        may = np.asarray(getattr(axis, "overlap", 1.0), float) > 0
        if message.hides in ("data", "weight"):  # under a product of the row that sends
            alone = getattr(times, message.hides)[:, columns]
            left = stages.total(np.maximum(sent - alone, 0.0), columns)
            exposed = cover.beside(left, seconds, may)
        else:
            exposed = cover.hide(message, seconds, count, may)
        if not shard.ideal and (cost := nccl.burden(system)):  # work makes way for what it hides
            lost = cost * plain(message.op).volume(np.maximum(group, 1.0)) * nbytes * calls
            hidden = seconds - exposed
            part = np.divide(added(lost), seconds, out=np.zeros_like(hidden), where=hidden > 0)
            exposed = exposed + np.minimum(part, 1.0) * hidden
    cover.show(message.when, exposed)
    largest = np.where(calls > 0, nbytes, 0.0).max(axis=-1, initial=0.0)
    return Priced(
        f"{axis.name}: {message.what}", message.op, message.when.removeprefix("unit "),
        group[:, 0], largest, count, seconds, exposed, phi, best, names, full,
        rough, origins, outside, ahead,
    )  # fmt: skip


def together(device: Array, host: Array) -> Array:
    """Seconds of a pass in which device and host take turns to be the slower: their 3-norm."""
    return np.where(host > 0, np.cbrt(device**3 + host**3), device)


class Cover:
    """The work that messages may hide under, pass by pass; what hides one hides no other.

    Messages of a pass hide under the device's own work. Those sent after it began, gradients,
    hide under all that the pass takes, the waits for its host and its other messages included.
    """

    def __init__(self, work: dict[str, Array], host: dict[str, Array]) -> None:
        self.work, self.host = work, host
        self.used = {name: np.zeros_like(each) for name, each in work.items()}
        self.shown = {name: np.zeros_like(each) for name, each in work.items()}

    def hide(self, message: Message, seconds: Array, calls: Array, may: Array) -> Array:
        """What is left of messages sent beside a pass: the first gather or last bucket, at least.

        A bucket of gradients can be sent when it is full, so the first must wait for its share
        of the backward pass.
        """
        name, number = message.hides, np.maximum(calls, 1)
        window = self.work[name]
        if message.when == "step":
            shown = self.shown[name]
            window = (together(window + shown, self.host[name]) - shown) * (1 - 1 / number)
        free = np.maximum(window - self.used[name], 0.0)
        left = np.where(calls > 0, np.maximum(seconds - free, seconds / number), 0.0)
        return self._took(name, np.where(may, left, seconds), seconds)

    def beside(self, left: Array, seconds: Array, may: Array) -> Array:
        """What is left of messages sent beside their own row's gradients: no more than is free."""
        free = np.maximum(self.work["backward"] - self.used["backward"], 0.0)
        left = np.where(may, np.maximum(left, seconds - free), seconds)
        return self._took("backward", left, seconds)

    def _took(self, name: str, left: Array, seconds: Array) -> Array:
        self.used[name] = self.used[name] + seconds - left
        return left

    def show(self, when: str, exposed: Array) -> None:
        """Seconds of messages that make a pass longer."""
        name = when.removeprefix("unit ")
        if name in self.shown:
            self.shown[name] = self.shown[name] + exposed


def _menu(menu: list[Any], row: Array, nbytes: Array) -> tuple[Any, ...]:
    """The cheapest line of each row's menu at each size, and which it was at the largest."""
    kept = [envelope(options) for options in menu]
    known: dict[tuple[str, tuple[str, ...], str], int] = {}
    most = max((len(options) for options in kept), default=0)
    table = np.zeros((7, len(menu), max(most, 1)))
    table[5] = np.inf
    index = np.zeros((len(menu), max(most, 1)), int)
    for i, options in enumerate(kept):
        table[0, i, max(len(options), 1) :] = np.inf  # no line: never the cheapest
        for j, line in enumerate(options):
            key = line.algorithm, tuple(line.full), line.origin
            index[i, j] = known.setdefault(key, len(known))
            low, high = (line.sizes[0], line.sizes[-1]) if line.sizes else (0.0, np.inf)
            table[:, i, j] = (
                line.start, line.per_byte, line.phi, line.uncertainty, low, high, line.outside
            )  # fmt: skip
    largest = nbytes.max(axis=-1, initial=0.0)
    price, at = None, np.zeros(len(row), int)
    lowest = np.full(len(row), np.inf)
    for j in range(table.shape[2]):
        start, slope = table[0, row, j], table[1, row, j]
        line = slope[:, None] * nbytes
        line += start[:, None]
        top = start + slope * largest
        price = line if price is None else np.minimum(price, line, out=price)
        at = np.where(top < lowest, j, at)
        lowest = np.minimum(top, lowest)
    found = index[row, at] if known else np.zeros(len(row), int)
    names, full, origins = (
        (tuple(column) for column in zip(*known, strict=True)) if known else ((),) * 3
    )
    _, _, phi, rough, low, high, outside = table[:, row, at]
    # a line serves other sizes than it was fitted to, with more doubt the farther they are
    beyond = np.maximum(np.maximum(low / np.maximum(largest, 1.0), largest / high), 1.0)
    rough = rough + FOLD * np.log(beyond)
    return price, found, (names, full, origins), phi, rough, (outside > 0) | (beyond > 1 + 1e-9)


def envelope(options: Any) -> list[Any]:
    """The lines that are cheapest at some size."""
    kept: list[Any] = []
    for line in sorted(options, key=lambda line: (line.start, line.per_byte)):
        if not kept or line.per_byte < kept[-1].per_byte:
            kept.append(line)
    return kept
