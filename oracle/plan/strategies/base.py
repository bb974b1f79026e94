"""What a parallel strategy is. Each file beside this one defines one, and says all about it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message

MOST_DEVICES = 2**24


def words(*choices: str, default: str = "", alone: bool = False, rare: bool = False) -> Any:
    """A knob that takes one of these words; inside it is the word's number.

    `alone`: it does something by itself, where the degree is one. `rare`: software cannot be told
    it unless its spec says so.
    """
    column = words_of(choices, default, alone)
    return field(default=column.default, metadata={**column.metadata, "rare": rare})


def words_of(choices: Sequence[str], default: str = "", alone: bool = False) -> Any:
    """The same of a list that others may add words to."""
    start = choices.index(default) if default else 0
    return field(default=start, metadata={"words": choices, "alone": alone})


def words_or(form: str, *choices: str, rare: bool = False) -> Any:
    """A knob that takes one of these words, or a text of this form, which has a number too."""
    words_known = {"words": choices, "alone": False, "form": form, "rare": rare}
    return field(default=0, metadata=words_known)


_TEXTS: dict[str, int] = {}  # that knobs have been given beside their words, by number


def number_of(text: str, choices: Sequence[str]) -> float:
    """The number of a text that is none of a knob's words."""
    return float(len(choices) + _TEXTS.setdefault(text, len(_TEXTS)))


def text_of(number: float, choices: Sequence[str]) -> str:
    """The word or text that has this number."""
    word_number = int(number)
    return (
        choices[word_number]
        if word_number < len(choices)
        else list(_TEXTS)[word_number - len(choices)]
    )


def count(
    default: int = 1, alone: bool = False, micro_batches: bool = False, rare: bool = False
) -> Any:
    """A knob that takes a whole number; `micro_batches`: into how many a device's batch is cut."""
    metadata = {"alone": alone, "micro_batches": micro_batches, "rare": rare}
    return field(default=default, metadata=metadata)


