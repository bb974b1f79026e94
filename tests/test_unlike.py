"""Systems of unlike devices: partitions, plans that span them, shares of the batch, cuts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import oracle
from oracle.ask.explain.factors import anatomy
from oracle.ask.explain.roofline import roofline
from oracle.ask.placing import on_nodes, placed
from oracle.network.contention import Contention, lines
from oracle.network.contention.groups import seated
from oracle.network.topology import network_of
from oracle.plan.partition import unlike_cuts
from oracle.plan.plan import parse
from oracle.plan.player import finish
from oracle.predict.allocation import timeline
from oracle.predict.defaults import options_for
from oracle.predict.faces import Faces
from oracle.run.target import given as so_long
from oracle.run.target import training
from oracle.show.text import estimate_text
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.partitions import parts
from oracle.spec.units import show
from oracle.spec.what_if import supposed

JOINT = {"bandwidth": "12.5 GB/s", "latency": "5 us", "ports": 8, "source": "assumed"}
PLAIN = [name for name in catalogue.shipped("systems") if not oracle.system(name).partitions]
SPANNED = [name for name in PLAIN if oracle.system(name).devices >= 2 * oracle.system(name).node]


def of(*given: tuple[str, int, float], **more: Any) -> Any:
    """A system of partitions: (system, nodes, how much slower) each."""
    each = [{"name": f"part{i}", "system": name, "nodes": nodes, "slower": slower}
            for i, (name, nodes, slower) in enumerate(given)]  # fmt: skip
    return oracle.system({"name": "mixed", "source": "a test", "partitions": each, **more})


MIXED = of(("abci", 8, 1), ("dgx-a100", 4, 1), joint=JOINT)


@pytest.mark.parametrize("name", SPANNED)
def test_alike_partitions_are_the_plain_system_to_the_last_digit(name: str) -> None:
    node = oracle.system(name).node
    both = of((name, 1, 1), (name, 1, 1))
    plan = f"data:{2 * node}"
    plain = oracle.estimate("resnet50", name, plan, batch=64 * node).plan_dict(0)
    found = oracle.estimate("resnet50", both, plan, batch=64 * node).plan_dict(0)
    alike = found.pop("partitions")
    assert near(found, plain)
    assert len(alike) == 2
    assert alike[0]["busy"] == alike[1]["busy"]


@pytest.mark.parametrize("plan", [
    "data:4,zero=1 tensor:8", "pipeline:4,segments=8 data:8", "data:4 pipeline:8,segments=16",
    "pipeline:4,segments=8,cuts=balanced data:4,zero=1 tensor:2", "serial", "data:2,zero=3",
    "on:2/1 data:32", "context:2 data:16", "pipeline:4,segments=8,schedule=zb-h1 data:8",
    "on:2 data:16", "data:8 expert:1 recompute:full tensor:4",
])  # fmt: skip
def test_any_plan_of_alike_partitions_is_that_of_the_plain_system(plan: str) -> None:
    both = of(("dgx-a100", 2, 1), ("dgx-a100", 2, 1))
    plain = oracle.estimate("gpt2", "dgx-a100", plan.removeprefix("on:2/1 ").removeprefix("on:2 "),
                            batch=128, any_plan=True).plan_dict(0)  # fmt: skip
    found = oracle.estimate("gpt2", both, plan, batch=128, any_plan=True).plan_dict(0)
    found.pop("partitions", None)
    assert near({**found, "plan": plain["plan"]}, plain)


def near(one: Any, other: Any) -> bool:
    """Whether two trees hold the same, numbers to their last digits but two."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float):
        return bool(one == pytest.approx(other, rel=1e-13))
    return bool(one == other)


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "h100-sxm5-80gb", "laptop-cpu", "tpu-v4"])
def test_a_slowed_device_takes_so_many_times_as_long(name: str) -> None:
    """But for the 3 us that a kernel of a family without a curve takes to start."""
    from oracle.kernels.rows import passes
    from oracle.predict.defaults import options_for
    from oracle.predict.evaluate import split

    model, device = oracle.model("gpt2"), catalogue.device(name)
    options = options_for(model, oracle.system("dgx-a100"), precision="fp32")
    shard = split(model, parse("serial", 4.0), options)
    one, other = (passes(shard, each, "fp32", None) for each in (device, device.slowed(1.3)))
    for part in ("forward", "data", "weight"):
        assert getattr(other, part) == pytest.approx(1.3 * getattr(one, part), rel=1e-2)
    assert device.slowed(1) is device


