"""Which way a prediction moves when the machine, the batch or the plan grows."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from conftest import SYSTEM, TRANSFORMER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans_drawn import MODELS, batches, found, law, names, plans

import oracle
from oracle.network import nccl
from oracle.plan.cuts import even_cuts
from oracle.plan.plan import parse
from oracle.predict.workload import chooses


def changed(what: str, factor: float) -> Any:
    """The system with one physical property multiplied."""
    tree: Any = copy.deepcopy(SYSTEM)
    levels, device = tree["levels"], tree["device"]

    def scale(holder: Any, key: str) -> None:
        number, unit = holder[key].split()
        holder[key] = f"{float(number) * factor!r} {unit}"

    if what in ("latency", "bandwidth"):
        for level in levels:
            scale(level, what)
    elif what == "peak":
        for precision in device["peak"]:
            scale(device["peak"], precision)
    else:
        device.setdefault("launch", "5 us")
        scale(device, what)
    return oracle.system(tree)


FASTER = {
    (what, factor): changed(what, factor)
    for what, factors in {
        "latency": (0.9, 0.5, 0.01), "bandwidth": (1.1, 2, 50), "peak": (1.1, 2, 50),
        "memory_bandwidth": (1.1, 2, 50), "launch": (0.9, 0.5, 0.01),
    }.items()
    for factor in factors
}  # fmt: skip


def test_two_kinds_of_messages_do_not_hide_under_the_same_work() -> None:
    """Faster kernels leave less to hide under: an iteration must not get longer for them."""
    model = MODELS["experts"]
    for text, ideal in (("filter:2 context:3", False), ("tensor:2 context:3 filter:1", True)):
        before = found(model, text, 16, ideal=ideal)
        after = found(model, text, 16, system=FASTER["peak", 1.1], ideal=ideal)
        assert after.seconds[0] <= before.seconds[0] * (1 + 1e-9)


@pytest.mark.parametrize("card", ["NVIDIA", "no such"])
@pytest.mark.parametrize("text", ["data:8", "data:8,zero=3", "data:2 tensor:2"])
def test_what_hides_costs_what_it_hides_under_and_no_more_than_showing(
    text: str, card: str
) -> None:
    """A GPU's messages take processors and memory from its work; it pays to hide them all the
    same, and a faster network is never slower for it.
    """
    model = MODELS[TRANSFORMER["name"]]
    tree = copy.deepcopy(SYSTEM)
    tree["device"]["library"] = "nccl" if card == "NVIDIA" else ""
    times = []
    for factor in (1, 1.1, 4, 1000):
        for level, was in zip(tree["levels"], SYSTEM["levels"], strict=True):
            number, unit = was["bandwidth"].split()
            level["bandwidth"] = f"{float(number) * factor!r} {unit}"
        system = oracle.system(tree)
        beside = found(model, text, 64, system=system)
        apart = found(model, shown(text), 64, system=system)
        assert beside.seconds[0] <= apart.seconds[0] * (1 + 1e-9)
        times.append(float(beside.seconds[0]))
    assert times == sorted(times, reverse=True)
    cost = nccl.slowdown(oracle.system(tree))
    assert (cost > 0) == (card == "NVIDIA")


def shown(text: str) -> str:
    """The same plan with every overlap forbidden."""
    return " ".join(
        f"{axis},overlap=off" if axis.split(":")[0] in ("data", "tensor", "context") else axis
        for axis in text.split()
    )


def cut_alike(name: str, text: str) -> bool:
    """Whether stages are dealt the same whatever they take."""
    model, pipeline = MODELS[name], parse(text, 64).axis("pipeline")
    chunks = int(pipeline.degree[0, 0] * pipeline.interleave[0, 0])
    return chunks == 1 or (not pipeline.cuts[0, 0] and even_cuts(model, chunks) is not None)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(names, plans(), batches, st.sampled_from(sorted(FASTER)), st.booleans())
def test_a_better_machine_is_never_slower(
    name: str, text: str, batch: int, what: tuple[str, float], ideal: bool
) -> None:
    before = found(MODELS[name], text, batch, ideal=ideal)
    after = found(MODELS[name], text, batch, system=FASTER[what], ideal=ideal)
    assert after.seconds[0] <= before.seconds[0] * (1 + 1e-9), what
    if cut_alike(name, text):
        assert after.memory[0] == before.memory[0]


@law
@given(names, plans(), st.integers(1, 200), st.integers(1, 5))
def test_more_samples_are_never_faster_nor_leaner(
    name: str, text: str, batch: int, times: int
) -> None:
    both = found(MODELS[name], [text, text], [batch, batch * times])
    assert both.seconds[1] >= both.seconds[0] * (1 - 1e-9)
    if cut_alike(name, text):
        assert both.memory[1] >= both.memory[0] * (1 - 1e-9)


@law
@given(st.sampled_from([1, 2, 4]), st.sampled_from([2, 4, 8]), batches,
       st.sampled_from(["fp32", "bf16"]), st.sampled_from(["sgd", "momentum", "adam"]),
       st.sampled_from(["llama2-7b", "small-transformer"]))  # fmt: skip
def test_sharding_more_holds_less(
    tensor: int, data: int, batch: int, precision: str, optimizer: str, name: str
) -> None:
    model = MODELS[name] if name in MODELS else oracle.model(name)
    held = found(
        model, [f"data:{data},zero={z} tensor:{tensor}" for z in range(4)], batch,
        precision=precision, optimizer=optimizer,
    )  # fmt: skip
    kinds = held.memory_kinds
    assert (np.diff(held.memory[:3]) <= 0).all()
    assert (np.diff(kinds["optimizer"]) <= 0).all()
    assert (np.diff(kinds["gradients"]) <= 0).all()
    # stage 3 gathers what it uses: two units at a time, which a small stack must make up for
    gathered = kinds["buffers"][3] * 2
    assert held.memory[3] <= held.memory[2] + gathered
    if name == "llama2-7b":
        assert held.memory[3] <= held.memory[2]


@law
@given(names, plans(), batches)
def test_making_again_saves_memory_and_costs_time(name: str, text: str, batch: int) -> None:
    bare = " ".join(word for word in text.split() if not word.startswith("recompute")) or "serial"
    bare = "" if bare == "serial" else bare
    modes = [f"{bare} recompute:{mode}".strip() for mode in ("none", "selective", "full")]
    none, selective, full = (found(MODELS[name], mode, batch) for mode in modes)
    assert full.seconds[0] >= none.seconds[0]
    assert selective.seconds[0] >= none.seconds[0] * (1 - 1e-12)
    assert selective.memory[0] <= none.memory[0] * (1 + 1e-12)
    # a stage of a single block keeps what it was given, and makes all the rest at once
    if name in ("small-transformer", "experts") and "pipeline" not in text:
        assert full.memory_kinds["activations"][0] <= none.memory_kinds["activations"][0]
        assert full.seconds[0] >= selective.seconds[0]


@law
@given(names, st.sampled_from([2, 3, 4, 8]), st.sampled_from([2, 3, 4]), batches)
def test_more_replicas_never_hold_more(name: str, few: int, times: int, batch: int) -> None:
    held = found(MODELS[name], [f"data:{few}", f"data:{few * times}"], batch).memory
    assert held[1] <= held[0]


@law
@given(names, st.sampled_from([1, 2, 4, 16]), st.sampled_from([2, 4, 8]))
def test_equal_shares_compute_alike(name: str, share: int, p: int) -> None:
    """Data parallelism at p·b samples has the kernels of one device at b samples."""
    both = found(MODELS[name], ["serial", f"data:{p}"], [share, share * p])
    for part in ("forward", "backward", "update"):
        assert both.compute[part][0] == pytest.approx(both.compute[part][1], rel=1e-12)


@law
@given(names, plans(), batches, st.floats(1e8, 1e12))
def test_a_memory_limit_only_rules_out(name: str, text: str, batch: int, limit: float) -> None:
    free, bound = found(MODELS[name], text, batch), found(MODELS[name], text, batch,
                                                          max_memory=limit)  # fmt: skip
    if chooses(parse(text, batch)).any():  # units keep what there is room for
        assert bound.seconds >= free.seconds * (1 - 1e-9)
    else:
        assert bound.seconds == free.seconds
        assert bound.memory == free.memory
    short = any(words.startswith("needs ") for words in bound.broken[0])
    assert short == bool(bound.memory[0] > limit)
    assert bound.feasible[0] == (not bound.broken[0])


@law
@given(names, batches, st.integers(1, 10**7))
def test_an_epoch_is_its_iterations(name: str, batch: int, samples: int) -> None:
    data = {"name": "d", "source": "x", "samples": samples}
    result = found(MODELS[name], "data:2", batch, dataset=data)
    assert result.epoch is not None
    assert result.iterations is not None
    assert result.epoch[0] == pytest.approx(result.seconds[0] * samples / batch)
    assert result.iterations[0] == math.ceil(samples / batch)
