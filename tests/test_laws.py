"""What must hold whatever the numbers are, over every strategy there is."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from conftest import CONVOLUTIONS, SYSTEM, TRANSFORMER
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plans_drawn import BUILT, MODELS, batches, found, law, names, numbers, plans

import oracle
from oracle.models import masks
from oracle.models.model import Model
from oracle.plan.cuts import even_cuts, ways_to_cut
from oracle.plan.partition import balanced_cuts
from oracle.plan.plan import Plan, join, parse
from oracle.plan.stages import Stages
from oracle.plan.strategies import Strategy, strategies
from oracle.predict import evaluate
from oracle.predict.columns import PARTS
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate
from oracle.spec.doubt import NINETY

# --- strategies ------------------------------------------------------------------------------


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("new", strategies().values(), ids=lambda new: new.name)
def test_degree_one_changes_nothing(new: type[Strategy], name: str, ideal: bool) -> None:
    model, serial = MODELS[name], found(MODELS[name], "serial", ideal=ideal)
    words = [
        (f.name, number)
        for f in fields(new)[1 if new.degrees else 2 :]  # past the degree, or the word for one
        for number in range(len(f.metadata.get("words", ())))
    ]
    for knobs in ({}, *({name: number} for name, number in words)):
        one = Plan.of(64, new(**({"degree": 1} if new.degrees else {}), **knobs))
        same = found(model, one, ideal=ideal)
        assert same.seconds == serial.seconds, knobs
        assert same.memory == serial.memory, knobs
        assert same.exchange == serial.exchange == ((),)


SPLITTING = [cls for cls in strategies().values() if cls.degrees and cls.multiplies]
SPLITS = [
    pytest.param(strategy, name, p, id=f"{strategy.name}-{name}-{p}")
    for strategy, name, p in itertools.product(SPLITTING, MODELS, (2, 4))
    if (np.asarray(strategy(degree=np.array([[float(p)]])).limit(MODELS[name], 64.0)) >= p).all()
]


@pytest.mark.parametrize(("new", "name", "p"), SPLITS)
def test_devices_together_do_the_work_of_one(new: type[Strategy], name: str, p: int) -> None:
    """But for rows that are declared to stay whole: everybody does all of those."""
    model, batch = MODELS[name], 64.0
    axis = new(degree=np.array([[float(p)]]))
    plan = Plan.of(batch, axis)
    shard = evaluate.split(model, plan, options_for(model, BUILT, "fp32", "sgd"))
    share = np.broadcast_to(shard.batch / batch * shard.work, (1, len(model)))[0]
    if new.name == "pipeline":
        dealt = even_cuts(model, p)
        edges = balanced_cuts(np.ones((1, len(model))) @ model.units[0].T, p)[0]
        stages = Stages.of(model, p, 1, edges if dealt is None else dealt)
        assert (stages.total(np.eye(len(model))).sum(axis=1) == model.repeat).all()
        share = share / p
    whole = set(axis.whole(model)) if new.name != "spatial" else set()
    if new.name == "spatial":  # from the split point on rows are whole, wherever that is
        cut = np.broadcast_to(plan.axis("spatial").cut(shard), (1, len(model)))[0]
        whole = {row.name for row, inside in zip(model.rows, cut, strict=True) if not inside}
    for row, work, mac in zip(model.rows, share, model.mac, strict=True):
        if mac:
            expected = 1.0 if row.name in whole else 1 / p
            assert work == pytest.approx(expected, rel=1e-12), row.name


@pytest.mark.parametrize(("new", "name", "p"), SPLITS)
def test_weights_are_replicated_or_cut(new: type[Strategy], name: str, p: int) -> None:
    """An axis that joins the gradient exchange holds all weights; any other one holds 1/p."""
    model = MODELS[name]
    axis = new(degree=np.array([[float(p)]]))
    shard = evaluate.split(model, Plan.of(64.0, axis), options_for(model, BUILT, "fp32", "sgd"))
    held = np.broadcast_to(shard.w, (1, len(model)))[0]
    if new.name in shard.replicas or new.name in ("sharded", "pipeline"):
        copies = masks.borrowed(model) if new.name == "pipeline" else 0
        assert (held == model.w + copies).all()
    else:
        cut = held < model.w
        assert cut.any()
        assert held[cut] == pytest.approx(model.w[cut] / p)
        assert (held[~cut] == model.w[~cut]).all()


@law
@given(names, plans(), batches)
def test_no_axis_makes_anything_out_of_nothing(name: str, text: str, batch: int) -> None:
    """A device never holds or does more than the serial job; all hold the weights at least once."""
    model = MODELS[name]
    plan = parse(text, batch)
    shard = evaluate.split(model, plan, options_for(model, BUILT, "fp32", "sgd"))
    most = model.w + masks.borrowed(model)
    for part, whole in ((shard.w, most), (shard.x, model.x), (shard.y, model.y),
                        (shard.channels, model.channels), (shard.filters, model.filters),
                        (shard.kept, model.kept), (shard.batch, batch)):  # fmt: skip
        assert (part <= np.asarray(whole) * (1 + 1e-12)).all()
        assert (np.asarray(part) >= 0).all()
    owners = float(plan.devices[0, 0]) * float(plan.axis("expert").degree[0, 0])
    assert (shard.w * owners >= model.w * (1 - 1e-12)).all()


# --- one path --------------------------------------------------------------------------------


@law
@given(names, st.lists(st.tuples(plans(), batches), min_size=2, max_size=7), st.booleans())
def test_plans_together_are_plans_alone(
    name: str, asked: list[tuple[str, int]], ideal: bool
) -> None:
    model = MODELS[name]
    texts, sizes = zip(*asked, strict=True)
    together = found(model, texts, sizes, ideal=ideal)
    for row, (text, size) in enumerate(asked):
        same_as_alone(together, row, found(model, text, size, ideal=ideal))


def same_as_alone(together: oracle.Estimate, row: int, alone: oracle.Estimate) -> None:
    near = {"rel": 1e-12, "abs": 1e-15}
    assert together.plans[row] == alone.plans[0]
    assert together.seconds[row] == pytest.approx(alone.seconds[0], **near)
    assert together.memory[row] == pytest.approx(alone.memory[0], **near)
    assert together.feasible[row] == alone.feasible[0]
    if "pipeline" in alone.plans[0]:
        return  # of two stages equally slow either may stand for both
    assert together.deviation[row] == pytest.approx(alone.deviation[0], **near)
    for part in PARTS:
        assert together.compute[part][row] == pytest.approx(alone.compute[part][0], **near)
    many, one = together.exchange[row], alone.exchange[0]
    assert [m["what"] for m in many] == [m["what"] for m in one]
    for ours, theirs in zip(many, one, strict=True):
        assert ours["op"] == theirs["op"]
        assert ours["seconds"] == pytest.approx(theirs["seconds"], **near)
        assert ours["exposed"] == pytest.approx(theirs["exposed"], **near)
        assert ours["bytes"] == pytest.approx(theirs["bytes"], **near)


@st.composite
def tables(draw: st.DrawFn) -> Plan:
    """A table in one nesting whose rows differ in everything that a row may differ in."""
    rows = draw(st.integers(2, 8))

    def column(values: list[float]) -> Any:
        return np.array([draw(st.sampled_from(values)) for _ in range(rows)])

    axes = []
    for cls in strategies().values():
        columns: dict[str, Any] = {"degree": column([1, 1, 1, 2, 4])} if cls.degrees else {}
        for f in fields(cls):
            if f.metadata.get("words"):
                columns[f.name] = column(list(range(len(f.metadata["words"]))))
        if cls.name == "pipeline":
            columns |= {"segments": column([1, 2, 4]), "interleave": column([1, 1, 2])}
        if cls.name == "expert":
            columns["degree"] = np.ones(rows)
        axes.append(cls(**columns))
    return Plan.of(column([32, 64, 100]), *axes)


@law
@given(names, tables(), st.booleans())
def test_a_table_is_its_rows(name: str, table: Plan, ideal: bool) -> None:
    model, options = MODELS[name], options_for(MODELS[name], BUILT, "fp16", "adam", ideal)
    together = estimate(model, BUILT, table, 64, options)
    for row in range(len(table)):
        same_as_alone(together, row, estimate(model, BUILT, table[[row]], 64, options))


@law
@given(names, st.lists(plans(), min_size=2, max_size=5, unique=True), st.randoms())
def test_the_order_of_plans_is_nothing(name: str, texts: list[str], rng: Any) -> None:
    shuffled = list(range(len(texts)))
    rng.shuffle(shuffled)
    one = found(MODELS[name], texts)
    other = found(MODELS[name], [texts[i] for i in shuffled])
    assert np.allclose(one.seconds[shuffled], other.seconds, rtol=1e-12, atol=0)


def test_tables_longer_than_a_block_are_their_rows(monkeypatch: Any) -> None:
    model = MODELS["unequal"]
    table = join([parse(f"data:{d} filter:{f}", 64) for d in (1, 2, 4) for f in (1, 2, 4, 8)])
    options = options_for(model, BUILT, "fp32", "sgd")
    whole = estimate(model, BUILT, table, 64, options).seconds
    monkeypatch.setattr(evaluate, "BLOCK", 5)
    parts = estimate(model, BUILT, table, 64, options).seconds
    assert np.allclose(parts, whole, rtol=1e-12, atol=0)


# --- numbers ---------------------------------------------------------------------------------


@law
@given(names, plans(), batches, st.sampled_from(["fp32", "fp16", "bf16", "fp8", "tf32"]),
       st.sampled_from(["sgd", "momentum", "adam", "lars", "lamb"]), st.booleans())  # fmt: skip
def test_every_number_is_one(
    name: str, text: str, batch: int, precision: str, optimizer: str, ideal: bool
) -> None:
    result = found(MODELS[name], text, batch, precision=precision, optimizer=optimizer, ideal=ideal)
    every = numbers(result.to_dict())
    assert all(math.isfinite(n) and n >= 0 for n in every)
    assert result.seconds[0] > 0
    assert result.memory[0] > 0
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()


@law
@given(names, plans(), batches, st.booleans())
def test_the_interval_holds_the_prediction(name: str, text: str, batch: int, ideal: bool) -> None:
    result = found(MODELS[name], text, batch, ideal=ideal)
    assert result.seconds_low[0] <= result.seconds[0] <= result.seconds_high[0]
    if not ideal:  # nothing is known exactly
        assert result.seconds_high[0] > result.seconds_low[0]
        down, up = result.deviation[0], np.hypot(result.deviation[0], result.more[0])
        assert np.log(result.seconds_high / result.seconds_low)[0] == pytest.approx(
            NINETY * (down + up) / result.seconds[0]
        )


@law
@given(names, plans(), batches, st.booleans())
def test_the_parts_make_the_whole(name: str, text: str, batch: int, ideal: bool) -> None:
    result = found(MODELS[name], text, batch, ideal=ideal)
    total = sum(result.compute[part][0] for part in PARTS)
    total += sum(message["exposed"] for message in result.exchange[0])
    if ideal and "pipeline" in text:
        return  # eq. 12 takes the slowest stage of each pass by itself
    assert total == pytest.approx(result.seconds[0], rel=1e-9)


@law
@given(names, plans(), batches)
def test_nothing_is_exposed_that_was_not_sent(name: str, text: str, batch: int) -> None:
    for message in found(MODELS[name], text, batch).exchange[0]:
        assert message["exposed"] <= message["seconds"] * (1 + 1e-9), message
        assert message["phi"] >= 1 - 1e-9 or parse(text, batch).devices > BUILT.devices
        assert message["group"] > 1 or message["op"] == "copy"  # over a device's own link


@law
@given(names, batches)
def test_one_device_talks_to_nobody(name: str, batch: int) -> None:
    assert found(MODELS[name], "serial", batch).exchange == ((),)


@law
@given(names, plans(), batches)
def test_nothing_is_faster_than_the_peak(name: str, text: str, batch: int) -> None:
    """Kernels at their local shape take at least their FLOP over the datasheet's rate."""
    model = MODELS[name]
    real, ideal = (found(model, text, batch, ideal=way) for way in (False, True))
    if "pipeline" in text:
        return
    for part in ("forward", "backward"):
        assert real.compute[part][0] >= ideal.compute[part][0] * (1 - 1e-9)