def test_shares_by_hand() -> None:
    """One of two devices takes twice as long: it gets two samples of six, the other four."""
    pair = of(("dgx-a100", 1, 1), ("dgx-a100", 1, 2))
    even, uneven, other = oracle.estimate(
        "gpt2", pair, ["on:all data:16", "on:all,shares=2/1 data:16", "on:2/1,shares=1/2 data:16"],
        batch=48, ideal=True,
    ).work  # fmt: skip
    assert [side.samples for side in even.sides] == [3, 3]
    assert [side.samples for side in uneven.sides] == [4, 2]
    assert [(side.name, side.samples) for side in other.sides] == [("part1", 2), ("part0", 4)]
    quick, slow = even.sides
    assert slow.busy == pytest.approx(2 * quick.busy)
    assert slow.bounds
    assert not quick.bounds
    quick, slow = uneven.sides
    assert quick.busy == pytest.approx(4 / 3 * even.sides[0].busy, rel=1e-3)  # but for the update
    assert slow.busy == pytest.approx(quick.busy, rel=1e-2)
    assert quick.busy + quick.waits == pytest.approx(float(uneven.block.seconds[uneven.row]))


@pytest.mark.parametrize(("plan", "samples", "pieces"), [
    ("on:all,shares=2/1 data:8,accumulate=4 tensor:4", [43, 22], [4, 2]),
    ("on:all,shares=3/1 data:8 pipeline:4,segments=6", [48, 16], [6, 2]),
    ("data:8 pipeline:4,segments=8", [32, 32], [8, 8]),
])  # fmt: skip
def test_micro_batches_are_of_one_size(plan: str, samples: list[int], pieces: list[int]) -> None:
    both = of(("dgx-a100", 2, 1), ("dgx-a100", 2, 1.5))
    found = oracle.estimate("gpt2", both, plan, batch=256, any_plan=True).work[0].sides
    assert [side.samples for side in found] == samples
    assert [side.micro_batches for side in found] == pieces


@pytest.mark.parametrize("shares", [(1, 1), (2, 1), (3, 2), (1, 4)])
@pytest.mark.parametrize("model", ["gpt2", "resnet50"])
def test_a_step_is_that_of_the_slowest_replica(model: str, shares: tuple[int, int]) -> None:
    """Each kind by itself, with as many samples a replica as it has here, on the plain path."""
    pair = of(("dgx-a100", 2, 1), ("dgx-a100", 2, 1.7))
    said = "" if shares == (1, 1) else f",shares={shares[0]}/{shares[1]}"
    plan = f"on:2/1{said} data:32,overlap=on"
    found = oracle.estimate(model, pair, plan, batch=960, reading="none", any_plan=True)
    alone = [
        float(oracle.estimate(model, one.view, "data:32", 32 * side.samples, reading="none")
              .seconds[0])
        for one, side in zip(parts(pair, (2, 1)), found.work[0].sides, strict=True)
    ]  # fmt: skip
    assert found.seconds[0] == pytest.approx(max(alone), rel=1e-12)


