"""Measured time, exchanges and memory of a plan, with the fields of an estimate."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from oracle.executor.checkpointing.summary import Recovery, summary
from oracle.executor.ranks import records
from oracle.spec.document import refusal
from oracle.spec.files import LOG, read_json

STRAGGLER = 1.5  # times the median of all ranks' own work
SCHEMA = 1


@dataclass(frozen=True)
class MeasuredExchange:
    """One kind of exchange in a step, on the rank that spent most time on it."""

    what: str
    op: str
    group: int
    calls: float
    bytes: float  # of one call
    seconds: float
    waiting: float | None = None  # seconds of it until the last rank was there; None if unknown

    @property
    def transfer(self) -> float | None:
        """Seconds after the last rank was there."""
        return None if self.waiting is None else max(self.seconds - self.waiting, 0.0)


@dataclass(frozen=True)
class Measurement:
    """The measurement of one plan: medians over steps, each as long as its slowest rank's."""

    model: str
    plan: str
    batch: int
    devices: int
    seconds: float  # of an iteration
    step_seconds: tuple[float, ...]  # of every timed step
    compute: dict[str, float]  # forward, backward, update: of the slowest rank
    exchange: tuple[MeasuredExchange, ...]
    memory: float  # bytes, the largest peak of a rank
    ranks: tuple[dict[str, Any], ...]  # host, own work and peak of each
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    stages: tuple[tuple[int, int], ...] = ()
    complete: bool = True
    question: dict[str, Any] = field(default_factory=dict)  # that it answers; empty in old files
    reading: dict[str, Any] = field(default_factory=dict)  # how samples were read; empty: none were
    recovery: Recovery | None = None  # checkpoints and failures, where checkpoints were kept
    # bytes of tensors alive by kind, of the rank that had most; empty where they were not counted
    alive: dict[str, float] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Relative standard deviation of the steps."""
        if len(self.step_seconds) < 2:
            return 0.0
        return statistics.stdev(self.step_seconds) / statistics.mean(self.step_seconds)

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
        low, high = min(self.step_seconds), max(self.step_seconds)
        exchange = [
            {name: value for name, value in asdict(message).items() if value is not None}
            | {"exposed": message.seconds}
            | ({} if message.transfer is None else {"transfer": message.transfer})
            for message in self.exchange
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
                "each": list(self.step_seconds),
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
        about = entry["measured"]
        names = [column.name for column in fields(MeasuredExchange) if column.name != "waiting"]
        _check(entry, about)
        exchange = tuple(
            MeasuredExchange(**{name: e[name] for name in names}, waiting=e.get("waiting"))
            for e in entry["exchange"]
        )
        return cls(
            about["model"], entry["plan"], about["batch"], about["devices"],
            entry["seconds"]["iteration"], tuple(about["each"]), dict(entry["compute"]), exchange,
            entry["memory"]["total"], tuple(about["ranks"]), about["options"], about["environment"],
            tuple((a, b) for a, b in about["stages"]), about["complete"],
            dict(about.get("question", {})), dict(entry.get("reading", {})),
            Recovery.from_json(entry), dict(entry["memory"].get("alive", {})),
        )  # fmt: skip


def _check(entry: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse what cannot have been measured: no time, no sample, a word in place of a number."""
    steps = about["each"]
    timed: dict[Any, Any] = {"iteration": entry["seconds"]["iteration"], **dict(enumerate(steps))}
    spent = {**entry["compute"], "memory": entry["memory"]["total"]}
    spent |= entry["memory"].get("alive", {})
    spent |= {f"{message['what']} {name}": message[name] for message in entry["exchange"]
              for name in ("seconds", "bytes", "calls")}  # fmt: skip
    for name, value, lowest in (
        *((name, value, 1e-12) for name, value in timed.items()),
        *((name, value, 0.0) for name, value in spent.items()),
    ):
        if type(value) not in (int, float) or not lowest <= value < 1e18:
            raise ValueError(f"`{name}` is {value!r:.40}, not a number from {lowest:g} on")
    for name in ("batch", "devices"):
        if type(about[name]) is not int or not 1 <= about[name] < 2**53:
            raise ValueError(f"`{name}` is {about[name]!r:.40}, not a whole number from 1 on")
    if read := entry.get("reading"):
        _check_reading(read, len(steps))
    if not isinstance(entry["plan"], str) or not isinstance(about["model"], str):
        raise ValueError("its plan and its model are words")


