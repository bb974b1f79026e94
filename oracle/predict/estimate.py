"""An estimate: what a prediction says of each plan, with its interval and its reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Model
from oracle.plan.laid import units_taken
from oracle.plan.plan import Plan, table
from oracle.predict import evaluate
from oracle.predict.block import Block, Work, messages
from oracle.predict.columns import PARTS, columns_of
from oracle.predict.memory import KINDS
from oracle.predict.named import checked
from oracle.predict.rates import computed_in, rates
from oracle.predict.read_figures import figures
from oracle.predict.reading import uncounted
from oracle.predict.remarks import elsewhere, of_profile, remarks, unheard
from oracle.predict.sides import machine_of, peaks
from oracle.spec.device import Device
from oracle.spec.doubt import NINETY
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.tabular import Tabular
from oracle.spec.units import show

Floats = NDArray[np.float64]
WIDEST = 50.0  # logarithm of an interval's end by its middle: whoever doubts more knows nothing
COLUMNS = ("samples_per_second", "tokens_per_second", "flops_per_device", "mfu",
           "device_hours_per_epoch")  # of the rates, those of a table  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Tabular):
    """Of each plan: seconds per iteration, bytes per device, and what rules it out.

    The same type holds a measurement, so that prediction and measurement are compared like
    with like.
    """

    brief = ("plan", "batch", "devices", "seconds", "seconds_low", "seconds_high", "memory", "why")

    model: Model
    system: System
    options: Options
    plans: tuple[str, ...]
    batch: Floats
    devices: Floats
    seconds: Floats
    deviation: Floats  # 1σ, seconds
    more: Floats  # 1σ of what can only add to them, seconds
    crowded: Floats  # seconds with messages as slow as other jobs make them, 95 % of the time
    compute: dict[str, Floats]
    exchange: tuple[tuple[dict[str, Any], ...], ...]  # one tuple of messages a plan
    memory_kinds: dict[str, Floats]
    memory_deviation: Floats  # 1σ, bytes
    cached: Floats  # bytes beside them that an allocator may keep, and gives up when it must
    stage: Floats  # the stage that needs most memory
    pace: Floats  # the stage that sets the pace
    broken: tuple[tuple[str, ...], ...]  # of each plan, every limit it breaks, in words
    origin: tuple[dict[str, dict[str, Any]], ...]  # where parts come from; exchanges say it too
    work: tuple[Work, ...]  # what each was priced from
    placed: tuple[Any, ...] = ()  # where the ranks of each sit, where that was asked

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def plan(self) -> str:
        """The text of the plan, of an estimate of one."""
        if len(self) != 1:
            raise LookupError(f"an estimate of {len(self)} plans: their texts are `plans`")
        return self.plans[0]

    def says(self) -> str:
        """What it is of, and its one or its fastest plan."""
        subject = f"{self.model.name} on {self.system.name}"
        if not len(self):
            return f"no plan of {subject}"
        row = int(np.argmin(self.seconds))
        interval = (self.seconds_low, self.seconds, self.seconds_high)
        low, mid, high = (show(float(end[row]), "s") for end in interval)
        end = f"{self.plans[row]}: {mid} ({low} to {high}), {show(float(self.memory[row]), 'B')}"
        broken = f", does not work: {self.broken[row][0]}" if self.broken[row] else ""
        several = f", {len(self)} plans, the fastest" if len(self) > 1 else ""
        return f"{subject}{several}: {end}{broken}"

    @property
    def memory(self) -> Floats:
        """Bytes per device, at the worst moment on the worst device."""
        return np.sum(list(self.memory_kinds.values()), axis=0)  # type: ignore[no-any-return]

    @property
    def memory_low(self) -> Floats:
        return np.maximum(self.memory - NINETY * self.memory_deviation, 0.0)

    @property
    def memory_high(self) -> Floats:
        return self.memory + NINETY * self.memory_deviation

    @property
    def fits(self) -> Floats:
        """The probability that each plan's memory fits a device."""
        capacity = self.capacity
        if self.options.ideal:
            return np.where(self.memory <= capacity, 1.0, 0.0)
        room = (capacity - self.memory) / np.maximum(self.memory_deviation, 1.0)
        return np.array([NormalDist().cdf(sigmas) for sigmas in room])

    @property
    def capacity(self) -> Floats:
        """Bytes that a device of each plan has: of unlike ones that which is most short of them."""
        device_memory = float(self.options.max_memory or self.system.device.memory)
        return np.array([work.room for work in self.work] or np.full(len(self), device_memory))

    @property
    def seconds_low(self) -> Floats:
        """The lower end of the interval that holds an iteration nine times of ten."""
        down = NINETY * self.deviation / np.maximum(self.seconds, 1e-30)
        return self.seconds * np.exp(-np.minimum(down, WIDEST))

    @property
    def seconds_high(self) -> Floats:
        """Its upper end, with what other jobs on the network may cost."""
        up = NINETY * np.hypot(self.deviation, self.more) / np.maximum(self.seconds, 1e-30)
        return self.crowded * np.exp(np.minimum(up, WIDEST))

    @property
    def interference(self) -> Floats:
        """What other jobs may cost; it widens the interval and never moves the centre."""
        return self.crowded / np.maximum(self.seconds, 1e-30)

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Which plans break no limit."""
        return np.array([not words for words in self.broken], bool)

    @property
    def iterations(self) -> Floats | None:
        """Iterations per epoch, where a data set says how many samples there are."""
        data = self.model.dataset
        return None if data is None else np.ceil(data.samples / self.batch)

    @property
    def epoch(self) -> Floats | None:
        """Seconds per epoch: D/B iterations, and the first batch that they begin with."""
        data = self.model.dataset
        step_seconds = None if data is None else self.seconds * data.samples / self.batch
        return None if step_seconds is None else step_seconds + self._first_batches

    @cached_property
    def _first_batches(self) -> Floats:
        """Seconds until the first batch of an epoch is there, where reading is counted."""
        return np.array(
            [0.0 if reading is None else reading["seconds"] for reading in self.reading]
        )

    @cached_property
    def reading(self) -> tuple[dict[str, Any] | None, ...]:
        """How each plan gets its samples, and what that takes; None where it is not counted."""
        return tuple(
            None if work.block.read is None else figures(work.block.read, work.row)
            for work in self.work
        )

    @property
    def unread(self) -> str:
        """Why reading is not counted; nothing where it is."""
        return uncounted(self.model, self.system, self.options)

    @cached_property
    def warnings(self) -> list[dict[str, str]]:
        """What was done otherwise than asked, and values of the specs that look wrong."""
        words = remarks(self.system, self.model.dataset, self.options, self.exchange)
        words += unheard(self.options, self.model)
        if self.options.profile is None or not len(self):
            return words
        plain_options = replace(self.options, profile=None, algorithm=None)
        expected = estimate(
            self.model, self.system, self.plans[:1], float(self.batch[0]), plain_options
        )
        took, due = (sum(float(estimate_of.compute[part][0]) for part in ("forward", "backward"))
                     for estimate_of in (self, expected))  # fmt: skip
        words += elsewhere(self.options, self.model.name)
        return [*words, *of_profile(self.system, took / max(due, 1e-30))]

    def take(self, rows: Sequence[int]) -> Estimate:
        """The same estimate of a selection of plans."""
        numbers = list(rows)

        def chosen(values: Any) -> Any:
            if isinstance(values, dict):
                return {name: column[numbers] for name, column in values.items()}
            if isinstance(values, tuple):
                return tuple(values[number] for number in numbers if values)
            return values[numbers]

        columns = [column.name for column in fields(self)
                   if column.name not in ("model", "system", "options")]  # fmt: skip
        return replace(self, **{name: chosen(getattr(self, name)) for name in columns})

    def table(self) -> Any:
        """A pandas DataFrame, one row a plan, all parts."""
        import pandas as pd

        return pd.DataFrame(columns_of(self))

    def figures(self, row: int) -> dict[str, Any]:
        """One plan as flat figures, SI: the columns of a CSV file."""
        seconds, messages, read = self.seconds[row], self.exchange[row], self.reading[row]
        epoch = None if self.epoch is None else self.epoch[row]
        numbers = {
            "seconds": seconds,
            "seconds_low": self.seconds_low[row],
            "seconds_high": self.seconds_high[row],
            "epoch_seconds": epoch,
            **{name: value for name, value in self.rates(row).items() if name in COLUMNS},
            **{part: values[row] for part, values in self.compute.items()},
            "exchange": sum(message["seconds"] for message in messages),
            "exposed": sum(message["exposed"] for message in messages),
            "reading": None if read is None else read["exposed"],
            "memory": self.memory[row],
            "capacity": self.capacity[row],
        }
        broken = "; ".join(self.broken[row])
        return {
            "status": "infeasible" if broken else "ok",
            "plan": self.plans[row],
            "devices": int(self.devices[row]),
            "why": broken,
            # what a different order of additions may change lies beyond nine digits
            **{name: None if value is None else float(f"{float(value):.9g}")
               for name, value in numbers.items()},
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a plan."""
        head = {"model": self.model.name, "system": self.system.name}
        return [
            {**head, "batch": int(self.batch[row]), **self.figures(row)} for row in range(len(self))
        ]

    @property
    def speed_of_light(self) -> Floats:
        """Seconds if every device computed at its datasheet's peak and nothing were sent.

        t = B · FLOP / (p · peak)        FLOP of a sample, forward and backward
        """
        return self.batch * self.model.flop / (self.devices * self._peaks)

    @cached_property
    def _peaks(self) -> Floats:
        peak_flops = peaks(self.system, [work.plan for work in self.work], self.computed_in)
        return np.broadcast_to(peak_flops, self.seconds.shape)

    def computed_in(self, device: Device) -> str:
        """The precision that most of the network's FLOP are made in on a device."""
        return computed_in(self.model, device, self.options)

    def machine(self, question: str, row: int = 0) -> System:
        """The machine that one plan runs on: refused where what is asked is told of one alone."""
        return machine_of(self.system, lambda: self.work[row].plan, question)

    def rates(self, row: int = 0) -> dict[str, Any]:
        """What one plan trains in a second, in the units of the field."""
        work = self.work[row] if self.work else None
        remade_share = work.block.choice.remade(work.at) if work and work.block.choice else None
        return rates(self.model, float(self._peaks[row]), float(self.batch[row]),
                     float(self.devices[row]), float(self.seconds[row]),
                     work.plan if work else None, remade_share)  # fmt: skip

    def plan_dict(self, row: int, rank: int | None = None) -> dict[str, Any]:
        """One plan in the published JSON form."""
        epoch = None if self.epoch is None else float(self.epoch[row])
        sides = self.work[row].sides
        return {
            "plan": self.plans[row],
            "rank": rank,
            "feasible": bool(self.feasible[row]),
            "broken": list(self.broken[row]),
            "seconds": {
                "iteration": float(self.seconds[row]),
                "low": float(self.seconds_low[row]),
                "high": float(self.seconds_high[row]),
                "epoch": epoch,
                "speed_of_light": float(self.speed_of_light[row]),
            },
            "compute": {part: float(self.compute[part][row]) for part in PARTS},
            "exchange": [dict(message) for message in self.exchange[row]],
            "reading": self.reading[row],
            "memory": {
                "total": float(self.memory[row]),
                **{kind: float(self.memory_kinds[kind][row]) for kind in KINDS},
                "cached": float(self.cached[row]),
                "low": float(self.memory_low[row]),
                "high": float(self.memory_high[row]),
            },
            "capacity": float(self.capacity[row]),
            "fits": float(self.fits[row]),
            "origin": dict(self.origin[row]),
            "batch": int(self.batch[row]),
            "samples_per_second": float(self.batch[row] / self.seconds[row]),
            "rates": self.rates(row),
            **({"placement": self.placed[row].to_dict()} if self.placed else {}),
            **({"partitions": [partition.to_dict() for partition in sides]} if sides else {}),
            **units_taken(self.system, self.work[row].plan),
        }

    def to_dict(self, ranks: Sequence[int | None] | None = None) -> dict[str, Any]:
        """The published JSON form (schema 1)."""
        if ranks is None:
            ranks = [1] if len(self) == 1 else [None] * len(self)
        return {
            "schema": 1,
            "model": self.model.name,
            "system": self.system.name,
            "devices": int(self.devices[0]) if len(self) else 0,
            "batch": int(self.batch[0]) if len(self) else 0,
            "precision": self.options.precision,
            "optimizer": self.options.optimizer_text,
            "software": self.options.software.label,
            "workspace": self.options.software.convolution.text,
            "dataset": self.model.dataset.name if self.model.dataset else None,
            "ideal": self.options.ideal,
            "computed_in": self.computed_in(self.system.device),
            "warnings": self.warnings,
            "plans": [self.plan_dict(row, ranks[row]) for row in range(len(self))],
        }