@pytest.mark.parametrize("plan", [
    "pipeline:4,segments=16 data:16", "on:2/1 pipeline:8,segments=16 data:8",
    "pipeline:4,segments=32,interleave=3,cuts=balanced data:16",
    "pipeline:4,segments=16,schedule=gpipe data:16", "pipeline:8,segments=16,schedule=zb-h1 data:8",
])  # fmt: skip
def test_stages_on_unlike_devices_are_played_as_they_are_priced(plan: str) -> None:
    work = oracle.estimate("gpt2", MIXED, plan, batch=512, any_plan=True).work[0]
    step, one = work.block.step, work.plan.axis("pipeline")
    passes, row = step.passes, step.passes.row[:1]
    ends = finish(one.word("schedule"), int(one.segments[0, 0]), int(one.interleave[0, 0]),
                  passes.kinds(row))  # fmt: skip
    f, b = passes.forward[row[0]], passes.backward[row[0]]
    assert (f + b).max() > 1.1 * (f + b).min(), "the stages are unlike"
    S, v, gpipe = float(one.segments[0, 0]), float(one.interleave[0, 0]), "gpipe" in plan
    busy = S * (f.max() + b.max() if gpipe else (f + b).max())
    assert float(step.compute["bubble"][0]) == pytest.approx(ends.max() - busy, rel=1e-9)
    closed = (f + b).sum() - (f.max() + b.max() if gpipe else (f + b).max())
    assert ends.max() <= (busy + closed / v) * (1 + 1e-9 + 0.01 * (v > 1)), (
        "which it is no worse than"
    )


def test_balanced_stages_are_cut_by_what_they_take_where_they_are() -> None:
    plans = [f"{on}pipeline:2,segments=16{cuts} data:32"
             for on in ("", "on:2/1 ") for cuts in ("", ",cuts=balanced")]  # fmt: skip
    work = [oracle.estimate("gpt2", MIXED, plan, batch=512).work[0] for plan in plans]
    cuts = [list(one.cuts) for one in work]
    seconds = [float(one.block.seconds[0]) for one in work]
    assert cuts == [[0, 7, 16], [0, 7, 16], [0, 7, 16], [0, 9, 16]], "V100 get less"
    assert seconds[1] == seconds[0]
    assert seconds[3] < 0.9 * seconds[2]


def test_unlike_cuts_are_the_best_of_all() -> None:
    rng = np.random.default_rng(5)
    for units, chunks in ((6, 2), (8, 3), (9, 4)):
        for _ in range(20):
            loads = rng.uniform(0.1, 1, (chunks, units)) * rng.uniform(1, 5, (chunks, 1))

            def fullest(edges: Any, loads: Any = loads) -> float:
                return max(loads[k, edges[k] : edges[k + 1]].sum() for k in range(len(loads)))

            every = ((0, *inner, units) for inner in combinations(range(1, units), chunks - 1))
            assert fullest(unlike_cuts(loads)) == pytest.approx(min(map(fullest, every)))


def test_who_sits_where_by_hand() -> None:
    """Two pipelines of two stages: partitions of 1 and 3 ranks cut across the first."""
    both = of(("dgx-a100", 1, 1), ("dgx-a100", 3, 2))
    job = parts(both)
    apart = Faces.of(parse("data:2 pipeline:16,segments=16", 64.0), job)
    assert len(apart.row) == 2  # a pipeline on both kinds, one on the second
    assert apart.held[0, :, 0].tolist() == [True] * 8 + [False] * 8
    assert apart.held[1, :, 0].tolist() == [False] * 16
    across = Faces.of(parse("pipeline:2,segments=16 data:16", 64.0), job)
    assert across.held.sum(axis=0).tolist() == [[1, 1], [0, 2]]
    inside = Faces.of(parse("tensor:32", 64.0), job)
    assert inside.held.tolist() == [[[True, True]]]


def test_a_message_takes_as_long_as_on_the_slowest_network_that_it_meets() -> None:
    slow = of(
        ("abci", 8, 1), ("dgx-a100", 4, 1), joint={**JOINT, "bandwidth": "1 GB/s", "ports": 1}
    )
    for plan, meets in (("data:64", True), ("pipeline:2,segments=8 data:32", True),
                        ("on:2 data:32", False)):  # fmt: skip
        fast, late = (float(oracle.estimate("gpt2", each, plan, batch=512).seconds[0])
                      for each in (MIXED, slow))  # fmt: skip
        assert (late > fast) == meets
    inner = oracle.estimate("gpt2", MIXED, "data:8 tensor:8", batch=64, any_plan=True)
    (sums,) = (one for one in inner.exchange[0] if one["what"] == "tensor: activations")
    alone = oracle.estimate("gpt2", "abci", "data:8 tensor:8", batch=64, any_plan=True)
    (same,) = (one for one in alone.exchange[0] if one["what"] == "tensor: activations")
    assert sums["seconds"] == pytest.approx(same["seconds"], rel=0.05)


