"""What the network offers for a message, and the cheapest of it at each size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oracle.models.shard import Array
from oracle.network.collectives import Message
from oracle.network.contention.line import Offer
from oracle.network.host import link_line
from oracle.plan.mesh import Groups, Slice
from oracle.spec.doubt import FOLD
from oracle.spec.options import Options
from oracle.spec.system import System

NOTHING = Offer()
Lines = Callable[..., Offer]  # contention.lines or contention.alone
Menu = list[Offer]  # of each pattern of groups


def senders(message: Message, groups: Groups) -> Slice:
    """The groups that send a message to each other, or each device by itself over its own link."""
    return groups.of(message) if message.over == "mesh" else groups.own


def menu_of(message: Message, found: Slice, system: System, options: Options, lines: Lines) -> Menu:
    """The lines on offer to each pattern of groups that send a message."""
    if message.over != "mesh":
        return [Offer([link_line(system, message.over, message.what)])]
    return [
        lines(system, message.op, pattern, devices, options.algorithm) if pattern else NOTHING
        for pattern, devices in found.patterns
    ]  # fmt: skip


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
    known: dict[tuple[str, tuple[str, ...], str], int] = {}
    most = max(1, *(len(offer.cheapest) for offer in menu))
    table = np.zeros((8, len(menu), most))
    table[5] = np.inf
    index = np.zeros((len(menu), most), int)
    for i, offer in enumerate(menu):
        count = len(offer.cheapest)
        table[:, i, :count], table[0, i, max(count, 1) :] = offer.numbers, np.inf  # no line
        for j, line in enumerate(offer.cheapest):
            key = line.algorithm, line.full, line.origin
            index[i, j] = known.setdefault(key, len(known))
    largest = nbytes.max(axis=-1, initial=0.0)
    start, slope = table[:2, row]  # (plans, lines)
    seconds = slope[:, :1] * nbytes + start[:, :1]
    for j in range(1, most):
        np.minimum(seconds, slope[:, j : j + 1] * nbytes + start[:, j : j + 1], out=seconds)
    at = np.argmin(start + slope * largest[:, None], axis=-1)
    best = index[row, at] if known else np.zeros(len(row), int)
    names, full, origins = (
        (tuple(column) for column in zip(*known, strict=True)) if known else ((),) * 3
    )
    _, _, phi, rough, low, high, outside, short = table[:, row, at]
    # a line serves other sizes than it was fitted to, with more doubt the farther they are
    beyond = np.maximum(np.maximum(low / np.maximum(largest, 1.0), largest / high), 1.0)
    rough = rough + FOLD * np.log(beyond)
    unseen = (outside > 0) | (beyond > 1 + 1e-9)
    return Chosen(seconds, best, names, full, origins, phi, rough, short, unseen)
