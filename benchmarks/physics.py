"""Laws of physics that any prediction must keep, tried on random cases over all shipped specs.

python -m benchmarks.physics [--quick] [--json] [--seconds N] [--question N]

A question is a model, a system, a software and a batch, drawn at random, and some plans for them,
drawn from every strategy and every value of its knobs; a case is one plan of a question, held
against all laws. Nothing is left out but plans that break a rule of their strategies and devices
that the system lacks; memory is asked for by itself. Each law is one generator: it yields the
cases that break it, with what was found. `--question N` asks the N-th of a seed again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle
from benchmarks.table import figure
from oracle.kernels.curve import precision_on
from oracle.models import masks
from oracle.models.model import Model
from oracle.network.collectives import named
from oracle.plan.plan import parse, table
from oracle.plan.strategies import strategies
from oracle.predict import evaluate
from oracle.predict.defaults import options_for
from oracle.predict.estimate import Estimate, estimate
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.options import Options
from oracle.spec.system import System

Floats = NDArray[np.float64]
SEED, PLANS, NESTS = 2026, 96, 4  # of a question
CASES, QUICK = 100_000, 2_000
EVERYTHING = 1e18  # bytes of memory: whether a plan fits is one law, and not asked in the others
SAME = 1e-12  # relative, of one number found in two ways
ROOM = 1e-9  # relative, of what must not be less
WINOGRAD = 4.0  # fewer products of a convolution of 3 x 3 by tiles of 4 x 4 [lavin2016]
ALONE = ("seconds", "memory", "deviation", "more", "crowded", "memory_deviation")
RECOMMENDED = 20  # one question of so many asks for a recommendation too
SAID = (
    '{law}: {model} {system} --software {software} --batch {batch} --plan "{plan}"\n'
    "    {words}\n    {again}\n"
)
MOST = 64  # devices that are asked a recommendation for


@dataclass(frozen=True)
class Question:
    """What is asked of some plans."""

    number: int
    seed: int
    model: Model
    system: System
    software: str
    batch: int
    options: Options
    plans: list[str]

    def seconds(self, plans: list[str] | None = None, **other: Any) -> Floats:
        """Seconds of plans, with the model, the system, the batch or the options replaced."""
        return self.column(lambda part: part.seconds, plans, **other)

    def column(
        self, read: Callable[[evaluate.Block], Any], plans: list[str] | None = None, **other: Any
    ) -> Floats:
        """What `read` says of plans, likewise."""
        q, texts = replace(self, **other), self.plans if plans is None else plans
        found = np.empty(len(texts))
        for plan, order in table(texts, q.batch):
            for rows, part in evaluate.blocks(q.model, q.system, plan, q.options):
                found[np.array(order)[rows]] = read(part)
        return found

    @property
    def again(self) -> str:
        """The command that asks it again."""
        return f"python -m benchmarks.physics --seed {self.seed} --question {self.number}"


@dataclass(frozen=True)
class Broken:
    """A case that breaks a law."""

    law: str
    plan: str
    words: str
    excess: float  # relative
    question: Question

    def row(self) -> dict[str, Any]:
        q = self.question
        return {"law": self.law, "model": q.model.name, "system": q.system.name,
                "software": q.software, "batch": q.batch, "plan": self.plan, "words": self.words,
                "excess": self.excess, "again": q.again}  # fmt: skip


# --- questions -------------------------------------------------------------------------------


@cache
def _model(name: str) -> Model:
    return oracle.model(name)


@cache
def _system(name: str) -> System:
    return oracle.system(name)


def nested(rng: random.Random, model: Model, devices: int) -> tuple[Any, ...]:
    """Some axes in some order, the pipeline in the words that give it its shape.

    Plans that share both are priced together.
    """
    axes = [cls for cls in strategies().values() if cls.degrees and cls.multiplies]
    stages = [d for d in (2, 3, 4, 8, 16) if d <= devices] or [1]
    kind = strategies()["pipeline"]
    pipeline = f"pipeline:{rng.choice(stages)}{_knobs(rng, kind, model)}"
    chosen = rng.sample(axes, rng.choice([1, 2, 2, 3]))
    return tuple(pipeline if cls is kind else cls for cls in chosen)


def drawn(rng: random.Random, model: Model, devices: int, nest: tuple[Any, ...]) -> str:
    """A plan of no more devices than there are, any knobs: what breaks a rule is dropped later."""
    words, left, data = [], devices, 1
    for cls in nest:
        if isinstance(cls, str):
            words.append(_other_times(rng, cls))
            left = max(1, left // int(cls.partition(":")[2].partition(",")[0]))
            continue
        degree = rng.choice([d for d in (1, 2, 3, 4, 6, 8, 16, 32, 64, 256) if d <= left])
        left //= degree
        data = degree if cls.name == "data" else data
        words.append(f"{cls.name}:{degree}{_knobs(rng, cls, model)}")
    if data > 1 and rng.random() < 0.5:
        words.append(f"expert:{rng.choice([d for d in (2, 4, 8) if data % d == 0] or [1])}")
    for cls in strategies().values():
        if not cls.degrees and rng.random() < 0.3:
            first, *rest = ((name, f.metadata.get("words", ("1", "2", "4")))
                            for name, f in cls.knobs().items())  # fmt: skip
            more = (f",{name}={rng.choice(known)}" for name, known in rest if rng.random() < 0.25)
            words.append(f"{cls.name}:{rng.choice(first[1])}{''.join(more)}")
    return " ".join(words)


def _other_times(rng: random.Random, text: str) -> str:
    """A pipeline of the same shape; half of them in other segments, or by another schedule."""
    if rng.random() < 0.5:
        return text
    head, *knobs = text.split(",")
    said = dict(knob.split("=") for knob in knobs)
    said["segments"] = str(rng.choice([2, 3, 4, 8, 16]))
    if said.get("schedule") in (None, "1f1b", "gpipe"):
        said["schedule"] = rng.choice(["1f1b", "gpipe"])
    return ",".join([head, *(f"{name}={value}" for name, value in said.items())])


def _knobs(rng: random.Random, cls: Any, model: Model) -> str:
    said = ""
    for name, knob in cls.knobs().items():
        choices = knob.metadata.get("words")
        if choices and rng.random() < 0.25:
            said += f",{name}={rng.choice(choices)}"
        elif name in cls.batch_knobs() and rng.random() < 0.7:
            said += f",{name}={rng.choice([2, 3, 4, 8, 16])}"
        elif not choices and name not in cls.batch_knobs() and rng.random() < 0.3:
            tried = cls.tries(model).get(name, (1.0,))
            said += f",{name}={rng.choice(tried):g}"
    return said


def question(number: int, seed: int = SEED) -> Question | None:
    """The question of this number, None where no plan was drawn that keeps the rules."""
    rng = random.Random(f"{seed} {number}")
    names = (sorted(catalogue.shipped(folder)) for folder in ("models", "systems", "software"))
    what, where, by = (rng.choice(each) for each in names)
    model, system = _model(what), _system(where)
    batch = rng.choice([16, 48, 64, 96, 256, 1000])
    options = options_for(model, system, max_memory=EVERYTHING, software=by, any_plan=True)
    model = model.under(options.software.kernels)
    devices = min(system.devices, rng.choice([4, 16, 64, 256, 1024]))
    nests = [nested(rng, model, devices) for _ in range(NESTS)]
    plans: list[str] = []
    for _ in range(4 * PLANS):
        text = drawn(rng, model, devices, rng.choice(nests))
        if text not in plans and _legal(model, text, batch, devices):
            plans.append(text)
            if len(plans) == PLANS:
                break
    if not plans:
        return None
    return Question(number, seed, model, system, by, batch, options, plans)


def _legal(model: Model, text: str, batch: int, devices: int) -> bool:
    try:
        plan = parse(text, batch)
    except SpecError:
        return False
    if plan.devices[0, 0] > devices:
        return False
    beside = {axis.name: axis for axis in plan.axes}
    rules = (rule for axis in plan.axes for rule in axis.rules(model, plan.batch, beside))
    return all(bool((rule.wanted <= rule.allowed).all()) for rule in rules)


# --- laws ------------------------------------------------------------------------------------

Law = Callable[[Question, Estimate, random.Random], Iterator[tuple[str, str, str, float]]]


def alone(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """A plan's seconds, bytes and intervals alone, and in a table of others, are one number."""
    for row in rng.sample(range(len(q.plans)), min(3, len(q.plans))):
        text = q.plans[row]
        other = estimate(q.model, q.system, text, q.batch, q.options)
        for name in ALONE:
            now, then = (float(getattr(e, name)[at]) for e, at in ((found, row), (other, 0)))
            if abs(now - then) > SAME * now:
                words = f"{then:.9g} alone, {now:.9g} in a table"
                yield f"alone.{name}", text, words, now / max(then, 1e-30)
        yield from _said_alike(text, other.exchange[0], found.exchange[row])
    some = rng.sample(range(len(q.plans)), len(q.plans))[: max(1, len(q.plans) // 2)]
    shuffled = q.seconds([q.plans[row] for row in some])
    for row, then in zip(some, shuffled, strict=True):
        if abs(found.seconds[row] - then) > SAME * then:
            words = f"{then:.9g} in another table, {found.seconds[row]:.9g} in this"
            yield "alone.seconds", q.plans[row], words, then / found.seconds[row]


def _said_alike(text: str, alone: Any, together: Any) -> Iterator[Any]:
    """What is said of each message, alone and in a table."""
    if [m["what"] for m in alone] != [m["what"] for m in together]:
        yield "alone.exchange", text, "other messages alone than in a table", 1.0
        return
    for one, many in zip(alone, together, strict=True):
        for name, then in one.items():
            now = many[name]
            alike = abs(now - then) <= SAME * abs(now) if isinstance(then, float) else now == then
            if not alike:
                words = f"{one['what']}: {name} {then} alone, {now} in a table"
                yield "alone.exchange", text, words, 1.0


def recommended(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """A recommended plan takes what an estimate says it takes."""
    if rng.randrange(RECOMMENDED):
        return
    from oracle.ask.search import recommend

    devices = min(q.system.devices, rng.choice([d for d in (2, 4, 8, 16, 64) if d <= MOST]))
    ranking = recommend(q.model, q.system, devices, q.batch, q.options, top=3)
    for row, text in enumerate(ranking.estimate.plans):
        batch = int(ranking.estimate.batch[row])
        then = float(estimate(q.model, q.system, text, batch, q.options).seconds[0])
        now = float(ranking.estimate.seconds[row])
        if abs(now - then) > SAME * now:
            yield "recommended", text, f"{now:.9g} recommended, {then:.9g} estimated", now / then


def peak(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """No step is shorter than its FLOP at peak; what Winograd saves is counted as saved."""
    flop = 2 * q.model.mac * q.model.repeat
    precision, device = q.options.precision, q.system.device
    own = precision_on(device, precision)
    if any(curve.family == "winograd" for curve in device.kernels):
        flop = np.where(q.model.mask(lambda row: row.work == "conv"), flop / WINOGRAD, flop)
    first = int(np.argmax(flop > 0))  # its input needs no gradient
    rate = max(device.peak[own], device.peak.get("fp32", 0.0))
    least = (3 * flop.sum() - flop[first]) * q.batch / rate / found.devices
    yield from _under("peak", q, found.seconds, least, "at peak")


def memory_traffic(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """Each device reads its share of the weights in a pass, and writes it in the update.

    But for tables, of which it reads and writes the rows that are looked up.
    """
    read = float(q.model.repeat @ (q.model.w * ~masks.tables(q.model)))
    share = read * q.options.width / found.devices
    least = 2 * share / q.system.device.memory_bandwidth
    yield from _under("memory_bandwidth", q, found.seconds, least, "to read and write weights")


def weights(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """Devices and their hosts together hold the weights at least once."""
    least = q.model.parameters * q.options.width / found.devices
    beside = [np.ravel(work.block.held.beside)[work.row if np.ndim(work.block.held.beside) else 0]
              for work in found.work]  # fmt: skip
    yield from _under("weights", q, found.memory + beside, least, "bytes of weights")


def _under(law: str, q: Question, have: Floats, least: Floats, what: str) -> Iterator[Any]:
    for row in np.flatnonzero(have < least * (1 - ROOM)):
        words = f"{have[row]:.6g}, and no less than {least[row]:.6g} {what}"
        yield law, q.plans[row], words, float(least[row] / have[row])


# least of a message that one device takes in, whatever the algorithm
TAKEN = {"allreduce": ("allgather", "ring"), "allgather": ("allgather", "ring"),
         "reduce_scatter": ("reduce_scatter", "ring"), "alltoall": ("alltoall", "pairwise"),
         "sendrecv": ("sendrecv", "direct")}  # fmt: skip


def fastest_link(system: System) -> float:
    """B/s into one device, at most: all links of its first level, or circuits of any."""
    ways = [level.bandwidth * max(1.0, level.ports or 1.0, *(map(float, level.shape)))
            for level in system.levels]  # fmt: skip
    inner = system.levels[0]
    many = {"mesh": inner.devices - 1, "torus": 6, "ring": 2, "grid": 6}.get(inner.kind, 1)
    return max(*ways, many * inner.bandwidth)


def messages(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """A message takes its bytes over the fastest link at least, and no less in company."""
    speed = fastest_link(q.system)
    for row, sent in enumerate(found.exchange):
        for m in sent:
            if m["phi"] < 1 - ROOM:
                yield "company", q.plans[row], f"{m['what']}: φ = {m['phi']:.6g}", 1 / m["phi"]
            known = TAKEN.get(m["op"])
            if known is None or m["what"].startswith("offload") or m["group"] < 2:
                continue
            least = float(named(*known).volume(m["group"])) * m["bytes"] / speed
            if m["seconds"] < least * (1 - ROOM):
                words = f"{m['what']}: {m['seconds']:.4g} s, {least:.4g} over the fastest link"
                yield "link_bandwidth", q.plans[row], words, least / max(m["seconds"], 1e-30)


def one_stage(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """Seconds, calls and bytes of an exchange are of one stage: no more than all calls as large
    as the largest, no less than the largest alone.
    """
    for row, work in enumerate(found.work):
        for priced, whole in work.messages:
            at, here = work.at, work.row
            lines = priced.menu[int(priced.groups.row[at])].cheapest
            nbytes, calls = float(whole.nbytes[here]), float(whole.calls[here])
            if not lines or calls <= 0:
                continue
            each = min(line.start + line.per_byte * nbytes for line in lines)
            seconds = float(whole.seconds[here])
            if seconds > calls * each * (1 + ROOM) or seconds < each * min(calls, 1) * (1 - ROOM):
                words = (f"{priced.what}: {calls:g} calls of at most {nbytes:.4g} B in "
                         f"{seconds:.4g} s, {each:.4g} s each")  # fmt: skip
                over = seconds / (calls * each)
                yield "one_stage", q.plans[row], words, max(over, each / max(seconds, 1e-30))


def changes(there: System) -> Iterator[tuple[str, System]]:
    """The same machine with one property better: rates by half, latencies halved."""
    levels, device = there.levels, there.device
    for k, level in enumerate(levels):
        for name, factor in (("bandwidth", 1.5), ("latency", 0.5)):
            other = replace(level, **{name: getattr(level, name) * factor})
            better = replace(there, levels=(*levels[:k], other, *levels[k + 1 :]))
            yield f"network_{name}", better
    faster = {name: rate * 1.5 for name, rate in device.peak.items()}
    yield "peak", replace(there, device=replace(device, peak=faster))
    for name, factor in (("memory_bandwidth", 1.5), ("launch", 0.5)):
        value = getattr(device, name) * factor
        yield name, replace(there, device=replace(device, **{name: value}))
    yield "dispatch", replace(there, dispatch=(there.dispatch or 20e-6) / 2)


def better(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """Better hardware is never slower."""
    for name, other in rng.sample([*changes(q.system)], 2):
        then = q.seconds(system=other)
        for row in np.flatnonzero(then > found.seconds * (1 + ROOM)):
            words = f"{then[row]:.6g} s on the better machine, {found.seconds[row]:.6g} on this"
            yield f"better.{name}", q.plans[row], words, float(then[row] / found.seconds[row])


def batch(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """More samples by the same plan never take less time."""
    times = rng.choice([2, 3])
    then = q.seconds(batch=q.batch * times)
    for row in np.flatnonzero(then < found.seconds * (1 - ROOM)):
        words = f"{then[row]:.6g} s for {q.batch * times}, {found.seconds[row]:.6g} for {q.batch}"
        yield "batch", q.plans[row], words, float(found.seconds[row] / then[row])


def more_memory(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """What fits a device fits a larger one."""
    bigger, options = rng.choice([1.1, 1.5, 4.0]), replace(q.options, max_memory=None)
    device = replace(q.system.device, memory=q.system.device.memory * bigger)
    fits, still = (
        q.column(lambda part: part.feasible, system=there, options=options)
        for there in (q.system, replace(q.system, device=device))
    )
    for row in np.flatnonzero(fits > still):
        words = f"fits, but not where memory is x {bigger:g}"
        yield "more_memory", q.plans[row], words, bigger


def renamed(q: Question, found: Estimate, rng: random.Random) -> Iterator[Any]:
    """What things are called changes nothing."""
    there, device = q.system, replace(q.system.device, name="d", title="a device")
    called = {level.name: f"level {k}" for k, level in enumerate(there.levels)}
    levels = tuple(replace(level, name=called[level.name]) for level in there.levels)
    fitted, library = (tuple(replace(one, level=called[one.level]) for one in entries)
                       for entries in (there.collectives, there.library))  # fmt: skip
    other = replace(there, name="s", title="a system", device=device, levels=levels,
                    collectives=fitted, library=library, calibrated_on=levels)  # fmt: skip
    rows = tuple(replace(row, name=f"row {k}") for k, row in enumerate(q.model.rows))
    model = replace(q.model, name="m", title="a model", rows=rows, written=None)
    then = q.seconds(model=model, system=other)
    for row in np.flatnonzero(np.abs(then - found.seconds) > SAME * found.seconds):
        words = f"{then[row]:.9g} s by other names, {found.seconds[row]:.9g} by these"
        yield "renamed", q.plans[row], words, float(then[row] / found.seconds[row])


LAWS: tuple[Law, ...] = (
    alone, recommended, peak, memory_traffic, weights, messages, one_stage, better, batch,
    more_memory, renamed,
)  # fmt: skip


# --- asking ----------------------------------------------------------------------------------


def held(q: Question) -> Iterator[Broken]:
    """Every law broken by a plan of a question."""
    rng = random.Random(f"laws {q.seed} {q.number}")
    found = estimate(q.model, q.system, q.plans, q.batch, q.options)
    for law in LAWS:
        for name, plan, words, excess in law(q, found, rng):
            yield Broken(name, plan, words, float(excess), q)


def asked(
    cases: int, seconds: float, seed: int, number: int = 0
) -> Iterator[tuple[Question, list[Broken]]]:
    """Questions one after the other, until there were enough cases or no time is left."""
    begin, done = time.monotonic(), 0
    while done < cases and time.monotonic() - begin < seconds:
        if (q := question(number, seed)) is not None:
            yield q, list(held(q))
            done += len(q.plans)
        number += 1


NAMES = (*(f"alone.{name}" for name in (*ALONE, "exchange")), "recommended", "peak",
         "memory_bandwidth", "weights", "company", "link_bandwidth", "one_stage",
         "better.network_bandwidth", "better.network_latency", "better.peak",
         "better.memory_bandwidth", "better.launch", "better.dispatch", "batch", "more_memory",
         "renamed")  # fmt: skip


def measured(found: list[tuple[int, list[Broken]]], seconds: float) -> dict[str, Any]:
    """Cases, violations by law, and the worst of each."""
    broken = [each for _, some in found for each in some]
    count = Counter(each.law for each in broken)
    made = {
        "cases": figure(sum(size for size, _ in found), "plans", ""),
        "questions": figure(len(found), "questions", ""),
        "seconds": figure(round(seconds, 1), "s", ""),
        "violations": figure(len(broken), "cases", "0"),
    }
    for name in NAMES:
        made[f"violations.{name}"] = figure(count[name], "cases", "0")
        if mine := [each.excess for each in broken if each.law == name]:
            made[f"worst.{name}"] = figure(round(max(max(mine), 1 / min(mine)) - 1, 6), "1", "0")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2,000 cases, under a minute")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--cases", type=int, help="plans to try (100,000; with --quick 2,000)")
    parser.add_argument("--seconds", type=float, default=np.inf, help="to spend at most")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--question", type=int, help="this one alone, with its laws")
    parser.add_argument("--first", type=int, default=0, help="question to begin with")
    given = parser.parse_args()
    begin = time.monotonic()
    found: list[tuple[int, list[Broken]]] = []
    if given.question is not None:
        one = question(given.question, given.seed)
        found = [] if one is None else [(len(one.plans), list(held(one)))]
    else:
        cases = given.cases or (QUICK if given.quick else CASES)
        for q, broken in asked(cases, given.seconds, given.seed, given.first):
            found.append((len(q.plans), broken))
            for each in broken:  # as they are found: a long run need not be waited for
                sys.stderr.write(SAID.format(**each.row()))
                sys.stderr.flush()
    made = measured(found, time.monotonic() - begin)
    rows = [each.row() for _, some in found for each in some]
    if given.as_json:
        sys.stdout.write(json.dumps({"figures": made, "rows": rows}, indent=1) + "\n")
        return
    for row in sorted(rows, key=lambda row: (row["law"], -row["excess"])):
        sys.stdout.write(SAID.format(**row))
    for name, each in made.items():
        sys.stdout.write(f"{name:36}{each['value']:>12,.6g} {each['unit']:10} {each['goal']}\n")


if __name__ == "__main__":
    main()
