"""What is alive when a plan needs most memory: on which stage, when, of which layers, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oracle.ask.progress import counted
from oracle.predict.allocation import Timeline, timeline
from oracle.predict.estimate import Estimate, estimate
from oracle.predict.fragmentation import Reserved, reserved
from oracle.spec.allocator import Allocator
from oracle.spec.document import SpecError
from oracle.spec.tabular import Tabular
from oracle.spec.units import show

WORTH = 0.02  # of a plan's bytes, the least that a hint saves
HINTS = 4


@dataclass(frozen=True, slots=True)
class Holding:
    """Tensors of one kind, layer and purpose that are alive at the peak."""

    kind: str
    layer: str
    what: str
    count: int
    nbytes: float

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "layer": self.layer, "what": self.what, "count": self.count,
                "bytes": self.nbytes}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hint:
    """A change of one word that lowers the most, and what it costs."""

    plan: str
    nbytes: float  # of memory that it needs then
    seconds: float
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        return {"plan": self.plan, "memory": self.nbytes, "seconds": self.seconds,
                "fits": self.fits}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Peak(Tabular):
    """The worst moment of a plan's iteration."""

    plan: str
    found: Timeline
    reserve: float  # bytes that libraries and the allocator have beside all tensors
    capacity: float
    blocks: dict[str, Reserved]  # by what the segments of the allocator are like
    holdings: tuple[Holding, ...]  # the largest first
    hints: tuple[Hint, ...] = field(default=())

    @property
    def tensors(self) -> float:
        """Bytes of all tensors at the peak."""
        return float(self.found.total[self.found.peak])

    @property
    def total(self) -> float:
        return self.tensors + self.reserve

    def says(self) -> str:
        """How much, and when."""
        return f"{self.plan}: {show(self.total, 'B')} of {show(self.capacity, 'B')}, {self.when}"

    @property
    def when(self) -> str:
        return self.found.during(self.found.peak)

    @property
    def seconds(self) -> float:
        return float(self.found.seconds[self.found.peak])

    def by(self, what: str) -> dict[str, float]:
        """Bytes of each `kind` or `layer`, the largest first."""
        found: dict[str, float] = {}
        for one in self.holdings:
            name = getattr(one, what)
            found[name] = found.get(name, 0.0) + one.nbytes
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        turn = int(self.found.turn[self.found.peak])
        kind, micro, chunk = self.found.turns[turn] if turn >= 0 else ("update", None, None)
        return {
            "plan": self.plan, "stage": self.found.stage, "stages": self.found.stages,
            "seconds": self.seconds, "iteration": self.found.end,
            "pass": kind, "micro_batch": micro, "chunk": chunk, "during": self.when,
            "total": self.total, "tensors": self.tensors, "reserve": self.reserve,
            "capacity": self.capacity, "kinds": self.by("kind"), "layers": self.by("layer"),
            "alive": [one.to_dict() for one in self.holdings],
            "allocator": {name: {"tensors": one.tensors, "reserved": one.reserved,
                                 "pinned": one.pinned, "share": one.share}
                          for name, one in self.blocks.items()},
            "hints": [one.to_dict() for one in self.hints],
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for what each layer has of each kind."""
        return [{"plan": self.plan, "stage": self.found.stage, **one.to_dict()}
                for one in self.holdings]  # fmt: skip


def peak(shown: Estimate, row: int = 0, hints: bool = True) -> Peak:
    """One plan of an estimate at its worst moment."""
    found = timeline(shown, row)
    held: dict[tuple[str, str, str], tuple[int, float]] = {}
    for tensor, count in found.alive(found.peak):
        key = tensor.kind, tensor.layer, tensor.what
        many, nbytes = held.get(key, (0, 0.0))
        held[key] = many + count, nbytes + count * tensor.nbytes
    holdings = [Holding(*key, many, nbytes) for key, (many, nbytes) in held.items()]
    return Peak(
        shown.plans[row], found,
        float(shown.memory_kinds["reserve"][row]),
        float(shown.capacity[row]),
        {"fixed": reserved(found, Allocator()),
         "expandable": reserved(found, Allocator(expandable=True))},
        tuple(sorted(holdings, key=lambda one: -one.nbytes)),
        tuple(_hints(shown, row)) if hints else (),
    )  # fmt: skip


def _hints(shown: Estimate, row: int) -> list[Hint]:
    """Single words that make the plan need less, those that fit first, then the fastest."""
    own = float(shown.memory[row])
    room = float(shown.capacity[row])
    found = []
    for text in counted(dict.fromkeys(_turned(shown.plans[row]))):
        try:
            one = estimate(shown.model, shown.system, text, float(shown.batch[row]), shown.options)
        except SpecError:
            continue
        needs = float(one.memory[0])
        if needs < own * (1 - WORTH) and not any(_other(words) for words in one.broken[0]):
            found.append(Hint(text, needs, float(one.seconds[0]), needs <= room))
    return sorted(found, key=lambda one: (not one.fits, one.seconds))[:HINTS]


def _other(words: str) -> bool:
    """Whether a plan breaks more than its device's memory."""
    return not (words.startswith("needs ") and " a device" in words)


def _turned(plan: str) -> Iterator[str]:
    """A plan's text with one word changed."""
    words = [word for word in plan.split() if word != "serial"]
    names = [word.split(":")[0] for word in words]
    rest = [word for word in words if not word.startswith("recompute:")]
    for mode in ("selective", "full"):
        yield " ".join([*rest, f"recompute:{mode}"])
    for at, (name, word) in enumerate(zip(names, words, strict=True)):
        degree, *knobs = word.split(":", 1)[1].split(",")
        said = dict(knob.partition("=")[::2] for knob in knobs)
        for knob, values in _tries(name, degree, said):
            for value in values:
                told = {**said, knob: value}.items()
                turned = ",".join([f"{name}:{degree}", *(f"{k}={v}" for k, v in told)])
                yield " ".join([*words[:at], turned, *words[at + 1 :]])
    if "offload" not in names:
        yield " ".join([*words, "offload:optimizer"])


def _tries(name: str, degree: str, said: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    if name == "data" and degree != "1":
        yield "zero", [z for z in "123" if z > said.get("zero", "0")]
    if name == "data" and "accumulate" in said and said["accumulate"].isdecimal():
        yield "accumulate", [str(2 * int(said["accumulate"]))]
    if name == "pipeline" and said.get("segments", "").isdecimal():
        yield "segments", [str(2 * int(said["segments"]))]