# --- specs -----------------------------------------------------------------------------------

REWRITTEN = {
    "50 GB/s": ["400 Gbit/s", "50000 MB/s", "0.05 TB/s", "5e10 B/s"],
    "12 GB/s": ["96 Gbit/s", "12e9 B/s", "12000 MB/s"],
    "3 us": ["3000 ns", "0.003 ms", "3e-6 s"],
    "7 us": ["7 µs", "7000 ns"],
    "9 us": ["9 μs", "0.009 ms"],
    "64 GiB": ["65536 MiB", "68719476736 B"],
    "900 GB/s": ["0.9 TB/s", "7200 Gbit/s"],
    "15 TFLOP/s": ["15000 GFLOP/s", "0.015 PFLOP/s"],
    "120 TFLOP/s": ["0.12 PFLOP/s", "1.2e14 FLOP/s"],
}


@law
@given(names, plans(), batches, st.randoms(use_true_random=False))
def test_another_way_to_write_a_system_changes_nothing(
    name: str, text: str, batch: int, rng: Any
) -> None:
    tree: Any = json.loads(json.dumps(SYSTEM))
    holders = [tree["device"], tree["device"]["peak"], *tree["levels"]]
    for holder in holders:
        for key, value in holder.items():
            if isinstance(value, str) and value in REWRITTEN:
                holder[key] = rng.choice(REWRITTEN[value])
    tree["name"] = tree["device"]["name"] = "renamed"
    tree = {key: tree[key] for key in rng.sample(sorted(tree), len(tree))}
    one, other = found(MODELS[name], text, batch), found(MODELS[name], text, batch,
                                                         system=oracle.system(tree))  # fmt: skip
    assert other.seconds == pytest.approx(one.seconds, rel=1e-13)
    assert other.memory == pytest.approx(one.memory, rel=1e-13)


