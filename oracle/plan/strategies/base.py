"""What a parallel strategy is. Each file beside this one defines one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message


def words(*choices: str, default: str = "") -> Any:
    """A knob that takes one of these words; inside it is the word's number."""
    return field(default=choices.index(default) if default else 0, metadata={"words": choices})


@dataclass(frozen=True)
class Strategy(ABC):
    """One axis of parallelism, `degree` devices wide. At degree 1 it changes nothing."""

    degree: Array = 1

    name: ClassVar[str]
    source: ClassVar[str]  # citation key and place: "kahira2021, Table III"
    nearness: ClassVar[int]  # talks most, sits closest: the search nests by this
    bound: ClassVar[str]  # what its limit counts: "samples in the batch"
    limited_by: ClassVar[tuple[str, ...]] = ()  # what holds it back, in the words of `explain`
    multiplies: ClassVar[bool] = True  # takes devices of its own
    degrees: ClassVar[bool] = True  # is written with a degree
    timing: ClassVar[tuple[str, ...]] = ()  # knobs that change when things happen, not what

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()

    @abstractmethod
    def limit(self, model: Model, batch: Array) -> Array:
        """The largest degree that leaves every device some work."""

    @abstractmethod
    def split(self, shard: Shard) -> Shard:
        """What one device is left with."""

    @abstractmethod
    def talk(self, shard: Shard) -> list[Message]:
        """What it must exchange each iteration, once all strategies have split."""

    def says(self, knob: str, word: str) -> Array:
        """Where a knob that takes words has this one."""
        choices = {f.name: f.metadata.get("words", ()) for f in fields(self)}[knob]
        return np.asarray(getattr(self, knob)) == choices.index(word)

    def word(self, knob: str) -> str:
        """The word of a knob, of a table of one plan."""
        choices = {f.name: f.metadata.get("words", ()) for f in fields(self)}[knob]
        return str(choices[int(np.ravel(getattr(self, knob))[0])])

    def whole(self, model: Model) -> list[str]:
        """Rows this strategy leaves whole because it cannot cut them."""
        return []