def estimate(
    model: Model, system: System, plans: str | Plan | Iterable[str | Plan],
    batch: float | Sequence[float], options: Options, lines: Any = None,
) -> Estimate:  # fmt: skip
    """Estimate one plan or many; one entry a plan, in the order given."""
    model = model.under(options.software.kernels)
    if isinstance(plans, str):
        plans = [plans]
    elif isinstance(plans, Plan):
        return _joined(model, system, options, [(plans, list(range(len(plans))))], lines)
    return checked(_joined(model, system, options, list(table(plans, batch)), lines))


def _joined(
    model: Model, system: System, options: Options, tables: list[tuple[Plan, list[int]]], lines: Any
) -> Estimate:
    size = sum(len(rows) for _, rows in tables)

    def priced(by: Any) -> list[tuple[Any, Block]]:
        return [
            (np.array(order)[rows], part)
            for plan, order in tables
            for rows, part in evaluate.blocks(model, system, plan, options, by)
        ]

    priced_blocks = priced(lines)

    def column(read: Any, parts: list[tuple[Any, Block]] = priced_blocks) -> Floats:
        column_values = np.empty(size)
        for rows, part in parts:
            column_values[rows] = read(part)
        return column_values

    from oracle.network import contention

    crowded = seconds = column(lambda b: b.seconds)

    if not options.ideal and contention.slows(system):
        crowded_blocks = priced(contention.among_others(lines or contention.lines))
        crowded = np.maximum(column(lambda b: b.seconds, crowded_blocks), seconds)
    texts: list[str] = [""] * size
    exchange: list[tuple[dict[str, Any], ...]] = [()] * size
    broken: list[tuple[str, ...]] = [()] * size
    origin: list[dict[str, dict[str, Any]]] = [{}] * size
    work: list[Any] = [None] * size
    for rows, part in priced_blocks:
        for i, row in enumerate(rows):
            texts[row] = part.plan.text(i)
            work[row] = Work(part, i)
            exchange[row] = tuple(messages(work[row]))
            origin[row] = part.origin(i)
            broken[row] = part.broken(i)
    return Estimate(
        model, system, options, tuple(texts),
        column(lambda b: b.plan.batch[:, 0]), column(lambda b: b.plan.devices[:, 0]),
        seconds, column(lambda b: b.doubted[0]), column(lambda b: b.doubted[1]), crowded,
        {part: column(lambda b, part=part: b.step.compute[part]) for part in PARTS},
        tuple(exchange), {kind: column(lambda b, kind=kind: b.held.kinds[kind]) for kind in KINDS},
        column(lambda b: b.held.deviation), column(lambda b: b.held.cached),
        column(lambda b: b.held.stage),
        column(lambda b: b.step.stage), tuple(broken),
        tuple(origin), tuple(work),
    )  # fmt: skip