def test_a_partition_holds_what_its_memory_has_room_for() -> None:
    plans = ["data:32", "on:2 data:32", "on:1 data:32"]
    both, large, small = (oracle.estimate("gpt2", MIXED, plan, batch=2048) for plan in plans)
    assert large.feasible[0]
    assert not small.feasible[0]
    assert large.capacity[0] > small.capacity[0]
    assert not both.feasible[0]  # 32 ranks are the first partition's
    spread = oracle.estimate("gpt2", MIXED, "on:all,shares=1/4 data:64", batch=2048, any_plan=True)
    assert spread.feasible[0]
    thin, wide = spread.work[0].sides
    assert thin.memory < thin.capacity < wide.memory < wide.capacity


@pytest.mark.parametrize(("plan", "why"), [
    ("on:3 data:8", "mixed has the partitions 1 part0, 2 part1"),
    ("on:1 data:64", "64 devices, but the partitions have 32"),
    ("on:all,shares=1/2/3 data:64", "one share for each partition"),
    ("data:64 recompute:best", "not chosen by room on unlike devices"),
])  # fmt: skip
def test_what_does_not_go_is_refused_with_its_reason(plan: str, why: str) -> None:
    found = oracle.estimate("gpt2", MIXED, plan, batch=512, any_plan=True)
    assert any(why in words for words in found.broken[0])


def test_plans_on_partitions_are_refused_where_there_are_none() -> None:
    (words,) = oracle.estimate("gpt2", "dgx-a100", "on:1 data:8", batch=64).broken
    assert "dgx-a100 has no partitions to be `on`" in words
    (uneven,) = oracle.estimate("gpt2", MIXED, "on:all,shares=1/2 data:64", batch=512,
                                software="megatron-core").broken  # fmt: skip
    assert any("megatron-core knows on shares=even only" in words for words in uneven)


@pytest.mark.parametrize(("text", "what"), [
    ("on:1/1 data:8", "stands twice"), ("on:1/2,shares=1/2/3 data:8", "3 shares for 2"),
    ("on:9 data:8", "cannot be `9`"),
])  # fmt: skip
def test_plans_that_make_no_sense_are_not_read(text: str, what: str) -> None:
    with pytest.raises(SpecError, match=what):
        parse(text, 64.0)


def test_all_faults_of_partitions_are_said_at_once() -> None:
    with pytest.raises(SpecError) as found:
        oracle.system({"name": "m", "source": "s", "partitions": [
            {"name": "a", "system": "abci", "nodes": 1_000_000},
            {"name": "a", "system": "dgx-a1000", "nodes": 0, "slower": -1},
        ]})  # fmt: skip
    said = str(found.value)
    for words in ("no shipped systems file is called `dgx-a1000`", "nodes", "slower"):
        assert words in said
    for given, words in (
        (("abci", 2, 1), "one partition is all of abci"),
        (("abci", 2, 1, "dgx-a100", 1, 1), "nobody says what joins them"),
    ):
        several = [given[i : i + 3] for i in range(0, len(given), 3)]
        with pytest.raises(SpecError, match=words):
            of(*several)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="share its network"):
        of(("abci", 2, 1), ("abci", 2, 1), joint=JOINT)
    with pytest.raises(SpecError, match="names tell them apart"):
        oracle.system({"name": "m", "source": "s", "partitions": [
            {"name": "a", "system": "abci", "nodes": 1},
            {"name": "a", "system": "abci", "nodes": 2},
        ]})  # fmt: skip
    with pytest.raises(SpecError, match="1089 nodes of abci, which has 1088"):
        of(("abci", 1088, 1), ("abci", 1, 1.3))