PLAIN = oracle.model(CONVOLUTIONS)


@law
@given(plans(), batches, st.booleans())
def test_names_of_layers_are_nothing(text: str, batch: int, ideal: bool) -> None:
    one = found(MODELS["unequal"], text, batch, ideal=ideal)
    other = found(PLAIN, text, batch, ideal=ideal)
    assert other.seconds == one.seconds
    assert other.memory == one.memory


BLOCK = [
    {"conv": {"filters": 32, "kernel": 3, "padding": 1, "name": "c"}}, {"norm": "batch"}, "relu",
    {"conv": {"filters": 32, "kernel": 1, "name": "d"}}, {"add": {"from": ["d", "block"]}}, "relu",
]  # fmt: skip


def stacked(times: int, folded: bool) -> Model:
    """The same stack, as a repeated block or written out copy by copy."""
    head = [{"conv": {"filters": 32, "kernel": 3, "padding": 1}}, "relu"]
    tail = [{"pool": {"kernel": "global", "op": "mean"}}, "flatten", {"dense": 10}]
    once: Any = [{"layers": copy.deepcopy(BLOCK)} for _ in range(times)]
    body: Any = [{"repeat": times, "layers": BLOCK}] if folded else once
    return oracle.model({"name": "stack", "source": "x", "input": [3, 32, 32],
                         "layers": [*head, *body, *tail]})  # fmt: skip


