"""Memory over time: the timeline against the closed form, an allocator's rules, what is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import SYSTEM
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans_drawn import MODELS, batches, names, plans

import oracle
from oracle.ask.explain.memory import peak
from oracle.commands.cli import main
from oracle.predict.allocation import timeline
from oracle.predict.estimate import Estimate
from oracle.predict.fragmentation import replayed, reserved
from oracle.spec.allocator import Allocator

BUILT = oracle.system(SYSTEM)
law = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
MIB = 2**20


def held(shown: Estimate, row: int = 0) -> float:
    """Bytes of all tensors at the worst moment, in closed form."""
    return float(shown.memory[row] - shown.memory_kinds["reserve"][row])


def agree(shown: Estimate) -> None:
    """The closed form is the most of the timeline; nothing is left over or freed twice.

    No stage needs more than the one that is said to need most.
    """
    stages = int(shown.work[0].plan.axis("pipeline").degree[0, 0])
    found = timeline(shown)
    assert found.total.max() == pytest.approx(held(shown), rel=1e-9)
    for kind, level in found.levels.items():
        assert level.min() >= -1e-6 * max(level.max(), 1.0)
        if kind in ("activations", "workspace"):
            assert level[-1] == pytest.approx(0, abs=1e-6 * found.total.max())
    assert (found.seconds[1:] >= found.seconds[:-1] - 1e-12).all()
    for stage in range(stages):
        assert timeline(shown, 0, stage).total.max() <= held(shown) * (1 + 1e-9)


@pytest.mark.slow
@law
@given(names, plans(), batches, st.sampled_from(["fp32", "bf16"]),
       st.sampled_from(["momentum", "adam", "kfac"]))  # fmt: skip
def test_the_most_of_a_timeline_is_the_closed_form(
    name: str, plan: str, batch: int, precision: str, optimizer: str
) -> None:
    optimizer = "adam" if name == "experts" and optimizer == "kfac" else optimizer
    asked = {"precision": precision, "optimizer": optimizer, "any_plan": True}
    shown = oracle.estimate(MODELS[name], BUILT, plan, batch, **asked)
    try:
        timeline(shown)
    except oracle.SpecError:  # turns that cannot be ordered: the plan says so too
        assert not shown.feasible[0]
        return
    agree(shown)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe-v"])
@pytest.mark.parametrize("again", ["none", "selective", "full", "operators"])
def test_every_schedule_with_every_kind_of_recomputation(schedule: str, again: str) -> None:
    chunks = 1 if schedule == "zb-h1" else 2
    plan = f"pipeline:2,segments=8,interleave={chunks},schedule={schedule} recompute:{again} data:2"
    model, software = ("resnet50", "plain") if schedule == "1f1b" else ("gpt2", "pytorch-ddp")
    agree(oracle.estimate(model, BUILT, plan, 32, software=software, any_plan=True))


@pytest.mark.parametrize(("plan", "batch"), [
    ("serial recompute:best", 64), ("pipeline:2,segments=4,schedule=gpipe recompute:best", 256),
])  # fmt: skip
def test_units_that_choose_are_played_as_they_chose(plan: str, batch: int) -> None:
    """The choice counts what the first unit that is made again was given beside who made it."""
    shown = oracle.estimate("gpt2", "dgx-a100-40gb", plan, batch, software="plain")
    assert set(shown.work[0].words) == {"keep", "recompute"}
    most = timeline(shown).total.max()
    assert held(shown) * 0.995 <= most <= held(shown) * (1 + 1e-9)
    assert timeline(shown).levels["activations"][-1] == pytest.approx(0, abs=1e-6 * most)


def test_activations_that_leave_for_a_while_are_refused() -> None:
    plan = "serial offload:activations recompute:best"
    shown = oracle.estimate("gpt2", "dgx-a100-40gb", [plan, plan], [64, 8], software="plain")
    assert "offload" in shown.work[0].words
    with pytest.raises(oracle.SpecError, match="leave the device for a while"):
        timeline(shown)
    assert timeline(shown, 1).total.max() == pytest.approx(held(shown, 1))  # where all has room
    agree(oracle.estimate(MODELS["experts"], BUILT, "offload:activations recompute:full", 16))


@pytest.mark.parametrize(("model", "plan", "batch"), [
    ("unet3d-kits19", "serial recompute:full", 2),
    ("unet3d-kits19", "pipeline:4,segments=8 recompute:full", 8),
    ("t5-xxl", "pipeline:4,segments=8,schedule=gpipe tensor:4 recompute:full", 32),
])  # fmt: skip
def test_skips_over_blocks_that_are_made_again(model: str, plan: str, batch: int) -> None:
    """A tensor that two blocks are given is there once; what waits for far stages is there too."""
    agree(oracle.estimate(model, BUILT, plan, batch, software="plain", any_plan=True))


def test_a_gradient_waits_where_a_tensor_is_read_twice() -> None:
    """Four numbers go through a branch of eight, and around it; fp32, one sample.

    While the wide row runs back: its two gradients, 4 + 8 numbers, and the 4 of what went around;
    and that of its weights, 4 · 8 numbers.
    """
    layers = [
        {"dense": {"filters": 4, "bias": False, "name": "first"}},
        {"dense": {"filters": 8, "bias": False, "name": "wide"}},
        {"dense": {"filters": 4, "bias": False, "name": "back"}},
        {"add": {"from": ["back", "first"], "name": "sum"}},
    ]  # fmt: skip
    model = {"name": "m", "source": "here", "input": [4], "layers": layers}
    found = timeline(oracle.estimate(model, BUILT, "serial", 1))
    there = []
    for event in range(len(found.slot)):
        alive = {t.what: t.nbytes for t, _ in found.alive(event)
                 if t.kind == "workspace" and t.layer == "wide"}  # fmt: skip
        there.append(sum(alive.values()))
    # what it makes, what waits, its weights'; its own is the row behind's
    assert max(there) == 4 * 4 + 4 * 4 + 4 * 4 * 8
    wide = max(found.level("workspace"))
    assert wide == 4 * (4 + 8) + 4 * 4 + 4 * 4 * 8


def test_a_stage_keeps_of_each_chunk_what_is_in_flight() -> None:
    """Rows of 1, 2, 4 and 8 thousand numbers in two stages of two chunks, GPipe: all are kept.

    fp32, four micro-batches of a sample; of the first row its input of 500 too, nobody wants the
    last row's output.
    """
    layers = [{"dense": {"filters": n, "bias": False}} for n in (1000, 2000, 4000, 8000)]
    model = {"name": "m", "source": "here", "input": [500], "layers": layers}
    shown = oracle.estimate(model, BUILT, "pipeline:2,segments=4,interleave=2,schedule=gpipe", 4)
    agree(shown)
    each = [timeline(shown, 0, stage).level("activations").max() for stage in (0, 1)]
    assert each == [4 * 4 * (500 + 1000 + 4000), 4 * 4 * 2000]


# --- an allocator's rules ----------------------------------------------------------------------


def blocks(*sizes: float, **rules: Any) -> tuple[float, float, float]:
    """What tensors of these bytes take; negative: the first of them goes."""
    events = [(abs(size), abs(size), size > 0) for size in sizes]
    found = replayed(events, Allocator(**rules))
    return found.tensors, found.reserved, found.pinned


@pytest.mark.parametrize(
    ("sizes", "tensors", "taken"),
    [
        ((1,), 512, 2 * MIB),  # the least block, from a small segment
        ((MIB,), MIB, 2 * MIB),
        ((MIB, MIB - 1), 2 * MIB, 2 * MIB),  # two of a segment
        ((MIB + 1,), MIB + 512, 20 * MIB),
        ((9 * MIB, 9 * MIB + 1), 18 * MIB + 512, 20 * MIB),
        ((11 * MIB,), 11 * MIB, 12 * MIB),  # one of its own, in steps of 2 MiB
        ((1, 9 * MIB), 9 * MIB + 512, 22 * MIB),
        ((16 * MIB, -16 * MIB, 12 * MIB), 16 * MIB, 16 * MIB),  # what is free is taken again
        ((16 * MIB, -16 * MIB, 12 * MIB, 5 * MIB), 17 * MIB, 36 * MIB),  # and its rest, but for
    ],
)  # fmt: skip
def test_blocks_and_segments(sizes: tuple[float, ...], tensors: int, taken: int) -> None:
    assert blocks(*sizes)[:2] == (tensors, taken)


def test_a_hole_is_too_small_for_what_comes() -> None:
    """12 MiB between two that stay are free, 14 are wanted: a segment more; not where it grows."""
    sizes = (12 * MIB, 14 * MIB, 16 * MIB, -12 * MIB, 13 * MIB)
    assert blocks(*sizes) == (43 * MIB, 12 * MIB + 14 * MIB + 16 * MIB + 14 * MIB, 44 * MIB)


def test_neighbours_that_are_free_are_joined() -> None:
    """Four of 4 MiB in a segment of 20: two that lie side by side hold one of 8 MiB."""
    four = [4 * MIB + 512 * i for i in range(4)]
    assert blocks(*four, -four[1], -four[2], 8 * MIB)[1] == 20 * MIB
    assert blocks(*four, -four[2], -four[1], 8 * MIB)[1] == 20 * MIB
    assert blocks(*four, -four[0], -four[2], 8 * MIB)[1] == 40 * MIB


def test_a_segment_that_grows_wastes_less() -> None:
    """Of ten tensors of 11 MiB each has a step of 2 MiB for itself, or all lie side by side."""
    sizes = [11 * MIB + 512 * i for i in range(10)]
    assert blocks(*sizes)[1] == 10 * 12 * MIB
    assert blocks(*sizes, expandable=True)[1] == 120 * MIB  # six pages of 20 MiB


@law
@given(st.lists(st.tuples(st.floats(1, 64 * MIB), st.integers(0, 6)), min_size=1, max_size=40),
       st.booleans())  # fmt: skip
def test_an_allocator_takes_no_less_than_is_wanted(
    tensors: list[tuple[float, int]], expandable: bool
) -> None:
    """Each tensor lives for a while; whatever comes, segments hold the blocks that are in use."""
    events: list[tuple[object, float, bool]] = []
    ends: list[tuple[int, int]] = []
    for number, (nbytes, life) in enumerate(tensors):
        events += [(k, 0.0, False) for end, k in ends if end == number]
        events.append((number, nbytes, True))
        ends.append((number + 1 + life, number))
    found = replayed(events, Allocator(expandable=expandable))
    assert max(nbytes for nbytes, _ in tensors) <= found.tensors
    assert found.tensors <= found.pinned <= found.reserved


def test_a_plan_leaves_few_holes() -> None:
    found = timeline(oracle.estimate("gpt2", BUILT, "data:2", 16))
    fixed, grown = reserved(found, Allocator()), reserved(found, Allocator(expandable=True))
    assert fixed.tensors == pytest.approx(found.total.max(), rel=1e-3)
    assert 0 <= grown.share <= fixed.share < 0.15


# --- what is said ------------------------------------------------------------------------------


def test_what_is_alive_adds_up() -> None:
    shown = oracle.estimate("gpt2", BUILT, "pipeline:2,segments=4 recompute:full", 16)
    found = peak(shown)
    for what in ("kind", "layer"):
        assert sum(found.by(what).values()) == pytest.approx(found.tensors)
    for kind, nbytes in found.by("kind").items():
        assert nbytes == pytest.approx(float(shown.memory_kinds[kind][0]))
    assert found.total == pytest.approx(float(shown.memory[0]))
    assert 0 <= found.seconds <= found.found.end
    assert all(hint.nbytes < found.total for hint in found.hints)


@pytest.mark.slow
def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", "--plan", "pipeline:2,segments=4", "lenet5", "abci", "--batch", "16",
             "--memory"]  # fmt: skip
    assert main(asked) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert "on stage 0 of 2" in first or "on stage 1 of 2" in first
    assert any(line.startswith("holes between tensors") for line in rest)
    assert max(map(len, rest)) <= 140
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["memory"]
    assert found["total"] == pytest.approx(found["tensors"] + found["reserve"])
    sizes = [one["bytes"] for one in found["alive"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == pytest.approx(found["tensors"])
    assert found["allocator"]["fixed"]["pinned"] >= found["allocator"]["fixed"]["tensors"]
    assert main([*asked, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("plan,stage,kind,layer,what,count,bytes")


@pytest.mark.parametrize(
    "words",
    [
        "explain --memory",
        "explain --memory gpt2 abci --batch 8",
        "explain --memory --roofline --plan data:2 gpt2 abci --batch 8",
        "explain --memory --ideal --plan data:2 lenet5 abci --batch 8",
        "explain --memory --plan pipeline:2,segments=3,interleave=2 lenet5 abci --batch 12",
        "explain --memory --plan data:1,accumulate=100000 lenet5 abci --batch 100000",
        "plot memory gpt2 abci --over-time --plan data:2 --plan data:4 --batch 8 -o x.svg",
        "plot memory gpt2 abci --over-time --batch 8 -o x.svg",
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_line(
    words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert "Traceback" not in out.err
    assert out.err.startswith("error")
    assert not list(tmp_path.iterdir())