def test_a_table_of_plans_is_its_rows() -> None:
    plans = ["data:64", "on:2 data:32", "pipeline:2,segments=8 data:32", "data:8 tensor:8",
             "on:all,shares=1/3 data:64", "on:2/1 data:16 pipeline:4,segments=8"]  # fmt: skip
    whole = oracle.estimate("gpt2", MIXED, plans, batch=512, any_plan=True)
    for row, plan in enumerate(plans):
        one = oracle.estimate("gpt2", MIXED, plan, batch=512, any_plan=True)
        assert whole.seconds[row] == pytest.approx(one.seconds[0], rel=1e-9)
        assert whole.memory[row] == pytest.approx(one.memory[0], rel=1e-9)
        assert whole.seconds_high[row] == pytest.approx(one.seconds_high[0], rel=1e-6)


@pytest.mark.parametrize("ask", [
    lambda found: roofline(found, 0),
    lambda found: timeline(found, 0),
    lambda found: placed(found.model, MIXED, ["data:64"], 512, found.options, "best"),
    lambda found: on_nodes(MIXED, "node1"),
    lambda found: oracle.design_network(["resnet50:512"], 64, 36, system=MIXED),
], ids=["roofline", "memory", "placing", "nodes", "design-network"])  # fmt: skip
def test_what_is_not_told_across_partitions_is_refused(ask: Any) -> None:
    found = oracle.estimate("resnet50", MIXED, "data:64", batch=512)
    with pytest.raises(SpecError, match="not told across partitions of unlike devices"):
        ask(found)


def test_an_explanation_adds_up_and_says_who_waits() -> None:
    pair = of(("dgx-a100", 1, 1), ("dgx-a100", 1, 2))
    said = "plain,tf32=none"  # kernels that no host is too slow for
    options = options_for(oracle.model("alexnet"), pair, reading="none", software=said)
    own = anatomy(oracle.model("alexnet"), pair, "data:16", 512, options)
    total = float(own.shown.seconds[0])
    assert sum(factor.seconds for factor in own.factors) == pytest.approx(total, rel=1e-9)
    (balance,) = (one for one in own.factors if one.name == "workload balance")
    quick, slow = own.shown.work[0].sides
    assert balance.seconds == pytest.approx((slow.busy - quick.busy) / 2, rel=0.1)
    assert own.evened is not None
    assert own.evened.words.startswith(
        "devices of part1 are busy 1.8 × as long as those of part0; "
    )
    better = oracle.estimate("alexnet", pair, own.evened.plan, 512, reading="none",
                             software=said)  # fmt: skip
    assert "shares=" in own.evened.plan
    assert own.evened.seconds == pytest.approx(float(better.seconds[0]))
    assert own.evened.seconds < total


def test_explaining_alike_partitions_is_explaining_the_plain_system() -> None:
    """The same seconds for the same causes, and nobody to even out."""
    model, both = oracle.model("alexnet"), of(("dgx-a100", 1, 1), ("dgx-a100", 1, 1))
    for plan in ("data:16", "on:2 data:8"):
        ours, plain = (
            anatomy(model, where, text, 512, options_for(model, where, reading="none"))
            for where, text in ((both, plan), (oracle.system("dgx-a100"), plan[-7:].strip()))
        )
        assert {f.name: f.seconds for f in ours.factors} == pytest.approx(
            {f.name: f.seconds for f in plain.factors}, rel=1e-6, abs=1e-9)  # fmt: skip
        assert ours.evened is None or not ours.evened.plan


def test_a_plan_on_the_slow_partition_is_held_against_one_of_its_devices() -> None:
    pair = of(("dgx-a100", 1, 1), ("dgx-a100", 1, 3))
    model, useful = oracle.model("alexnet"), []
    options = options_for(model, pair, reading="none")
    for plan in ("on:1 data:8", "on:2 data:8"):
        (one,) = (factor for factor in anatomy(model, pair, plan, 512, options).factors
                  if factor.name == "useful computation")  # fmt: skip
        useful.append(one.seconds)
    assert useful[1] == pytest.approx(3 * useful[0], rel=0.02)