STACKS = {(n, folded): stacked(n, folded) for n in (2, 3, 7) for folded in (True, False)}


@law
@given(plans(), batches, st.sampled_from([2, 3, 7]), st.booleans())
def test_a_repeated_block_is_its_copies(text: str, batch: int, times: int, ideal: bool) -> None:
    """Folding rows saves time and changes nothing."""
    assume("recompute" not in text and "cuts=even" not in text)  # which go by blocks
    assume(not ("spatial" in text and "pipeline" in text))  # whose split point is one copy's
    text = " ".join(
        word + (",cuts=balanced" if word.startswith("pipeline") and "cuts" not in word else "")
        for word in text.split()
    )
    one, other = (
        found(STACKS[times, folded], text, batch, ideal=ideal) for folded in (True, False)
    )
    assert one.model.parameters == other.model.parameters
    assert one.model.flop == other.model.flop
    assert one.seconds == pytest.approx(other.seconds, rel=1e-9)
    assert one.memory == pytest.approx(other.memory, rel=1e-9)


# --- stages ----------------------------------------------------------------------------------


def fullest(load: list[float], cuts: Any) -> float:
    return max(sum(load[a:b]) for a, b in itertools.pairwise(cuts))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=9), st.integers(2, 5))
def test_the_fullest_stage_is_the_least_there_is(load: list[float], parts: int) -> None:
    assume(parts <= len(load))
    cuts = balanced_cuts(np.array([load]), parts)[0]
    assert cuts[0] == 0
    assert cuts[-1] == len(load)
    assert (np.diff(cuts) >= 1).all()
    best = min(
        fullest(load, (0, *inner, len(load)))
        for inner in itertools.combinations(range(1, len(load)), parts - 1)
    )
    assert fullest(load, cuts) == pytest.approx(best, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 50)), min_size=2, max_size=9),
       st.integers(2, 5))  # fmt: skip
