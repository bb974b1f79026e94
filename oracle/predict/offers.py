"""What the network offers for a message, and the cheapest of it at each size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.kernels.profile.factors import Factors
from oracle.models.shard import Array
from oracle.network.collectives import Message, named
from oracle.network.collectives.servers import Servers
from oracle.network.contention import alone
from oracle.network.contention.line import Offer
from oracle.network.host import link_line
from oracle.plan.mesh import Groups, Pattern, Slice
from oracle.spec.doubt import FOLD
from oracle.spec.options import Options
from oracle.spec.system import System

NOTHING = Offer()
Lines = Callable[..., Offer]  # contention.lines or contention.alone


class Menu(list[Offer]):
    """The lines on offer to each pattern of groups."""

    @cached_property
    def lines(self) -> tuple[Array, Array, tuple[tuple[Any, ...], ...]]:
        """Numbers of the cheapest of each pattern, (8, patterns, lines), and what they are.

        The rest is which (algorithm, links that set the pace, origin) each line has.
        """
        line_numbers: dict[tuple[str, tuple[str, ...], str], int] = {}
        line_count = max(1, *(len(offer.cheapest) for offer in self))
        table = np.zeros((8, len(self), line_count))
        table[5] = np.inf
        index = np.zeros((len(self), line_count), int)
        for i, offer in enumerate(self):
            count = len(offer.cheapest)
            table[:, i, :count], table[0, i, max(count, 1) :] = offer.numbers, np.inf  # no line
            for j, line in enumerate(offer.cheapest):
                key = line.algorithm, line.full, line.origin
                index[i, j] = line_numbers.setdefault(key, len(line_numbers))
        return table, index, tuple(zip(*line_numbers, strict=True)) if line_numbers else ((),) * 3


def senders(message: Message, groups: Groups) -> Slice:
    """The groups that send a message to each other, or each device by itself over its own link."""
    return groups.of(message) if message.over == "mesh" else groups.own


def menu_of(
    message: Message, sender_groups: Slice, system: System, options: Options, lines: Lines
) -> Menu:
    """The lines on offer to each pattern of groups that send a message."""
    if message.over != "mesh":
        return Menu([Offer([link_line(system, message.over, message.what)])])
    key = (message.op, message.by) if message.by else message.op
    if key not in sender_groups.menus:
        by = message.by or options.algorithm
        sender_groups.menus[key] = Menu(
            _copied(lines(system, message.op, pattern, devices, by), message, pattern, options)
            if pattern else NOTHING for pattern, devices in sender_groups.patterns
        )  # fmt: skip
    menu: Menu = sender_groups.menus[key]
    return menu


def _copied(offer: Offer, message: Message, pattern: Pattern, options: Options) -> Offer:
    """What goes to servers and back no faster than the software copies it, as a spec says."""
    exchange_spec, way = (
        options.software.exchange,
        named(message.op, message.by) if message.by else None,
    )
    if (
        options.ideal
        or not isinstance(way, Servers)
        or not (exchange_spec.connection or exchange_spec.process)
    ):
        return offer
    p = float(np.prod([size for size, _ in pattern]))
    copy_seconds = float(way.copied(p, exchange_spec.connection, exchange_spec.process))
    return Offer(replace(line, per_byte=max(line.per_byte, copy_seconds)) for line in offer)


def negotiated(sender_groups: Slice, system: System, times: int) -> Array:
    """Seconds in which ranks agree so often on what all have ready, (plans, 1).

    T = times ⌈log₂p⌉ α        recursive doubling among hosts, α of the level that spans them
    """
    starts = [
        alone(system, "allreduce", pattern, devices, "recursive_doubling")[0].start
        if pattern and times else 0.0
        for pattern, devices in sender_groups.patterns
    ]  # fmt: skip
    return times * np.asarray(starts)[sender_groups.row][:, None]


@dataclass(frozen=True)
class Chosen:
    """The cheapest line of each plan's menu: seconds of a call, and what is known of it."""

    seconds: Array  # (plans, senders) of one call
    best: Array  # (plans,) index into the tuples, of the line at the largest size
    names: tuple[str, ...]
    full: tuple[tuple[str, ...], ...]
    origins: tuple[str, ...]
    phi: Array  # (plans,)
    rough: Array
    short: Array
    outside: Array


def cheapest(menu: Menu, row: Array, nbytes: Array) -> Chosen:
    """The cheapest line at each size, and which it was at the largest."""
    table, index, (names, full, origins) = menu.lines
    largest = nbytes.max(axis=-1, initial=0.0)
    start, slope = table[:2, row]  # (plans, lines)
    seconds = slope[:, :1] * nbytes + start[:, :1]
    for j in range(1, table.shape[-1]):
        np.minimum(seconds, slope[:, j : j + 1] * nbytes + start[:, j : j + 1], out=seconds)
    cheapest_line = np.argmin(start + slope * largest[:, None], axis=-1)
    best = index[row, cheapest_line]
    _, _, phi, rough, low, high, outside, short = table[:, row, cheapest_line]
    # a line serves other sizes than it was fitted to, with more doubt the farther they are
    beyond = np.maximum(np.maximum(low / np.maximum(largest, 1.0), largest / high), 1.0)
    rough = rough + FOLD * np.log(beyond)
    unseen = (outside > 0) | (beyond > 1 + 1e-9)
    return Chosen(seconds, best, names, full, origins, phi, rough, short, unseen)


def as_logged(
    chosen: Chosen, factors: Factors, sent: Slice, node: int
) -> tuple[Chosen, NDArray[np.bool_], NDArray[np.bool_]]:
    """The same as much slower as logged runs found messages to be, inside a node and between.

    With it, whether each plan's is of a run's factor, and whether it is sent between nodes.
    """
    between = np.array([leaves(pattern, node) for pattern, _ in sent.patterns], bool)[sent.row]
    times, logged, doubt = factors.sent(between)
    slower = replace(
        chosen, seconds=chosen.seconds * times[:, None],
        rough=np.where(logged, doubt, chosen.rough),
        short=np.where(logged, 0.0, chosen.short),
    )  # fmt: skip
    return slower, logged, between


def leaves(pattern: Any, node: int) -> bool:
    """Whether a group has devices in more than one node: some of them lie that far apart."""
    return bool(sum((size - 1) * stride for size, stride in pattern) >= node)