def part(default: float) -> Any:
    """A knob that takes a part of a whole, above 0 and up to 1."""
    return field(default=default, metadata={"part": True})


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit of plans: what each wants, what is allowed, and how it reads where it is broken."""

    wanted: Array  # (plans,)
    allowed: Array
    says: Callable[[float, float], str]
    room: bool = False  # what is wanted are bytes somewhere

    def take(self, rows: Array) -> Rule:
        """The same of some plans."""
        return Rule(self.wanted[rows], self.allowed[rows], self.says, self.room)

    @classmethod
    def most(cls, complaint: str, needed: Array, allowed: Array, bound: str) -> Rule:
        """`data degree 512 is more than the 256 samples in the batch`."""
        if np.shape(needed) != np.shape(allowed):
            needed, allowed = np.broadcast_arrays(needed, allowed)

        def says(want: float, allowed: float) -> str:
            return f"{complaint} {want:g} is more than the {allowed:g} {bound}"

        return cls(needed[:, 0], allowed[:, 0], says)

    @classmethod
    def never(cls, broken: Array, complaint: str) -> Rule:
        """What must not be, in words."""
        broken = np.asarray(broken)[:, 0] * 1.0
        return cls(broken, np.zeros(len(broken)), lambda want, most: complaint)


@dataclass(frozen=True)
class Strategy(ABC):
    """One axis of parallelism, `degree` devices wide. At degree 1 it changes nothing.

    All that others want to know of a strategy stands here and in its file: search asks `tries`,
    the parser `degree_of` and `clashes`, the executor `unrun`, explanations `whole`.
    """

    degree: Array = count()

    name: ClassVar[str]
    letters: ClassVar[str] = ""  # in a short name, `DP`; else the name itself
    source: ClassVar[str]  # citation key and place: "kahira2021, Table III"
    nearness: ClassVar[int]  # talks most, sits closest: the search nests by this
    bound: ClassVar[str]  # what its limit counts: "samples in the batch"
    limited_by: ClassVar[tuple[str, ...]] = ()  # what holds it back, in the words of `explain`
    leaves: ClassVar[str] = ""  # why it leaves rows whole
    multiplies: ClassVar[bool] = True  # takes devices of its own
    degrees: ClassVar[bool] = True  # is written with a degree
    as_grid: ClassVar[bool] = False  # may be written as a grid, `2x2`
    by_hand: ClassVar[tuple[str, ...]] = ()  # axes beside which a search leaves it to the user
    places: ClassVar[bool] = False  # says where a job runs: a matter of its launch, not of software
    resort: ClassVar[bool] = False  # searched where nothing fits without it, or it is asked for
    deals_batch: ClassVar[bool] = False  # each of its devices has samples of its own
    cuts_samples: ClassVar[bool] = False  # each of them needs but a part of a sample's extents
    speaks_for_all: ClassVar[bool] = False  # talks at degree 1 too, for replicas others made
    timing: ClassVar[tuple[str, ...]] = ()  # knobs that change when things happen, not what
    # knobs of the training state: they change how often a message is sent, but no row and no bytes
    state_knobs: ClassVar[tuple[str, ...]] = ()
    stage_knobs: ClassVar[tuple[str, ...]] = ()  # knobs that say which rows a device has
    # what the executor runs: knobs, or a knob's words, `halo=pairwise`; None: nothing of it
    runs: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()

    @abstractmethod
    def limit(self, model: Model, batch: Array) -> Array | float:
        """The largest degree that leaves every device some work."""

    @abstractmethod
    def split(self, shard: Shard) -> Shard:
        """What one device is left with."""

    @abstractmethod
    def talk(self, shard: Shard) -> list[Message]:
        """What it must exchange each iteration, once all strategies have split."""

    def whole(self, model: Model) -> list[str]:
        """Rows this strategy leaves whole because it cannot cut them."""
        return []

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        """What plans may not do with it, alone and `axes` the other axes."""
        if self.wide or self.state_knobs or self.batch_knobs():
            limit = np.broadcast_to(self.limit(model, batch), np.shape(batch))
            yield Rule.most(f"{self.name} degree", self.degree, limit, self.bound)

    def copied(self, model: Model) -> Array:
        """(plans, rows) weights that devices hold beside others that have them already."""
        return np.zeros((1, len(model)))

    def cuts_layers(self) -> Array:
        """Plans in which devices have but a part of a layer, or of its gradient."""
        return np.asarray(np.asarray(self.degree) > 1)

    def clashes(self, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(what is wrong, what to write) of one plan as a text has it."""
        return iter(())

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Values of each knob worth searching, the plain one first.

        Degrees are tried by their limit, micro-batches by their size.
        """
        values = {}
        for name, knob in cls.knobs().items():
            if choices := knob.metadata.get("words"):
                plain = float(knob.default)
                rest = (float(i) for i in range(len(choices)) if i != plain)
                values[name] = (plain, *rest)
        return values

    @classmethod
    def dear(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Values of knobs that take long to price: tried of the best plans alone."""
        return {}

    @classmethod
    def lossy(cls) -> list[dict[str, float]]:
        """Settings that change what is learned: tried beside the others where that is allowed."""
        return []

    @classmethod
    def resorts(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Further values of knobs, tried where nothing fits without them."""
        return {}

    @classmethod
    def unnamed(cls) -> dict[str, tuple[float, ...]]:
        """Values of knobs that are tried only where software is named, which then knows them."""
        return {}

    def unusual(self, model: Model) -> Array:
        """Plans that those who train such models do not run, though they may be fast."""
        return np.zeros_like(np.asarray(self.degree), bool)

    @classmethod
    def spares(cls, model: Model) -> dict[str, float]:
        """Values of knobs that need the least memory."""
        return {}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The degree and the knobs: what `dataclasses.fields` says, at no cost."""
        return cls.__match_args__

    @classmethod
    def knobs(cls) -> dict[str, Any]:
        """The fields beside the degree."""
        return {f.name: f for f in fields(cls) if f.name != "degree"}

    @classmethod
    def row_knobs(cls) -> list[str]:
        """Knobs that may change what a device has of a row."""
        left_out = (*cls.timing, *cls.state_knobs, *cls.stage_knobs, *cls.batch_knobs())
        return [name for name in cls.knobs() if name not in left_out]

    @classmethod
    def batch_knobs(cls) -> tuple[str, ...]:
        """Knobs that cut the batch of a device into micro-batches, and do no more."""
        knobs = cls.knobs().items()
        return tuple(name for name, knob in knobs if knob.metadata.get("micro_batches"))

    def says(self, knob: str, word: str) -> Array:
        """Where a knob that takes words has this one."""
        return np.asarray(np.asarray(getattr(self, knob)) == self.number(knob, word))

    @classmethod
    def number(cls, knob: str, word: str) -> int:
        """The number of a knob's word."""
        choices: Sequence[str] = cls.__dataclass_fields__[knob].metadata["words"]
        return choices.index(word)

    def word(self, knob: str) -> str:
        """The value of a knob of one plan, as the plan's text has it."""
        value = float(np.ravel(getattr(self, knob))[0])
        choices = self.knobs()[knob].metadata.get("words")
        return text_of(value, choices) if choices else f"{value:g}"

    def turned(self) -> dict[str, str]:
        """Knobs of one plan that are not as they would be if nobody said them."""
        return {
            name: self.word(name)
            for name, knob in self.knobs().items()
            if float(np.ravel(getattr(self, name))[0]) != knob.default
        }

    @property
    def wide(self) -> bool:
        """Whether any plan has several devices along it."""
        return bool(np.any(np.asarray(self.degree) > 1))

    @property
    def active(self) -> bool:
        """Whether one plan uses it at all."""
        wide = self.degrees and float(np.ravel(self.degree)[0]) > 1
        alone = {n for n, knob in self.knobs().items() if knob.metadata.get("alone")}
        return wide or bool(set(self.turned()) & (alone if self.degrees else set(self.turned())))

    def unrun(self) -> Iterator[str]:
        """What the executor cannot run of one plan, in words."""
        if not self.active:
            return
        if self.runs is None:
            yield f"the strategy `{self.name}` is priced but not run"
            return
        yield from self.unrun_of(self.runs)

    def unrun_of(self, runs: Sequence[str], who: str = "") -> Iterator[str]:
        """What nobody runs who runs these knobs, or words of knobs; `who` says by whom."""
        run_words = {entry.partition("=")[0] for entry in runs}
        for knob, value in self.turned().items():
            words = (
                f"{self.name}:{value}" if not self.degrees else f"`{self.name}` with {knob}={value}"
            )
            unrun = [e.partition("=")[2] for e in runs if e.startswith(f"{knob}=")]
            if knob not in run_words:
                yield f"{words} is priced but not run{who and ' ' + who}"
            elif unrun and value not in unrun:
                can = [f"{self.name}:{o}" if not self.degrees else f"{knob}={o}" for o in unrun]
                are = f"{' and '.join(can)} {'are' if len(can) > 1 else 'is'}"
                yield f"{words} is not run{who and ' ' + who}; {are}"

    @classmethod
    def degree_of(cls, text: str) -> dict[str, float] | None:
        """The fields that a degree as written sets; None where it is none."""
        if not re.fullmatch(r"[1-9][0-9]{0,7}", text) or int(text) > MOST_DEVICES:
            return None
        return {"degree": float(text)}

    def degree_text(self) -> str:
        """The degree of one plan as it is written."""
        return f"{float(np.ravel(self.degree)[0]):g}"

    def hidden(self) -> Sequence[str]:
        """Knobs that the written degree says already."""
        return ()

    def mapped(self, change: Callable[[Array], Array]) -> Self:
        """The same with every number changed."""
        return type(self)(*[change(getattr(self, name)) for name in self.names()])
