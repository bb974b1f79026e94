"""Laws of plans drawn at random over the shipped models and systems.

A fixed seed draws them, so that every run tries the same plans.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import oracle
from oracle.kernels.curve import precision_on
from oracle.models.model import Model
from oracle.plan.cuts import even_cuts
from oracle.plan.plan import parse
from oracle.plan.strategies import strategies
from oracle.predict.defaults import options_for
from oracle.spec import catalogue
from oracle.spec.level import Level
from oracle.spec.system import System

FEW, QUESTIONS, PLANS = 6, 24, 4
EVERYTHING = 1e18  # bytes of memory: whether a plan fits is not asked here
# A full recomputation sends the messages of the forward pass again, and they are taken to hide as
# well as the first time, though only blocks are made again: a little less work to hide under.
AGAIN = 2e-3
# Unequal layers are cut by the load of each unit, to first order: the host's launches are set
# beside each unit's kernels, not beside a stage's, and the other stages' fill isn't weighed.
CUT = 0.03
WINOGRAD = 4.0  # fewer products of a convolution of 3 x 3 by tiles of 4 x 4 [lavin2016]


@cache
def model(name: str) -> Model:
    return oracle.model(name)


@cache
def system(name: str) -> System:
    return oracle.system(name)


def drawn(rng: random.Random, devices: int) -> str:
    """A plan of no more devices than there are; what its rules forbid is dropped later."""
    words, left = [], devices
    axes = [cls for cls in strategies().values() if cls.degrees and cls.multiplies]
    for cls in rng.sample(axes, rng.choice([1, 2, 2, 3])):
        degree = rng.choice([d for d in (1, 2, 3, 4, 8, 16) if d <= left])
        left //= degree
        word = f"{cls.name}:{degree}"
        for name, knob in cls.knobs().items():
            choices = knob.metadata.get("words")
            if choices and name != "halo" and rng.random() < 0.25:
                word += f",{name}={rng.choice(choices)}"
            elif name == "segments" and rng.random() < 0.7:
                word += f",segments={rng.choice([2, 4, 8, 16])}"
            elif name == "interleave" and rng.random() < 0.3:
                word += ",interleave=2"
        words.append(word)
    if rng.random() < 0.3:
        words.append(f"recompute:{rng.choice(['selective', 'full', 'operators'])}")
    return " ".join(words)


def asked(seed: int = 2026) -> Iterator[tuple[str, str, int, list[str]]]:
    """(model, system, batch, plans that break no rule)."""
    rng = random.Random(seed)
    models, systems = sorted(catalogue.shipped("models")), sorted(catalogue.shipped("systems"))
    while True:
        what, where = rng.choice(models), rng.choice(systems)
        batch = rng.choice([16, 64, 96, 256])
        some: list[str] = []
        for _ in range(3 * PLANS):
            if len(some) == PLANS:
                break
            text = drawn(rng, system(where).devices)
            try:
                fine = oracle.estimate(model(what), system(where), text, batch,
                                       max_memory=EVERYTHING).feasible[0]  # fmt: skip
            except oracle.SpecError:
                continue
            some += [text] if fine and text not in some else []
        if some:
            yield what, where, batch, some


@pytest.fixture(
    params=[slice(FEW), pytest.param(slice(FEW, QUESTIONS), marks=pytest.mark.slow)],
    ids=["some", "others"],
)
def part(request: pytest.FixtureRequest) -> slice:
    """Which of the questions."""
    return request.param


@cache
def first(count: int) -> list[tuple[str, str, int, list[str]]]:
    found = asked()
    return [next(found) for _ in range(count)]


def questions(part: slice) -> list[tuple[str, str, int, list[str]]]:
    return first(part.stop)[part]


def found(
    what: Model, where: System, plan: Any, batch: Any, said: str = "plain", **more: Any
) -> oracle.Estimate:
    return oracle.estimate(what, where, plan, batch, max_memory=EVERYTHING, software=said,
                           any_plan=True, **more)  # fmt: skip


def under(part: slice, seed: int = 2026) -> list[str]:
    """A framework for each question."""
    rng = random.Random(seed)
    shipped = sorted(catalogue.shipped("software"))
    return [rng.choice(shipped) for _ in range(QUESTIONS)][part]


def test_alone_is_as_in_a_table(part: slice) -> None:
    for what, where, batch, plans in questions(part):
        table = found(model(what), system(where), plans, batch)
        for row, text in enumerate(plans):
            alone = found(model(what), system(where), text, batch)
            at = (what, where, batch, text)
            assert alone.seconds[0] == pytest.approx(table.seconds[row], rel=1e-12), at
            assert alone.memory[0] == pytest.approx(table.memory[row], rel=1e-12), at


def test_no_group_is_faster_in_company(part: slice) -> None:
    for what, where, batch, plans in questions(part):
        for text, sent in zip(
            plans, found(model(what), system(where), plans, batch).exchange, strict=True
        ):
            for message in sent:
                assert message["phi"] >= 1 - 1e-9, (what, where, batch, text, message["what"])


def test_devices_together_hold_the_weights(part: slice) -> None:
    for what, where, batch, plans in questions(part):
        table, known = found(model(what), system(where), plans, batch), model(what)
        width = options_for(known, system(where)).width
        for text, held, devices in zip(plans, table.memory, table.devices, strict=True):
            assert held * devices >= known.parameters * width, (what, where, batch, text)


def test_nothing_beats_the_peak(part: slice) -> None:
    """FLOP of the passes over all devices' peak; a Winograd convolution saves some of them."""
    for what, where, batch, plans in questions(part):
        known, there = model(what), system(where)
        options = options_for(known, there)
        flop = 2 * known.mac * known.repeat
        if options.precision == "fp32":
            flop = np.where(known.mask(lambda row: row.work == "conv"), flop / WINOGRAD, flop)
        peak = there.device.peak[precision_on(there.device, options.precision)]
        first = int(np.argmax(flop > 0))  # its input needs no gradient
        least = (3 * flop.sum() - flop[first]) * batch / peak
        table = found(known, there, plans, batch)
        for text, seconds, devices in zip(plans, table.seconds, table.devices, strict=True):
            assert seconds * devices >= least * (1 - 1e-9), (what, where, batch, text)