def test_a_training_costs_the_sum_over_its_partitions() -> None:
    """By hand: each device its own price for the same hours; what one lacks all lack."""

    def paid(*prices: float | None) -> Any:
        each = [replace(one, system=replace(one.system, price=price and price / 3600))
                for one, price in zip(MIXED.partitions, prices, strict=True)]  # fmt: skip
        shown = oracle.estimate("alexnet", replace(MIXED, partitions=tuple(each)), "data:64", 512)
        return training(shown, 0, so_long(shown, steps=1e6))

    one = paid(1, 4)
    hours = one.seconds / 3600
    assert one.costs.device_hours == pytest.approx(64 * hours)
    assert one.costs.money == pytest.approx(32 * hours * (1 + 4))
    assert paid(1, None).costs.money is None or MIXED.partitions[1].system.device.price
    shown = oracle.estimate("alexnet", replace(MIXED, price=2 / 3600), "data:64", 512)
    whole = training(shown, 0, so_long(shown, steps=1e6))
    assert whole.costs.money == pytest.approx(64 * 2 * whole.seconds / 3600)


def test_alike_partitions_draw_the_power_of_the_plain_system() -> None:
    both = of(("dgx-a100", 1, 1), ("dgx-a100", 1, 1))
    ours, plain = (
        training(shown, 0, so_long(shown, steps=1e5)).costs
        for shown in (oracle.estimate("alexnet", where, "data:16", 512)
                      for where in (both, "dgx-a100"))
    )  # fmt: skip
    assert ours.energy == pytest.approx(plain.energy, rel=1e-9)
    assert ours.carbon == plain.carbon or ours.carbon == pytest.approx(plain.carbon, rel=1e-9)


@pytest.mark.parametrize(("factor", "faster"), [
    ("kernels=2", True), ("network=4", True), ("latency=0.25", True), ("memory=2", False),
])  # fmt: skip
def test_what_would_be_if_is_so_of_every_partition(factor: str, faster: bool) -> None:
    other = supposed(MIXED, factor)
    name, k = factor.split("=")
    joints = {"network": "bandwidth", "latency": "latency"}
    for field in ("bandwidth", "latency"):
        times = float(k) if joints.get(name) == field else 1.0
        assert getattr(other.joint, field) == times * getattr(MIXED.joint, field)
    before, after = (float(oracle.estimate("vgg16", each, "data:64", 1024).seconds[0])
                     for each in (MIXED, other))  # fmt: skip
    assert (after < before) == faster


def test_text_names_the_memory_of_each_partition_and_who_waits() -> None:
    shown = oracle.estimate("resnet50", "v100-slow-node", "data:128", batch=8192)
    said = estimate_text(shown)
    sound, slow = shown.work[0].sides
    assert f"{show(sound.memory, 'B')} of {show(sound.capacity, 'B')} on sound" in said
    (line,) = (one.partition("slow")[2] for one in said.splitlines() if "2 slow" in one)
    assert [show(slow.busy, "s"), show(slow.waits, "s")] == re.findall(r"[\d.]+ m?s", line)
    assert sound.waits > 10 * slow.waits
    alone = estimate_text(oracle.estimate("resnet50", "v100-slow-node", "on:1 data:8", batch=512))
    assert "on sound" not in alone


def test_devices_of_one_stage_are_each_as_busy_as_they_are() -> None:
    """A tensor group across both: what each kind takes for its part is its own."""
    pair = of(("dgx-a100", 1, 1), ("dgx-a100", 1, 2))
    plan = "tensor:16"
    across = oracle.estimate("gpt2", pair, plan, batch=64, any_plan=True).work[0].sides
    alone = [oracle.estimate("gpt2", one.view, plan, batch=64, any_plan=True).compute
             for one in parts(pair)]  # fmt: skip
    for side, took in zip(across, alone, strict=True):
        passes = sum(float(took[part][0]) for part in ("forward", "backward", "update"))
        assert side.busy == side.mean == pytest.approx(passes, rel=1e-6)
    assert across[1].busy > 1.1 * across[0].busy
    assert [side.devices for side in across] == [8, 8]