def test_the_fullest_stage_with_its_borders_is_the_least_there_is(
    units: list[tuple[float, float]], parts: int
) -> None:
    assume(parts <= len(units))
    load, across = [one for one, _ in units], [0.0, *(other for _, other in units[1:]), 0.0]

    def taken(cuts: Any) -> float:
        return max(sum(load[a:b]) + across[a] + across[b] for a, b in itertools.pairwise(cuts))

    cuts = balanced_cuts(np.array([load]), parts, np.array([across[1:-1]]))[0]
    assert cuts[0] == 0
    assert cuts[-1] == len(load)
    assert (np.diff(cuts) >= 1).all()
    best = min(
        taken((0, *inner, len(load)))
        for inner in itertools.combinations(range(1, len(load)), parts - 1)
    )
    assert taken(cuts) == pytest.approx(best, rel=1e-9)


@law
@given(names, st.sampled_from([2, 3, 4, 8]), st.sampled_from([1, 2]), st.booleans())
def test_every_unit_sits_on_one_stage(name: str, p: int, v: int, even: bool) -> None:
    model = MODELS[name]
    assume(p * v <= len(model.units[1]))
    dealt = even_cuts(model, p * v) if even else None
    if dealt is None:
        dealt = balanced_cuts(np.ones((1, len(model))) @ model.units[0].T, p * v)[0]
    stages = Stages.of(model, p, v, dealt)
    held = stages.total(np.ones((1, len(model))))
    assert held.sum() == model.repeat.sum()
    assert (stages.total(np.eye(len(model))).sum(axis=1) == model.repeat).all()
    assert (np.diff(stages.cuts(0)) >= 1).all()