def better(there: System) -> Iterator[tuple[str, System]]:
    """The same machine with one property improved.

    What was measured across nodes was measured over the links that there are: they stay.
    """
    levels, device = there.levels, there.device

    def with_level(k: int, other: Level) -> System:
        return replace(there, levels=(*levels[:k], other, *levels[k + 1 :]))

    for k, level in enumerate(levels):
        if level.by_nodes:
            faster = tuple(
                replace(point, bandwidth=2 * point.bandwidth, low=point.low and 2 * point.low,
                        high=point.high and 2 * point.high) for point in level.by_nodes
            )  # fmt: skip
            yield f"{level.name} by_nodes", with_level(k, replace(level, by_nodes=faster))
        if any(outer.by_nodes for outer in levels[k:]):
            continue
        for name, factor in (("bandwidth", 2), ("latency", 0.5), ("ports", 2)):
            value = getattr(level, name)
            if value is None or (name == "ports" and k == 0):
                continue
            other = replace(level, **{name: value * factor})
            yield f"{level.name} {name}", with_level(k, other)
    for factor in (1.1, 10):
        peak = {name: rate * factor for name, rate in device.peak.items()}
        yield f"peak x {factor}", replace(there, device=replace(device, peak=peak))
    for name, factor in (("memory_bandwidth", 1.5), ("launch", 0.5)):
        value = getattr(device, name) * factor
        yield name, replace(there, device=replace(device, **{name: value}))
    yield "dispatch", replace(there, dispatch=(there.dispatch or 20e-6) / 2)


def by_load(known: Model, text: str, batch: int) -> bool:
    """Whether a plan's pipeline is cut by the load of its units, not into equal blocks."""
    pipeline = parse(text, batch).axis("pipeline")
    chunks = int(pipeline.degree[0, 0] * pipeline.interleave[0, 0])
    even = pipeline.says("cuts", "even")[0, 0] and even_cuts(known, chunks) is not None
    return chunks > 1 and not even


@pytest.mark.slow
def test_better_hardware_is_never_slower(part: slice) -> None:
    for what, where, batch, plans in questions(part):
        now = found(model(what), system(where), plans, batch).seconds
        for name, other in better(system(where)):
            then = found(model(what), other, plans, batch).seconds
            for text, before, after in zip(plans, now, then, strict=True):
                room = AGAIN if "recompute:full" in text else 1e-9
                room = CUT if by_load(model(what), text, batch) else room
                assert after <= before * (1 + room), (what, where, batch, text, name)


def test_more_samples_are_never_faster(part: slice) -> None:
    for what, where, batch, plans in questions(part):
        now = found(model(what), system(where), plans, batch).seconds
        for times in (2, 3):
            then = found(model(what), system(where), plans, batch * times).seconds
            for text, before, after in zip(plans, now, then, strict=True):
                assert after >= before * (1 - 1e-9), (what, where, batch, text, times)


