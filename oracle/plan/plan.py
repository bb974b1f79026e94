"""A plan: which strategies, how wide, outermost first. Or a whole table of plans.

    data:16 filter:4
    pipeline:8,segments=64,schedule=1f1b,interleave=2 data:16,zero=1 tensor:8,sequence=on
    recompute:selective            serial

One grammar serves the command line, files, `str(plan)` and tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from oracle.models.shard import Array
from oracle.plan.strategies import Strategy, strategies
from oracle.spec.document import Fault, Place, SpecError, suggest

MOST_DEVICES = 2**24


@dataclass(frozen=True)
class Plan:
    """Columns of equal length n, each shaped (n, 1): one row is one way to train."""

    batch: Array  # global batch, samples per iteration
    axes: tuple[Strategy, ...]  # every known strategy, outermost first; degree 1 if not asked for

    @classmethod
    def of(cls, batch: Array, *axes: Strategy) -> Plan:
        """Axes outermost first; those not named have degree 1 and move nobody, so sit innermost.

        Any number may be an array; all are broadcast to one length.
        """
        given = {type(axis) for axis in axes}
        axes = (*axes, *(new() for new in strategies().values() if new not in given))
        values = [batch, *(getattr(a, f.name) for a in axes for f in fields(a))]
        columns = np.broadcast_arrays(*(np.reshape(v, -1) for v in values))
        column = iter([c.astype(float)[:, None] for c in columns])
        return cls(next(column), tuple(_map(a, lambda _: next(column)) for a in axes))

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, rows: Any) -> Plan:
        return Plan(self.batch[rows], tuple(_map(a, lambda c: c[rows]) for a in self.axes))

    def axis(self, name: str) -> Any:
        return next(axis for axis in self.axes if axis.name == name)

    @cached_property
    def lean(self) -> tuple[Strategy, ...]:
        """The axes, with one number for a column of equal ones: what does not vary costs once."""
        return tuple(_map(a, lambda c: c[:1] if (c == c[0]).all() else c) for a in self.axes)

    @property
    def devices(self) -> Array:
        return np.prod([a.degree for a in self.axes if a.multiplies], axis=0)

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def columns(self, keep: Callable[[Strategy, str], bool] = lambda axis, knob: True) -> Array:
        """(n, k) numbers that tell the rows apart, of the knobs `keep` wants."""
        wanted = [
            getattr(axis, f.name) for axis in self.axes for f in fields(axis) if keep(axis, f.name)
        ]
        return np.hstack([self.batch, *wanted])

    def text(self, row: int = 0) -> str:
        """One row in the form the command line reads."""
        words = []
        for axis in self.axes:
            one = _map(axis, lambda c: c[row, 0])
            if text := _axis_text(one):
                words.append(text)
        return " ".join(words) or "serial"

    def __str__(self) -> str:
        return self.text()


def _map(axis: Strategy, change: Callable[[Array], Array]) -> Strategy:
    return type(axis)(*(change(getattr(axis, f.name)) for f in fields(axis)))


def _knobs(cls: type[Strategy]) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(cls) if f.name != "degree"}


def _axis_text(axis: Strategy) -> str:
    plain = type(axis)()
    said = {
        name: _word(f, getattr(axis, name))
        for name, f in _knobs(type(axis)).items()
        if getattr(axis, name) != getattr(plain, name)
    }
    if axis.name == "spatial" and said:
        grid = [int(axis.height), max(1, int(axis.width))]  # type: ignore[attr-defined]
        third = round(axis.degree / max(1, grid[0] * grid[1]))
        head = "x".join(map(str, [*grid, *([third] if third > 1 else [])]))
        said = {k: v for k, v in said.items() if k not in ("height", "width")}
        if not axis.height:  # type: ignore[attr-defined]
            head = f"{axis.degree:g}"
    elif not axis.degrees:
        return f"{axis.name}:{next(iter(said.values()))}" if said else ""
    else:
        head = f"{axis.degree:g}"
    # a degree of one splits nothing; only knobs that do something by themselves are worth a word
    alone = {k: v for k, v in said.items() if k in ("accumulate", "zero")}
    if axis.degree == 1:
        said = alone
    if axis.degree == 1 and not said:
        return ""
    return ",".join([f"{axis.name}:{head}", *(f"{k}={v}" for k, v in said.items())])


def _word(f: Field[Any], value: float) -> str:
    choices = f.metadata.get("words")
    return choices[int(value)] if choices else f"{value:g}"


def parse(text: str, batch: float) -> Plan:
    """The plan a text says, for one global batch; a SpecError with every fault otherwise."""
    return _parse(text, float(batch))


@cache
def _parse(text: str, batch: float) -> Plan:
    known = strategies()
    faults: list[Fault] = []
    axes: list[Strategy] = []
    for match in re.finditer(r"\S+", text):
        word, start = match.group(), match.start()
        if word == "serial":
            continue
        head, *knobs = word.split(",")
        name, colon, degree = head.partition(":")
        if name not in known:
            hint = suggest(name, known, "strategies")
            faults.append(_fault(f"no strategy is called `{name}`", start, name, hint))
            continue
        if any(axis.name == name for axis in axes):
            faults.append(_fault(f"`{name}` stands twice", start, word, "write it once"))
            continue
        cls = known[name]
        values: dict[str, float] = {}
        if not colon:
            faults.append(_fault(f"`{name}` lacks its degree", start, word, f"`{name}:2`"))
        elif cls.degrees:
            values |= _degree(cls, degree, start + len(name) + 1, faults)
        else:
            knob = next(iter(_knobs(cls)))
            values |= _knob(cls, knob, degree, start + len(name) + 1, faults)
        at = start + len(head) + 1
        for knob in knobs:
            values |= _turned(cls, knob, at, faults)
            at += len(knob) + 1
        axes.append(cls(**values))
    by_name = {axis.name: axis for axis in axes}
    pipeline, data = by_name.get("pipeline"), by_name.get("data")
    if pipeline and data and pipeline.degree > 1 and data.accumulate > 1:  # type: ignore[attr-defined]
        what = "`accumulate` cuts the batch when there is no pipeline; a pipeline has `segments`"
        faults.append(_fault(what, text.index("data"), "data", "write segments=…"))
    expert = by_name.get("expert")
    if expert and expert.degree > 1 and (data.degree if data else 1) % expert.degree:
        what = f"experts over {expert.degree} devices do not divide the data axis"
        faults.append(_fault(what, text.index("expert"), "expert", "a divisor of data's degree"))
    if not text.strip():
        faults.append(_fault("the plan is empty", 0, "", "`serial`, or e.g. `data:16 filter:4`"))
    if faults:
        raise SpecError("plan", faults, text)
    return Plan.of(batch, *axes)


def _fault(what: str, column: int, word: str, hint: str = "") -> Fault:
    return Fault("E112", what, Place(1, column + 1), hint, max(1, len(word)))


def _degree(cls: type[Strategy], text: str, at: int, faults: list[Fault]) -> dict[str, float]:
    if "height" in _knobs(cls) and re.fullmatch(r"[1-9]\d{0,6}(x[1-9]\d{0,6}){1,2}", text):
        parts = [int(n) for n in text.split("x")]
        return {"degree": float(np.prod(parts)), "height": parts[0], "width": parts[1]}
    if not re.fullmatch(r"[1-9]\d{0,7}", text) or int(text) > MOST_DEVICES:
        hint = "a whole number from 1" + (", or a grid `2x2`" if "height" in _knobs(cls) else "")
        faults.append(_fault(f"`{text}` is not a degree of {cls.name}", at, text, hint))
        return {}
    return {"degree": float(text)}


def _turned(cls: type[Strategy], text: str, at: int, faults: list[Fault]) -> dict[str, float]:
    """A knob as it stands in a plan, `segments=8`."""
    name, equals, value = text.partition("=")
    known = [knob for knob in _knobs(cls) if knob not in ("height", "width")]
    if name not in known:
        hint = suggest(name, known, f"knobs of {cls.name}")
        faults.append(_fault(f"{cls.name} has no knob `{name}`", at, name, hint))
        return {}
    if not equals:
        faults.append(_fault(f"`{name}` lacks its value", at, name, f"`{name}=…`"))
        return {}
    return _knob(cls, name, value, at + len(name) + 1, faults)


def _knob(
    cls: type[Strategy], name: str, value: str, at: int, faults: list[Fault]
) -> dict[str, float]:
    """The value of a knob, which begins at a column."""
    choices = _knobs(cls)[name].metadata.get("words")
    if choices:
        if value in choices:
            return {name: float(choices.index(value))}
        hint = suggest(value, choices, "write one of")
        faults.append(_fault(f"`{name}` cannot be `{value}`", at, value, hint))
    elif re.fullmatch(r"[1-9]\d{0,6}", value):
        return {name: float(value)}
    else:
        faults.append(_fault(f"`{value}` is not a number for `{name}`", at, value, "from 1 on"))
    return {}


def table(
    plans: Iterable[str | Plan], batch: float | Sequence[float]
) -> Iterator[tuple[Plan, list[int]]]:
    """Plans as text, gathered into tables of equal nesting, with the rows each came from."""
    texts = list(plans)
    batches = np.broadcast_to(np.asarray(batch, float), (len(texts),))
    groups: dict[tuple[str, ...], list[tuple[int, Plan]]] = {}
    for row, (text, size) in enumerate(zip(texts, batches, strict=True)):
        one = text if isinstance(text, Plan) else parse(text, float(size))
        groups.setdefault(one.order, []).append((row, one))
    for members in groups.values():
        yield join([one for _, one in members]), [row for row, _ in members]


def join(plans: Sequence[Plan]) -> Plan:
    """Tables of equal nesting, one under the other."""
    batch = np.concatenate([plan.batch for plan in plans])
    axes = []
    for i, axis in enumerate(plans[0].axes):
        columns = {
            f.name: np.concatenate([getattr(plan.axes[i], f.name) for plan in plans])
            for f in fields(axis)
        }
        axes.append(replace(axis, **columns))
    return Plan(batch, tuple(axes))