def test_equal_blocks_are_dealt_evenly() -> None:
    model = MODELS["small-transformer"]
    for chunks in (2, 4, 8):
        cuts = even_cuts(model, chunks)
        assert cuts is not None
        counts = model.units[0]
        folded = counts @ model.folded > 0
        shares = [folded[a:b].sum() for a, b in itertools.pairwise(cuts)]
        assert shares == [8 // chunks] * chunks
    assert even_cuts(model, 16) is None


# --- activations -----------------------------------------------------------------------------


def activations(layers: int, plan: str, batch: int) -> float:
    spec = {"name": "t", "source": "x", "transformer": {**TRANSFORMER["transformer"],
                                                        "layers": layers}}  # fmt: skip
    return float(
        found(oracle.model(spec), plan, batch, precision="fp16").memory_kinds["activations"][0]
    )


@law
@given(st.sampled_from([1, 2, 5]))
def test_a_layer_keeps_34_sbh(batch: int) -> None:
    """[korthikanti2022], eqs. 1, 4 and 6: 34 sbh + 5 a s² b a layer; cut by t; 34 sbh / t."""
    s, h, a = 256, 512, 8
    sbh = s * batch * h

    def layer(plan: str, samples: int = batch) -> float:
        return (activations(8, plan, samples) - activations(4, plan, samples)) / 4

    assert layer("serial") == pytest.approx(sbh * (34 + 5 * a * s / h))
    assert layer("recompute:selective") == pytest.approx(sbh * 34)
    for t in (2, 4):
        assert layer(f"tensor:{t}") == pytest.approx(sbh * (10 + 24 / t + 5 * a * s / (h * t)))
        on = f"tensor:{t},sequence=on"
        assert layer(on) == pytest.approx(sbh / t * (34 + 5 * a * s / h))
        assert layer(f"{on} recompute:selective") == pytest.approx(sbh / t * 34)
    assert layer("recompute:full") == pytest.approx(2 * sbh, rel=1e-9)


# --- same in, same out -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_question_has_the_same_answer_whatever_the_hash_seed() -> None:
    lines = [
        ["recommend", "resnet50", "abci", "--devices", "64", "--batch", "4096", "--json"],
        ["recommend", "mixtral-8x7b", "dgx-h100", "--devices", "64", "--batch", "64", "--json"],
    ]
    for line in lines:
        answers = set()
        for seed in ("0", "1", "4242"):
            done = subprocess.run(
                [sys.executable, "-m", "oracle", *line], capture_output=True, check=False,
                env={**os.environ, "PYTHONHASHSEED": seed}, timeout=120,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            answers.add(done.stdout)
        assert len(answers) == 1, line


def test_ways_to_cut_hold_all_units_and_are_few() -> None:
    for model in (oracle.model("resnet50"), oracle.model("alexnet"), *MODELS.values()):
        units = len(model.units[1])
        for p, v, vee in ((2, 1, False), (3, 1, False), (2, 2, False), (2, 2, True), (8, 1, False)):
            if p * v > units:
                continue
            ways = ways_to_cut(model, p, v, vee)
            assert 1 <= len(ways) == len(set(ways)) <= 9
            for edges in ways:
                assert (edges[0], edges[-1], len(edges)) == (0, units, p * v + 1)
                assert (np.diff(edges) >= 1).all()


def test_a_pipeline_is_cut_the_way_in_which_it_is_fastest() -> None:
    """Each plan for itself, whatever table it is in, and as fast as any of the ways."""
    model, system = oracle.model("resnet50"), oracle.system("abci")
    plans = [f"pipeline:4,segments={segments} data:{data}" for segments in (2, 32)
             for data in (1, 16)]  # fmt: skip
    whole = oracle.estimate(model, system, plans, 256)
    options = options_for(model, system)
    for row, text in enumerate(plans):
        tried = [
            estimate(model, system, text, 256, replace(options, edges=edges))
            for edges in ways_to_cut(model, 4, 1, False)
        ]
        best = min(tried, key=lambda one: one.seconds[0])
        assert whole.seconds[row] == pytest.approx(best.seconds[0], rel=1e-12)
        assert whole.memory[row] == pytest.approx(best.memory[0], rel=1e-12)


def test_what_follows_the_last_block_is_cut_off_at_most_once() -> None:
    """Launchers put the head behind one edge; more chunks than pieces must be somewhere."""
    for name, last_block in (("qwen3-30b-a3b", 49), ("deepseek-v3", 65), ("nemotron-h-8b", 25)):
        model = oracle.model(name)
        for p, v in ((2, 1), (8, 2), (2, 12)):
            for edges in ways_to_cut(model, p, v, False):
                assert sum(edge >= last_block for edge in edges[1:-1]) <= 1, (name, edges)
    units = len(model.units[1])
    assert ways_to_cut(model, units, 1, False) == (tuple(range(units + 1)),)
