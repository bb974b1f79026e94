"""What a sweep asks: every model on every system, at every size, under every what-if factor.

A grid is data that fits into JSON, so any process that is given the same grid counts the same
points in the same order and can take any of them.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from oracle.ask.sweep.ways import BEST, family, template
from oracle.kernels.profile import profile
from oracle.plan.launchable import software
from oracle.spec.document import refusal
from oracle.spec.what_if import supposed

MOST_POINTS = 1_000_000


class Point(NamedTuple):
    """One question of a sweep."""

    number: int
    model: str
    system: str
    what_if: str  # "" or "network=2,memory=0.5"
    way: str  # "best", "each:data+filter", "plan:data:* filter:4"
    devices: int
    batch: int


@dataclass(frozen=True)
class Grid:
    """All questions of a sweep: lists whose product it is, and options that hold for all."""

    models: tuple[str, ...]
    systems: tuple[str, ...]
    devices: tuple[int, ...]
    batches: tuple[float, ...]
    per_device: bool = False  # batches are per device, so the global batch grows with devices
    what_ifs: tuple[str, ...] = ("",)
    ways: tuple[str, ...] = (BEST,)
    dataset: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    ideal: bool = False
    max_memory: float | None = None
    gamma: float = 1.0
    algorithm: str | None = None
    objective: str = "time"
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    profile: str | None = None  # a file of measured rows
    software: str | None = None  # that runs the training
    any_plan: bool = False  # plans too that it cannot be told
    reading: str = "best"  # how samples are got
    shuffle: str = "global"
    epochs: float | None = None
    grow: bool = False  # the system's outermost level, to as many devices as are asked for
    workspace: str | None = None  # of a convolution

    def __post_init__(self) -> None:
        for name in ("models", "systems", "devices", "batches", "what_ifs", "ways"):
            if not getattr(self, name):
                raise refusal("sweep", f"a sweep over no {name.replace('_', '-')} at all")
        if len(self) > MOST_POINTS:
            raise refusal(
                "sweep", f"{len(self)} points are more than {MOST_POINTS}", "a coarser range"
            )

    def __len__(self) -> int:
        return math.prod(map(len, self._lists))

    @property
    def _lists(self) -> tuple[tuple[Any, ...], ...]:
        return (self.models, self.systems, self.what_ifs, self.ways, self.batches, self.devices)

    def points(self) -> Iterator[Point]:
        """Every point, numbered; devices run fastest."""
        for number, each in enumerate(itertools.product(*self._lists)):
            yield self._point(number, each)

    def point(self, number: int) -> Point:
        """The point of that number, without walking to it."""
        left, each = number, []
        for values in reversed(self._lists):
            left, at = divmod(left, len(values))
            each.append(values[at])
        return self._point(number, tuple(reversed(each)))

    def _point(self, number: int, each: tuple[Any, ...]) -> Point:
        model, system, what_if, way, batch, devices = each
        size = max(1, round(batch * devices)) if self.per_device else int(batch)
        return Point(number, model, system, what_if, way, devices, size)

    def to_dict(self) -> dict[str, Any]:
        """The grid as JSON holds it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Grid:
        """The grid that `to_dict` wrote."""
        known = {f.name for f in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known
        }
        return cls(**given)

    def check(self) -> None:
        """Open every spec, read every factor, plan and strategy; a SpecError says what is wrong."""
        from oracle.models.model import model as load_model
        from oracle.predict.defaults import options_for
        from oracle.spec import catalogue

        for name in self.systems:
            for factors in self.what_ifs:
                supposed(catalogue.system(name), factors)
        for name in self.models:
            found = load_model(name, self.dataset)
            options_for(found, catalogue.system(self.systems[0]), self.precision, self.optimizer,
                        profile=self.profile, software=self.software, reading=self.reading,
                        shuffle=self.shuffle, epochs=self.epochs,
                        workspace=self.workspace, any_plan=True)  # fmt: skip
        for way in self.ways:
            kind, _, text = way.partition(":")
            if kind == "each":
                family(text)
            elif kind == "plan":
                template(text, None, 1)

    def fingerprint(self) -> dict[str, str]:
        """A hash of every spec's content: a resumed sweep must not mix two versions of one."""
        from oracle.models.model import model as load_model
        from oracle.spec import catalogue

        found = {f"model {n}": repr(load_model(n, self.dataset)) for n in self.models}
        found |= {f"system {n}": repr(catalogue.system(n)) for n in self.systems}
        if self.profile is not None:
            found |= {f"profile {self.profile}": repr(profile(self.profile))}
        if self.software is not None:
            found |= {f"software {self.software}": repr(software(self.software))}
        return {k: hashlib.sha256(v.encode()).hexdigest()[:16] for k, v in sorted(found.items())}


_RANGE = re.compile(r"(\d{1,8})\.\.(\d{1,8})(?::(all|\d{1,8}))?", re.ASCII)


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers as one writes them: a list, doublings, every one, or every k-th.

    >>> numbers("8,16,24"), numbers("1..16"), numbers("3..6:all"), numbers("8..32:8")
    ((8, 16, 24), (1, 2, 4, 8, 16), (3, 4, 5, 6), (8, 16, 24, 32))
    """
    found: list[int] = []
    for word in text.replace(",", " ").split():
        if re.fullmatch(r"[0-9]{1,16}", word) and 0 < int(word) < 2**53:
            found.append(int(word))
            continue
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2])) if match else (0, 0)
        if match is None or not 0 < first <= last:
            hint = "write `8,16,24`, `1..1024` (doubling), `1..64:all` or `8..64:8`"
            raise refusal("sweep", f"cannot read `{word}`", hint)
        if match[3] is None:
            found += [first * 2**i for i in range(64) if first * 2**i <= last]
        else:
            step = 1 if match[3] == "all" else int(match[3])
            if step < 1 or (last - first) // step > MOST_POINTS:
                raise refusal("sweep", f"`{word}` is not a range of at most {MOST_POINTS}")
            found += range(first, last + 1, step)
    return tuple(dict.fromkeys(found))


def sizes(text: str) -> tuple[float, ...]:
    """Samples per device: as `numbers`, or fractions where devices share a sample."""
    try:
        values = tuple(float(word) for word in text.replace(",", " ").split())
    except ValueError:
        return tuple(map(float, numbers(text)))
    if not values or not all(0 < value < 1e12 for value in values):
        raise refusal(
            "sweep", f"`{text}` is not a list of samples per device", "e.g. `32` or `0.25,1,4`"
        )
    return tuple(dict.fromkeys(values))


def words(values: Sequence[str]) -> str:
    """A list as one writes it."""
    return ", ".join(values)
