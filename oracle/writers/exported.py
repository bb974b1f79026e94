"""The plan that is exported: its degrees, batch and nodes, its model, and its predicted time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from pprint import pformat
from typing import Any

import numpy as np

from oracle.models.model import Model
from oracle.models.transformer import Transformer
from oracle.plan.launchable import numbers_of, software
from oracle.plan.plan import Plan
from oracle.predict.estimate import Estimate
from oracle.predict.sides import Side
from oracle.readers.spec_text import plain_name
from oracle.spec.files import read_text
from oracle.spec.software import Software
from oracle.spec.units import show
from oracle.writers.export import ExportError
from oracle.writers.nodes import Nodes, nodes_of

TEMPLATES = Path(__file__).parent / "templates"
RESERVED = 86_400 * 1000  # seconds; nobody is given a queue slot for longer
# base of rotary positions, where it is not the 10,000 of arXiv 2104.09864: from the released
# configurations of these families
ROTARY = {"llama3": 500_000, "mixtral": 1_000_000, "qwen3": 1_000_000}


def block_of(model: Model) -> Transformer | None:
    """Return the family block of a model's spec, or None where the spec has none."""
    return model.written.spec.transformer if model.written else None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The content of one chunk of a pipeline: blocks, and perhaps the embedding and the loss."""

    embedding: bool
    layers: int
    loss: bool


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a framework: its files, and the words for torchrun after its own options."""

    files: dict[str, str]
    command: tuple[str, ...]
    needs: str  # what must be installed first
    order: str  # of ranks, outermost first
    prelude: tuple[str, ...] = ()  # lines of shell before it
    folder: str = ""  # a variable that names the folder to start in
    more: str = ""  # a further paragraph of the README