def test_shares_that_are_recommended_are_the_best_of_all() -> None:
    """Every whole number of samples that a replica of the first partition may have."""
    pair = of(("dgx-a100", 1, 1), ("dgx-a100", 1, 2.5))
    ranking = oracle.recommend("alexnet", pair, devices=16, batch=2048, only=["data"],
                               software="plain", reading="none")  # fmt: skip
    zero = ",zero=1" if "zero=1" in ranking.best.plan else ""
    plans = [f"on:all,shares={first}/{256 - first} data:16{zero}" for first in range(130, 250)]
    every = oracle.estimate("alexnet", pair, plans, batch=2048, reading="none", software="plain")
    even = oracle.estimate("alexnet", pair, "data:16", batch=2048, reading="none")
    assert ranking.estimate.seconds[0] <= every.seconds.min() * (1 + 1e-9)
    assert ranking.estimate.seconds[0] < even.seconds[0]


@pytest.mark.parametrize(("slower", "devices"), [(1, 8), (1.5, 8), (0.5, 8), (3, 16)])
def test_a_partition_more_never_makes_the_best_plan_slower(slower: float, devices: int) -> None:
    pair = of(("dgx-a100", 2, 1), ("dgx-a100", 1, slower))
    both = oracle.recommend("alexnet", pair, devices=devices, batch=512, only=["data"],
                            reading="none", fastest=True)  # fmt: skip
    alone = oracle.recommend("alexnet", "dgx-a100", devices=devices, batch=512, only=["data"],
                             reading="none", fastest=True)  # fmt: skip
    assert both.estimate.seconds[0] <= alone.estimate.seconds[0] * (1 + 1e-9)
    if slower < 1:
        assert both.best.plan.startswith("on:2 ")
    elif slower > 1:
        assert both.best.plan.startswith("on:1 ")


# --- one graph of all networks -----------------------------------------------------------------

PAIR = {  # nodes of two and of four devices, a port each for the first, two for the second
    "slim": {"node": 2, "ports": 1, "inner": 10e9, "outer": 2e9},
    "wide": {"node": 4, "ports": 2, "inner": 40e9, "outer": 5e9},
}


def made(folder: Any, slim: int, wide: int, joint: float, ports: int) -> Any:
    """Two partitions in files of their own, joined."""
    for name, said in PAIR.items():
        (folder / f"{name}.yaml").write_text(json.dumps({
            "name": name, "source": "a test", "device": "laptop-cpu", "levels": [
                {"name": "node", "devices": said["node"], "bandwidth": f"{said['inner']} B/s",
                 "latency": "1 us", "source": "a test"},
                {"name": "net", "devices": 8 * said["node"], "bandwidth": f"{said['outer']} B/s",
                 "latency": "1 us", "ports": said["ports"], "link": "network",
                 "routing": "affinity", "source": "a test"}]}))  # fmt: skip
    file = folder / "both.yaml"
    file.write_text(json.dumps({
        "name": "both", "source": "a test",
        "partitions": [{"name": "slim", "system": "slim.yaml", "nodes": slim},
                       {"name": "wide", "system": "wide.yaml", "nodes": wide}],
        "joint": {"bandwidth": f"{joint} B/s", "latency": "1 us", "ports": ports,
                  "source": "a test"}}))  # fmt: skip
    return oracle.system(str(file))


def ways(slim: int, joint: float, ports: int, a: int, b: int) -> dict[Any, float]:
    """The links of a flow from rank a to rank b, by hand, with their B/s."""

    def place(rank: int) -> tuple[str, int, int]:
        if rank < 2 * slim:
            return "slim", rank // 2, rank % 2
        return "wide", (rank - 2 * slim) // 4, (rank - 2 * slim) % 4

    (kind, node, at), (other, there, to) = place(a), place(b)
    found: dict[Any, float] = {}
    for way, (name, number, device) in (("up", (kind, node, at)), ("down", (other, there, to))):
        said = PAIR[name]
        found[way, name, number, device] = said["inner"]
        if (kind, node) != (other, there):
            lane = device * said["ports"] // said["node"]
            found[way, name, number, "port", lane] = said["outer"]
        if kind != other:
            found[way, name, "joint"] = joint * ports
    return found


