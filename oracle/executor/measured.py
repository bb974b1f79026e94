"""Measured time, exchanges and memory of a plan, with the fields of an estimate."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from oracle.executor import records
from oracle.executor.checkpointing.summary import Recovery, summary
from oracle.spec.document import refusal
from oracle.spec.files import LOG, read_json

STRAGGLER = 1.5  # times the median of all ranks' own work
SCHEMA = 1


@dataclass(frozen=True)
class MeasuredExchange:
    """One kind of exchange in a step, of the rank that spent most time on it."""

    what: str
    op: str
    group: int
    calls: float
    bytes: float  # of one call
    seconds: float
    waiting: float | None = None  # of it, until the last rank was there; None if nobody knows

    @property
    def transfer(self) -> float | None:
        """Seconds from when the last rank was there."""
        return None if self.waiting is None else max(self.seconds - self.waiting, 0.0)


@dataclass(frozen=True)
class Measurement:
    """Measurement of one plan: medians over its steps, each as long as its slowest rank's."""

    model: str
    plan: str
    batch: int
    devices: int
    seconds: float  # of an iteration
    each: tuple[float, ...]  # of every timed step
    compute: dict[str, float]  # forward, backward, update: of the slowest rank
    exchange: tuple[MeasuredExchange, ...]
    memory: float  # bytes, the largest peak of a rank
    ranks: tuple[dict[str, Any], ...]  # host, own work and peak of each
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    stages: tuple[tuple[int, int], ...] = ()
    complete: bool = True
    question: dict[str, Any] = field(default_factory=dict)  # that it answers; empty of old files
    reading: dict[str, Any] = field(default_factory=dict)  # how samples were read; empty: none were
    recovery: Recovery | None = None  # checkpoints that were kept, failures
    # bytes of tensors alive by kind, of the rank that had most; empty where they were not counted
    alive: dict[str, float] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Relative standard deviation of the steps."""
        if len(self.each) < 2:
            return 0.0
        return statistics.stdev(self.each) / statistics.mean(self.each)

    @property
    def stragglers(self) -> list[str]:
        """Ranks whose own work took more than `STRAGGLER` times the median, with their hosts."""
        work = [rank["work"] for rank in self.ranks]
        middle = statistics.median(work)
        return [
            f"rank {i} on {rank['host']}: {rank['work'] / middle:.1f} times the median"
            for i, rank in enumerate(self.ranks)
            if rank["work"] > STRAGGLER * middle and len(self.stages) < 2
        ]

    def as_json(self) -> dict[str, Any]:
        """The JSON of an estimate's plan, with a part `measured` that no estimate has."""
        low, high = min(self.each), max(self.each)
        exchange = [
            {name: value for name, value in asdict(one).items() if value is not None}
            | {"exposed": one.seconds}
            | ({} if one.transfer is None else {"transfer": one.transfer})
            for one in self.exchange
        ]
        return {
            "plan": self.plan,
            "seconds": {"iteration": self.seconds, "low": low, "high": high},
            "compute": self.compute,
            "exchange": exchange,
            "memory": {"total": self.memory, **({"alive": self.alive} if self.alive else {})},
            **({"reading": self.reading} if self.reading else {}),
            **(self.recovery.as_json() if self.recovery else {}),
            "measured": {
                "model": self.model,
                "batch": self.batch,
                "devices": self.devices,
                "each": list(self.each),
                "spread": self.spread,
                "ranks": list(self.ranks),
                "stragglers": self.stragglers,
                "options": self.options,
                "environment": self.environment,
                "stages": [list(stage) for stage in self.stages],
                "complete": self.complete,
                **({"question": self.question} if self.question else {}),
            },
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Measurement:
        own = entry["measured"]
        names = [each.name for each in fields(MeasuredExchange) if each.name != "waiting"]
        _check(entry, own)
        exchange = tuple(
            MeasuredExchange(**{name: e[name] for name in names}, waiting=e.get("waiting"))
            for e in entry["exchange"]
        )
        return cls(
            own["model"], entry["plan"], own["batch"], own["devices"],
            entry["seconds"]["iteration"], tuple(own["each"]), dict(entry["compute"]), exchange,
            entry["memory"]["total"], tuple(own["ranks"]), own["options"], own["environment"],
            tuple((a, b) for a, b in own["stages"]), own["complete"],
            dict(own.get("question", {})), dict(entry.get("reading", {})),
            Recovery.from_json(entry), dict(entry["memory"].get("alive", {})),
        )  # fmt: skip


def _check(entry: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse what cannot be measured: no time, no sample, a word where a number is due."""
    each = own["each"]
    timed: dict[Any, Any] = {"iteration": entry["seconds"]["iteration"], **dict(enumerate(each))}
    spent = {**entry["compute"], "memory": entry["memory"]["total"]}
    spent |= entry["memory"].get("alive", {})
    spent |= {f"{one['what']} {name}": one[name] for one in entry["exchange"]
              for name in ("seconds", "bytes", "calls")}  # fmt: skip
    for name, value, least in (
        *((name, value, 1e-12) for name, value in timed.items()),
        *((name, value, 0.0) for name, value in spent.items()),
    ):
        if type(value) not in (int, float) or not least <= value < 1e18:
            raise ValueError(f"`{name}` is {value!r:.40}, not a number from {least:g} on")
    for name in ("batch", "devices"):
        if type(own[name]) is not int or not 1 <= own[name] < 2**53:
            raise ValueError(f"`{name}` is {own[name]!r:.40}, not a whole number from 1 on")
    if read := entry.get("reading"):
        _check_reading(read, len(each))
    if not isinstance(entry["plan"], str) or not isinstance(own["model"], str):
        raise ValueError("its plan and its model are words")


MODES = ("shared", "staged", "cached", "striped", "spatial")


def _check_reading(read: Mapping[str, Any], steps: int) -> None:
    """Refuse samples that cannot have been read so."""
    for name in ("samples", "bytes", "files", "seconds", "staging"):
        value, least = read[name], 0.0 if name in ("seconds", "staging") else 1.0
        if type(value) not in (int, float) or not least <= value < 1e18:
            raise ValueError(f"`{name}` is {value!r:.40}, not a number from {least:g} on")
    waits = read["each"]
    if len(waits) != steps or any(type(t) not in (int, float) or not 0 <= t < 1e9 for t in waits):
        raise ValueError("not every step says what it waited for samples")
    made = read.get("made") or {}
    spread = made.get("spread", 0.0)
    if read["mode"] not in MODES or read["shuffle"] not in ("global", "local"):
        raise ValueError(f"`{read['mode']!s:.20}` is no way to read")
    if type(spread) not in (int, float) or not 0 <= spread <= 100:
        raise ValueError("the spread of sizes is a number, 0 or more")


def write(path: Path, found: Sequence[Measurement]) -> None:
    """All measurements of a launch as one JSON document, atomically."""
    document = {
        "schema": SCHEMA,
        "measured": True,
        "model": found[0].model if found else "",
        "plans": [one.as_json() for one in found],
    }
    records.write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> list[Measurement]:
    """The measurements of a file; a SpecError with its name when it holds none."""
    document = read_json(path, "measurement", LOG)
    try:
        if document.get("measured") is not True or document.get("schema") != SCHEMA:
            raise ValueError('it does not say `"measured": true` and `"schema": 1`')
        found = [Measurement.from_json(entry) for entry in document["plans"]]
        if not found:
            raise ValueError("it holds no plan")
        return found
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        what, hint = f"this is no measurement of plans: {said}", "`oracle run … -o FILE` writes one"
        raise refusal(str(path), what, hint, "E130") from None


def join(
    parts: Path, size: int, complete: bool, again: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Measurement]:
    """Measurements from the ranks' files: runs of which all ranks finished at least one step."""
    found = records.of_all_ranks(parts, size)
    runs = [key for key in found if key.endswith("/plan")]
    for key in runs:
        run = key.removesuffix("/plan")
        about = found[key]
        mine = [i for i, record in enumerate(about) if record["takes_part"]]
        steps = [of for k, of in found.items() if k.startswith(f"{run}/step ")]
        if steps:
            one = _one(about, [[of[i] for i in mine] for of in steps], mine, complete)
            kept = about[0]["question"].get("checkpoint")
            alive = [each["kinds"] for each in found.get(f"{run}/alive", [])]
            if alive:
                one = replace(one, alive=max(alive, key=lambda kinds: sum(kinds.values())))
            yield replace(one, recovery=summary(parts, size, run, kept, again)) if kept else one


def _one(
    about: Sequence[Mapping[str, Any]], steps: Sequence[Sequence[Mapping[str, Any]]],
    mine: Sequence[int], complete: bool,
) -> Measurement:  # fmt: skip
    first = about[mine[0]]
    each = [max(rank["seconds"] for rank in step) for step in steps]
    work = [
        {
            phase: statistics.median(step[i]["phases"][phase] for step in steps)
            for phase in ("forward", "backward", "update", "exchange")
        }
        for i in range(len(mine))
    ]
    own = [w["forward"] + w["backward"] + w["update"] for w in work]
    slowest = max(range(len(mine)), key=lambda i: own[i])
    return Measurement(
        model=first["model"],
        plan=first["plan"],
        batch=first["batch"],
        devices=len(mine),
        seconds=statistics.median(each),
        each=tuple(each),
        compute={k: v for k, v in work[slowest].items() if k != "exchange"},
        exchange=tuple(_exchanges(steps)),
        memory=max(rank["memory"] for step in steps for rank in step),
        ranks=tuple(
            {"host": about[i]["host"], "work": own[k], "memory": steps[-1][k]["memory"]}
            for k, i in enumerate(mine)
        ),
        options=first["options"],
        environment=first["environment"],
        stages=tuple((a, b) for a, b in first["stages"]),
        complete=complete and len(steps) >= first["steps"],
        question=first["question"],
        reading=_reading(first.get("reading"), steps, len(mine)),
    )


def _reading(
    how: Mapping[str, Any] | None, steps: Sequence[Sequence[Mapping[str, Any]]], ranks: int
) -> dict[str, Any]:
    """How samples were read, and a step of it: seconds waited by the rank that waited longest."""
    if how is None:
        return {}
    each = [[rank.get("read", {}) for rank in step] for step in steps]
    waited = [max(read.get("seconds", 0.0) for read in step) for step in each]
    return dict(how) | {
        "seconds": statistics.median(waited), "each": waited,
        # between two steps, when nothing is timed and reading goes on: of who ended last
        "between": statistics.median(min(read.get("between", 0.0) for read in step)
                                     for step in each),
        "ranks": [statistics.median(step[i].get("seconds", 0.0) for step in each)
                  for i in range(ranks)],
        **{f"{what}_a_step": statistics.median(sum(read.get(what, 0) for read in step)
                                               for step in each)
           for what in ("files", "bytes")},
    }  # fmt: skip


def _exchanges(steps: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[MeasuredExchange]:
    """Exchanges of a step by kind: of the rank that spent most on each."""
    kinds = dict.fromkeys(what for step in steps for rank in step for what in rank["said"])
    late = [waited([rank.get("calls", ()) for rank in step]) for step in steps]
    for what in kinds:
        spent, waits = [], []
        for step, own in zip(steps, late, strict=True):
            of = [i for i, rank in enumerate(step) if what in rank["said"]]
            _, most = max((step[i]["said"][what]["seconds"], i) for i in of)
            spent.append(step[most]["said"][what])
            waits += [own[most][what]] if what in own[most] else []
        calls = spent[0]["calls"]
        seconds = statistics.median(one["seconds"] for one in spent)
        size = spent[0]["bytes"] / max(calls, 1)
        waiting = statistics.median(waits) if waits else None
        yield MeasuredExchange(what, spent[0]["op"], spent[0]["group"], calls, size, seconds,
                               waiting)  # fmt: skip


def waited(ranks: Sequence[Sequence[Sequence[Any]]]) -> list[dict[str, float]]:
    """Seconds of each rank, by kind, in which its collectives could not go on: see `lateness`."""
    found: list[dict[str, float]] = []
    for calls, waits in zip(ranks, lateness(ranks), strict=True):
        kinds: dict[str, float] = {}
        for (what, *_), waiting in zip(calls, waits, strict=True):
            kinds[what] = kinds.get(what, 0.0) + waiting
        found.append(kinds)
    return found


def lateness(ranks: Sequence[Sequence[Sequence[Any]]]) -> list[list[float]]:
    """Seconds of each rank's calls in which they could not go on: the last rank was not there.

    A call is a rank's n-th of its kind in its group. What a rank does not wait for hides.
    """
    last: dict[Any, float] = {}
    keys: list[list[Any]] = []
    for calls in ranks:
        counts: Counter[Any] = Counter()
        keys.append([])
        for what, members, arrived, *_ in calls:
            kind = what, tuple(members)
            keys[-1].append((*kind, counts[kind]))
            counts[kind] += 1
            last[keys[-1][-1]] = max(last.get(keys[-1][-1], arrived), arrived)
    return [
        [min(max(last[key] - began, 0.0), ended - began)
         for key, (_, _, _, began, ended) in zip(mine, calls, strict=True)]
        for mine, calls in zip(keys, ranks, strict=True)
    ]  # fmt: skip