@dataclass(frozen=True, eq=False)
class Job:
    """An estimate of one plan, and the model's family block where it has one."""

    estimate: Estimate
    plan: Plan
    transformer: Transformer | None = None
    read: set[tuple[str, str]] = field(default_factory=set)  # (axis, knob) that a format asked for
    notes: list[str] = field(default_factory=list)  # differences of the job from the prediction

    def degree(self, axis: str) -> int:
        self.read.add((axis, "degree"))
        return int(self.plan.axis(axis).degree[0, 0])

    def knob(self, axis: str, name: str) -> int:
        """Return the number of a knob, or the number of its word."""
        self.read.add((axis, name))
        return int(getattr(self.plan.axis(axis), name)[0, 0])

    def word(self, axis: str, name: str) -> str:
        """Return a knob as the plan's text has it."""
        self.read.add((axis, name))
        return str(self.plan.axis(axis).word(name))

    @property
    def axes(self) -> list[tuple[str, int]]:
        """(name, degree) of every axis that takes devices, outermost first."""
        degrees = [
            (axis.name, self.degree(axis.name)) for axis in self.plan.axes if axis.multiplies
        ]
        return [(name, degree) for name, degree in degrees if degree > 1]

    @cached_property
    def devices(self) -> int:
        return int(self.plan.devices[0, 0])

    @cached_property
    def kinds(self) -> tuple[Nodes, ...]:
        """The nodes that ranks are started on, kind by kind."""
        self.read.add(("on", "parts"))
        return nodes_of(self.estimate.system, self.plan)

    @property
    def per_node(self) -> int:
        """Ranks of each node, for formats that start equally many on all nodes."""
        ranks_a_node = {kind.each for kind in self.kinds}
        if len(ranks_a_node) > 1:
            counts = ", ".join(f"{kind.each} on one of {kind.partition}" for kind in self.kinds)
            raise ExportError("export", f"as many ranks are started on every node, not {counts}",
                              "the torchrun, slurm or rankfile format")  # fmt: skip
        return ranks_a_node.pop()

    @property
    def nodes(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The work of each partition, where the plan has several."""
        return self.estimate.work[0].sides

    @property
    def replicas(self) -> int:
        """The number of replicas that the batch is split among."""
        return self.degree("data") * self.degree("sharded")

    @property
    def batch(self) -> int:
        return int(self.plan.batch[0, 0])

    @property
    def segments(self) -> int:
        """Micro-batches of one device in one iteration."""
        return self.knob("pipeline", "segments") * self.knob("data", "accumulate")

    @property
    def micro(self) -> int:
        """Samples of one micro-batch; launchers take only whole ones."""
        if len({(side.samples, side.micro_batches) for side in self.sides}) > 1:
            return max(math.ceil(side.samples / side.micro_batches) for side in self.sides)
        pieces = self.replicas * self.segments
        if self.batch % pieces:
            near = max(1, round(self.batch / pieces)) * pieces
            complaint = (
                f"a batch of {self.batch} is not {self.replicas} replicas × {self.segments} "
                "micro-batches of equal size"
            )
            raise ExportError("export", complaint, f"e.g. --batch {near}")
        return self.batch // pieces

    @property
    def zero(self) -> int:
        """The ZeRO stage, whichever axis shards; state beside the device goes with it alone."""
        copies = self.degree("data") * self.degree("context")
        away = self.word("offload", "what") != "nothing"
        of_data = self.knob("data", "zero") if copies > 1 or away else 0
        return max(of_data, self.knob("sharded", "zero") + 1 if self.degree("sharded") > 1 else 0)

    def most_units(self, word: str) -> int:
        """Return the largest number of units of a stage that treat activations so."""
        work = self.estimate.work[0]
        chosen = np.array([choice == word for choice in work.words], float)
        return round(float(work.block.stages.gather(chosen[None]).max()))

    @property
    def recompute(self) -> str:
        return self.word("recompute", "mode")

    @property
    def text(self) -> str:
        """The whole plan, for formats that carry it as it is."""
        self.read.update((axis.name, f.name) for axis in self.plan.axes for f in fields(axis))
        return self.estimate.plans[0]

    def check_read(self, title: str) -> None:
        """Refuse a plan of which a format has ignored a degree or a knob."""
        optimizer = self.estimate.options.optimizer
        if optimizer == "kfac" and ("optimizer", optimizer) not in self.read:
            raise self.refuse(title, "is not told of K-FAC's factors", "the trace format")
        for axis in self.plan.axes:
            if not axis.active:
                continue
            degree = (
                {"degree": axis.degree_text()} if axis.degrees and axis.degree_text() != "1" else {}
            )
            for knob, value in (degree | axis.turned()).items():
                if (axis.name, knob) not in self.read and knob not in axis.hidden():
                    unread = (
                        f"`{axis.name}`" if knob == "degree" else f"`{axis.name}` {knob}={value}"
                    )
                    raise ExportError(
                        "export", f"{title} is not told {unread}", "the torchrun format"
                    )

    def run_by(self, usual: str) -> Software:
        """Return the software of the prediction, or the one usual for a format if there is none."""
        predicted = self.estimate.options.software
        return software(usual) if predicted.name == "plain" else predicted

    def piece(self, run: Software) -> int | None:
        """Return the elements of a piece of the gradients, or None where they are one piece."""
        numbers = numbers_of(self.estimate.model, self.plan)
        width = run.exchange.sent(self.estimate.options.precision)
        nbytes = float(run.exchange.piece(width, numbers).reshape(-1)[0])
        return int(nbytes / width) if math.isfinite(nbytes) else None

    @cached_property
    def chunks(self) -> list[Chunk]:
        """The chunks of the pipeline in the order in which the batch passes them."""
        model, cuts = self.estimate.model, self.estimate.work[0].cuts
        rows = [[model.rows[i] for i in unit.nonzero()[0]] for unit in model.units[0]]
        tables = [any(row.kind == "embedding" for row in unit) for unit in rows]
        blocks = [any(row.work == "attention" for row in unit) for unit in rows]
        behind = max(
            (number for number, has_attention in enumerate(blocks, 1) if has_attention),
            default=len(rows),
        )
        if len(late := [int(cut) for cut in cuts[1:-1] if cut >= behind]) > 1:
            edges = "/".join(map(str, late))
            raise self.refuse("a launcher", f"cuts off the head once, not at {edges}",
                              f"one cut from {behind} on")  # fmt: skip
        return [
            Chunk(any(tables[a:b]), sum(blocks[a:b]), bool(b == len(rows)))
            for a, b in pairwise(cuts)
        ]

    @property
    def even(self) -> bool:
        """Whether every chunk has as many blocks, the first the table, the last the loss."""
        first, last = self.chunks[0], self.chunks[-1]
        return len({chunk.layers for chunk in self.chunks}) == 1 and first.embedding and last.loss

    @property
    def rotary(self) -> int:
        """The base by which rotary positions turn."""
        bases = (base for name, base in ROTARY.items() if self.name.startswith(name))
        return next(bases, 10_000)

    @property
    def name(self) -> str:
        return plain_name(self.estimate.model.name, "model")

    @property
    def system(self) -> str:
        return plain_name(self.estimate.system.name, "system")

    @property
    def seconds(self) -> float:
        return float(self.estimate.seconds[0])

    def about(self) -> list[str]:
        """Return two lines for the head of a file: the plan, and its prediction."""
        low, high = (float(x[0]) for x in (self.estimate.seconds_low, self.estimate.seconds_high))
        return [
            f"{self.name} on {self.system}: {self.estimate.plans[0]}, batch {self.batch}",
            f"predicted: {show(self.seconds, 's')} an iteration "
            f"({show(low, 's')} to {show(high, 's')})",
        ]

    def only(self, title: str, axes: Iterable[str]) -> None:
        """Refuse a plan with axes that a format cannot express."""
        allowed = set(axes)
        unknown = [name for name, _ in self.axes if name not in allowed]
        if unknown:
            words = " and ".join(f"`{name}`" for name in unknown)
            hint = f"--without {','.join(unknown)} in `oracle recommend`, or the torchrun format"
            raise ExportError("export", f"{title} has no {words} parallelism", hint)

    def refuse(self, title: str, complaint: str, hint: str = "") -> ExportError:
        return ExportError("export", f"{title} {complaint}", hint)

    def block(self, title: str) -> Transformer:
        """Return the family block, or refuse a model that is no plain transformer."""
        if self.transformer is None:
            complaint = f"builds transformers only; {self.name} is a list of layers"
            raise self.refuse(title, complaint, "a model with a `transformer:` block")
        if not self.estimate.model.training.full:
            raise self.refuse(title, f"is not told `train: {self.estimate.model.training.text}`")
        if beyond := self.transformer.beyond():
            words = ", ".join(f"`{word}`" for word in beyond)
            raise self.refuse(title, f"is given no model with {words}")
        return self.transformer

    def minutes(self, steps: int) -> int:
        """Return the minutes of iterations at the upper end of the interval, and a tenth more."""
        seconds = float(self.estimate.seconds_high[0]) * steps * 1.1 + 600
        return math.ceil(min(seconds, RESERVED) / 60)


def options(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return command line options, one a line: `None` leaves one out, `True` has no value."""
    lines = []
    for flag, value in pairs:
        if value is None or value is False:
            continue
        lines.append(flag if value is True else f"{flag} {value}")
    return "\n".join(lines) + "\n"


def filled(name: str, constants: Mapping[str, Any]) -> str:
    """Return a program of the templates with the constants of a job."""
    text = read_text(TEMPLATES / f"{name}.txt")
    assignments = "\n".join(f"{key} = {pformat(value, width=90, compact=True, sort_dicts=False)}"
                            for key, value in constants.items())  # fmt: skip
    return text.replace("CONSTANTS = {}  # as `oracle export` fills them in", assignments)