MODES = ("shared", "staged", "cached", "striped", "spatial")


def _check_reading(read: Mapping[str, Any], steps: int) -> None:
    """Refuse figures of reading that cannot be."""
    for name in ("samples", "bytes", "files", "seconds", "staging"):
        value, lowest = read[name], 0.0 if name in ("seconds", "staging") else 1.0
        if type(value) not in (int, float) or not lowest <= value < 1e18:
            raise ValueError(f"`{name}` is {value!r:.40}, not a number from {lowest:g} on")
    waits = read["each"]
    if len(waits) != steps or any(type(t) not in (int, float) or not 0 <= t < 1e9 for t in waits):
        raise ValueError("not every step says what it waited for samples")
    samples_made = read.get("made") or {}
    spread = samples_made.get("spread", 0.0)
    if read["mode"] not in MODES or read["shuffle"] not in ("global", "local"):
        raise ValueError(f"`{read['mode']!s:.20}` is no way to read")
    if type(spread) not in (int, float) or not 0 <= spread <= 100:
        raise ValueError("the spread of sizes is a number, 0 or more")


def write(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write all measurements of a launch as one JSON document, atomically."""
    document = {
        "schema": SCHEMA,
        "measured": True,
        "model": measurements[0].model if measurements else "",
        "plans": [measurement.as_json() for measurement in measurements],
    }
    records.write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> list[Measurement]:
    """The measurements of a file; a SpecError with its name when it holds none."""
    document = read_json(path, "measurement", LOG)
    try:
        if document.get("measured") is not True or document.get("schema") != SCHEMA:
            raise ValueError('it does not say `"measured": true` and `"schema": 1`')
        measurements = [Measurement.from_json(entry) for entry in document["plans"]]
        if not measurements:
            raise ValueError("it holds no plan")
        return measurements
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        problem = f"this is no measurement of plans: {reason}"
        raise refusal(str(path), problem, "`oracle run … -o FILE` writes one", "E130") from None


def join(
    parts: Path, size: int, complete: bool, noticed: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Measurement]:
    """Measurements from the ranks' files, of runs of which all ranks finished a step."""
    records_of = records.of_all_ranks(parts, size)
    runs = [key for key in records_of if key.endswith("/plan")]
    for key in runs:
        run = key.removesuffix("/plan")
        of_ranks = records_of[key]
        members = [i for i, record in enumerate(of_ranks) if record["takes_part"]]
        steps = [ranks for k, ranks in records_of.items() if k.startswith(f"{run}/step ")]
        if steps:
            steps = [[ranks[i] for i in members] for ranks in steps]
            measurement = _measurement(of_ranks, steps, members, complete)
            alive = [record["kinds"] for record in records_of.get(f"{run}/alive", [])]
            if alive:
                largest = max(alive, key=lambda kinds: sum(kinds.values()))
                measurement = replace(measurement, alive=largest)
            if checkpoints := of_ranks[0]["question"].get("checkpoint"):
                recovery = summary(parts, size, run, checkpoints, noticed)
                measurement = replace(measurement, recovery=recovery)
            yield measurement


def _measurement(
    of_ranks: Sequence[Mapping[str, Any]], steps: Sequence[Sequence[Mapping[str, Any]]],
    members: Sequence[int], complete: bool,
) -> Measurement:  # fmt: skip
    first = of_ranks[members[0]]
    step_seconds = [max(rank["seconds"] for rank in step) for step in steps]
    work = [
        {
            phase: statistics.median(step[i]["phases"][phase] for step in steps)
            for phase in ("forward", "backward", "update", "exchange")
        }
        for i in range(len(members))
    ]
    work_seconds = [w["forward"] + w["backward"] + w["update"] for w in work]
    slowest = max(range(len(members)), key=lambda i: work_seconds[i])
    return Measurement(
        model=first["model"],
        plan=first["plan"],
        batch=first["batch"],
        devices=len(members),
        seconds=statistics.median(step_seconds),
        step_seconds=tuple(step_seconds),
        compute={k: v for k, v in work[slowest].items() if k != "exchange"},
        exchange=tuple(_exchanges(steps)),
        memory=max(rank["memory"] for step in steps for rank in step),
        ranks=tuple(
            {"host": of_ranks[i]["host"], "work": work_seconds[k], "memory": steps[-1][k]["memory"]}
            for k, i in enumerate(members)
        ),
        options=first["options"],
        environment=first["environment"],
        stages=tuple((a, b) for a, b in first["stages"]),
        complete=complete and len(steps) >= first["steps"],
        question=first["question"],
        reading=_reading(first.get("reading"), steps, len(members)),
    )


def _reading(
    how: Mapping[str, Any] | None, steps: Sequence[Sequence[Mapping[str, Any]]], ranks: int
) -> dict[str, Any]:
    """How samples were read, and for how long the slowest rank of each step waited."""
    if how is None:
        return {}
    reads = [[rank.get("read", {}) for rank in step] for step in steps]
    waited = [max(read.get("seconds", 0.0) for read in step) for step in reads]
    return dict(how) | {
        "seconds": statistics.median(waited), "each": waited,
        # between steps, when nothing is timed and reading goes on: of the rank that ended last
        "between": statistics.median(min(read.get("between", 0.0) for read in step)
                                     for step in reads),
        "ranks": [statistics.median(step[i].get("seconds", 0.0) for step in reads)
                  for i in range(ranks)],
        **{f"{quantity}_a_step": statistics.median(sum(read.get(quantity, 0) for read in step)
                                                   for step in reads)
           for quantity in ("files", "bytes")},
    }  # fmt: skip


def _exchanges(steps: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[MeasuredExchange]:
    """The exchanges of a step by kind, each of the rank that spent most on it."""
    kinds = dict.fromkeys(kind for step in steps for rank in step for kind in rank["said"])
    late = [waited([rank.get("calls", ()) for rank in step]) for step in steps]
    for kind in kinds:
        spent, waits = [], []
        for step, waits_of in zip(steps, late, strict=True):
            senders = [i for i, rank in enumerate(step) if kind in rank["said"]]
            _, slowest = max((step[i]["said"][kind]["seconds"], i) for i in senders)
            spent.append(step[slowest]["said"][kind])
            waits += [waits_of[slowest][kind]] if kind in waits_of[slowest] else []
        calls = spent[0]["calls"]
        seconds = statistics.median(sent["seconds"] for sent in spent)
        size = spent[0]["bytes"] / max(calls, 1)
        waiting = statistics.median(waits) if waits else None
        yield MeasuredExchange(kind, spent[0]["op"], spent[0]["group"], calls, size, seconds,
                               waiting)  # fmt: skip


def waited(ranks: Sequence[Sequence[Sequence[Any]]]) -> list[dict[str, float]]:
    """Seconds of each rank, by kind, in which its collectives could not go on: see `lateness`."""
    by_rank: list[dict[str, float]] = []
    for calls, waits in zip(ranks, lateness(ranks), strict=True):
        kinds: dict[str, float] = {}
        for (kind, *_), waiting in zip(calls, waits, strict=True):
            kinds[kind] = kinds.get(kind, 0.0) + waiting
        by_rank.append(kinds)
    return by_rank


def lateness(ranks: Sequence[Sequence[Sequence[Any]]]) -> list[list[float]]:
    """Seconds of each rank's calls in which they could not go on: the last rank was not there.

    Calls of ranks belong together by their number within their kind and group. A wait that ended
    before a rank began to wait is hidden, and not counted.
    """
    last: dict[Any, float] = {}
    keys: list[list[Any]] = []
    for calls in ranks:
        counts: Counter[Any] = Counter()
        keys.append([])
        for label, members, arrived, *_ in calls:
            kind = label, tuple(members)
            keys[-1].append((*kind, counts[kind]))
            counts[kind] += 1
            last[keys[-1][-1]] = max(last.get(keys[-1][-1], arrived), arrived)
    return [
        [min(max(last[key] - began, 0.0), ended - began)
         for key, (_, _, _, began, ended) in zip(rank_keys, calls, strict=True)]
        for rank_keys, calls in zip(keys, ranks, strict=True)
    ]  # fmt: skip
