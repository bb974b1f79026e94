"""Out of core: passes against a simulation and by hand, choices against all others, messages."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from benchmarks.memories.optimal import best, chain, every, kinds, seconds
from oracle.commands.cli import main
from oracle.models.instances import instances
from oracle.models.model import model as build
from oracle.network.host import START
from oracle.plan.out_of_core import Chain, play, resident
from oracle.plan.unit_choice import chosen, of_alike
from oracle.plan.unit_search import guesses

SYSTEM = "dgx-a100-40gb"
RANDOM = st.integers(0, 10**6)


def alike(units: int, forward: float, backward: float, copy: float, room: float) -> Chain:
    one, any_ = np.ones((1, units)), np.ones((1, units), bool)

    def column(value: float) -> Any:
        return np.array([[value]])

    return Chain(forward * one, backward * one, one, 0 * one, 0 * one, forward * one, any_, any_,
                 column(room), column(1.0), column(copy), column(copy), column(np.inf),
                 column(0.0))  # fmt: skip


@given(st.integers(3, 12), st.integers(1, 8), st.floats(0.2, 4.0), st.floats(1.0, 3.0))
def test_whole_units_take_what_was_published(units: int, room: int, x: float, B: float) -> None:
    """f_i = max(f_{i-1}, o_{i-W}) + F, o_i = max(o_{i-1}, f_i) + x, and back likewise."""
    W, F = min(room, units), 1.0
    away = np.arange(units)[None] < units - W  # the last stay
    taken = play(alike(units, F, B, x, W), away, away & False, whole_units=True)
    f, o = {-1: 0.0}, dict.fromkeys(range(-units, 0), 0.0)
    for i in range(units):
        f[i] = max(f[i - 1], o[i - W]) + F
        o[i] = max(o[i - 1], f[i]) + x if away[0, i] else o[i - 1]
    assert taken.forward[0] == pytest.approx(max(f[units - 1], o[units - 1]))
    b, n = {units: 0.0}, {units: 0.0}
    for i in reversed(range(units)):
        n[i] = max(n[i + 1], b[min(i + W, units)]) + x if away[0, i] else 0.0
        b[i] = max(b[i + 1], n[i]) + B
    assert taken.backward[0] == pytest.approx(b[0])


def simulated(one: Chain, away: Any, again: Any, steps: int = 1500) -> float:
    """Both passes in small steps of time: each engine goes on as far as it can."""
    units = one.forward.shape[1]
    stays, leaves = (part[0] for part in resident(one, away, again))
    flight, room = float(one.flight[0, 0]), float(one.room[0, 0])
    others = (flight - 1) * stays.sum()
    dt = float(one.forward.sum() + one.backward.sum()) / steps
    time = left = 0.0
    for i in range(units):
        ready = leaves[:i].sum()
        work = float(one.forward[0, i])
        while work > 0:
            there = others + stays[: i + 1].sum() + leaves[: i + 1].sum() - left
            if there <= room * (1 + 1e-9):
                work -= dt
            left, time = min(ready, left + dt / one.out[0, 0]), time + dt
    while left < leaves.sum() - 1e-12:
        left, time = left + dt / one.out[0, 0], time + dt
    come, total, ahead = 0.0, leaves.sum(), float(one.ahead[0, 0])
    for i in reversed(range(units)):
        work = float(one.backward[0, i] + again[0, i] * one.remake[0, i])
        caps = [room - others - stays[: j + 1].sum() - one.work[0, j] - again[0, j] * one.kept[0, j]
                + leaves[j + 1 :].sum() for j in range(i + 1)]  # fmt: skip
        most = min([*caps, total - leaves[: max(i - int(min(ahead, units)), 0)].sum()])
        while work > 0:
            if come >= leaves[i:].sum() * (1 - 1e-9):
                work -= dt
            come = max(come, min(max(most, leaves[i:].sum()), come + dt / one.back[0, 0], total))
            time += dt
    return time


@pytest.mark.parametrize("seed", range(3))
def test_passes_against_a_simulation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = chain(rng, 6, False)
    picked = chosen(one)
    if play(one, *picked).fits[0]:
        assert play(one, *picked).seconds[0] == pytest.approx(simulated(one, *picked), rel=0.01)


@settings(max_examples=12)
@given(RANDOM, st.booleans())
def test_a_choice_is_as_good_as_any(seed: int, like: bool) -> None:
    """Of all ways of up to five units; of alike units tenths of a percent off at most."""
    rng = np.random.default_rng(seed)
    for one in kinds(chain(rng, int(rng.integers(3, 6)), like)):
        least, mine = best(one), seconds(one, of_alike if like else chosen)[0]
        assert mine >= least * (1 - 1e-9) or np.isinf(least)
        assert mine <= least * (1.01 if like else 1 + 1e-6) or np.isinf(least)


def test_branch_and_bound_is_brute_force() -> None:
    """What the benchmark holds choices against is the least of all ways that there are."""
    rng = np.random.default_rng(3)
    for number in range(12):
        one = kinds(chain(rng, 2 + number % 4, number % 2 == 0))[number % 3]
        taken = play(one, *every(one, one.forward.shape[1]))
        least = np.where(taken.fits, taken.seconds, np.inf).min()
        assert best(one) == least


def test_an_input_that_is_sent_out_gives_room_for_what_is_made_again() -> None:
    """Three units of 10 bytes, made again from 4: inputs alone are 12, and room is for 13.

    While the last runs back there are 10 and its input; the others' inputs must be away.
    """
    one = replace(alike(3, 1.0, 2.0, 0.1, 14.0), kept=np.full((1, 3), 10.0),
                  given=np.full((1, 3), 4.0))  # fmt: skip
    stays = np.array([[False, False, False]])
    assert not play(one, stays, ~stays).fits[0]
    both = play(one, ~stays, ~stays)
    assert both.fits[0]
    assert both.away[0] == 12
    assert both.again[0] == 3
    assert both.most[0] == 14


def test_tensors_of_rows_by_hand() -> None:
    """A norm wants what the convolution made, the next convolution what the relu made, and the relu
    that too; a block's input is read once more by the sum, which wants nothing.
    """
    conv = {"conv": {"filters": 8, "kernel": 3, "padding": 1, "bias": False}}
    what = build({"name": "one", "source": "made for this test", "input": [8, 32, 32], "layers": [
        conv, "norm", "relu",
        {"repeat": 1, "layers": [conv, {"norm": {"name": "branch"}},
                                 {"add": {"from": ["branch", "block"]}}, "relu"]},
        {"pool": {"kernel": "global", "op": "mean"}}, "flatten", {"dense": 4}, "loss",
    ]})  # fmt: skip
    found = instances(what)
    kinds_ = [what.rows[row].kind for row in found.row.tolist()]
    assert kinds_[:7] == ["conv", "norm", "activation", "conv", "norm", "add", "activation"]
    assert found.last[:7].tolist() == [1, -1, 3, 4, -1, -1, 6]
    assert found.first[:7].tolist() == [1, -1, 2, 4, -1, -1, 6]
    assert found.read[:7].tolist() == [1, 2, 5, 4, 5, 6, 7]
    assert found.last[kinds_.index("pool")] == kinds_.index("dense")  # past what only flattens
    assert (found.made[:7] == 8 * 32 * 32).all()


@pytest.mark.parametrize("way", ["offload:activations", "offload:activations recompute:best"])
def test_units_without_room_are_taken_apart(way: str) -> None:
    """A block of ResNet-50 keeps 16 GB of 1,260 pictures: rows have room on 16 GB, units have not.

    One tensor of 4 GB, its gradient and that of what it was made from are 12 GB: on 12 GB nothing
    fits.
    """
    system = replace(oracle.system(SYSTEM), host=replace(oracle.system(SYSTEM).host, memory=1e12))
    kept = []
    for room, fits in ((17.0e9, True), (12.0e9, False)):
        found = oracle.estimate("resnet50", system, f"serial {way}", batch=1260, any_plan=True,
                                precision="fp32", max_memory=room)  # fmt: skip
        (work,) = found.work
        choice = work.block.choice
        assert bool(found.feasible[0]) == fits
        assert ("parts" in work.words) == fits
        kept.append(choice.chain.kept.sum())
        if fits:
            assert (choice.played.most <= choice.chain.room[:, 0] * (1 + 1e-9)).all()
            assert found.work[0].block.choice.unit.max() == len(work.words) - 1
    assert kept[0] == pytest.approx(kept[1])  # parts keep what units do, each tensor once


@settings(max_examples=30)
@given(RANDOM)
def test_more_room_or_a_faster_link_is_never_slower(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = chain(rng, 8, False)
    picked = guesses(one)[0]
    now = play(one, *picked)
    for more in (replace(one, room=1.2 * one.room), replace(one, out=0.8 * one.out),
                 replace(one, back=0.8 * one.back), replace(one, ahead=one.ahead + 1)):  # fmt: skip
        assert play(more, *picked).seconds[0] <= now.seconds[0] * (1 + 1e-9)
    least = float(one.forward.sum() + one.backward.sum() + now.again[0])
    assert now.seconds[0] >= least * (1 - 1e-9)
    slow = play(replace(one, managed=one.managed + 1), *picked)
    assert slow.seconds[0] >= now.seconds[0] * (1 - 1e-9)


def asked(model: str, plan: str | list[str], batch: int, **more: Any) -> Any:
    return oracle.estimate(model, SYSTEM, plan, batch=batch, any_plan=True, **more)


def words(found: Any, row: int = 0) -> str:
    return "".join(word[0] for word in found.work[row].words)


def test_copies_of_activations_by_hand() -> None:
    """Of five blocks of GPT-2, each of as many bytes, out and in over a link of 25 GB/s."""
    found = asked("gpt2", "data:4 offload:activations", 240)
    count = words(found).count("o")
    (work,) = found.work
    each = work.block.choice.chain.kept[0, 1]
    sent = {one["what"]: one for one in found.exchange[0]}
    for name in ("offload: activations out", "offload: activations in"):
        one = sent[name]
        assert one["calls"] == count > 0
        assert one["bytes"] == pytest.approx(each)
        assert one["seconds"] == pytest.approx(count * (each / 25e9 + START), rel=0.02)
        assert 0 < one["exposed"] < one["seconds"]
    assert work.block.held.beside[0] == pytest.approx(count * each)
    (here,) = asked("gpt2", "data:4", 240).memory_kinds["activations"]
    assert found.memory_kinds["activations"][0] < here
    assert found.feasible[0]


@pytest.mark.parametrize("model", ["gpt2", "resnet50"])
def test_the_best_of_both_is_no_slower_than_either(model: str) -> None:
    batch = {"gpt2": 240, "resnet50": 2400}[model]
    plans = [f"data:4{more}" for more in (
        "", " recompute:full", " recompute:best", " offload:activations",
        " offload:activations recompute:best")]  # fmt: skip
    found = asked(model, plans, batch)
    none, full, again, copies, both = found.seconds
    assert found.feasible.tolist() == [False, True, True, True, True]
    assert none < both <= min(again, copies) * (1 + 1e-9)
    assert again <= full * (1 + 1e-9)
    small = asked(model, plans, batch // 8)
    assert small.seconds[[2, 4]] == pytest.approx(small.seconds[0])
    assert set(words(small, 4)) == {"k"}


def test_prefetching_less_and_page_faults_take_longer() -> None:
    plans = [f"serial offload:activations{more}" for more in (
        "", ",prefetch=2", ",prefetch=1", ",how=managed", ",to=disk")]  # fmt: skip
    found = asked("gpt2", plans, 60)
    free, two, one, faults, disk = found.seconds
    assert free <= two * (1 + 1e-9)
    assert two <= one * (1 + 1e-9)
    assert one < faults
    assert free < disk


def test_a_stage_that_is_made_again_keeps_what_it_was_given() -> None:
    """Of each micro-batch in flight |x| of the first block; and one whole while it runs back."""
    pipeline = "pipeline:4,segments=8,schedule=gpipe"
    kinds = [asked("gpt2-xl", f"{pipeline}{more}", 64).memory_kinds["activations"][0]
             for more in ("", " recompute:stage")]  # fmt: skip
    none, stage = kinds
    assert stage < none / 4
    found = asked("gpt2-xl", [pipeline, f"{pipeline} recompute:stage"], 64)
    ahead, again = found.compute["forward"][1], found.compute["recompute"][1]
    assert again == pytest.approx(ahead, rel=0.05)
    assert found.seconds[1] > found.seconds[0]


def test_each_stage_makes_as_much_again_as_it_must() -> None:
    """1F1B keeps most on the first stage: it makes most again."""
    found = asked("gpt2-xl", "pipeline:4,segments=16 recompute:best", 512)
    said, cuts = words(found), found.work[0].cuts
    each = [said[begin:end].count("r") for begin, end in pairwise(cuts)]
    assert each == sorted(each, reverse=True)
    assert each[0] > 0
    full = asked("gpt2-xl", "pipeline:4,segments=16 recompute:full", 512)
    assert found.seconds[0] < full.seconds[0]


@pytest.mark.parametrize(("plan", "said"), [
    ("data:8 offload:optimizer,how=managed", "of activations, which stay here"),
    ("data:8 offload:activations,update=device", "nothing is updated elsewhere"),
    ("data:8 recompute:stage offload:activations", "nothing is left"),
])  # fmt: skip
def test_plans_that_mean_nothing_are_not_feasible(plan: str, said: str) -> None:
    assert said in " ".join(asked("gpt2", plan, 64).broken[0])


@pytest.mark.parametrize(("form", "plan", "wanted"), [
    ("megatron", "data:4 recompute:best",
     ("--recompute-granularity full", "--recompute-method block", "--recompute-num-layers")),
    ("deepspeed", "data:4,zero=1 recompute:full offload:activations", ('"cpu_checkpointing"',)),
])  # fmt: skip
def test_launchers_are_told(
    form: str, plan: str, wanted: tuple[str, ...], capsys: Any, tmp_path: Any
) -> None:
    line = ["export", form, "gpt2", SYSTEM, "--batch", "240", "--plan", plan, "-o",
            str(tmp_path / "job")]  # fmt: skip
    assert main(line) == 0, capsys.readouterr().err
    text = "".join(path.read_text() for path in (tmp_path / "job").iterdir())
    assert all(word in text for word in wanted)


def test_it_is_searched_where_nothing_fits(capsys: Any) -> None:
    """What does not fit without is recommended with activations on the host, and what it costs."""
    line = ["recommend", "gpt2-xl", SYSTEM, "--devices", "1", "--batch", "8", "--json",
            "--software", "plain", "--max-memory", "28GB"]  # fmt: skip
    assert main(line) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert any("offload" in plan["plan"] for plan in plans)


def test_blocks_are_renewed_while_others_run_back() -> None:
    """Over two nodes: what is left of either copy is a block's share of it, and gradients too."""
    plans = [f"data:16 offload:optimizer{more}" for more in ("", ",update=blocks")]
    found = asked("gpt2-xl", plans, 64)
    plain, piped = ({one["what"]: one for one in found.exchange[row]} for row in (0, 1))
    for name in ("update on the host", "weights back"):
        one, other = plain[f"offload: {name}"], piped[f"offload: {name}, by blocks"]
        assert other["seconds"] == pytest.approx(one["seconds"], rel=0.05)
        assert 0 < other["exposed"] < one["exposed"]
    assert found.seconds[1] < found.seconds[0]
    assert found.memory[0] == pytest.approx(found.memory[1])