def played(flows: list[dict[Any, float]]) -> float:
    """Seconds until the last of flows of one byte is through, at max-min fair rates."""
    left, now = [1.0] * len(flows), 0.0
    while any(one > 1e-9 for one in left):
        going = [i for i, one in enumerate(left) if one > 1e-9]
        room = {link: rate for i in going for link, rate in flows[i].items()}
        rate: dict[int, float] = {}
        while len(rate) < len(going):
            open_ = {link: sum(link in flows[i] for i in going if i not in rate) for link in room}
            shares = {link: room[link] / n for link, n in open_.items() if n}
            full = min(shares, key=lambda link: shares[link])
            share = shares[full]
            for i in [i for i in going if i not in rate and full in flows[i]]:
                rate[i] = share
                for link in flows[i]:
                    room[link] = max(0.0, room[link] - share)
        span = min(left[i] / rate[i] for i in going)
        for i in going:
            left[i] -= rate[i] * span
        now += span
    return now


@pytest.mark.parametrize(("slim", "wide", "joint", "ports"), [
    (2, 1, 1e9, 1), (2, 1, 20e9, 1), (4, 3, 2e9, 2), (1, 2, 3e9, 1), (3, 2, 100e9, 1),
])  # fmt: skip
def test_flows_of_all_partitions_are_laid_on_one_graph(
    slim: int, wide: int, joint: float, ports: int, tmp_path: Any
) -> None:
    """Any flows at once take as long as max-min fair shares of links that are listed by hand."""
    system = made(tmp_path, slim, wide, joint, ports)
    count = 2 * slim + 4 * wide
    rng = np.random.default_rng(slim)
    for one in parts(system):
        where, groups = seated(one.across, ((count, 1),), count)
        graph = network_of(where, groups.reach)
        for _ in range(3):
            a = np.tile(np.arange(count), 2)
            b = (a + rng.integers(1, count, 2 * count)) % count
            ends = groups.devices_of(a), groups.devices_of(b)
            step = Contention(graph, *ends, np.ones(2 * count))
            pairs = zip(a.tolist(), b.tolist(), strict=True)
            flows = [ways(slim, joint, ports, *pair) for pair in pairs]
            assert step.seconds() - 1e-6 == pytest.approx(played(flows), rel=1e-6)
            alone = [min(flow.values()) for flow in flows]
            assert step.solo.tolist() == pytest.approx(alone)


@pytest.mark.parametrize(("op", "by", "steps"), [
    ("allgather", "ring", lambda p: [[(r, (r + 1) % p) for r in range(p)]] * (p - 1)),
    ("alltoall", "pairwise", lambda p: [[(r, (r + k) % p) for r in range(p)] for k in range(1, p)]),
    ("allreduce", "halving_doubling", lambda p: [
        [(r, r ^ 1 << k) for r in range(p)] for k in [*range(4), *reversed(range(4))]]),
])  # fmt: skip
def test_an_operation_over_partitions_is_the_sum_of_its_steps_on_one_graph(
    op: str, by: str, steps: Any, tmp_path: Any
) -> None:
    system = made(tmp_path, 4, 2, 3e9, 1)
    p, every = 16, steps(16)
    share = [1 / p] * len(every)
    if by == "halving_doubling":
        share = [2.0 ** -(k + 1) for k in [*range(4), *reversed(range(4))]]
    want = sum(part * played([ways(4, 3e9, 1, a, b) for a, b in flows])
               for part, flows in zip(share, every, strict=True))  # fmt: skip
    for one in parts(system):
        (line,) = lines(one.across, op, ((p, 1),), p, by)
        assert line.per_byte == pytest.approx(want, rel=1e-6)
        assert all(word.startswith(("slim ", "wide ")) for word in line.full)
