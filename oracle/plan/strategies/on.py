"""Partitions of a system that a job runs on, and what share of the batch each takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, text_of, words_or

PARTS = r"[1-8](/[1-8]){0,7}"
SHARES = r"[1-9][0-9]{0,5}(/[1-9][0-9]{0,5}){1,7}"


@dataclass(frozen=True)
class On(Strategy):
    """Put the first ranks on one partition, those after them on the next, and so on.

        T = max_k (S_k (FW_k + BW_k) + …)    unlike replicas wait for the slowest
        B_k = B s_k / Σ s                    samples of a replica on partition k

    `on:2/1` fills the second partition of the system, then the first; `on:2` leaves the others
    alone. `shares=2/1` gives a replica on the first of them two samples for each that one on the
    second has, in micro-batches of one size; a replica on several has the smallest of their shares.
    """

    parts: Array = words_or(PARTS, "all")
    shares: Array = words_or(SHARES, "even", rare=True)

    source = "park2020, §4; jia2022, §4"
    nearness = -1
    bound = ""
    limited_by = ("workload balance",)
    multiplies = False
    degrees = False
    places = True

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """What there is to try is the system's to say."""
        return {}

    def clashes(self, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        order, shares = self.order(), self.weights()
        if len({*order}) < len(order):
            yield "a partition stands twice", "each once, as in `on:2/1`"
        if order and shares and len(order) != len(shares):
            yield f"{len(shares)} shares for {len(order)} partitions", "one for each"

    def order(self, row: int = 0) -> tuple[int, ...]:
        """The partitions of one plan, by number; none where it has all of them as they come."""
        return _numbers(float(np.ravel(self.parts)[row]), "parts")

    def weights(self, row: int = 0) -> tuple[int, ...]:
        """The shares of one plan's partitions; none where all replicas have as much."""
        return _numbers(float(np.ravel(self.shares)[row]), "shares")

    def limit(self, model: Model, batch: Array) -> Array | float:
        return np.inf

    def split(self, shard: Shard) -> Shard:
        return shard

    def talk(self, shard: Shard) -> list[Message]:
        return []


def _numbers(value: float, knob: str) -> tuple[int, ...]:
    if not value:
        return ()
    choices = On.__dataclass_fields__[knob].metadata["words"]
    return tuple(int(number) for number in text_of(value, choices).split("/"))