@pytest.mark.parametrize(("what", "where", "text", "batch", "change"), [
    ("llama3-8b", "abci", "context:16", 16, "leaf group ports"),
    ("gpt2", "abci", "context:4", 16, "memory_bandwidth"),
    ("gpt2-xl", "abci", "context:8 tensor:8 recompute:full", 64, "node bandwidth"),
    ("alexnet", "abci", "pipeline:4,segments=8", 256, "peak x 10"),
    ("alexnet", "dgx-h100", "pipeline:4,segments=16,cuts=balanced", 256, "peak x 10"),
])  # fmt: skip
def test_machines_that_were_slower_for_being_better(
    what: str, where: str, text: str, batch: int, change: str
) -> None:
    """Entries of another network, and stages cut by compute alone."""
    other = dict(better(system(where)))[change]
    before, after = (found(model(what), s, text, batch).seconds[0] for s in (system(where), other))
    assert after <= before * (1 + 1e-9)


def test_a_larger_batch_that_was_faster() -> None:
    text = "recompute:full data:16 pipeline:2,segments=16,interleave=2 spatial:2"
    known, there = model("inception-v3"), system("dgx-a100")
    seconds = [found(known, there, text, batch).seconds[0] for batch in (256, 512, 768, 1024)]
    assert seconds == sorted(seconds)


# --- the same under the frameworks of shipped software ----------------------------------------


def test_alone_is_as_in_a_table_under_any_software(part: slice) -> None:
    for (what, where, batch, plans), said in zip(questions(part), under(part), strict=True):
        table = found(model(what), system(where), plans, batch, said)
        for row, text in enumerate(plans):
            alone = found(model(what), system(where), text, batch, said)
            at = (what, where, batch, text, said)
            assert alone.seconds[0] == pytest.approx(table.seconds[row], rel=1e-12), at
            assert alone.memory[0] == pytest.approx(table.memory[row], rel=1e-12), at
            assert 0 <= alone.cached[0] == pytest.approx(table.cached[row], rel=1e-12), at


def test_devices_together_hold_the_weights_under_any_software(part: slice) -> None:
    for (what, where, batch, plans), said in zip(questions(part), under(part, 1), strict=True):
        table, known = found(model(what), system(where), plans, batch, said), model(what)
        options = options_for(known, system(where), software=said, any_plan=True)
        state = options.software.state
        width = min(state.kept(options.precision, narrow, False) for narrow in (True, False))
        for text, held, devices in zip(plans, table.memory, table.devices, strict=True):
            assert held * devices >= known.parameters * width, (what, where, batch, text, said)


def test_more_samples_are_never_faster_under_any_software(part: slice) -> None:
    for (what, where, batch, plans), said in zip(questions(part), under(part, 2), strict=True):
        now = found(model(what), system(where), plans, batch, said).seconds
        then = found(model(what), system(where), plans, 2 * batch, said).seconds
        for text, before, after in zip(plans, now, then, strict=True):
            assert after >= before * (1 - 1e-9), (what, where, batch, text, said)


def test_better_hardware_is_never_slower_under_any_software(part: slice) -> None:
    rng = random.Random(3)
    for (what, where, batch, plans), said in zip(questions(part), under(part, 3), strict=True):
        now = found(model(what), system(where), plans, batch, said).seconds
        for name, other in rng.sample(list(better(system(where))), 1):
            then = found(model(what), other, plans, batch, said).seconds
            for text, before, after in zip(plans, now, then, strict=True):
                room = AGAIN if "recompute:full" in text else 1e-9
                room = CUT if by_load(model(what), text, batch) else room
                assert after <= before * (1 + room), (what, where, batch, text, name, said)


HIDES = {
    "gather.overlap": ("none", "forward"), "prefetch": ("0", "1"),
    "forward_column": ("none", "pipelined"), "forward_row": ("none", "pipelined"),
    "backward_row": ("none", "data"), "backward_column_gather": ("none", "data"),
    "backward_column_reduce": ("none", "weight"), "context": ("exposed", "beside"),
    "borders.overlap": ("none", "all"),
}  # fmt: skip


def test_what_hides_more_is_never_slower(part: slice) -> None:
    """Pieces as they are; a cut by load finds other stages where messages hide."""
    rng = random.Random(4)
    for (what, where, batch, plans), said in zip(questions(part), under(part, 4), strict=True):
        for key in rng.sample(sorted(HIDES), 2):
            seconds = [
                found(model(what), system(where), plans, batch, f"{said},{key}={word}").seconds
                for word in HIDES[key]
            ]
            for text, shown, hidden in zip(plans, *seconds, strict=True):
                room = CUT if by_load(model(what), text, batch) else 1e-9
                assert hidden <= shown * (1 + room), (what, where, batch, text, said, key)
